"""Foreign calls as those of a case: the operator, its operands with a range of values, and whether it is
differentiated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.builder.operators import Refusal, resolve
from runner.cases.operator_names import without_overload
from runner.contract.graphs import Call, Graph, Operand, Statistics, Tensor, UnsayableError
from runner.importers.arguments import Name, plain, plain_index
from runner.importers.ranges import ranges_of
from runner.importers.twins import Twin, twin_of

INDEXED = ("operator.getitem", "operator.setitem", "operator.delitem")
_OF_GPUS = "aten.cudnn"
RESULT = "result"
_OVERLOADS = {"aten.sum.SymInt": "aten.sum.dim_IntList"}
"""Overloads that older versions of torch have, by today's name."""
LOCAL = ("pin_memory", "non_blocking")
"""Arguments about the memory of the machine that made a log."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A call that was read, before it has a name in the format. ``place`` is its file and line.

    ``statistics`` are those that the file gives, by the tensor's own identity.
    """

    target: str
    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]
    place: str
    count: int = 1
    source: str = ""
    statistics: Mapping[int, Statistics] | None = None


def spell(target: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Twin | None:
    """Return the public function that a case writes for an operator of ATen; None where none is needed or known.

    Raises:
        UnsayableError: its arguments are not those of the operator.
    """
    is_wanted = isinstance(resolve(target), Refusal) or target.startswith(_OF_GPUS)
    if not target.startswith("aten.") or not is_wanted:
        return None
    return twin_of(without_overload(target).partition(".")[2], positional, keywords)


def graphs_of(calls: Iterable[Foreign], origin: str) -> tuple[Graph, ...]:
    """Return calls that have nothing to do with each other: one graph of those that are run, and one of those of which
    gradients are taken. What cannot be said is the call's fault.

    A part of such a graph is one call.
    """
    pairs = [_read(call) for call in calls]
    plain_calls = tuple(call for call, grad in pairs if not grad)
    derivatives = tuple(call for call, grad in pairs if grad)
    graphs = Graph("calls", origin, calls=plain_calls), Graph("derivatives", origin, calls=derivatives, grad=True)
    return tuple(graph for graph in graphs if graph.calls)


def _read(call: Foreign) -> tuple[Call, bool]:
    """Return the call, and whether its gradients are compared."""
    try:
        return _step(call)
    except UnsayableError as error:
        return Call(RESULT, call.target, source=call.place, count=call.count, fault=str(error)), False


def _step(call: Foreign) -> tuple[Call, bool]:
    target = _OVERLOADS.get(call.target, call.target)
    keywords = {key: value for key, value in call.keywords.items() if key not in LOCAL}
    twin = spell(target, call.positional, keywords)
    if twin is None:
        positional = call.positional
    else:
        target, positional, keywords = twin.operator, twin.positional, {}
    statistics = dict(call.statistics or {})
    for tensor, bounds in ranges_of(target, positional, keywords):
        known = statistics.get(id(tensor))
        is_within = known is not None and known.least >= bounds.least and known.largest <= bounds.largest
        if not is_within or bounds.distinct or bounds.ascending:
            statistics[id(tensor)] = bounds
    names = _Names(statistics, positional, keywords)
    step = Call(
        RESULT,
        target,
        tuple(
            plain_index(names.put(value)) if target in INDEXED and place == 1 else plain(names.put(value))
            for place, value in enumerate(positional)
        ),
        {key: plain(names.put(value)) for key, value in keywords.items()},
        tuple(names.operands),
        source=f"{call.place}: {call.source}" if call.source else call.place,
        count=call.count,
    )
    is_grad = twin is not None and twin.grad
    return replace(step, results=(Tensor((), "float32", requires_grad=True),) if is_grad else ()), is_grad


class _Names:
    """Gives each tensor among arguments a name of its own, ``x`` if there is one."""

    def __init__(self, statistics: Mapping[int, Statistics], *arguments: Any) -> None:
        self.operands: list[Operand] = []
        self._statistics = statistics
        self._is_one = sum(1 for _ in _tensors(arguments)) == 1

    def put(self, value: Any) -> Any:
        """Return a value with names in the place of tensors, which become operands."""
        match value:
            case Tensor():
                name = "x" if self._is_one else f"x{len(self.operands)}"
                self.operands.append(Operand(name, value, self._statistics.get(id(value))))
                return Name(name)
            case list() | tuple():
                return type(value)(self.put(item) for item in value)
            case Mapping():
                return {key: self.put(item) for key, item in value.items()}
        return value


def _tensors(value: Any) -> Iterator[Tensor]:
    match value:
        case Tensor():
            yield value
        case list() | tuple():
            for item in value:
                yield from _tensors(item)
        case Mapping():
            yield from _tensors(list(value.values()))
