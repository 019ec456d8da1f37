"""The command's own parts: refusing, reducing, running the script alone."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.cli import diagnose
from runner.cli.reduce import Earlier
from runner.diagnose.bug_report import Check
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.harness import Progress
from tests.handmade import finding

ENGINE: Any = SimpleNamespace(variant=SimpleNamespace(case=SimpleNamespace(module=None)))


def test_a_refusal_says_which_rule_why_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    code = diagnose._refuse(
        [Check(True, "3 lines", rule="short"), Check(False, "exit status 0", "run it", "alone")], Progress()
    )
    output = capsys.readouterr()
    assert code == 1 and output.out == ""
    assert output.err == (
        "no report: 1 of 2 rules for reports not met\n  not met: alone\n    why:   exit status 0\n    to do: run it\n"
    )


def reduced(**changes: Any) -> Any:
    values = {"variant": "small", "text": "cases:", "steps": (1, 2), "complete": True, "interrupted": False, **changes}
    return lambda engine, **options: SimpleNamespace(**values)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [({}, "Reduced by a machine (2 changes)."), ({"steps": ()}, ""), ({"complete": False}, "Reduced by a machine (2 changes; there was no time to take away more).")],
)  # fmt: skip
def test_what_reducing_came_to_is_said(
    changes: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runner.reduce.reducer.reduce_variant", reduced(**changes))
    arguments = Namespace(reduce=True, budget=1.0)
    assert diagnose._reduce(arguments, ENGINE, tmp_path, Progress()) == ("small", "cases:", sentence)


def test_an_interrupted_reduction_makes_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.reduce.reducer.reduce_variant", reduced(interrupted=True))
    with pytest.raises(KeyboardInterrupt):
        diagnose._reduce(Namespace(reduce=True, budget=1.0), ENGINE, tmp_path, Progress())


@pytest.mark.parametrize(("confirmed", "taken"), [(True, True), (False, False)])
def test_what_why_reduced_counts_only_where_it_fails_alike_again(
    confirmed: bool, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(diagnose, "earlier_reduction", lambda engine, signature: Earlier("smallest:", 7))

    def reduce(engine: Any, *, budget: float, memory: Any = None, **options: Any) -> SimpleNamespace:
        text = memory.best if memory else "cases:"
        assert budget == 0.0 if memory else 0.9 < budget <= 1.0
        return reduced(text=text, confirmed=confirmed)(engine)

    monkeypatch.setattr("runner.reduce.reducer.reduce_variant", reduce)
    diagnosis = Diagnosis("a", "2.13.0", "FAIL", findings=(finding(),))
    made = diagnose._reduce(Namespace(reduce=True, budget=1.0), ENGINE, tmp_path, Progress(), diagnosis)
    assert made[1:] == (
        ("smallest:", "Reduced by a machine (7 changes).") if taken else ("cases:", "Reduced by a machine (2 changes).")
    )
    assert ("taken over from runner why" in capsys.readouterr().err) == taken
