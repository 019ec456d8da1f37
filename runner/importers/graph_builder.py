"""A graph that is put together call by call: the names of its values, what they are, and the calls as a case writes
them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.builder.operators import Operator, resolve
from runner.cases.operator_names import BINARY, UNARY, without_overload
from runner.cases.python_files import OF_MODULES, is_name
from runner.contract.graphs import Call, Graph, GraphInput, Operand, Statistics, Tensor, UnsayableError
from runner.importers.arguments import Constant, Name, plain, plain_index
from runner.importers.calls import INDEXED, LOCAL, spell
from runner.importers.names import operator_named
from runner.importers.ranges import is_integer, ranges_of

_MOVES = frozenset({
    "view", "reshape", "_unsafe_view", "view_as", "reshape_as", "expand", "expand_as", "unsqueeze", "squeeze",
    "transpose", "permute", "t", "T", "mT", "movedim", "flatten", "unflatten", "contiguous", "clone", "alias",
    "detach", "slice", "select", "narrow", "getitem", "split", "chunk", "unbind", "to", "_to_copy", "long", "int",
    "type_as", "repeat", "tile", "flip", "roll", "cat", "stack", "copy", "lift_fresh_copy", "lift_fresh", "cpu",
    "cuda", "convert_element_type", "broadcast_to", "broadcast_in_dim", "ravel", "split_with_sizes",
})  # fmt: skip
"""Operators that keep the elements of a tensor, or some of them."""
_FLOATS = ("float", "bfloat", "complex")
_SIZE = ("aten.sym_size.int", "Tensor.size")
_GRAD = ("torch._C._set_grad_enabled", "torch.set_grad_enabled")
_AUTOCAST = ("torch.amp.autocast_mode._enter_autocast", "torch.amp._enter_autocast")
_LEAVE = ("torch.amp.autocast_mode._exit_autocast", "torch.amp._exit_autocast")
_NUMBER_KEYS = ("device_type", "dtype", "enabled", "cache_enabled")


class GraphBuilder:
    """Builds one graph. ``values`` has what each name of the text stands for: a value, or a Python value."""

    def __init__(self, name: str, origin: str) -> None:
        """Begin without inputs."""
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, Tensor] = {}
        self._name, self._origin = name, origin
        self._inputs: dict[str, GraphInput] = {}
        self._calls: list[Call] = []
        self._taken: set[str] = set()
        self._parts: set[str] = set()
        self._grads: set[str] = set()
        self._sources: dict[str, frozenset[str]] = {}
        self._ranges: dict[str, list[Statistics]] = {}
        self._contexts: list[tuple[str | None, Any]] = []

    def add_input(self, word: str, item: GraphInput) -> None:
        """Let a name of the text stand for an input, whose name is a wish."""
        name = self.free_name(item.name)
        self._inputs[name] = replace(item, name=name)
        self.values[word] = Name(name)
        self._sources[name] = frozenset([name])
        if item.tensor is not None:
            self.tensors[name] = item.tensor
        if item.tensor is not None and item.tensor.requires_grad:
            self._grads.add(name)

    def free_name(self, wish: str) -> str:
        """Return a name that the case may use, and take it."""
        word = re.sub(r"\W", "_", wish, flags=re.ASCII).strip("_") or "x"
        word = word if is_name(word) and word not in OF_MODULES else f"{word}_"
        word = word if is_name(word) else f"x_{word}"
        name = next(
            n for k in range(1, len(self._taken) + 2) if (n := word if k == 1 else f"{word}_{k}") not in self._taken
        )
        self._taken.add(name)
        return name

    def add_call(
        self,
        word: str,
        target: str,
        positional: Sequence[Any],
        keywords: Mapping[str, Any],
        results: Sequence[Tensor] = (),
        source: str = "",
    ) -> None:
        """Add a call of a function by its full name. ``word`` is the text's name for what it gives."""
        if self._is_context(word, target, positional):
            return
        operator = operator_named(target)
        value = _size_of(operator, positional)
        value = self._part_of(operator, positional) if value is None else value
        if value is not None:
            self.values[word] = value
            return
        name = self.free_name(word)
        self.values[word] = Name(name)
        try:
            if operator == "operator.getitem" and positional[0] in map(Name, self._parts):
                raise UnsayableError("the function that a case calls gives no such result")
            call = self._call(name, operator, positional, keywords)
        except UnsayableError as error:
            call = Call(name, operator, fault=str(error))
        operands = tuple(dict.fromkeys(_names([positional, keywords])))
        contexts = tuple(entry for _, entry in self._contexts)
        known = tuple(Operand(item, self.tensors[item]) for item in operands if item in self.tensors)
        given = self._with_gradients(call, operands, results)
        self._calls.append(replace(call, operands=known, results=given, contexts=contexts, source=source))
        if len(results) == 1:
            self.tensors[name] = given[0]
        if without_overload(operator).rpartition(".")[2].rstrip("_") in _MOVES:
            self._sources[name] = frozenset().union(*(self._sources.get(item, frozenset()) for item in operands))

    def _with_gradients(self, call: Call, operands: Iterable[str], results: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return what a call gives, which requires gradients where something that it takes does.

        A result that the text does not describe is a scalar, so that it can say this.
        """
        is_off = any(entry == {"torch.set_grad_enabled": [False]} for _, entry in self._contexts)
        if is_off or not self._grads.intersection(operands):
            return tuple(results)
        is_whole = not call.fault and isinstance(resolve(call.operator), Operator)
        known = tuple(results) or ((Tensor((), "float32"),) if is_whole else ())
        given = tuple(replace(tensor, requires_grad=tensor.dtype.startswith(_FLOATS)) for tensor in known)
        if any(tensor.requires_grad for tensor in given):
            self._grads.add(call.name)
        return given

    def build(self, result: Any, grad: bool = False) -> Graph:
        """Return the graph that gives ``result``.

        Raises:
            UnsayableError: the format has no such value.
        """
        inputs = tuple(self._with_range(item) for item in self._inputs.values())
        return Graph(self._name, self._origin, inputs, tuple(self._calls), plain(result), grad=grad)

    def _call(self, name: str, operator: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Call:
        keywords = {key: value for key, value in keywords.items() if key not in LOCAL and not key.startswith("_")}
        twin = None if _is_derivative(operator) else spell(operator, positional, keywords)
        if twin is not None:
            operator, positional, keywords = twin.operator, twin.positional, {}
            if twin.is_part:
                self._parts.add(name)
        self._note_ranges(operator, positional, keywords)
        values = [
            plain_index(value) if operator in INDEXED and place == 1 else plain(value)
            for place, value in enumerate(positional)
        ]
        return Call(name, operator, tuple(values), {key: plain(value) for key, value in keywords.items()})

    def _is_context(self, word: str, target: str, positional: Sequence[Any]) -> bool:
        if target in _GRAD:
            self._contexts = [pair for pair in self._contexts if pair[0] is not None]
            self._contexts.append((None, {"torch.set_grad_enabled": [bool(positional and positional[0])]}))
        elif target in _AUTOCAST:
            keywords = {key: plain(value) for key, value in zip(_NUMBER_KEYS, positional, strict=False)}
            keywords["device_type"] = "$device"
            kept = {key: value for key, value in keywords.items() if value not in (None, True)}
            self._contexts.append((word, {"torch.autocast": kept}))
            self.values[word] = Constant(word)
        elif target in _LEAVE:
            entered = positional[0].name if positional and isinstance(positional[0], Constant) else ""
            self._contexts = [pair for pair in self._contexts if pair[0] != entered]
        else:
            return False
        return True

    def _part_of(self, operator: str, positional: Sequence[Any]) -> Any:
        """Return the first result of an operator whose twin gives nothing else.

        The others are faults, since nothing gives them.
        """
        if operator != "operator.getitem" or len(positional) < 2 or not isinstance(positional[0], Name):
            return None
        return positional[0] if positional[0].text in self._parts and positional[1] == 0 else None

    def _note_ranges(self, operator: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        copies: dict[int, str] = {}
        kept: list[Tensor] = []

        def known(value: Any) -> Any:
            match value:
                case Name() if tensor := self._tensor_of(value.text):
                    kept.append(replace(tensor))
                    copies[id(kept[-1])] = value.text
                    return kept[-1]
                case list() | tuple():
                    return type(value)(known(item) for item in value)
                case slice():
                    return value
            return value

        arguments = [known(value) for value in positional], {key: known(value) for key, value in keywords.items()}
        for tensor, statistics in ranges_of(operator, *arguments):
            for name in self._sources.get(copies[id(tensor)], ()):
                self._ranges.setdefault(name, []).append(statistics)

    def _tensor_of(self, name: str) -> Tensor | None:
        """Return what a value is, as far as is known: of one that moves the elements of an input their dtype."""
        sources = [self.tensors[source] for source in self._sources.get(name, ()) if source in self.tensors]
        return self.tensors.get(name) or next((replace(tensor, shape=(), stride=None) for tensor in sources), None)

    def _with_range(self, item: GraphInput) -> GraphInput:
        ranges = self._ranges.get(item.name)
        if not ranges or item.tensor is None or item.values is not None:
            return item
        if not is_integer(item.tensor):
            return item if item.statistics else replace(item, statistics=ranges[0])
        known = item.statistics
        is_ascending = any(statistics.ascending for statistics in ranges)
        if known and not is_ascending and known.least >= 0 and known.largest <= min(each.largest for each in ranges):
            return item
        strictest = min(ranges, key=lambda statistics: statistics.largest)
        count = math.prod(item.tensor.shape)
        is_distinct = any(statistics.distinct for statistics in ranges) and count - 1 <= strictest.largest
        largest = count - 1 if is_distinct else strictest.largest
        low = max(statistics.least for statistics in ranges)
        mean, deviation = (low + largest) / 2, (largest - low + 1) / 4
        return replace(
            item,
            statistics=Statistics(
                low, max(low, largest), mean, deviation, distinct=is_distinct, ascending=is_ascending
            ),
        )


def _size_of(operator: str, positional: Sequence[Any]) -> Any:
    """Return a size of a tensor, or all of them, or arithmetic over sizes, where a call is that."""
    name = operator.removeprefix("operator.")
    if name in (*BINARY, *UNARY) and positional and all(map(_is_size, positional)):
        return _arithmetic(name, positional)
    if operator not in _SIZE or not positional or not isinstance(positional[0], Name):
        return None
    name, places = positional[0].text, positional[1:]
    if not places:
        return Name(f"{name}.shape")
    return Name(f"${{{name}.shape[{places[0]}]}}") if type(places[0]) is int else None


def _is_size(value: Any) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool)) or (
        isinstance(value, Name) and value.text.startswith("${")
    )


def _arithmetic(name: str, values: Sequence[Any]) -> Any:
    """Return arithmetic over sizes as the format writes it; of two numbers the result."""
    match name, values:
        case "add", [int() | float() as left, int() | float() as right]:
            return left + right
        case "sub", [int() | float() as left, int() | float() as right]:
            return left - right
        case "mul", [int() | float() as left, int() | float() as right]:
            return left * right
    parts = [f"({value.text[2:-1]})" if isinstance(value, Name) else str(value) for value in values]
    text = f"{UNARY[name]}{parts[0]}" if len(parts) == 1 else f"{parts[0]} {BINARY[name]} {parts[1]}"
    return Name(f"${{{text}}}")


def _is_derivative(operator: str) -> bool:
    """Return whether a twin would be differentiated, which no call within a graph can be."""
    return operator.startswith("aten.") and "backward" in operator and "col" not in operator


def _names(value: Any) -> Iterator[str]:
    """Yield the names of values among arguments."""
    match value:
        case Name():
            yield from re.findall(r"(?<![\w.])[A-Za-z_]\w*", value.text, re.ASCII)
        case list() | tuple():
            for item in value:
                yield from _names(item)
        case slice():
            yield from _names([value.start, value.stop, value.step])
        case Mapping():
            yield from _names(list(value.values()))
