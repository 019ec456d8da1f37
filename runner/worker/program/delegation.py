"""Who computed a graph: the backend that torch.compile handed it to, or torch, to which the backend gave it back.

A backend may return the graph itself, a part of it, or what another compiler of torch's made of it. A pass then says
little about the backend. So the first call of what it made of each graph runs under torch's profiler, which counts the
operators that torch runs meanwhile. What torch does not run, the backend's own code computes.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from runner.worker.operators.table import is_view
from runner.worker.torch_private import counters
from runner.worker.torch_private.graphs import is_higher_order, overload_name
from runner.worker.torch_private.profiler import Event, profiled

Compile = Callable[..., Any]

INDUCTOR = "inductor"
"""Stands among the fallbacks for a graph that Inductor's code computed."""

_ATEN = "aten::"
_COPIES = frozenset({"clone", "copy", "copy_", "_to_copy", "fill_", "zero_", "resize_", "set_", "item",
    "_local_scalar_dense", "detach", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
    "resolve_conj", "resolve_neg", "lift_fresh", "requires_grad_"})  # fmt: skip
"""Operators with which any code makes, fills, copies and passes on tensors. Those that return views count as little."""


@dataclass
class GraphShare:
    """A graph that was handed to a backend: how many of its calls compute something, and what torch ran of them.

    ``fallbacks`` are names of operators, such as ``sin``, or INDUCTOR. ``is_counted`` says whether its first call was
    watched: it may never come, or the caller has a profiler of its own.
    """

    calls: int
    fallbacks: Counter[str] = field(default_factory=Counter)
    is_counted: bool = False

    @property
    def delegated(self) -> int:
        """Return how many of its calls the backend's own code computes: torch runs that many fewer operators."""
        return 0 if INDUCTOR in self.fallbacks else max(0, self.calls - self.fallbacks.total())


@dataclass(frozen=True, slots=True)
class Delegation:
    """The graphs of a run together: their calls that compute something, how many of them the backend's code computed,
    and how often torch ran which operator."""

    calls: int
    delegated: int
    fallbacks: Counter[str]


_graphs: list[GraphShare] = []


def start_counting() -> None:
    """Forget the graphs that were handed over before."""
    _graphs.clear()


def counts() -> Delegation | None:
    """Return what was counted since ``start_counting``; None where a graph is not counted, or none computes."""
    calls = sum(graph.calls for graph in _graphs)
    if not calls or not all(graph.is_counted for graph in _graphs):
        return None
    fallbacks = sum((graph.fallbacks for graph in _graphs), Counter[str]())
    return Delegation(calls, sum(graph.delegated for graph in _graphs), fallbacks)


class Watched:
    """A backend whose graphs are counted. It has the name and the attributes of the backend that it stands for."""

    def __init__(self, compile_graph: Compile, name: str) -> None:
        """Stand for ``compile_graph``, known as ``name`` where it has none itself, as a ``functools.partial``."""
        self.__name__ = name  # else torch's messages have the address of this object
        functools.update_wrapper(self, compile_graph, updated=())
        self._compile_graph = compile_graph

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the backend's, such as ``reset``."""
        return getattr(self.__dict__["_compile_graph"], name)

    def __call__(self, graph: GraphModule, *args: Any, **options: Any) -> Any:
        """Return what the backend makes of a graph; its first call is watched."""
        share, kernels = GraphShare(sum(map(_computes, _nodes(graph)))), counters.kernels()[0]
        made = self._compile_graph(graph, *args, **options)
        if not callable(made):
            return made
        _graphs.append(share)

        def run(*values: Any, **keywords: Any) -> Any:
            if share.is_counted:
                return made(*values, **keywords)
            with profiled() as events:
                result = made(*values, **keywords)
            if events is not None:
                share.fallbacks, share.is_counted = _fallbacks(events), True
                share.fallbacks.update([INDUCTOR] * (counters.kernels()[0] != kernels))
            return result

        return run


def _nodes(graph: GraphModule) -> Iterator[Node]:
    """Yield the nodes of a graph and of those that its operators take, such as the branches of a condition."""
    for module in graph.modules():
        if isinstance(module, GraphModule):
            yield from module.graph.nodes


def _computes(node: Node) -> bool:
    """Return whether a node is a call of an operator of torch's that computes tensors."""
    target: Any = node.target
    if node.op not in ("call_function", "call_method") or not _has_tensors(node.meta.get("example_value")):
        return False
    if overload := overload_name(target):
        namespace, _, name = overload.partition(".")
        return namespace == "aten" and _is_work(name.partition(".")[0])
    if is_higher_order(target) or target in (operator.getitem, operator.setitem):
        return False
    return _is_work(target if isinstance(target, str) else str(getattr(target, "__name__", "")))


def _has_tensors(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, tuple | list) and any(map(_has_tensors, value)))


@functools.cache
def _is_work(name: str) -> bool:
    """Return whether an operator computes something: it is no copy, and none of its overloads returns a view."""
    packet = getattr(torch.ops.aten, name, None)
    overloads = packet.overloads() if packet is not None else ()
    return name not in _COPIES and not any(is_view(getattr(packet, overload)) for overload in overloads)


def _fallbacks(events: Iterable[Event]) -> Counter[str]:
    """Return how often torch ran which operator, without those that another operator of torch's called."""
    names: Counter[str] = Counter()
    for name, callers in events:
        if name.startswith(_ATEN) and not any(caller.startswith(_ATEN) for caller in callers):
            names.update([name.removeprefix(_ATEN)] if _is_work(name.removeprefix(_ATEN)) else ())
    return names
