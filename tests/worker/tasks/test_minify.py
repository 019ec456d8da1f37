"""The workarounds for torch's minifier, each against what it works around."""

from __future__ import annotations

import copy
import faulthandler
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.debug_utils import run_fwd_maybe_bwd
from torch._dynamo.repro import after_aot

from runner.worker.tasks import minify


def graph_of(function: Callable[..., Any]) -> torch.fx.GraphModule:
    return torch.fx.symbolic_trace(function)


def boxed(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """As torch 2.13's AOT: called with single arguments, and marked as if with a list."""
    del inputs

    def forward(*args: Any) -> Any:
        return graph(*args)

    forward._boxed_call = True  # type: ignore[attr-defined]
    return forward


def die() -> None:
    """By SIGABRT, and without pytest's stacks."""
    faulthandler.disable()
    os.abort()


def test_a_mark_of_boxed_calls_is_not_inherited() -> None:
    inputs = [torch.ones(2)]
    graph = graph_of(lambda x: torch.relu(x))
    with pytest.raises(TypeError):
        run_fwd_maybe_bwd(boxed(graph, inputs), inputs)
    run_fwd_maybe_bwd(minify.plain(boxed)(graph, inputs), inputs)


def test_a_backend_may_return_a_plain_function() -> None:
    inputs = [torch.ones(2)]
    graph = graph_of(lambda x: torch.relu(x))
    with pytest.raises(AttributeError, match="named_parameters"):
        run_fwd_maybe_bwd(lambda *args: graph(*args), inputs)  # type: ignore[arg-type]
    result = run_fwd_maybe_bwd(minify.plain(lambda graph, inputs: lambda *args: graph(*args))(graph, inputs), inputs)
    assert torch.equal(result[0], inputs[0])


def test_a_backend_that_changes_its_graph_changes_a_copy() -> None:
    def changing(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        for node in graph.graph.nodes:
            if node.target is torch.relu:
                node.target = torch.neg
        graph.recompile()
        return graph

    graph = graph_of(lambda x: torch.relu(x))
    code = copy.deepcopy(graph).code
    assert minify.plain(changing)(graph, [])(torch.ones(1)) == -1
    assert graph.code == code


def test_the_signal_that_ended_a_child() -> None:
    assert minify.ended_by(die) == signal.SIGABRT
    assert minify.ended_by(lambda: 1 / 0) == 0
    assert minify.ended_by(lambda: None) == 0


def test_a_death_in_a_child_is_an_error_here() -> None:
    def deadly(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return lambda *args: die() if "relu" in graph.code else graph(*args)

    backend = minify.in_child(deadly, signal.SIGABRT, 1)
    assert backend(graph_of(lambda x: torch.neg(x)), [])(torch.ones(1)) == -1
    with pytest.raises(minify.Died, match="SIGABRT"):
        backend(graph_of(lambda x: torch.relu(x)), [])(torch.ones(1))
    wrapper = minify.in_child(deadly, signal.SIGSEGV, 1)
    assert wrapper(graph_of(lambda x: torch.relu(x)), [])(torch.ones(1)) == 1, "another signal is another failure"


def emptying(graph: Any, args: list[Any], check_str: str | None = None) -> bool:
    """As ``inductor_fails`` with compiled code, which empties the list that it gets."""
    args.clear()
    return check_str == "this"


def test_the_minifiers_inputs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(after_aot.ACCURACY_FAILS, "", emptying)
    minify._keep_inputs(0, 1)
    inputs = [1, 2]
    assert after_aot.ACCURACY_FAILS[""](None, inputs, check_str="this")
    assert not after_aot.ACCURACY_FAILS[""](None, inputs, check_str="that")
    assert inputs == [1, 2]


def test_for_a_death_each_test_is_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def deadly(graph: Any, args: list[Any], check_str: str | None = None) -> bool:
        return die() if graph == "bad" else True

    monkeypatch.setitem(after_aot.ACCURACY_FAILS, "", deadly)
    minify._keep_inputs(signal.SIGABRT, 1)
    assert after_aot.ACCURACY_FAILS[""]("bad", [])
    assert not after_aot.ACCURACY_FAILS[""]("good", [])
