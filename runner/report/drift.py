"""Drift as a table: how far each result of a graph is from float64, in eager and compiled, with a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence

from runner.graphs.drift import Drift, DriftRow
from runner.text import draw_table, in_line, one_line

_BAR = 24
_LARGEST = 1 << 24
"""Units in the last place for which a bar is full: what a float32 has between a power of two and the next, and more."""

_HEADS = ("", "operator", "result", "differ", "eager", "compiled", "error of compiled, in ulp (log)")


def render(drifts: Sequence[Drift], width: int = 120) -> str:
    """Return tables and what they say: one of each graph. Errors are in units in the last place from float64."""
    return "\n\n".join(_graph(drift, width) for drift in drifts)


def _graph(drift: Drift, width: int) -> str:
    if not drift.rows:
        return f"{in_line(drift.graph)}: it gives no floating result that could be measured"
    rows = [_row(row, place == drift.enters) for place, row in enumerate(drift.rows)]
    if sum(len(head) for head in _HEADS) + _BAR > width:
        rows = [row[:-1] for row in rows]
    return "\n".join([in_line(drift.graph), draw_table(rows, [*_HEADS][: len(rows[0])]), verdict(drift)])


def _row(row: DriftRow, enters: bool) -> list[str]:
    share = f"{row.different}/{row.elements}"
    return ["->" * enters, in_line(row.operator), in_line(row.name), share, _text(row.eager), _text(row.compiled),
            bar(row.compiled)]  # fmt: skip


def _text(error: float | None) -> str:
    return "-" if error is None else f"{error:.3g}"


def bar(error: float | None) -> str:
    """Return a bar as long as the logarithm of an error in ulp; empty below half a unit, which any rounding has."""
    if error is None or error <= 0.5:
        return ""
    return "#" * max(1, round(_BAR * min(1.0, math.log2(min(error, _LARGEST) * 2) / math.log2(_LARGEST * 2))))


def verdict(drift: Drift) -> str:
    """Return what the rows say in a sentence: where an error enters, or that none does, and the last row's."""
    last = drift.rows[-1]
    end = f"the last result is off by {_text(last.compiled)} ulp compiled, {_text(last.eager)} in eager"
    if drift.enters is None:
        return one_line(f"No error enters at one call; {end}.")
    row = drift.rows[drift.enters]
    where = f" ({row.source})" if row.source else ""
    return one_line(f"The error enters at {row.operator}{where}; {end}.", 400)
