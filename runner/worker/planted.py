"""Backends that are broken on purpose, one bug each: to show what a failure looks like and to prove that it is seen.

Each takes Dynamo's graph and runs it as it is, but for its bug. ``clean`` has none and is the twin of them all.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule as Graph

Function = Callable[..., Any]
Backend = Callable[[Graph, list[Any]], Function]


def clean(graph: Graph, inputs: list[Any]) -> Function:
    """No bug."""
    forward: Function = graph.forward
    return forward


def toy_compiler(graph: Graph, inputs: list[Any]) -> Function:
    """Fails to compile a graph that holds ``torch.relu``.

    Raises:
        AssertionError: the graph has a relu.
    """
    assert all(node.target is not torch.relu for node in graph.graph.nodes), "the toy backend does not know relu"
    return clean(graph, inputs)


def after(change: Callable[[torch.Tensor], Any]) -> Backend:
    """A backend that changes every tensor output."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        def run(*args: Any) -> Any:
            return tuple(change(out) if isinstance(out, torch.Tensor) else out for out in graph(*args))

        return run

    return backend


def instead(act: Callable[[], Any]) -> Backend:
    """A backend that does something before it runs the graph."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        def run(*args: Any) -> Any:
            act()
            return graph(*args)

        return run

    return backend


def _one_wrong(out: torch.Tensor) -> torch.Tensor:
    wrong = out.clone()
    wrong.view(-1)[wrong.numel() // 3] += 1e-2
    return wrong


def _padded(out: torch.Tensor) -> torch.Tensor:
    """The same values with one element between rows: the stride is off by one."""
    wide = out.new_zeros(*out.shape[:-1], out.shape[-1] + 1)
    wide[..., :-1] = out
    return wide[..., :-1]


def _without_sign_of_zero(out: torch.Tensor) -> torch.Tensor:
    """Make negative zeros positive.

    A tensor without one is returned as it is, so that nothing but the sign is ever wrong.
    """
    negative = out.is_floating_point() and bool((out.signbit() & (out == 0)).any())
    return out + 0.0 if negative else out


class _Scaled(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 1.5


def _segfault() -> None:
    ctypes.string_at(0)


wrong_element = after(_one_wrong)
stride_off_by_one = after(_padded)
nan_to_zero = after(torch.nan_to_num)
unsigned_zero = after(_without_sign_of_zero)
alias_lost = after(lambda out: out.clone())
scaled_gradient = after(lambda out: _Scaled.apply(out))  # type: ignore[no-untyped-call,unused-ignore]
no_gradient = after(lambda out: out.detach())
to_double = after(lambda out: out.double())
draws_twice = instead(lambda: torch.rand(1))
default_dtype_changed = instead(lambda: torch.set_default_dtype(torch.float64))
recompiles_always = instead(lambda: torch.compiler.reset())
hangs = instead(lambda: time.sleep(3600))
aborts = instead(os.abort)
segfaults = instead(_segfault)
exits_silently = instead(lambda: os._exit(0))


def swapped(graph: Graph, inputs: list[Any]) -> Function:
    """Outputs in the wrong order."""
    return lambda *args: tuple(reversed(graph(*args)))


def dropped_mutation(graph: Graph, inputs: list[Any]) -> Function:
    """In-place changes go to copies of the inputs."""
    return lambda *args: graph(*[arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args])


def error_swallowed(graph: Graph, inputs: list[Any]) -> Function:
    """Gives zeros where the graph raises."""

    def run(*args: Any) -> Any:
        try:
            return graph(*args)
        except (IndexError, RuntimeError):
            return (torch.zeros(3),)

    return run
