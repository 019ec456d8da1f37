"""Timings by hand."""

from __future__ import annotations

from typing import Any

from runner.benchmark.measure import Compile, Copy, Report, Row, Side, Spread, Traffic

CACHES = {"graph_hits": 0, "graph_misses": 1, "autograd_hits": 0, "autograd_misses": 1}
COPY = Copy("2.13.0", "cpu", "A processor", 2, 512 << 20, Spread(0.05, 0.049, 0.051, 0.048, 10))


def side(median: float, half: float = 0.01, memory: int | None = 1 << 20, launches: int | None = None) -> Side:
    """A side whose quartiles lie ``half`` of the median from it."""
    spread = Spread(median, median * (1 - half), median * (1 + half), median * (1 - half), 20)
    return Side(spread, memory, launches)


def row(name: str = "relu", eager: float = 2e-3, compiled: float = 1e-3, half: float = 0.01, **changes: Any) -> Row:
    """A timed row."""
    fields: dict[str, Any] = {
        "threads": 2,
        "cold": Compile(12.0, CACHES),
        "warm": Compile(0.5, {**CACHES, "graph_hits": 1, "graph_misses": 0}),
        "eager": side(eager, half),
        "compiled": side(compiled, half),
        "generated": 3,
        "traffic": Traffic(1 << 20, "inductor"),
        "copy": COPY,
        "graphs": 1,
        "graph_breaks": 0,
        "recompiles": 0,
    }
    return Row(
        f"a.spec.yaml::{name}[float32,cpu]@inductor", "2.13.0", "inductor", "cpu", "timed", **{**fields, **changes}
    )


def missing(status: str = "skip", reason: str = "no device cuda here", name: str = "gone", **fields: Any) -> Row:
    """A row without times."""
    return Row(f"a.spec.yaml::{name}[float32,cpu]@inductor", "2.13.0", "inductor", "cpu", status, reason, **fields)


def report(*rows: Row, **fields: Any) -> Report:
    """A report of rows."""
    return Report("0.1.0", "2026-01-02T03:04:05", 10, 0.1, rows, copies=(COPY,), **fields)
