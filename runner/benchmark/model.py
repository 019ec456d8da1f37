"""What ``runner bench`` found.

Seconds and bytes; a GB is 10**9 bytes. ``schema/bench.schema.json`` describes it as JSON.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

VERSION = 1
"""Of the JSON. Keys may be added under one version; nothing else changes."""

BUSY = 0.25
"""Load per processor from which it is said that others work on the machine."""

STATUSES = (
    "timed", "skip", "invalid", "eager-error", "compile-error", "runtime-error", "timeout", "memory", "crash", "broken",
)  # fmt: skip
"""What became of a variant; all but the first come with a reason."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of one thing measured ``count`` times: the median, the quartiles ``low`` and ``high``, the best."""

    median: float
    low: float
    high: float
    best: float
    count: int

    @property
    def range(self) -> float:
        """Return the interquartile range, in seconds."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Copy:
    """The timing of a large copy, which measures a device's memory. ``bytes`` are those read and those written."""

    torch: str
    device: str
    name: str
    threads: int
    bytes: int
    seconds: Spread

    @property
    def bandwidth(self) -> float:
        """Return bytes a second."""
        return self.bytes / self.seconds.median


@dataclass(frozen=True, slots=True)
class Compile:
    """The first call under the backend, in a process that has compiled nothing.

    ``caches`` are hits and misses of torch's caches for graphs.
    """

    seconds: float
    caches: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Side:
    """Eager or compiled, called again and again. ``launches`` are kernels that the GPU ran in one call."""

    seconds: Spread
    memory: int | None
    launches: int | None


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a compiled call moves. ``source`` is ``inductor``, or ``inputs+outputs`` for a lower bound."""

    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Row:
    """One variant in one environment. What was not measured is None."""

    id: str
    torch: str
    backend: str
    device: str
    status: str
    reason: str = ""
    threads: int | None = None
    cold: Compile | None = None
    warm: Compile | None = None
    eager: Side | None = None
    compiled: Side | None = None
    generated: int | None = None  # kernels that Inductor made
    traffic: Traffic | None = None
    copy: Copy | None = None  # of its device and threads
    graphs: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def speedup(self) -> float | None:
        """Return median eager time by median compiled time."""
        eager, compiled = self.eager, self.compiled
        return None if eager is None or compiled is None else eager.seconds.median / compiled.seconds.median

    @property
    def speedup_range(self) -> tuple[float, float] | None:
        """Return the least and the greatest speed-up that the quartiles of both sides allow."""
        if self.eager is None or self.compiled is None:
            return None
        eager, compiled = self.eager.seconds, self.compiled.seconds
        return eager.low / compiled.high, eager.high / compiled.low

    @property
    def unclear(self) -> bool:
        """Return whether the quartiles of both sides overlap, so that either may be the faster one."""
        ends = self.speedup_range
        return ends is not None and ends[0] <= 1 <= ends[1]

    @property
    def bandwidth(self) -> float | None:
        """Return the bytes a second that the compiled call moves."""
        traffic, compiled = self.traffic, self.compiled
        return None if traffic is None or compiled is None else traffic.bytes / compiled.seconds.median

    @property
    def of_copy(self) -> float | None:
        """Return that bandwidth by the copy's. It exceeds 1 where caches serve what a large copy must fetch."""
        return None if self.bandwidth is None or self.copy is None else self.bandwidth / self.copy.bandwidth


@dataclass(frozen=True, slots=True)
class Report:
    """All rows of one command, and what they were measured on.

    ``load`` is the machine's, per processor, before it began.
    """

    version: str
    started: str
    repeat: int
    load: float
    rows: Sequence[Row]
    interrupted: bool = False
    copies: Sequence[Copy] = field(default_factory=tuple)

    @property
    def timed(self) -> list[Row]:
        """Return the rows with times."""
        return [row for row in self.rows if row.status == "timed"]

    @property
    def speedup(self) -> float | None:
        """Return the geometric mean of the speed-ups, the mean for ratios; None without any."""
        speedups = [row.speedup for row in self.rows if row.speedup]
        return math.exp(math.fsum(map(math.log, speedups)) / len(speedups)) if speedups else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as ``schema/bench.schema.json`` describes."""
        return {
            "schema": VERSION,
            "runner": self.version,
            "started": self.started,
            "repeat": self.repeat,
            "load": self.load,
            "interrupted": self.interrupted,
            "copies": [
                {**dataclasses.asdict(copy), "seconds": _spread(copy.seconds), "bytes_per_second": copy.bandwidth}
                for copy in self.copies
            ],
            "rows": [_row(row) for row in self.rows],
            "speedup": self.speedup,
        }


def _row(row: Row) -> dict[str, Any]:
    record = dataclasses.asdict(row)
    del record["copy"]
    traffic = record.pop("traffic")
    return {
        **record,
        "eager": _side(row.eager),
        "compiled": _side(row.compiled),
        "moved": traffic,
        "notes": [*row.notes],
        "speedup": row.speedup,
        "speedup_range": None if row.speedup_range is None else [*row.speedup_range],
        "unclear": row.unclear,
        "bytes_per_second": row.bandwidth,
        "of_copy": row.of_copy,
    }


def _side(side: Side | None) -> dict[str, Any] | None:
    return None if side is None else {**dataclasses.asdict(side), "seconds": _spread(side.seconds)}


def _spread(spread: Spread) -> dict[str, Any]:
    return {**dataclasses.asdict(spread), "range": spread.range}
