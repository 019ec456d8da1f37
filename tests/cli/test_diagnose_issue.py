"""The command's own parts: refusing, reducing, running the script alone."""

from __future__ import annotations

import contextlib
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.cli import diagnose
from runner.cli.reduce import Earlier
from runner.diagnose.bug_report import Check
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.harness import Progress
from runner.diagnose.kept import INTERRUPTED, OUT_OF_TIME, OutOfTime
from runner.exit_codes import UsageError
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
        assert budget == 0.0 if memory else 0.3 < budget <= diagnose.REDUCING
        return reduced(text=text, confirmed=confirmed)(engine)

    monkeypatch.setattr("runner.reduce.reducer.reduce_variant", reduce)
    diagnosis = Diagnosis("a", "2.13.0", "FAIL", findings=(finding(),))
    made = diagnose._reduce(Namespace(reduce=True, budget=1.0), ENGINE, tmp_path, Progress(), diagnosis)
    assert made[1:] == (
        ("smallest:", "Reduced by a machine (7 changes).") if taken else ("cases:", "Reduced by a machine (2 changes).")
    )
    assert ("taken over from runner why" in capsys.readouterr().err) == taken


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (None, "no captured graph of it fails alike"),
        (UsageError("capture: died\nof SIGSEGV"), "its graphs cannot be recorded: capture: died of SIGSEGV"),
    ],
)
def test_the_python_of_a_model_is_the_last_resort(
    problem: Exception | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing_graph(*arguments: Any) -> None:
        if problem is not None:
            raise problem

    monkeypatch.setattr("runner.graphs.stand_in.failing_graph", failing_graph)
    monkeypatch.setattr(diagnose.VariantEngine, "of", lambda *words, **slots: contextlib.nullcontext())
    monkeypatch.setattr(diagnose, "script", lambda *words: "# own: value at output\nclass Own: ...\n")
    variant: Any = SimpleNamespace(device="cpu")
    event: Any = SimpleNamespace(findings=(finding(),))
    text = diagnose._script_of_a_model(Namespace(imports=None), variant, event)
    assert text == f"# own: value at output\n# This is the Python of the model: {reason}.\nclass Own: ...\n"


@pytest.mark.parametrize(
    ("stopped", "message"),
    [("", ""), (OUT_OF_TIME, "runner: the time was up: the report has what is known of the cause"), (INTERRUPTED, "")],
)
def test_a_diagnosis_that_is_stopped_leaves_what_is_known(
    stopped: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    budgets: list[float] = []

    def blame(engine: Any, say: Callable[[str], None], budget: float) -> Diagnosis:
        budgets.append(budget)
        return Diagnosis("a", "2.13.0", "FAIL", findings=(finding(),), stopped=stopped)

    monkeypatch.setattr(diagnose, "find_blame", blame)
    monkeypatch.setattr(diagnose, "render", lambda diagnosis, words: "what is known")
    assert diagnose._blame(ENGINE, time.monotonic() + 100, Progress(), []).stopped == stopped
    output = capsys.readouterr()
    assert output.err.startswith(message) and bool(output.err) == bool(message)
    assert output.out == ("what is known\n" if stopped == INTERRUPTED else "")
    assert budgets[0] <= diagnose.BISECTING * 100


def test_the_budget_of_a_report_ends_its_verdict_and_its_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    say = diagnose._until(time.monotonic() - 1, Progress())
    with pytest.raises(OutOfTime):
        say("running it")
    engine: Any = SimpleNamespace(environment=SimpleNamespace(torch="2.13.0"), verdict=lambda tick: tick())
    with pytest.raises(UsageError, match="no verdict within 2m 00s: give it more --budget"):
        diagnose._verdict(engine, say, 120.0)
    monkeypatch.setattr(diagnose, "LEAST", 0.0)
    monkeypatch.setattr(diagnose, "find_blame", lambda engine, say, budget: say("the stages"))
    with pytest.raises(UsageError, match="no verdict of the reduced case in time"):
        diagnose._blame(ENGINE, time.monotonic() - 1, Progress(), [])
