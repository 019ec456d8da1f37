"""Variants to rows: each part of a measurement a job in a process of its own, one after the other."""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.benchmark.model import Compile, Copy, Row, Side, Spread, Traffic
from runner.builder.source import Source, build
from runner.cases.limits import Limits
from runner.cases.model import LAUNCH
from runner.contract.job import Job
from runner.engine.messages import Engine, Outcome
from runner.exit_codes import UsageError
from runner.files import remove_tree
from runner.session.plan import Environment, Planned, job, skip_reason
from runner.session.scheduler import Steps, drive
from runner.verdict import outcomes

ENVIRON = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"}
"""torch's caches for graphs, which a verdict must do without, are on here, as users have them."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The settings of all measurements."""

    repeat: int = 10
    seed: int = 0
    imports: Sequence[str] = ()
    paths: Sequence[str] = ()
    limits: Limits | None = None


class Measurer:
    """Times planned variants with an engine that runs one job at a time."""

    def __init__(
        self, engine: Engine, options: Options, threads: Mapping[str, int], folder: Path, tick: Callable[[], None]
    ) -> None:
        """Ask nothing yet.

        Args:
            folder: where kernel caches may be; whoever ends the engine empties it afterwards.
            threads: for each environment's key how many a variant has whose case names none.
            tick: called several times a second while something is measured.
        """
        self._engine, self._options, self._threads = engine, options, threads
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
        reason = skip_reason(planned) or _untimed(planned)
        if reason:
            return dataclasses.replace(row, reason=reason)
        source = build(variant, limits=self._options.limits)
        error = next((diagnostic for diagnostic in source.diagnostics if diagnostic.severity == "error"), None)
        if error:
            return dataclasses.replace(row, status="invalid", reason=f"{error.span}: {error.message}")
        folder = tempfile.mkdtemp(dir=self._folder)
        try:
            return self._parts(row, planned, source, folder)
        finally:
            remove_tree(folder)  # the disk need not hold the kernels of all variants

    def _parts(self, row: Row, planned: Planned, source: Source, folder: str) -> Row:
        copy = self._copy(planned, source)
        row = dataclasses.replace(row, copy=copy, threads=self._of(planned))
        for part, words in (("cold", "compiling with no kernels kept"), ("warm", "compiling again, and timing")):
            self.doing = words
            outcome = self._ask(self._job(planned, source, part, folder=str(Path(folder) / "kernels")))
            row = read(row, part, outcome)
            if row.reason:
                break
        return row

    def _copy(self, planned: Planned, source: Source) -> Copy | None:
        """Return the copy of this device, measured once; None where that failed."""
        variant, environment = planned.variant, planned.environment
        kind = variant.device.partition(":")[0]
        key = environment.key, variant.device, self._of(planned)
        if key not in self.copies:
            self.doing = f"a copy on {variant.device}"
            outcome = self._ask(self._job(planned, source, "copy", bytes=COPY_BYTES[kind]))
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
        options = self._options
        self._number += 1
        base = job(planned, source, seed=options.seed, imports=options.imports, paths=options.paths,
                   suffix=f" bench {self._number}")  # fmt: skip
        return dataclasses.replace(
            base,
            task="bench",
            arguments={"part": part, "repeat": options.repeat, **arguments},
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
        return dataclasses.replace(row, status=status, reason=f"{outcomes.describe(outcome)}{where} ({part})")
    record = outcome.result
    if error := record.get("error"):
        status = "skip" if error["type"] == "Unavailable" else "invalid"
        return dataclasses.replace(row, status=status, reason=str(error["message"]))
    if raised := record.get("raised"):
        status, words = RAISED[raised["during"]]
        return dataclasses.replace(row, status=status, reason=f"{words} {raised['summary']}")
    compilation = Compile(record["compile"]["seconds"], record["compile"]["caches"])
    if part == "cold":
        traffic = Traffic(record["bytes"], record["bytes_source"])
        return dataclasses.replace(row, cold=compilation, generated=record["generated"], traffic=traffic)
    return dataclasses.replace(
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
    variant = planned.variant
    kind = variant.device.partition(":")[0]
    if kind not in COPY_BYTES:
        return f"nothing here times device {kind}; {' and '.join(COPY_BYTES)} can be timed"
    if kind == "cpu" and variant.backend.backend == LAUNCH:
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
