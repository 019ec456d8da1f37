"""A backend that compiles parts of each graph, and runs the calls between them in eager.

Which part of a graph a fault needs can be asked of any backend so: only what Dynamo hands over is cut, and each part is
a graph of its own for the backend. Calls are numbered from 0 through all graphs of the process, in the order in which
they are handed over.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module

from runner.worker.torch_private.graphs import (
    begins_transform,
    ends_transform,
    example_of,
    is_autocast_end,
    is_autocast_start,
    is_fake,
    is_grad_switch,
    is_without_effect,
    transform_of,
)

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
    With ``together`` the compiled calls of a graph are one part: those between them run before or after it, where that
    gives the same values, and are compiled too elsewhere.
    """

    compile_graph: Compile
    compiled: Sequence[tuple[int, int]]
    together: bool = False
    calls: list[CutCall] = field(default_factory=list)

    def __call__(self, graph: GraphModule, examples: Sequence[Any], **options: Any) -> Callable[..., Any]:
        """Return what runs a graph so."""
        _gather(graph)
        nodes = _calls_of(graph)
        numbers = {node: len(self.calls) + place for place, node in enumerate(nodes)}
        self.calls += [_call_of(node) for node in nodes]
        _WATCH[0](self.calls)
        chosen = {node for node, number in numbers.items() if any(a <= number < b for a, b in self.compiled)}
        if self.together and chosen:
            chosen = _bring_together(graph, nodes, chosen)
        if len(chosen) == len(nodes):
            return self.compile_graph(graph, examples, **options)
        if not chosen:
            return graph.forward  # type: ignore[no-any-return,unused-ignore]
        parts = _parts(graph, nodes, chosen)
        given = dict(zip((node.name for node in graph.graph.nodes if node.op == "placeholder"), examples, strict=True))
        # A backend may name nodes in its messages, and a message tells one failure from another.
        whole = split_module(
            graph, graph, lambda node: parts[node], keep_original_order=True, keep_original_node_name=True
        )
        for name, part in whole.named_children():
            if isinstance(part, GraphModule) and int(name.rpartition("_")[2]) % 2:
                is_single = _return_tuple(part)
                setattr(whole, name, _Compiled(self.compile_graph(part, _examples(part, given), **options), is_single))
        return whole.forward  # type: ignore[no-any-return,unused-ignore]


class _Compiled(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """What a backend made of a part. With ``is_single`` the caller wants the only value, without its tuple."""

    def __init__(self, run: Callable[..., Any], is_single: bool) -> None:
        super().__init__()
        self.run, self.is_single = run, is_single

    def forward(self, *values: Any) -> Any:
        results = self.run(*values)
        return results[0] if self.is_single else results


def _return_tuple(part: GraphModule) -> bool:
    """Let a part return a tuple, as every graph of Dynamo does; return whether it had one bare value."""
    node = next(iter(reversed(part.graph.nodes)))
    if isinstance(node.args[0], tuple | list):
        return False
    node.args = ((node.args[0],),)
    part.recompile()
    return True


def _calls_of(graph: GraphModule) -> list[Node]:
    """Return the calls that a graph can be cut between, in order.

    What a transform such as ``vmap`` runs is one of them, at its first node: tensors within it have no meaning outside.
    """
    calls, depth = [], 0
    for node in graph.graph.nodes:
        if depth == 0 and _is_call(node):
            calls.append(node)
        depth = max(depth + begins_transform(node.target) - ends_transform(node.target), 0)
    return calls


def _is_call(node: Node) -> bool:
    is_context = is_grad_switch(node.target) or is_autocast_start(node.target) or is_autocast_end(node.target)
    return node.op in _CALLS and not _goes_along(node) and not is_context and not is_without_effect(node.target)


def _goes_along(node: Node) -> bool:
    """Return whether a node stays with what it reads: one of several results, or a size or another number of a tensor.

    A backend takes tensors, and graphs that compute some.
    """
    if isinstance(node.meta.get("example_value"), int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    source = node.args[0] if node.target is operator.getitem and node.args else None
    return isinstance(source, Node) and isinstance(source.meta.get("example_value"), tuple | list)


def _call_of(node: Node) -> CutCall:
    while begins_transform(node.target):
        if transform := transform_of(node.target):
            return CutCall(transform, node.name, str(node.meta.get("stack_trace") or ""))
        node = node.next
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


def _bring_together(graph: GraphModule, nodes: Sequence[Node], chosen: set[Node]) -> set[Node]:
    """Move the calls between chosen ones out of their midst, and return the chosen ones with all that cannot move."""
    calls = {*nodes}
    places = [place for place, node in enumerate(nodes) if node in chosen]
    window = nodes[places[0] : places[-1] + 1]
    span = [*graph.graph.nodes]
    span = span[span.index(window[0]) : span.index(window[-1]) + 1]
    if not all(_may_move(node) and (node in calls or not _is_call(node)) for node in span):
        return {*window}
    readers: set[Node] = set()  # the chosen calls, and what needs their values
    for node in span:
        if node in chosen or readers.intersection(node.all_input_nodes):
            readers.add(node)
    needed = set(chosen)  # these, and what lies on a way from one to another
    for node in reversed(span):
        if node in readers and needed.intersection(node.users):
            needed.add(node)
    last = window[0].prev
    for node in sorted(span, key=lambda node: (node in readers) + (node in readers and node not in needed)):
        last.append(node)
        last = node
    _gather(graph)
    return needed & calls


_IN_PLACE = {
    getattr(operator, name)
    for name in dir(operator)
    if name.startswith("i") and any(hasattr(operator, name[1:] + end) for end in ("", "_"))
} | {operator.setitem, operator.delitem}
_NOT_PURE = re.compile(r"[^_]_$|rand|dropout|bernoulli|multinomial|normal|poisson")
"""Names of calls that write, draw, or may do so."""


def _may_move(node: Node) -> bool:
    """Return whether a node gives the same before and after its neighbours, as far as its name and arguments tell."""
    if node.op not in _CALLS or _goes_along(node):
        return True
    flags = (*node.args, *map(node.kwargs.get, ("inplace", "training")))
    return (
        _is_call(node)
        and node.op != "call_module"
        and node.target not in _IN_PLACE
        and not _NOT_PURE.search(_call_of(node).target)
        and node.kwargs.get("out") is None
        and not any(flag is True for flag in flags)
    )


def _parts(graph: GraphModule, calls: Sequence[Node], chosen: set[Node]) -> dict[Node, int]:
    """Return the part of each node: even ones run in eager, and odd ones are compiled."""
    parts: dict[Node, int] = {}
    cuts, current = {*calls}, 0
    for node in graph.graph.nodes:
        if node in cuts:
            current += (node in chosen) != current % 2
        parts[node] = current
    return parts


def _examples(part: GraphModule, given: Mapping[str, Any]) -> list[Any]:
    """Return what a part is called with, as Dynamo would hand it over.

    ``given`` are what it handed over for the whole graph, by the names of the nodes: real tensors or fake ones.
    """
    is_real = not any(map(is_fake, given.values()))
    examples = dict(given)
    for node in (node for node in part.graph.nodes if node.op == "placeholder" and node.target not in given):
        examples[node.target] = example_of(node.meta.get("example_value"), is_real)
    return [examples[node.target] for node in part.graph.nodes if node.op == "placeholder"]
