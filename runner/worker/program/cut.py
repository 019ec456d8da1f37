"""A backend that compiles parts of each graph, and runs the calls between them in eager.

Which part of a graph a fault needs can be asked of any backend so: only what Dynamo hands over is cut, and each part is
a graph of its own for the backend. Calls are numbered from 0 through all graphs of the process, in the order in which
they are handed over.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module

from runner.worker.torch_private.graphs import is_autocast_end, is_autocast_start, is_grad_switch

Compile = Callable[..., Callable[..., Any]]

_CALLS = ("call_function", "call_method", "call_module")


@dataclass(frozen=True, slots=True)
class CutCall:
    """A call of a graph: what torch calls its target, the name of its node, and the stack of the model there."""

    target: str
    name: str
    stack: str


_WATCH: list[Callable[[Sequence[CutCall]], None]] = [lambda calls: None]


def watch_calls(note: Callable[[Sequence[CutCall]], None]) -> None:
    """Have all calls so far told whenever a graph is handed over in this process."""
    _WATCH[0] = note


@dataclass
class Cutter:
    """The backend. ``compiled`` are the numbers of the calls that it compiles, as ranges without their ends.

    ``calls`` are all calls that it was handed, in order. The whole of a graph is compiled as it is, and not as a part.
    """

    compile_graph: Compile
    compiled: Sequence[tuple[int, int]]
    calls: list[CutCall] = field(default_factory=list)

    def __call__(self, graph: GraphModule, examples: Sequence[Any], **options: Any) -> Callable[..., Any]:
        """Return what runs a graph so."""
        _gather(graph)
        nodes = [node for node in graph.graph.nodes if _is_call(node)]
        numbers = {node: len(self.calls) + place for place, node in enumerate(nodes)}
        self.calls += [_call_of(node) for node in nodes]
        _WATCH[0](self.calls)
        chosen = {node for node, number in numbers.items() if any(a <= number < b for a, b in self.compiled)}
        if len(chosen) == len(nodes):
            return self.compile_graph(graph, examples, **options)
        if not chosen:
            return graph.forward  # type: ignore[no-any-return,unused-ignore]
        parts = _parts(graph, chosen)
        whole = split_module(graph, graph, lambda node: parts[node], keep_original_order=True, tuple_return=True)
        for name, part in whole.named_children():
            if isinstance(part, GraphModule) and int(name.rpartition("_")[2]) % 2:
                setattr(whole, name, _Compiled(self.compile_graph(part, _examples(part), **options)))
        return whole.forward  # type: ignore[no-any-return,unused-ignore]


class _Compiled(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """What a backend made of a part."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *values: Any) -> Any:
        return self.run(*values)


def _is_call(node: Node) -> bool:
    is_context = is_grad_switch(node.target) or is_autocast_start(node.target) or is_autocast_end(node.target)
    return node.op in _CALLS and not _goes_along(node) and not is_context


def _goes_along(node: Node) -> bool:
    """Return whether a node stays with what it reads: one of several results, or a size or another number of a tensor.

    A backend takes tensors, and graphs that compute some.
    """
    if isinstance(node.meta.get("example_value"), int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    source = node.args[0] if node.target is operator.getitem and node.args else None
    return isinstance(source, Node) and isinstance(source.meta.get("example_value"), tuple | list)


def _call_of(node: Node) -> CutCall:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    module = "" if isinstance(target, str) else str(getattr(target, "__module__", "") or "")
    return CutCall(f"{module}.{name}".strip("."), node.name, str(node.meta.get("stack_trace") or ""))


def _gather(graph: GraphModule) -> None:
    """Move what goes along with a call behind it: parts follow one another, and each is in one piece."""
    places = {node: place for place, node in enumerate(graph.graph.nodes)}
    first = next((node.prev for node in graph.graph.nodes if node.op in _CALLS), None)
    for node in list(graph.graph.nodes):
        if node.op in _CALLS and _goes_along(node):
            sources = [source for source in node.all_input_nodes if source.op in _CALLS]
            last = max(sources, key=lambda source: places[source], default=first)
            if last is not None and last is not node.prev:
                last.append(node)
            places[node] = places.get(last, -1)
    graph.recompile()


def _parts(graph: GraphModule, chosen: set[Node]) -> dict[Node, int]:
    """Return the part of each node: even ones run in eager, and odd ones are compiled."""
    parts: dict[Node, int] = {}
    current = 0
    for node in graph.graph.nodes:
        if _is_call(node):
            current += (node in chosen) != current % 2
        parts[node] = current
    return parts


def _examples(part: GraphModule) -> list[Any]:
    """Return what a part is called with, as Dynamo would hand it over."""
    return [node.meta.get("example_value") for node in part.graph.nodes if node.op == "placeholder"]
