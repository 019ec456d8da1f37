"""``runner bench``: variants to rows, each part of a measurement a job in a process of its own, one after the other.

What was found is here too, in seconds and bytes; a GB is 10**9 bytes. ``schema/bench.schema.json`` describes it as
JSON.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.builder.source import Source, build
from runner.cases.model import LAUNCH
from runner.contract.job import Job
from runner.contract.settings import WAIT_POLICY
from runner.engine.messages import Engine, Outcome
from runner.exit_codes import UsageError
from runner.files import remove_tree
from runner.session.plan import Environment, Planned, job, skip_reason, worker_paths
from runner.session.scheduler import Steps, drive
from runner.session.settings import RunSettings
from runner.verdict import outcomes

ENVIRON = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1", WAIT_POLICY: ""}
"""torch's caches for graphs, which a verdict must do without, are on here, and threads wait, as users have them."""

COPY_BYTES = {"cpu": 256 << 20, "cuda": 1 << 30}
"""What is copied to measure memory: more than the caches of most processors and of every GPU hold."""

PHASES = {
    "load": "while it was loaded",
    "eager": "in eager",
    "backend": "while it was compiled",
    "timing": "while it was timed",
}
RAISED = {
    "eager": ("eager-error", "eager raised"),
    "compile": ("compile-error", "the backend raised"),
    "timing": ("runtime-error", "raised while it was timed:"),
}

_THREADS = "import torch; print(torch.get_num_threads())"


class Measurer:
    """Times planned variants with an engine that runs one job at a time."""

    def __init__(
        self, engine: Engine, settings: RunSettings, repeat: int, threads: Mapping[str, int], folder: Path,
        tick: Callable[[], None],
    ) -> None:  # fmt: skip
        """Ask nothing yet.

        Args:
            repeat: how often each run time is measured at least.
            folder: where kernel caches may be; whoever ends the engine empties it afterwards.
            threads: for each environment's key how many a variant has whose case names none.
            tick: called several times a second while something is measured.
        """
        self._engine, self._settings, self._repeat, self._threads = engine, settings, repeat, threads
        self._folder, self._tick = folder, tick
        self._number = 0
        self.copies: dict[tuple[str, str, int], Copy] = {}
        """What was measured of each environment, device and number of threads."""
        self.doing = ""
        """What is measured at the moment, in words."""

    def row(self, planned: Planned) -> Row:
        """Time one variant. If it cannot be timed, the row's reason says why."""
        variant, environment = planned.variant, planned.environment
        row = Row(variant.id, environment.torch, variant.backend.name, variant.device, "skip")
        if reason := skip_reason(planned) or _untimed(planned):
            return replace(row, reason=reason)
        source = build(variant, limits=self._settings.limits())
        error = next((diagnostic for diagnostic in source.diagnostics if diagnostic.severity == "error"), None)
        if error:
            return replace(row, status="invalid", reason=f"{error.span}: {error.message}")
        folder = tempfile.mkdtemp(dir=self._folder)
        try:
            return self._parts(row, planned, source, folder)
        finally:
            remove_tree(folder)  # the disk need not hold the kernels of all variants

    def _parts(self, row: Row, planned: Planned, source: Source, folder: str) -> Row:
        row = replace(row, copy=self._copy(planned, source), threads=self._of(planned))
        for part, words in (("cold", "compiling with no kernels kept"), ("warm", "compiling again, and timing")):
            self.doing = words
            row = read(row, part, self._ask(self._job(planned, source, part, folder=str(Path(folder) / "kernels"))))
            if row.reason:
                break
        return row

    def _copy(self, planned: Planned, source: Source) -> Copy | None:
        """Return the copy of this device, measured once; None where that failed."""
        variant, environment = planned.variant, planned.environment
        key = environment.key, variant.device, self._of(planned)
        if key not in self.copies:
            self.doing = f"a copy on {variant.device}"
            outcome = self._ask(self._job(planned, source, "copy", bytes=COPY_BYTES[variant.device.partition(":")[0]]))
            record = outcome.result
            if outcome.ended != "result" or "seconds" not in record:
                return None
            self.copies[key] = Copy(
                environment.torch, variant.device, record["device"], record["threads"], record["bytes"],
                Spread(**record["seconds"])
            )  # fmt: skip
        return self.copies[key]

    def _of(self, planned: Planned) -> int:
        return planned.variant.threads or self._threads[planned.environment.key]

    def _job(self, planned: Planned, source: Source, part: str, **arguments: Any) -> Job:
        settings = self._settings
        self._number += 1
        base = job(planned, source, seed=settings.seed, imports=settings.imports,
                   paths=worker_paths(settings, [planned.variant]), suffix=f" bench {self._number}")  # fmt: skip
        return replace(
            base,
            task="bench",
            arguments={"part": part, "repeat": self._repeat, **arguments},
            config=dict(planned.variant.config),  # without the switches of precision that ``runner run`` sets
            threads=self._of(planned),
            isolation="fork",
            cacheable=False,
            alone=True,
        )

    def _ask(self, request: Job) -> Outcome:
        def alone() -> Steps[Outcome]:
            (outcome,) = yield [request]
            return outcome

        return drive(self._engine, alone(), self._tick)


def read(row: Row, part: str, outcome: Outcome) -> Row:
    """Return the row with a job's record; its status is ``timed`` once the warm part is in it."""
    if outcome.ended != "result":
        status = {"timeout": "timeout", "memory": "memory", "broken": "broken"}.get(outcome.ended, "crash")
        where = "" if status == "broken" else f", {PHASES.get(outcome.phase, outcome.phase)}"
        return replace(row, status=status, reason=f"{outcomes.describe(outcome)}{where} ({part})")
    record = outcome.result
    if error := record.get("error"):
        status = "skip" if error["type"] == "Unavailable" else "invalid"
        return replace(row, status=status, reason=str(error["message"]))
    if raised := record.get("raised"):
        status, words = RAISED[raised["during"]]
        return replace(row, status=status, reason=f"{words} {raised['summary']}")
    compilation = Compile(record["compile"]["seconds"], record["compile"]["caches"])
    if part == "cold":
        return replace(
            row,
            cold=compilation,
            generated=record["generated"],
            traffic=Traffic(record["bytes"], record["bytes_source"]),
        )
    return replace(
        row,
        status="timed",
        warm=compilation,
        eager=_side(record["eager"]),
        compiled=_side(record["compiled"]),
        graphs=record["graphs"],
        graph_breaks=record["graph_breaks"],
        recompiles=record["recompiles"],
        notes=tuple(record["notes"]),
    )


def _side(record: Mapping[str, Any]) -> Side:
    return Side(Spread(**record["seconds"]), record["memory"], record["launches"])


def _untimed(planned: Planned) -> str:
    """Return why a variant that can run cannot be timed; empty if it can."""
    kind = planned.variant.device.partition(":")[0]
    if kind not in COPY_BYTES:
        return f"nothing here times device {kind}; {' and '.join(COPY_BYTES)} can be timed"
    if kind == "cpu" and planned.variant.backend.backend == LAUNCH:
        return "on the CPU Triton kernels are interpreted, which takes no time worth knowing"
    return ""


def default_threads(environment: Environment) -> int:
    """Return how many intra-op threads torch takes by default under a Python.

    A worker cannot tell, since it forks from a process that has one thread.

    Raises:
        UsageError: it does not say.
    """
    try:
        answer = subprocess.run(
            [environment.python, "-c", _THREADS], capture_output=True, stdin=subprocess.DEVNULL, cwd="/", timeout=120
        )
        return int(answer.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise UsageError(f"{environment.python} does not say how many threads torch takes: {error}") from None


# --- what was found ---

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
                {**asdict(copy), "seconds": _spread(copy.seconds), "bytes_per_second": copy.bandwidth}
                for copy in self.copies
            ],
            "rows": [_row(row) for row in self.rows],
            "speedup": self.speedup,
        }


def _row(row: Row) -> dict[str, Any]:
    record = asdict(row)
    del record["copy"]
    traffic = record.pop("traffic")
    return {
        **record,
        "eager": _plain_side(row.eager),
        "compiled": _plain_side(row.compiled),
        "moved": traffic,
        "notes": [*row.notes],
        "speedup": row.speedup,
        "speedup_range": None if row.speedup_range is None else [*row.speedup_range],
        "unclear": row.unclear,
        "bytes_per_second": row.bandwidth,
        "of_copy": row.of_copy,
    }


def _plain_side(side: Side | None) -> dict[str, Any] | None:
    return None if side is None else {**asdict(side), "seconds": _spread(side.seconds)}


def _spread(spread: Spread) -> dict[str, Any]:
    return {**asdict(spread), "range": spread.range}
