"""The report of a group, over an engine that runs nothing: the file, what it says of rules, and what ends it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cases.model import Step, Variant
from runner.diagnose.diagnosis import Culprit, Diagnosis
from runner.exit_codes import UsageError
from runner.hunt import evidence
from runner.hunt.evidence import Share, cause_of, report_group
from runner.hunt.groups import CASE, REDUCED, REPORT, Group, Reduction, Report, folder_of, groups_of
from runner.session.settings import RunSettings
from tests.handmade import environment, variants
from tests.hunt.samples import A, red, round_of, state_of
from tests.report.pictures import crash, diagnosis, material

DRAWN = "cases:\n  - name: case_0\n    inputs: {x: [4]}\n    chain: [F.relu, torch.sin]\n"
SMALL = "cases:\n  - name: case_0\n    inputs: {x: [4]}\n    chain: [F.relu]\n"


@pytest.fixture
def group() -> Group:
    """A group whose case was reduced from two operators to one."""
    reduction = Reduction(A, 1.0, before=2, after=1, complete=True)
    return groups_of(state_of(round_of(0, red(A)), reductions=(reduction,)))[0]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, group: Group) -> Callable[..., Report]:
    """Report the group. ``found`` is its diagnosis; ``more`` changes the material, ``error`` ends the gathering."""

    class Engine:
        environment = environment()

        def __init__(self, variant: Variant) -> None:
            self.variant = variant

        @classmethod
        def of(cls, settings: RunSettings, variant: Variant, slots: int) -> Engine:
            assert slots == 2
            return cls(variant)

        def __enter__(self) -> Engine:
            return self

        def __exit__(self, *about: object) -> None: ...

    def run(
        answer: Diagnosis | None = None,
        error: BaseException | None = None,
        budget: float = 50.0,
        tick: Callable[[], None] = lambda: None,
        **fields: Any,
    ) -> Report:
        def find_blame(engine: Engine, say: Callable[[str], None]) -> Diagnosis:
            assert [step.operator for step in engine.variant.case.chain] == ["F.relu"], "the reduced case"  # type: ignore[union-attr]
            say("the ladder")
            return answer or diagnosis()

        def gather(engine: Engine, diagnosis: Diagnosis, yaml: str, say: Callable[[str], None]) -> Any:
            time.sleep(0.01)
            say("running the script alone")
            if error:
                raise error
            return replace(material(engine.variant, diagnosis.findings, **fields), yaml=yaml)

        monkeypatch.setattr(evidence, "VariantEngine", Engine)
        monkeypatch.setattr(evidence, "find_blame", find_blame)
        monkeypatch.setattr(evidence, "gather", gather)
        return report_group(tmp_path, RunSettings(), group, Share(budget, 2, 2), tick)

    own = folder_of(tmp_path, A)
    own.mkdir(parents=True)
    (own / CASE).write_text(DRAWN, encoding="utf-8")
    (own / REDUCED).write_text(SMALL, encoding="utf-8")
    return run


def test_a_report_that_keeps_all_rules_is_ready(write: Callable[..., Report], tmp_path: Path) -> None:
    report = write()
    assert (report.report, report.problem, report.unmet) == (A, "", 0)
    assert report.culprit == "inductor, subsystem lowerings, the 3rd application: relu" and len(report.cause) == 8
    text = (folder_of(tmp_path, A) / REPORT).read_text(encoding="utf-8")
    assert text.startswith("# [inductor] F.relu: torch.compile gives wrong values\n")
    assert "Reduced by a machine (from 2 operators to 1)." in text.replace("\\", "") and SMALL.rstrip() in text


def test_a_draft_says_at_its_top_which_rules_are_not_met(write: Callable[..., Report], tmp_path: Path) -> None:
    assert write(fresh_findings=((), ())).unmet == 1
    head, _, text = (folder_of(tmp_path, A) / REPORT).read_text(encoding="utf-8").partition("\n\n")
    assert head.startswith("> **A draft**: 1 of 14 rules for reports are not met.")
    assert "> * not met: fails every time, in fresh processes, in the same way; why: 0 of 2 runs" in head
    assert "; to do: find what it depends on" in head and text.startswith("# [inductor]")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"answer": diagnosis(verdict="PASS", reason="")}, "the verdict of the reduced case is PASS: "),
        ({"error": UsageError("environment: it died")}, "environment: it died"),
        ({"budget": 0.005}, "it takes longer than 0.01s"),
    ],
)
def test_without_a_report_there_is_a_problem(
    changes: dict[str, Any], problem: str, write: Callable[..., Report], tmp_path: Path
) -> None:
    report = write(**changes)
    assert report.problem == problem.strip() and not report.cause
    assert not (folder_of(tmp_path, A) / REPORT).exists()


@pytest.mark.parametrize("name", [CASE, REDUCED])
def test_a_case_that_somebody_removed_is_a_problem(name: str, write: Callable[..., Report], tmp_path: Path) -> None:
    (folder_of(tmp_path, A) / name).unlink()
    assert write().problem


def test_a_tick_ends_a_report(write: Callable[..., Report], tmp_path: Path) -> None:
    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tick=end)
    assert not (folder_of(tmp_path, A) / REPORT).exists()


def test_a_cause_is_an_application_and_the_operators_at_one_stage(group: Group, tmp_path: Path) -> None:
    [relu], [sine] = variants(tmp_path, ""), variants(tmp_path, "", "b.spec.yaml")
    [step] = [step for step in sine.case.chain if isinstance(step, Step)]
    sine = replace(sine, case=replace(sine.case, chain=(replace(step, operator="torch.sin"),)))

    def cause(variant: Variant, *findings: Any, **culprit: Any) -> str:
        values = {
            "backend": "inductor",
            "subsystem": "lowerings",
            "number": 2,
            "name": "relu_1",
            "operator": "aten.relu.default",
        }
        return cause_of(group, variant, diagnosis(*findings, culprit=Culprit(**{**values, **culprit})))

    first = cause(relu)
    assert first and first == cause(relu, number=5, name="relu_7"), "a number differs from case to case"
    causes = [cause(sine), cause(relu, subsystem="post_grad_passes"), cause(relu, operator="aten.relu_.default")]
    assert first not in causes and all(causes) and len(set(causes)) == 3
    assert cause(relu, subsystem=None) == cause(relu, name=None) == "", "a whole backend may have several bugs"
    assert cause(relu, crash()) == "", "another failure than the group's"
    assert cause_of(group, relu, diagnosis(culprit=None)) == ""
