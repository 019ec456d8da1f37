"""The task ``bench``: the time a case takes to compile and to run, in eager and under its backend. Nothing is judged.

A job is one of three parts. ``cold`` compiles with an empty kernel cache. ``warm`` compiles again with the cache that
``cold`` left and then times both models. ``copy`` measures the device's memory. Each has a process of its own, forked
from one that has imported torch and its compilers and has compiled nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from runner.contract.job import Job
from runner.worker.program import backends
from runner.worker.program.errors import ErrorRecord, describe
from runner.worker.program.load import Source
from runner.worker.program.observe import Observation, Settings, read_counts
from runner.worker.program.own_compilation import own_compilations
from runner.worker.program.repeated import RepeatedCall
from runner.worker.run.job import Send, validate_distributions
from runner.worker.run.prepare import variable, with_source
from runner.worker.tasks import stopwatch
from runner.worker.torch_private import counters
from runner.worker.torch_private.counters import start_counting
from runner.worker.torch_private.preparation import load_inductor

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Where Inductor and Triton keep what they compile; both ask the environment each time."""
WARM_UPS = 3
"""Calls before anything is timed: CUDA graphs are recorded in the second and third."""
ROUNDS = 3
"""Eager and compiled are timed in turns, so that a machine that slows down slows both."""


class TimingFailed(Exception):
    """The model raised while it was timed."""

    def __init__(self, during: str, error: ErrorRecord) -> None:
        """Keep the error and ``during``, which is ``eager``, ``compile`` or ``timing``."""
        super().__init__(error.summary)
        self.during, self.error = during, error


def run_bench(job: Job, send: Send) -> dict[str, Any]:
    """Return the record of one part.

    ``job.arguments``: ``part``, ``folder`` (of the kernel cache), ``repeat``, ``bytes`` (of a copy).

    Returns:
        Every part: ``device`` (its name) and ``threads``.
        ``copy``: ``seconds`` (a spread, see ``stopwatch.spread``) and ``bytes`` (read and written by one copy).
        ``cold`` and ``warm``: ``compile`` (``seconds`` of the first call, ``caches``: hits and misses of torch's
        caches), ``graphs``, ``graph_breaks``, ``recompiles``, ``notes``.
        ``cold``: ``generated`` (kernels, or null where Inductor compiled nothing), ``bytes`` (moved by a call),
        ``bytes_source``. ``warm``: ``eager`` and ``compiled``, each ``seconds``, ``memory`` (bytes or null) and
        ``launches`` (or null). ``raised`` (``during``, ``summary``) where the model raised; ``error`` if the case is
        wrong.
    """
    send({"phase": "load"})
    return with_source(job, lambda source: _part(job, source, send))


def _part(job: Job, source: Source, send: Send) -> dict[str, Any]:
    arguments, device = job.arguments, job.device
    stopwatch.select(device)
    facts = {"device": stopwatch.device_name(device), "threads": torch.get_num_threads()}
    if arguments["part"] == "copy":
        send({"phase": "timing"})
        return {**facts, **stopwatch.copy(device, int(arguments["bytes"]), int(arguments["repeat"]))}
    folder = arguments["folder"]
    with variable(CACHES[0], folder), variable(CACHES[1], str(Path(folder) / "triton")):
        try:
            return {**facts, **_Bench(job, source, send).record()}
        except TimingFailed as failed:
            return {**facts, "raised": {"during": failed.during, "summary": failed.error.summary}}


class _Bench:
    """The model twice: as it is, and compiled."""

    def __init__(self, job: Job, source: Source, send: Send) -> None:
        self._job, self._source, self._send = job, source, send
        self._settings = Settings.of(job)
        self._device = job.device

    def record(self) -> dict[str, Any]:
        """Return the record, see ``run_bench``.

        Raises:
            TimingFailed: the model raised.
            InvalidCase: the case is wrong.
        """
        cold = self._job.arguments["part"] == "cold"
        load_inductor()
        with torch.set_grad_enabled(self._settings.grad != "off"):
            self._send({"phase": "eager"})
            validate_distributions(True)
            eager = self._eager()
            self._send({"phase": "backend"})
            compiled, record = self._compiled(cold)
            if cold:
                return {**record, **_memory_traffic(eager)}
            self._send({"phase": "timing"})
            with self._failing_as("timing", eager):
                record.update(self._timed(eager, compiled))
        # Again, now that it has run often: a model that counts its calls is compiled again and again.
        recount = self._counts()
        notes = dict.fromkeys([*record["notes"], *recount["notes"], *eager.notes])
        if recount["recompiles"] > record["recompiles"]:
            notes["it was compiled again while it was repeated, and the times hold that"] = None
        return {**record, **recount, "notes": list(notes)}

    def _eager(self) -> RepeatedCall:
        """Return the model after one run, so that no first-use loading of torch counts as the compiler's time."""
        start_counting()
        loaded = self._source.load(self._settings.seed)
        eager = RepeatedCall(loaded, loaded.model, self._settings)
        with self._failing_as("eager", eager):
            eager.first()
            stopwatch.synchronize(self._device)
        if names := ", ".join(own_compilations()):
            eager.notes.append(f"the model compiles a part of itself ({names}): the times of eager hold compiled code")
        return eager

    def _compiled(self, cold: bool) -> tuple[RepeatedCall, dict[str, Any]]:
        loaded = self._source.load(self._settings.seed, launching=True)
        launched = self._job.backend["backend"] == backends.LAUNCH  # as they are: no copies between red zones
        target = loaded.model if launched else backends.build(self._job.backend)(loaded.model)
        compiled = RepeatedCall(loaded, target, self._settings)
        start_counting()
        with self._failing_as("compile", compiled), counters.counting_bytes() if cold else contextlib.nullcontext():
            begun = time.perf_counter()
            compiled.first()
            stopwatch.synchronize(self._device)
            seconds = time.perf_counter() - begun
        record = {**self._counts(), "compile": {"seconds": seconds, "caches": _cache_counts()}}
        if not launched and record["graphs"] == 0:
            record["notes"].append("nothing was compiled: torch found no graph, and both sides ran eagerly")
        if cold:
            record["generated"] = counters.generated()
        return compiled, record

    def _counts(self) -> dict[str, Any]:
        observation = Observation()
        read_counts(observation)
        return {key: getattr(observation, key) for key in ("graphs", "graph_breaks", "recompiles", "notes")}

    def _timed(self, eager: RepeatedCall, compiled: RepeatedCall) -> dict[str, Any]:
        sides = {"eager": eager, "compiled": compiled}
        results: dict[str, dict[str, Any]] = {}
        for name, side in sides.items():
            validate_distributions(side is eager)  # torch.compile turns the checks off, eager has them
            for _ in range(WARM_UPS):
                side()
            results[name] = {"memory": stopwatch.memory(side, self._device)}
        times: dict[str, list[float]] = {name: [] for name in sides}
        least = -(-int(self._job.arguments["repeat"]) // ROUNDS)
        for number in range(ROUNDS):
            for name in sides if number % 2 == 0 else reversed(sides):
                validate_distributions(name == "eager")
                times[name] += stopwatch.times(sides[name], self._device, least)
        for name, side in sides.items():
            validate_distributions(side is eager)
            results[name]["seconds"] = stopwatch.spread(times[name])
            results[name]["launches"] = stopwatch.launches(side, self._device)  # last: a profiler leaves traces
        return results

    @contextlib.contextmanager
    def _failing_as(self, during: str, side: RepeatedCall) -> Iterator[None]:
        """Raise ``TimingFailed`` for whatever the model or the compiler raises."""
        try:
            yield
        except BaseException as error:
            raised = describe(error, self._source.path, side.module)
            raise TimingFailed(during, raised) from error


def _memory_traffic(eager: RepeatedCall) -> dict[str, Any]:
    """Return how many bytes a compiled call moves: Inductor's own count, or else those of inputs and outputs."""
    counted = counters.bytes_accessed()
    if counted:
        return {"bytes": counted, "bytes_source": "inductor"}
    return {"bytes": eager.bytes, "bytes_source": "inputs+outputs"}


def _cache_counts() -> dict[str, int]:
    """Return hits and misses of the caches for graphs; zeros where a cache was not asked."""
    graphs, autograd = (counters.of(kind) or {} for kind in ("inductor", "aot_autograd"))
    return {
        "graph_hits": graphs.get("fxgraph_cache_hit", 0),
        "graph_misses": graphs.get("fxgraph_cache_miss", 0),
        "autograd_hits": autograd.get("autograd_cache_hit", 0),
        "autograd_misses": autograd.get("autograd_cache_miss", 0),
    }
