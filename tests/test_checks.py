"""``runner.check``: a model in hand becomes a case that runs in a process of its own, or else runs in this one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import runner
from runner import checks
from runner.exit_codes import UsageError
from runner.session.collect import load

PLANTED = "runner.worker.planted:wrong_element"
X = torch.randn(4, 8)


def model() -> torch.nn.Module:
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.BatchNorm1d(8))


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    yield
    torch.compiler.reset()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add_one(graph: Any, inputs: Any) -> Callable[..., Any]:
    return lambda *args: tuple(out + 1 for out in graph(*args))


# --- in processes of its own ------------------------------------------------------------------


@pytest.mark.slow
def test_a_planted_bug_is_red_with_its_case_and_its_script(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = model()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    verdict = runner.check(own, X, backend=PLANTED)
    assert (verdict.verdict, bool(verdict), [f.oracle for f in verdict.findings]) == ("FAIL", False, ["value"])
    printed = capsys.readouterr().out
    assert printed == verdict.text + "\n"
    first, *block = verdict.text.split("\n")
    assert first.startswith("   FAIL [") and f"::sequential[float32,cpu]@{PLANTED} - value at output: " in first
    assert block[-1].startswith("  reproduce: runner run ")
    with pytest.raises(runner.Disagreement, match="value at output"):
        verdict.raise_if_red()
    assert all(torch.equal(own.state_dict()[name], value) for name, value in before.items())
    path = Path(verdict.results[0].file)
    assert verdict.case() == path.read_text() and not load([str(path)]).errors
    script = subprocess.run(
        [sys.executable, "-c", verdict.repro()], cwd=here, capture_output=True, text=True, timeout=300
    )
    assert script.returncode == 1 and "AssertionError: Tensor-likes are not close!" in script.stderr


@pytest.mark.slow
def test_a_model_that_agrees_is_true(here: Path) -> None:
    verdict = runner.check(model(), X, backend="aot_eager")
    assert verdict and verdict.raise_if_red() is verdict and verdict.notes == ()
    assert verdict.text.startswith("   PASS [") and "\n" not in verdict.text
    (event,) = verdict.results
    assert event.compared["gradients"] == 4 and "wrong" not in verdict.repro()


def test_what_cannot_be_written_is_a_note(here: Path) -> None:
    def asserting(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async(x.sum() < 1e9)
        return x.sin()

    files, notes, obstacle = checks._record(checks._Call(asserting, [X], {}))
    assert len(files) == 1 and not obstacle and "Tensor.sin" in files[0].read_text()
    assert len(notes) == 1 and notes[0].startswith("left out: torch._assert_async: ")
    assert checks._few([f"note {number}" for number in range(7)])[4:] == ["note 4", "and 2 more notes"]


def test_several_graphs_have_the_worst_verdict() -> None:
    def event(verdict: str, severity: str | None = None) -> Any:
        return type("Event", (), {"verdict": verdict, "severity": severity})()

    order = [
        event("SKIP"),
        event("PASS"),
        event("FAIL", "capture"),
        event("ERROR", "crash"),
        event("FAIL", "wrong-result"),
    ]
    words = [checks._worst(order[: count + 1]).verdict for count in range(len(order))]
    assert words == ["SKIP", "PASS", "FAIL", "ERROR", "FAIL"]


# --- in this process --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "word"), [("aot_eager", "VACUOUS"), (lambda graph, inputs: graph.forward, "VACUOUS")]
)
def test_without_a_graph_nothing_is_shown(here: Path, backend: Any, word: str) -> None:
    verdict = runner.check(lambda x: [1], X, backend=backend)
    assert (verdict.verdict, bool(verdict)) == (word, False) and "no graph was compiled" in verdict.text
    with pytest.raises(runner.Disagreement):
        verdict.raise_if_red()
    for ask in (verdict.case, verdict.repro):
        with pytest.raises(ValueError, match="there is no case: compared in this process"):
            ask()


def test_a_backend_of_this_process_is_compared_here(capsys: pytest.CaptureFixture[str]) -> None:
    own = model()
    before = own[2].running_mean.clone()
    verdict = runner.check(own, X, backend=add_one)
    assert (verdict.verdict, [f.oracle for f in verdict.findings]) == ("FAIL", ["value"])
    assert "Sequential@add_one - compared in this process, outputs alone: the backend is a function" in verdict.text
    assert capsys.readouterr().out == verdict.text + "\n"
    assert torch.equal(own[2].running_mean, before)
    assert runner.check(own, X, backend=lambda graph, inputs: graph.forward)


def test_random_numbers_are_those_of_one_seed_and_the_generator_stays() -> None:
    state = torch.get_rng_state()
    dropout = torch.nn.Dropout(0.5)
    assert runner.check(dropout, X, backend=lambda graph, inputs: graph.forward)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_backend_that_raises_is_an_error() -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise ZeroDivisionError("no code")

    verdict = runner.check(torch.sin, X, backend=broken)
    assert (verdict.verdict, verdict.findings[0].oracle) == ("ERROR", "runtime-error")
    assert "no code" in verdict.text


def test_what_the_model_raises_in_eager_is_raised(here: Path) -> None:
    def own(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    for backend in ("aot_eager", add_one):
        with pytest.raises(KeyError, match="mine"):
            runner.check(own, X, backend=backend)


def test_keywords_go_to_the_model() -> None:
    def scaled(x: torch.Tensor, *, factor: float) -> torch.Tensor:
        return x * factor

    assert runner.check(scaled, X, factor=2.0, backend=lambda graph, inputs: graph.forward)


def test_an_unknown_backend_is_an_error_of_the_call(here: Path) -> None:
    with pytest.raises(UsageError, match="no such backend"):
        runner.check(torch.sin, X, backend="inductr")


def test_a_value_without_a_copy_is_taken_as_it_is() -> None:
    middle = torch.ones(3, requires_grad=True) * 2  # no leaf
    assert checks._copied(middle) is middle and checks._copied(X) is not X
