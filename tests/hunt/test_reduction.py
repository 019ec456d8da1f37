"""The reduction of a group, over a reducer that runs nothing: the files that it leaves, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.exit_codes import UsageError
from runner.hunt import evidence
from runner.hunt.evidence import Share, reduce_group
from runner.hunt.groups import CASE, REDUCED, SCRIPT, Ledger, Reduction, folder_of, groups_of, read_ledger
from runner.session.settings import RunSettings
from runner.verdict.signature import signature_of
from tests.handmade import environment, finding, variants, written
from tests.hunt.samples import A, red, round_of, state_of

DRAWN = "cases:\n  - name: case_0\n    inputs: {x: [4]}\n    chain: [F.relu, torch.sin]\n"


@pytest.fixture
def reduce(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Reduction]:
    """Reduce the group of one red result; the reducer gives a case of one relu, with these changes."""

    class Engine:
        environment = environment()

        @classmethod
        def of(cls, settings: RunSettings, variant: Any, slots: int) -> Engine:
            assert slots == 2
            return cls()

        def __enter__(self) -> Engine:
            return self

        def __exit__(self, *about: object) -> None: ...

    def run(ledger: Ledger | None = None, error: Exception | None = None, **changes: Any) -> Reduction:
        (tmp_path / "small").mkdir(exist_ok=True)
        [small] = variants(tmp_path / "small", "")
        sizes = {"size_before": SimpleNamespace(operators=2), "size_after": SimpleNamespace(operators=1, elements=4)}
        values = {
            "variant": small, "text": "cases: []\n", "findings": (finding(stage=None),), "signature": signature_of(finding()), **sizes,
            "complete": True, "confirmed": True, "interrupted": False, "notes": ("alone it passes",), **changes,
        }  # fmt: skip

        def reduce_variant(engine: Engine, budget: float, tick: Callable[[str], None]) -> Any:
            assert budget == 50.0
            tick("1 operators")
            if error:
                raise error
            return SimpleNamespace(**values)

        monkeypatch.setattr(evidence, "VariantEngine", Engine)
        monkeypatch.setattr(evidence, "reduce_variant", reduce_variant)
        [group] = groups_of(state_of(round_of(0, red(A))))
        return reduce_group(tmp_path, RunSettings(), ledger or Ledger(), group, Share(50.0, 2), lambda: None)

    own = folder_of(tmp_path, A)
    own.mkdir(parents=True)
    (own / CASE).write_text(DRAWN, encoding="utf-8")
    return run


def test_the_smaller_case_and_its_script_are_kept(reduce: Callable[..., Reduction], tmp_path: Path) -> None:
    result = reduce()
    assert (result.reduction, result.problem, result.before, result.after, result.elements, result.complete) == (
        A,
        "",
        2,
        1,
        4,
        True,
    )
    assert len(result.case) == 8 and result.known == ""
    own = folder_of(tmp_path, A)
    assert (own / REDUCED).read_text(encoding="utf-8") == "cases: []\n"
    compile((own / SCRIPT).read_text(encoding="utf-8"), SCRIPT, "exec")


def test_a_ledger_may_explain_the_smaller_case(reduce: Callable[..., Reduction], tmp_path: Path) -> None:
    entry = "cases:\n  - name: a\n    inputs: {x: [4]}\n    chain: [F.relu]\n    known: [{stage: inductor, oracle: [value], reason: r}]\n"
    ledger = read_ledger([str(written(tmp_path, entry, "ledger.spec.yaml"))], RunSettings().limits())
    assert reduce(ledger).known.endswith("ledger.spec.yaml:5")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"confirmed": False}, "in a process of its own no case fails alike: alone it passes"),
        ({"error": UsageError("it does not fail: PASS")}, "it does not fail: PASS"),
    ],
)
def test_a_failure_that_does_not_show_again_is_a_problem(
    changes: dict[str, Any], problem: str, reduce: Callable[..., Reduction], tmp_path: Path
) -> None:
    assert reduce(**changes).problem == problem
    assert [path.name for path in folder_of(tmp_path, A).iterdir()] == [CASE]


def test_a_case_that_somebody_changed_or_removed_is_a_problem(reduce: Callable[..., Reduction], tmp_path: Path) -> None:
    path = folder_of(tmp_path, A) / CASE
    path.write_text(DRAWN.replace("case_0", "case_1"), encoding="utf-8")
    assert reduce().problem == "its case has changed"
    path.unlink()
    assert reduce().problem == "its case is gone"


def test_a_reduction_that_does_not_end_is_a_problem(
    reduce: Callable[..., Reduction], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "GRACE", -51.0)
    assert reduce().problem == "it takes longer than 50.0s"


def test_an_interrupted_reduction_does_not_count(reduce: Callable[..., Reduction]) -> None:
    with pytest.raises(KeyboardInterrupt):
        reduce(interrupted=True)
