"""Backends with one planted bug each, for ``package:function`` jobs. ``clean`` is the twin of them all."""

from __future__ import annotations

import functools
from typing import Any

import torch

from runner.worker.planted import (  # noqa: F401  jobs name all of them as ``planted:...``
    Function,
    Graph,
    after,
    clean,
    dropped_mutation,
    nan_to_zero,
    no_gradient,
    scaled_gradient,
    swapped,
    to_double,
    unsigned_zero,
    wrong_element,
)

off_by_one = after(lambda out: out + 1)
column_major = after(lambda out: out.t().contiguous().t())
ones_for_strides = after(lambda out: out.as_strided(out.shape, (1,) * out.dim()))
to_sparse = after(lambda out: out.to_sparse())
to_meta = after(lambda out: out.to("meta"))
extra_dimension = after(lambda out: out.unsqueeze(0))
as_parameter = after(lambda out: torch.nn.Parameter(out, requires_grad=False))
copied = after(lambda out: out.clone())
zeros = after(torch.zeros_like)
tiny_noise = after(lambda out: out + 1e-4)


def first_twice(graph: Graph, inputs: list[Any]) -> Function:
    """Gives the first output's storage to all of them."""

    def run(*args: Any) -> Any:
        outs = graph(*args)
        return tuple(outs[0].view_as(outs[0]) for _ in outs)

    return run


def start_of_input(graph: Graph, inputs: list[Any]) -> Function:
    """Returns the beginning of the input, of the output's size: the right alias at the wrong offset."""
    return lambda *args: tuple(args[-1][: out.shape[0]] for out in graph(*args))


def extra_mutation(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        outs = tuple(out.clone() for out in graph(*args))
        with torch.no_grad():
            args[-1].add_(1)
        return outs

    return run


def dropped_gradient(graph: Graph, inputs: list[Any]) -> Function:
    """The last input gets no gradient."""
    return lambda *args: graph(*args[:-1], args[-1].detach())


def swallowed(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        try:
            return graph(*args)
        except IndexError:
            return (torch.zeros(3),)

    return run


def other_error(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        try:
            return graph(*args)
        except IndexError as error:
            raise RuntimeError("index out of bounds") from error

    return run


def draws_again(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        outs = graph(*args)
        torch.rand(1)
        return outs

    return run


def raises_at_compile(graph: Graph, inputs: list[Any]) -> Function:
    raise AssertionError("planted: cannot lower")


def raises_at_run(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        raise ValueError("planted: cannot run")

    return run


def no_memory(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")

    return run


def exits(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        raise SystemExit(3)

    return run


not_a_function = 3


def without_casts(graph: Graph, inputs: list[Any]) -> Function:
    for node in list(graph.graph.nodes):
        if node.op == "call_method" and node.target == "to":
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph.forward


def _one_after_the_other(rows: Any) -> tuple[Any]:
    """The sum as a naive loop has it, which rounds after each addition."""
    return (functools.reduce(torch.add, rows),)


def naive_sum(graph: Graph, inputs: list[Any]) -> Function:
    """For ``x.sum(0)``: right, and rounded more than eager's."""
    return lambda *args: _one_after_the_other(args[-1].unbind(0))


def row_left_out(graph: Graph, inputs: list[Any]) -> Function:
    return lambda *args: _one_after_the_other(args[-1][1:].unbind(0))


def sum_of_halves(graph: Graph, inputs: list[Any]) -> Function:
    """Sums what bfloat16 leaves of the numbers."""
    return lambda *args: _one_after_the_other(args[-1].bfloat16().float().unbind(0))


def last_off_by_one(graph: Graph, inputs: list[Any]) -> Function:
    def run(*args: Any) -> Any:
        (out,) = graph(*args)
        out = out.clone()
        out[2] -= 1
        return (out,)

    return run
