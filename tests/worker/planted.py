"""Backends with one planted bug each, for ``package:function`` jobs. ``clean`` is the twin of them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Graph = torch.fx.GraphModule
Function = Callable[..., Any]


def clean(graph: Graph, inputs: list[Any]) -> Function:
    return graph.forward


def _after(change: Callable[[torch.Tensor], Any]) -> Callable[[Graph, list[Any]], Function]:
    """A backend that changes every tensor output."""

    def backend(graph: Graph, inputs: list[Any]) -> Function:
        def run(*args: Any) -> Any:
            return tuple(change(out) if isinstance(out, torch.Tensor) else out for out in graph(*args))

        return run

    return backend


def _one_wrong(out: torch.Tensor) -> torch.Tensor:
    wrong = out.clone()
    wrong.view(-1)[wrong.numel() // 3] += 1e-2
    return wrong


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 1.5


wrong_element = _after(_one_wrong)
nan_to_zero = _after(torch.nan_to_num)
unsigned_zero = _after(lambda out: out + 0.0)
off_by_one = _after(lambda out: out + 1)
column_major = _after(lambda out: out.t().contiguous().t())
to_double = _after(lambda out: out.double())
to_sparse = _after(lambda out: out.to_sparse())
to_meta = _after(lambda out: out.to("meta"))
extra_dimension = _after(lambda out: out.unsqueeze(0))
no_gradient = _after(lambda out: out.detach())
as_parameter = _after(lambda out: torch.nn.Parameter(out, requires_grad=False))
copied = _after(lambda out: out.clone())
scaled_gradient = _after(lambda out: _Scaled.apply(out))
tiny_noise = _after(lambda out: out + 1e-4)


def swapped(graph: Graph, inputs: list[Any]) -> Function:
    return lambda *args: tuple(reversed(graph(*args)))


def first_twice(graph: Graph, inputs: list[Any]) -> Function:
    """Gives the first output's storage to all of them."""

    def run(*args: Any) -> Any:
        outs = graph(*args)
        return tuple(outs[0].view_as(outs[0]) for _ in outs)

    return run


def start_of_input(graph: Graph, inputs: list[Any]) -> Function:
    """Returns the beginning of the input, of the output's size: the right alias at the wrong offset."""
    return lambda *args: tuple(args[-1][: out.shape[0]] for out in graph(*args))


def dropped_mutation(graph: Graph, inputs: list[Any]) -> Function:
    return lambda *args: graph(*[arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args])


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
