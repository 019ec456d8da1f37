"""Parts of a graph as graphs of their own: each module call, or each operator call, of a kind once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from runner.contract.graphs import Call, Graph, GraphInput, Operand
from runner.graphs.names import references, renamed

Grain = Literal["graph", "module", "operator"]
GRAINS: tuple[Grain, ...] = ("graph", "module", "operator")


def parts_of(graph: Graph, by: Grain) -> list[Graph]:
    """Return the graphs that a graph is written as, in order. One part comes as often as the graph has it."""
    if by == "graph":
        return [graph]
    return [*(_of_modules(graph) if by == "module" else _of_operators(graph))]


def digest_of(graph: Graph) -> str:
    """Return what is equal for graphs of the same calls over the same metadata, whatever their names and weights."""
    read = references([[_arguments(call) for call in graph.calls], graph.result])
    order = {name: place for place, name in reversed(list(enumerate(read)))}
    inputs = sorted((item for item in graph.inputs if item.name in order), key=lambda item: order[item.name])
    names = {item.name: f"x{place}" for place, item in enumerate(inputs)}
    names |= {call.name: f"y{place}" for place, call in enumerate(graph.calls)}
    data = [
        [[asdict(i.tensor) if i.tensor else i.python, i.role, i.values, bool(i.file)] for i in inputs],
        [[c.operator, *renamed([list(c.positional), dict(c.keywords), list(c.contexts)], names)] for c in graph.calls],
        renamed(graph.result, names),
        [graph.grad, graph.autocast, graph.dynamic],
    ]
    if graph.compile or graph.config:
        data.append([{**graph.compile}, {**graph.config}])
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


_OF_PYTHON = ("operator", "builtin")
_NUMBERS = tuple(f"Tensor.{name}" for name in ("size", "stride", "storage_offset", "dim", "numel", "item", "tolist"))
"""Methods of tensors that give numbers."""


def _of_modules(graph: Graph) -> Iterator[Graph]:
    """Yield each call of a submodule: the calls between its first and its last one, in one stretch."""
    depth = max((len(call.module) for call in graph.calls), default=0)
    for level in range(depth):
        start = 0
        while start < len(graph.calls):
            key = graph.calls[start].module[: level + 1]
            end = start
            while end < len(graph.calls) and graph.calls[end].module[: level + 1] == key:
                end += 1
            if len(key) == level + 1:
                yield _part(graph, graph.calls[start:end], key[-1].rpartition(" ")[2], key[-1])
            start = end


def _of_operators(graph: Graph) -> Iterator[Graph]:
    """Yield each call. Without those of numbers: alone, sizes and arithmetic of them compile nothing."""
    for call in graph.calls:
        space, _, _ = call.operator.rpartition(".")
        is_of_sizes = not call.operands and (space in _OF_PYTHON or call.operator == "torch.Size")
        if not call.results and (is_of_sizes or call.operator in _NUMBERS):
            continue
        known = {operand.name for operand in call.operands} | call.numbers.keys()
        if all(name in known or _is_size(name, call) for name in references([call.positional, call.keywords])):
            yield _part(graph, [call], call.operator, call.source)


def _is_size(name: str, call: Call) -> bool:
    """Return whether a name stands in arithmetic alone, of which the value is known."""
    return any(key.startswith("${") and name in references(key) for key in call.numbers)


def _part(graph: Graph, calls: Sequence[Call], name: str, place: str) -> Graph:
    """Return some of a graph's calls as a graph: its inputs are what they take from outside."""
    names = {call.name for call in calls}
    known = {item.name: item for item in graph.inputs}
    inside = [_with_numbers(call, names) for call in calls]
    needed = [n for n in dict.fromkeys(references([_arguments(call) for call in inside])) if n not in names]
    operands = _first_operands(calls)
    inputs = []
    for each in needed:
        operand = operands.get(each)
        if each in known and known[each].role != "input":
            inputs.append(known[each])
        elif operand is not None:
            inputs.append(_input(operand, known.get(each)))
        elif each in known:
            inputs.append(known[each])
        else:
            inputs.append(GraphInput(each, fault="it is no tensor"))
    outside = [call for call in graph.calls if call.name not in names]
    read = {*references([_arguments(call) for call in outside]), *references(graph.result)}
    result = [f"${call.name}" for call in calls if call.results and call.name in read] or [f"${calls[-1].name}"]
    origin = place if place.startswith(graph.origin) else f"{graph.origin} {place}".strip()
    has_grad = any(i.tensor and i.tensor.requires_grad for i in inputs)
    return replace(
        graph, name=re.sub(r"\W+", "_", name), origin=origin, inputs=tuple(inputs), calls=tuple(inside), result=result,
        grad=graph.grad and has_grad, dynamic=None,
    )  # fmt: skip


def _arguments(call: Call) -> list[Any]:
    return [call.positional, call.keywords]


def _with_numbers(call: Call, inside: set[str]) -> Call:
    """Return a call with numbers in place of sizes and results of calls that are not part of it."""
    values = {}
    for name, value in call.numbers.items():
        if name.startswith("${") or name not in inside:
            values[name if name.startswith("${") else f"${name}"] = value

    def put(data: Any) -> Any:
        if isinstance(data, str):
            if data in values:
                return values[data]
            for text, value in values.items() if data.startswith("[") else ():
                data = re.sub(re.escape(text) + r"(?!\w)", str(value), data)
            return data
        if isinstance(data, dict):
            return {key: put(item) for key, item in data.items()}
        return [put(item) for item in data] if isinstance(data, list | tuple) else data

    return replace(call, positional=tuple(put(call.positional)), keywords=put(dict(call.keywords)))


def _first_operands(calls: Iterable[Call]) -> dict[str, Operand]:
    operands: dict[str, Operand] = {}
    for call in calls:
        for operand in call.operands:
            operands.setdefault(operand.name, operand)
    return operands


def _input(operand: Operand, item: GraphInput | None) -> GraphInput:
    """Return an operand as an input. What an operator made is a leaf here, unless it is written in place."""
    tensor = replace(operand.tensor, storage=None, dynamic=())
    origin = item.origin if item is not None else ""
    return GraphInput(
        operand.name, tensor, origin=origin, statistics=operand.statistics, values=operand.values,
    )  # fmt: skip
