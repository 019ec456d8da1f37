"""A tensor's error as shapes on a page: cells, bars and words, from the worker's record of a heat map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.contract.finding import index_of
from runner.text import number

LEVELS = 7
"""Shades of the heat map."""

ALIKE, MISPLACED = 1, 2
"""As in ``runner/worker/tasks/heatmap.py``."""

_NONFINITE = {ALIKE: "NaN or infinite on both sides", MISPLACED: "NaN or infinite on one side alone"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A square of the heat map: its place, its shade (``h1`` to ``h7``, ``alike``, ``misplaced``), and its text."""

    x: int
    y: int
    shade: str
    text: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The cells that hold an error or a NaN; all others are right. ``legend`` has a shade and its words."""

    columns: int
    rows: int
    cells: tuple[Cell, ...]
    legend: tuple[tuple[str, str], ...]
    layout: str  # how the tensor lies in it
    size: float  # pixels of a cell's side


@dataclass(frozen=True, slots=True)
class Bar:
    """Counts of one class of relative errors, and the heights (0 to 1) that they are drawn with."""

    label: str
    eager: int
    compiled: int
    eager_height: float
    compiled_height: float


def heat_map(record: Mapping[str, Any]) -> HeatMap:
    """Return the heat map of a record in shades of its absolute error.

    The shades are equal steps of the exponent between the smallest and the largest error.
    """
    grid, shape = record["grid"], list(record["shape"])
    errors = [[float(cell) for cell in row] for row in grid["absolute"]]  # infinities and NaN are words there
    finite = [error for row in errors for error in row if 0 < error < math.inf]
    low, high = (math.log10(min(finite)), math.log10(max(finite))) if finite else (0.0, 0.0)
    cells = []
    for y, row in enumerate(errors):
        for x, error in enumerate(row):
            kind = grid["kind"][y][x]
            if kind == 0 and error == 0:
                continue
            shade = "misplaced" if kind == MISPLACED else f"h{_level(error, low, high)}" if error else "alike"
            parts = [_NONFINITE[kind]] if kind in _NONFINITE else []
            parts += [f"error {number(error)}, relative {number(grid['relative'][y][x])}"] if error else []
            cells.append(Cell(x, y, shade, f"{_range(grid, shape, y, x)}: {'; '.join(parts)}"))
    used = {cell.shade for cell in cells}
    legend = [
        (f"h{level}", _span(level, low, high)) for level in range(1, LEVELS + 1) if finite and f"h{level}" in used
    ]
    legend += [("misplaced", _NONFINITE[MISPLACED])] if "misplaced" in used else []
    legend += [("alike", _NONFINITE[ALIKE])] if "alike" in used else []
    columns = len(errors[0]) if errors else 0
    side = min(24.0, 640 / max(columns, len(errors), 1))  # a small map can be seen, a large one fits on a page
    return HeatMap(columns, len(errors), tuple(cells), tuple(legend), _layout(grid, shape), side)


def bars(histogram: Mapping[str, Any]) -> list[Bar]:
    """Return the histogram of a record: exact, each decade, and errors of values that are 0.

    Heights are logarithmic, so that one element of a million shows.
    """
    counts: list[tuple[str, int, int]] = []
    exact, unscaled = histogram["exact"], histogram["unscaled"]
    if exact["eager"] or exact["compiled"]:
        counts.append(("exact", exact["eager"], exact["compiled"]))
    rows = zip(histogram["decades"], histogram["eager"], histogram["compiled"], strict=True)
    counts += [(f"1e{decade}", eager, compiled) for decade, eager, compiled in rows]
    if unscaled["eager"] or unscaled["compiled"]:
        counts.append(("of 0", unscaled["eager"], unscaled["compiled"]))
    top = max((math.log1p(count) for _, *sides in counts for count in sides), default=0.0) or 1.0
    return [
        Bar(label, eager, compiled, math.log1p(eager) / top, math.log1p(compiled) / top)
        for label, eager, compiled in counts
    ]


def _level(error: float, low: float, high: float) -> int:
    if not math.isfinite(error) or high == low:
        return LEVELS
    return min(LEVELS, 1 + int((math.log10(error) - low) / (high - low) * LEVELS))


def _span(level: int, low: float, high: float) -> str:
    """Return the errors of one shade, in words."""
    if high == low:
        return f"{10**high:.2g}"
    step = (high - low) / LEVELS
    return f"{10 ** (low + (level - 1) * step):.2g} to {10 ** (low + level * step):.2g}"


def _layout(grid: Mapping[str, Any], shape: Sequence[int]) -> str:
    """Return one sentence on what rows, columns and cells mean."""
    width, rows, columns = grid["width"], grid["row_span"], grid["column_span"]
    if len(shape) > 2:
        sentence = f"Rows are the first {len(shape) - 1} dimensions, flattened; columns are the last."
    elif len(shape) == 2:
        sentence = "Rows and columns are the tensor's own."
    elif len(shape) == 1 and shape[0] > width:
        sentence = f"The vector goes on from row to row, {width} elements in each."
    else:
        sentence = "The tensor is one row."
    if rows * columns > 1:
        sentence += f" A cell holds up to {rows} x {columns} elements and shows the largest error among them."
    return sentence


def _range(grid: Mapping[str, Any], shape: Sequence[int], y: int, x: int) -> str:
    """Return the indices that a cell covers, such as ``[0, 3, 8:16]``; a range over several dimensions by its ends."""
    width, elements = grid["width"], math.prod(shape)
    rows = -(-elements // width)
    first_row, last_row = y * grid["row_span"], min((y + 1) * grid["row_span"], rows) - 1
    first, last = x * grid["column_span"], min((x + 1) * grid["column_span"], width) - 1
    start = index_of(first_row * width + first, shape)
    end = index_of(min(last_row * width + last, elements - 1), shape)
    if start == end:
        return number(start)
    if sum(a != b for a, b in zip(start, end, strict=True)) == 1:
        parts = [str(a) if a == b else f"{a}:{b + 1}" for a, b in zip(start, end, strict=True)]
        return f"[{', '.join(parts)}]"
    return f"{number(start)} to {number(end)}"
