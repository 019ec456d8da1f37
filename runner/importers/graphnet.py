"""Samples of GraphNet: ``weight_meta.py`` beside ``model.py`` says what the inputs of its graph are."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from runner.contract.graphs import Statistics, Tensor, UnsayableError
from runner.importers.arguments import constant
from runner.importers.foreign_file import ForeignFile, read_file
from runner.importers.load_args import Argument
from runner.importers.python_text import Literals, PythonError, is_sizes, parse

FILES = ("weight_meta.py", "input_meta.py")
_MOST_VALUES = 4096
"""Values of a tensor that its case has; of more, their range."""
_LITERALS = Literals({"inf": math.inf, "nan": math.nan}, {})


def read_metas(file: ForeignFile) -> dict[str, Argument]:
    """Return what the files beside a model say of its inputs, by name; nothing without such files.

    Raises:
        InputError: one is no Python.
    """
    metas: dict[str, Argument] = {}
    for path in (Path(file.path).with_name(name) for name in FILES):
        if path.is_file():
            metas.update(_metas(read_file(str(path))))
    return metas


def _metas(file: ForeignFile) -> Iterator[tuple[str, Argument]]:
    try:
        tree = parse(file.text)
    except PythonError as error:
        raise file.error(str(error), line=error.line, column=error.column) from None
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        values = _attributes(node)
        name = values.get("name")
        if isinstance(name, str):
            yield name, _argument(values)


def _attributes(node: ast.ClassDef) -> dict[str, Any]:
    values = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                values[statement.targets[0].id] = _LITERALS.value(statement.value)
            except UnsayableError:  # of no use here
                continue
    return values


def _argument(values: dict[str, Any]) -> Argument:
    shape, data = values.get("shape"), values.get("data")
    dtype = constant(str(values.get("dtype")).removeprefix("torch."))
    if not is_sizes(shape) or dtype is None:
        return Argument(fault="its shape or its dtype is not known")
    tensor = Tensor(tuple(shape), dtype.name)
    items = data if isinstance(data, list) and all(map(_is_value, data)) else []
    is_whole = len(items) == math.prod(shape) and 0 < len(items) <= _MOST_VALUES
    python = items[0] if is_whole and not shape else None
    nested = _nested(items, shape) if is_whole else None
    return Argument(tensor, python, values=nested, statistics=_range(values, items))


def _is_value(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and math.isfinite(value)


def _nested(items: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return a flat list as one of a shape."""
    if not shape:
        return items[0]
    step = len(items) // shape[0] if shape[0] else 0
    return [_nested(items[place * step : (place + 1) * step], shape[1:]) for place in range(shape[0])]


def _range(values: dict[str, Any], items: Sequence[Any]) -> Statistics | None:
    """Return statistics of the values that are written, or of a mean and a deviation."""
    mean, deviation = values.get("mean"), values.get("std")
    low, high = values.get("min_val"), values.get("max_val")
    if items:
        low, high = min(items), max(items)
    if _is_value(mean) and _is_value(deviation) and deviation >= 0:
        least = low if _is_value(low) else mean - 3 * deviation
        largest = high if _is_value(high) else mean + 3 * deviation
        return Statistics(float(least), float(largest), float(mean), float(deviation))
    if _is_value(low) and _is_value(high) and low <= high:
        return Statistics(low, high, (low + high) / 2, (high - low) / 4)
    return None
