"""Logs of operators with their inputs: PyTorch's ``operator_inp_logs``, and what tritonbench and BackendBench make of
them.

``Operator: aten.add.Tensor`` stands above lines such as ``cnt: 2, ((T([2, 3], f16), 1.0), {})``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from runner.contract.graphs import Capture, Tensor, UnsayableError
from runner.diagnostics import shown_path
from runner.importers.arguments import DTYPES, Constant, Device
from runner.importers.calls import Foreign, graphs_of
from runner.importers.foreign_file import ForeignFile
from runner.importers.python_text import Literals, PythonError, is_sizes, parse_expression

_OPERATOR = re.compile(r"Operator: *([A-Za-z_]\w*(?:\.\w+)+)", re.ASCII)
_INPUTS = re.compile(r"(?:cnt: *(\d{1,12}), *)?(\(.*)", re.ASCII)
_DEVICE = re.compile(r"(?:torch\.device\(['\"])?(cpu|cuda|xpu|mps)(?::\d+)?(?:['\"]\))?", re.ASCII)


def is_log(text: str) -> bool:
    """Return whether a text looks like such a log."""
    first = next((line for line in text[:10_000].splitlines() if line.strip()), "")
    return _OPERATOR.fullmatch(first.strip()) is not None


def read_log(file: ForeignFile) -> Capture:
    """Return a graph for each line of a log."""
    notes: list[str] = []
    graphs = graphs_of(_calls(file, notes), shown_path(file.path))
    return Capture(file.name, graphs, notes=tuple(notes))


def _calls(file: ForeignFile, notes: list[str]) -> Iterator[Foreign]:
    operator, reader = "", Literals(_NAMES, {"T": _dense, "ST": _sparse, "SS": _sparse})
    for number, line in enumerate(file.text.splitlines(), 1):
        text = line.strip()
        if match := _OPERATOR.fullmatch(text):
            operator = match[1]
        elif match := _INPUTS.fullmatch(text):
            try:
                positional, keywords = _arguments(reader, match[2])
                yield Foreign(operator, positional, keywords, file.place(number), max(1, int(match[1] or 1)))
            except (PythonError, UnsayableError) as error:
                notes.append(f"{file.place(number)}: {operator or 'no operator'}: {error}")
        elif text:
            notes.append(f"{file.place(number)}: this is neither an operator nor the inputs of one")


def _arguments(reader: Literals, text: str) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    value = reader.value(parse_expression(text))
    match value:
        case (tuple() as positional, dict() as keywords):
            return positional, {key: _keyword(key, item) for key, item in keywords.items()}
    raise UnsayableError("inputs are a tuple of positional arguments and a dict")


def _keyword(key: str, value: Any) -> Any:
    if key == "device" and isinstance(value, str):
        match = _DEVICE.fullmatch(value)
        if match is None:
            raise UnsayableError(f"{value!r} is no device")
        return Device(match[1])
    return value


def _dense(positional: list[Any], keywords: dict[str, Any]) -> Tensor:
    shape, dtype, stride = (*positional, *([None] * (3 - len(positional))))[:3]
    stride = keywords.pop("stride", stride)
    if len(positional) > 3 or keywords or not is_sizes(shape) or not isinstance(dtype, Constant):
        raise UnsayableError("a tensor is T(sizes, dtype, stride=sizes)")
    if stride is not None and (not is_sizes(stride) or len(stride) != len(shape)):
        raise UnsayableError("a stride has one number for each size")
    return Tensor(tuple(shape), dtype.name, None if stride is None else tuple(stride))


def _sparse(positional: list[Any], keywords: dict[str, Any]) -> Tensor:
    raise UnsayableError("a sparse tensor is an input, which a case makes by a step")


_NAMES: Mapping[str, Any] = {
    **{short: Constant(name) for short, name in DTYPES.items()},
    "inf": math.inf,
    "nan": math.nan,
    "th": None,
}
