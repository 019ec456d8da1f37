"""The graphs of a backend with planted faults are cut: the guilty calls are named, whatever the kind of failure."""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import worker_jobs
from worker_jobs import run, source

from runner.worker.tasks import copies
from runner.worker.tasks.cut import run_cut, smallest

CHAIN = source(
    "x = torch.sin(x)\nx = torch.relu(x)\nx = x.t()\nx = torch.exp(x)\nx = x * 2\nx = torch.tanh(x)\nx = x + 1\nreturn x"
)


def names(graph: torch.fx.GraphModule) -> list[str]:
    return [getattr(node.target, "__name__", str(node.target)) for node in graph.graph.nodes]


def wrong_tanh(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    for node in graph.graph.nodes:
        node.target = torch.sigmoid if node.target is torch.tanh else node.target
    graph.recompile()
    return graph.forward


def dense_transpose(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """What it gives is contiguous where a transpose was asked for."""
    if "t" not in names(graph):
        return graph.forward
    return lambda *values: tuple(value.contiguous() for value in graph(*values))


def no_exp(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    if "exp" in names(graph):
        raise NotImplementedError("no exp")
    return graph.forward


def dead_by_exp(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    def forward(*values: Any) -> Any:
        faulthandler.disable()
        os.abort()

    return forward if "exp" in names(graph) else graph.forward


def stuck_in_relu(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    if "relu" in names(graph):
        time.sleep(60)
    return graph.forward


def wrong_pair(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """As a fusion of exp with a product that goes wrong: neither is wrong alone."""
    if {"exp", "mul"} <= {*names(graph)}:
        return lambda *values: tuple(value + 1 for value in graph(*values))
    return graph.forward


def wrong_three(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """Three calls are wrong where one graph holds them all."""
    if {"sin", "cos", "exp"} <= {*names(graph)}:
        return lambda *values: tuple(value + 1 for value in graph(*values))
    return graph.forward


def hidden_by_parts(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """The whole graph is refused for one reason, and each part of it for another one."""
    raise NotImplementedError("whole" if len(names(graph)) > 8 else "part")


def hidden_at_times(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """It has no exp, and refuses graphs that begin with a sine and hold no exp for another reason."""
    if "exp" in names(graph):
        raise NotImplementedError("no exp")
    if "sin" in names(graph):
        raise NotImplementedError("a sine")
    return graph.forward


def slightly_wrong_tanh(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """An error that is no gross one: whether it is rounding only a float64 run can tell."""
    if "tanh" not in names(graph):
        return graph.forward
    return lambda *values: tuple(value + 1e-3 for value in graph(*values))


def wrong_tanh_by_far(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    for node in graph.graph.nodes:
        node.target = torch.erfc if node.target is torch.tanh else node.target
    graph.recompile()
    return graph.forward


def wrong_twice(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
    """Two calls are wrong, each alone."""
    for node in graph.graph.nodes:
        node.target = {torch.tanh: torch.sigmoid, torch.exp: torch.cos}.get(node.target, node.target)
    graph.recompile()
    return graph.forward


BRANCHES = source(
    "a = torch.sin(x)\nb = torch.sigmoid(x)\nc = torch.cos(x)\nd = torch.abs(x)\nb = b * d\na = a + b\n"
    "e = torch.exp(c)\nreturn torch.tanh(a) + e"
)


PLANTED = (wrong_tanh, dense_transpose, no_exp, dead_by_exp, stuck_in_relu, wrong_pair)


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    run(CHAIN, "eager", threads=1)


def cut(
    backend: Callable[..., Any],
    mark: tuple[str, str, str],
    seconds: float = 60,
    text: str = CHAIN,
    send: Callable[[dict[str, Any]], None] = lambda message: None,
    **arguments: Any,
) -> dict[str, Any]:
    record = run_cut(
        worker_jobs.job(
            name="case", source=text, backend={"backend": f"{__name__}:{backend.__name__}"}, threads=1, task="cut",
            arguments={"wanted": [list(mark)], "seconds": seconds, "budget": 200, **arguments},
            paths=[str(Path(__file__).parent)],
        ),
        send,
    )  # fmt: skip
    assert record["error"] is None
    return record


@pytest.mark.parametrize(
    ("backend", "mark", "operator", "line"),
    [
        (wrong_tanh, ("value", "", ""), "tanh", 9),
        (no_exp, ("compile-error", "BackendCompilerFailed", "NotImplementedError: no exp"), "exp", 7),
        (dead_by_exp, ("signal", "SIGABRT", ""), "exp", 7),
        (stuck_in_relu, ("timeout", "Timeout", ""), "relu", 5),
    ],
    ids=["value", "exception", "death", "hang"],
)
def test_the_guilty_call_is_found(
    backend: Callable[..., Any], mark: tuple[str, str, str], operator: str, line: int
) -> None:
    record = cut(backend, mark, 4 if mark[0] == "timeout" else 60)
    assert [guilty["target"].rpartition(".")[2] for guilty in record["operators"]] == [operator]
    assert record["operators"][0]["line"] == line
    assert (record["alone"], record["confirmed"], record["calls"]) == (True, True, 7)
    assert record["runs"] <= 8, "log2 of the calls, the two ends, the call alone and all others"


def test_two_calls_that_are_wrong_together_alone_are_both_named() -> None:
    record = cut(wrong_pair, ("value", "", ""))
    assert [guilty["target"].rpartition(".")[2] for guilty in record["operators"]] == ["exp", "mul"]
    assert record["confirmed"]


def test_two_calls_with_others_between_them_are_named_alone() -> None:
    record = cut(wrong_pair, ("value", "", ""), text=source(
        "y = torch.exp(x)\nz = torch.relu(x)\ny = torch.sin(y)\nz = torch.abs(z)\nz = z * 2\nreturn torch.tanh(y) + z"
    ))  # fmt: skip
    assert [guilty["target"].rpartition(".")[2] for guilty in record["operators"]] == ["exp", "mul"]
    assert (record["alone"], record["confirmed"]) == (False, True)


def test_of_calls_between_the_two_ends_those_are_named_that_it_needs() -> None:
    record = cut(wrong_three, ("value", "", ""), text=BRANCHES)
    assert [guilty["target"].rpartition(".")[2] for guilty in record["operators"]] == ["sin", "cos", "exp"]
    assert (record["alone"], record["confirmed"]) == (False, True)


def test_a_smallest_set_is_found_by_halving() -> None:
    asked: list[Sequence[int]] = []

    def fails(kept: Sequence[int]) -> bool:
        asked.append(kept)
        return {3, 17, 40} <= {*kept}

    assert smallest(range(64), fails) == [3, 17, 40]
    assert len(asked) <= 3 * 6 + 4
    assert smallest([5], fails) == [5] and smallest([5], lambda kept: True) == []


def test_a_failure_that_the_backend_does_not_cause_is_said() -> None:
    record = cut(wrong_tanh, ("stride", "", ""))
    assert record["operators"] == [] and record["note"] == "the failure did not show again"


def test_what_is_known_stays_when_the_time_is_up() -> None:
    record = cut(wrong_tanh, ("value", "", ""), budget=1e-3)
    assert record["operators"] == [] and "the time for cutting was up" in record["note"]


def test_a_search_goes_on_from_the_answers_of_an_earlier_one() -> None:
    said: list[dict[str, Any]] = []
    whole = cut(wrong_tanh, ("value", "", ""), send=said.append)
    answers = [message["known"]["answers"] for message in said if "known" in message][-1]
    phases = [message["phase"] for message in said if "run 3" in str(message.get("phase"))]
    assert phases and "at most" in phases[0]
    guided = cut(wrong_tanh, ("value", "", ""), answers=answers)
    assert guided["operators"] == whole["operators"] and guided["confirmed"]
    assert guided["runs"] == 3, "all calls, the guilty one alone, and all others are asked anew"


def test_answers_that_lead_astray_are_dropped() -> None:
    said: list[dict[str, Any]] = []
    cut(no_exp, ("compile-error", "BackendCompilerFailed", "NotImplementedError: no exp"), send=said.append)
    answers = [message["known"]["answers"] for message in said if "known" in message][-1]
    record = cut(wrong_tanh, ("value", "", ""), answers=answers)
    assert [guilty["target"].rpartition(".")[2] for guilty in record["operators"]] == ["tanh"]
    assert (record["alone"], record["confirmed"]) == (True, True)


REFUSED = ("compile-error", "BackendCompilerFailed", "NotImplementedError: whole")


def test_no_call_is_named_where_another_failure_hides_the_one_that_is_searched() -> None:
    record = cut(hidden_by_parts, REFUSED)
    assert (record["operators"], record["within"], record["confirmed"], record["alone"]) == ([], None, None, None)
    assert record["note"].startswith("no call is named, as ")
    assert record["note"].endswith(
        " questions ended in another failure: compile-error BackendCompilerFailed: NotImplementedError: part"
    )
    assert record["runs"] <= 8


def test_a_call_that_fails_alone_is_named_although_other_questions_are_hidden() -> None:
    record = cut(hidden_at_times, ("compile-error", "BackendCompilerFailed", "NotImplementedError: no exp"))
    assert [guilty["target"].rpartition(".")[2] for guilty in record["operators"]] == ["exp"]
    assert (record["alone"], record["confirmed"], record["note"]) == (True, None, "")


def test_an_answer_of_an_earlier_search_that_is_hidden_stays_so() -> None:
    said: list[dict[str, Any]] = []
    cut(hidden_by_parts, REFUSED, send=said.append)
    answers = [message["known"]["answers"] for message in said if "known" in message][-1]
    record = cut(hidden_by_parts, REFUSED, answers=answers)
    assert record["operators"] == [] and "ended in another failure" in record["note"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each question had a float64 run."""
    runs: list[bool] = []

    def note(job: Any, seconds: float) -> copies.Answer:
        runs.append(job.float64)
        return ask(job, seconds)

    ask = copies.ask
    monkeypatch.setattr(copies, "ask", note)
    return runs


@pytest.mark.parametrize(
    ("backend", "operators", "exact"),
    [(wrong_tanh_by_far, ["tanh"], 0), (slightly_wrong_tanh, ["tanh"], 7), (wrong_twice, ["exp"], 1)],
)
def test_a_gross_error_needs_no_float64_run_while_the_search_narrows_down(
    backend: Callable[..., Any], operators: list[str], exact: int, asked: list[bool]
) -> None:
    record = cut(backend, ("value", "", ""))
    assert [guilty["target"].rpartition(".")[2] for guilty in record["operators"]] == operators
    assert record["alone"] and record["confirmed"] is not (backend is wrong_twice)
    assert sum(asked) == exact
    assert record["runs"] <= 9
