"""YAML of operator calls that torch-spyre makes of models: arguments with shape, stride, offset, dtype and init."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from runner.cases.limits import Limits
from runner.cases.yaml.reader import load
from runner.cases.yaml.values import YamlMapping, YamlNode, YamlSequence, text_of
from runner.contract.graphs import Capture, Statistics, Tensor, UnsayableError
from runner.diagnostics import InputError, shown_path
from runner.importers.arguments import Device, constant
from runner.importers.calls import INDEXED, Foreign, graphs_of
from runner.importers.foreign_file import LARGEST, ForeignFile
from runner.importers.names import operator_named
from runner.importers.python_text import Literals, PythonError, is_number, is_sizes, parse_expression
from runner.text import one_line

_CALLS = "sample_inputs_func"
_LIMITS = Limits(file_bytes=LARGEST, nodes=2_000_000, expanded_nodes=2_000_000, expanded_characters=LARGEST)
_DEVICE = re.compile(r"(cpu|cuda|spyre|privateuse1|xpu|mps)(:\d+)?", re.ASCII)
_SOURCE = re.compile(r".*?([^/#\s]+)#L(\d+)[^,]*, *code: *(.*)", re.DOTALL)
_LITERALS = Literals({"Ellipsis": ...}, {})


def is_spyre(text: str) -> bool:
    """Return whether a text looks like such a file."""
    return re.search(rf"[\s{{,]{_CALLS}:", text) is not None


def read_spyre(file: ForeignFile) -> Capture:
    """Return a graph for each call of a file.

    Raises:
        InputError: it is no YAML, or has no calls.
    """
    root, diagnostics = load(file.path, file.text, _LIMITS)
    errors = [item for item in diagnostics if item.severity == "error"]
    if root is None or errors:
        raise InputError(errors)
    notes: list[str] = []
    calls = [call for node in _entries(root) for call in _calls(file, node, notes)]
    if not calls and not notes:
        raise file.error(f"this file has no calls of operators, each with a {_CALLS}:")
    return Capture(file.name, graphs_of(calls, shown_path(file.path)), notes=tuple(notes))


def _entries(root: YamlNode) -> Iterator[YamlMapping]:
    """Yield the mappings that have inputs of an operator, in the order of the file."""
    waiting: list[YamlNode] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, YamlMapping):
            if node.get(_CALLS) is not None:
                yield node
            else:
                waiting += [value for _, value in reversed(node.entries)]
        elif isinstance(node, YamlSequence):
            waiting += reversed(node.items)


def _calls(file: ForeignFile, node: YamlMapping, notes: list[str]) -> Iterator[Foreign]:
    place, name = file.place(node.span.line), text_of(node.get("name")) or ""
    inputs = node.get(_CALLS)
    try:
        target = operator_named(name)
        arguments = _Arguments()
        body = inputs.plain() if isinstance(inputs, YamlMapping) else {}
        positional = tuple(map(arguments.positional, _items(body.get("args"))))
        beside = node.get("kwargs")  # some calls have them here, beside what makes the tensors
        tables = (None if beside is None else beside.plain(), body.get("kwargs"))
        keywords = {key: arguments.value(value) for table in tables for key, value in _table(table).items()}
        if target in INDEXED and len(positional) > 1 and _has_tensors(positional[1]):
            positional = (positional[0], tuple(positional[1]), *positional[2:])
        source = _source(text_of(node.get("description")) or "")
        yield Foreign(target, positional, keywords, place, source=source, statistics=arguments.statistics)
    except UnsayableError as error:
        notes.append(f"{place}: {one_line(name, 80) or 'a call without a name'}: {error}")


def _items(value: Any) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise UnsayableError("args: is a list")


def _table(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise UnsayableError("kwargs: is a mapping")


def _has_tensors(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, Tensor) for item in value)


def _source(description: str) -> str:
    match = _SOURCE.fullmatch(" ".join(description.split()))
    return one_line(f"{match[1]}:{match[2]}: {match[3]}") if match else one_line(description)


class _Arguments:
    """Reads the arguments of one call. ``statistics`` are those of its tensors, by identity."""

    def __init__(self) -> None:
        self.statistics: dict[int, Statistics] = {}

    def positional(self, item: Any) -> Any:
        """Return one argument, a mapping of the kind of value to it."""
        match item:
            case {"tensor": dict() as data}:
                return self._tensor(data)
            case {"tensor_list": list() as items} if all(isinstance(data, dict) for data in items):
                return [self._tensor(data) for data in items]
            case {"py": str() as text}:
                return _literal(text)
            case {"value": value}:
                return self.value(value)
        raise UnsayableError("an argument is one of tensor:, tensor_list:, value: and py:")

    def value(self, value: Any) -> Any:
        """Return a plain value; a text may be a dtype, a device or a tuple."""
        match value:
            case {"tensor": _} | {"tensor_list": _} | {"py": _} | {"value": _}:
                return self.positional(value)
            case list():
                return [self.value(item) for item in value]
            case str() if value.startswith("torch.") and (known := constant(value.removeprefix("torch."))):
                return known
            case str() if match := _DEVICE.fullmatch(value):
                return Device(match[1])
            case str() if value.startswith(("(", "slice(")):
                return _literal(value)
        return value

    def _tensor(self, data: Mapping[str, Any]) -> Tensor:
        shape, stride, offset = data.get("shape"), data.get("stride"), data.get("storage_offset", 0)
        dtype = constant(str(data.get("dtype")).removeprefix("torch."))
        is_strided = stride is None or (is_sizes(stride) and is_sizes(shape) and len(stride) == len(shape))
        if not is_sizes(shape) or not is_strided or not is_sizes([offset]) or dtype is None:
            raise UnsayableError("a tensor has a shape: and a dtype:, and may have a stride: and a storage_offset:")
        tensor = Tensor(tuple(shape), dtype.name, None if stride is None else tuple(stride), offset)
        statistics = _drawn(tensor, data.get("init"), _table(data.get("init_args")))
        if statistics is not None:
            self.statistics[id(tensor)] = statistics
        return tensor


def _literal(text: str) -> Any:
    try:
        return _LITERALS.value(parse_expression(text))
    except PythonError as error:
        raise UnsayableError(str(error)) from None


def _drawn(tensor: Tensor, init: Any, arguments: Mapping[str, Any]) -> Statistics | None:
    """Return the statistics of what ``init:`` draws; None for the format's own choice."""
    low, high, value = arguments.get("low", 0), arguments.get("high"), arguments.get("fill_value")
    match init:
        case "rand" if tensor.dtype.startswith(("float", "bfloat")):
            return Statistics(0.0, 1.0, 0.5, 0.29)
        case "xavier" if len(tensor.shape) > 1:
            area = math.prod(tensor.shape[2:])
            bound = math.sqrt(6 / max(1, (tensor.shape[0] + tensor.shape[1]) * area))
            return Statistics(-bound, bound, 0.0, bound / math.sqrt(3))
        case "randint" if type(low) is int and type(high) is int and low < high:
            return Statistics(low, high - 1, (low + high - 1) / 2, (high - low) / 4)
        case "zeros" | "ones":
            return _one(float(init == "ones"))
        case "full" if is_number(value):
            return _one(value)
        case "arange" if len(tensor.shape) == 1 and tensor.shape[0] > 1:
            return Statistics(0, tensor.shape[0] - 1, tensor.shape[0] / 2, tensor.shape[0] / 4, distinct=True)
    return None


def _one(value: float) -> Statistics:
    return replace(Statistics(value, value, value, 0.0), zeros=float(value == 0))
