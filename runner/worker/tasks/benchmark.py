"""The task ``bench``: the time a case takes to compile and to run, in eager and under its backend. Nothing is judged.

A job is one of three parts. ``cold`` compiles with an empty kernel cache. ``warm`` compiles again with the cache that
``cold`` left and then times both models. ``copy`` measures the device's memory. Each has a process of its own, forked
from one that has imported torch and its compilers and has compiled nothing.

Times are in seconds, memory in bytes. On the CPU ``torch.utils.benchmark.Timer`` measures. On CUDA it would measure
something else: a block of calls by the host's clock, which holds the launches and finds the last call's data in the L2
cache. ``do_bench`` measures one call between two events of the GPU, with that cache cleared. Neither measures memory or
counts kernels. Eager and compiled are timed in turns, and a ``Measurement`` is of one series, so the quartiles of all
are taken here.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.contract.job import Job
from runner.worker.program import backends
from runner.worker.program.eager import own_compilations
from runner.worker.program.errors import InvalidCase, describe
from runner.worker.program.load import LoadedCase, Source, seed_all
from runner.worker.program.observe import Observation, Settings, autocast, read_counts, synchronize
from runner.worker.program.snapshot import map_tensors, storage_key
from runner.worker.run.job import Send, validate_distributions, variable, with_source
from runner.worker.torch_private import counters
from runner.worker.torch_private.preparation import load_inductor

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Where Inductor and Triton keep what they compile; both ask the environment each time."""
WARM_UPS = 3
"""Calls before anything is timed: CUDA graphs are recorded in the second and third."""
ROUNDS = 3
"""Eager and compiled are timed in turns, so that a machine that slows down slows both."""
TIMED = ("cpu", "cuda")
"""Devices that there is a clock for."""
ROUND = 0.2
"""Seconds that one series lasts on the CPU at least: blocked_autorange's own default."""
WARM_MS, ROUND_MS = 25, 100
"""do_bench's own defaults: milliseconds of warming up, and of one series."""

Call = Callable[[], object]


class TimingFailed(Exception):
    """The model raised while it was timed. The arguments are during what (``eager``, ``compile`` or ``timing``), and
    the summary of its error."""


def run_bench(job: Job, send: Send) -> dict[str, Any]:
    """Return the record of one part.

    ``job.arguments``: ``part``, ``folder`` (of the kernel cache), ``repeat``, ``bytes`` (of a copy).

    Returns:
        Every part: ``device`` (its name) and ``threads``.
        ``copy``: ``seconds`` (a spread, see ``spread``) and ``bytes`` (read and written by one copy).
        ``cold`` and ``warm``: ``compile`` (``seconds`` of the first call, ``caches``: hits and misses of torch's
        caches), ``graphs``, ``graph_breaks``, ``recompiles``, ``notes``.
        ``cold``: ``generated`` (kernels, or null where Inductor compiled nothing), ``bytes`` (moved by a call),
        ``bytes_source``. ``warm``: ``eager`` and ``compiled``, each ``seconds``, ``memory`` (bytes or null) and
        ``launches`` (or null). ``raised`` (``during``, ``summary``) where the model raised; ``error`` if the case is
        wrong.
    """
    return with_source(job, lambda source: _part(job, source, send))


def _part(job: Job, source: Source, send: Send) -> dict[str, Any]:
    arguments, device = job.arguments, job.device
    select(device)
    facts = {"device": device_name(device), "threads": torch.get_num_threads()}
    if arguments["part"] == "copy":
        send({"phase": "timing"})
        return {**facts, **copy(device, int(arguments["bytes"]), int(arguments["repeat"]))}
    folder = arguments["folder"]
    with variable(CACHES[0], folder), variable(CACHES[1], str(Path(folder) / "triton")):
        try:
            return {**facts, **_Bench(job, source, send).record()}
        except TimingFailed as failed:
            return {**facts, "raised": dict(zip(("during", "summary"), failed.args, strict=True))}


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
            if cold:  # the bytes that a call moves are Inductor's own count, or else those of inputs and outputs
                counted = counters.bytes_accessed()
                source = "inductor" if counted else "inputs+outputs"
                return {**record, "bytes": counted or eager.bytes, "bytes_source": source}
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
        counters.start_counting()
        loaded = self._source.load(self._settings.seed)
        eager = RepeatedCall(loaded, loaded.model, self._settings)
        with self._failing_as("eager", eager):
            eager.first()
            synchronize(self._settings.device)
        if names := ", ".join(own_compilations()):
            eager.notes.append(f"the model compiles a part of itself ({names}): the times of eager hold compiled code")
        return eager

    def _compiled(self, cold: bool) -> tuple[RepeatedCall, dict[str, Any]]:
        loaded = self._source.load(self._settings.seed, launching=True)
        launched = self._job.backend["backend"] == backends.LAUNCH  # as they are: no copies between red zones
        target = loaded.model if launched else backends.build(self._job.backend)(loaded.model)
        compiled = RepeatedCall(loaded, target, self._settings)
        counters.start_counting()
        with self._failing_as("compile", compiled), counters.counting_bytes() if cold else contextlib.nullcontext():
            begun = time.perf_counter()
            compiled.first()
            synchronize(self._settings.device)
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
            results[name] = {"memory": memory(side, self._device)}
        series: dict[str, list[float]] = {name: [] for name in sides}
        least = -(-int(self._job.arguments["repeat"]) // ROUNDS)
        for number in range(ROUNDS):
            for name in sides if number % 2 == 0 else reversed(sides):
                validate_distributions(name == "eager")
                series[name] += times(sides[name], self._device, least)
        for name, side in sides.items():
            validate_distributions(side is eager)
            # Launches last: a profiler leaves traces.
            results[name].update(seconds=spread(series[name]), launches=launches(side, self._device))
        return results

    @contextlib.contextmanager
    def _failing_as(self, during: str, side: RepeatedCall) -> Iterator[None]:
        """Raise ``TimingFailed`` for whatever the model or the compiler raises."""
        try:
            yield
        except BaseException as error:
            raise TimingFailed(during, describe(error, self._source.path, side.module).summary) from error


def _cache_counts() -> dict[str, int]:
    """Return hits and misses of the caches for graphs; zeros where a cache was not asked."""
    graphs, autograd = (counters.of(kind) or {} for kind in ("inductor", "aot_autograd"))
    return {
        "graph_hits": graphs.get("fxgraph_cache_hit", 0),
        "graph_misses": graphs.get("fxgraph_cache_miss", 0),
        "autograd_hits": autograd.get("autograd_cache_hit", 0),
        "autograd_misses": autograd.get("autograd_cache_miss", 0),
    }


def select(device: str) -> None:
    """Make ``device`` the current one, and check that it can be timed.

    Raises:
        InvalidCase: it cannot.
    """
    kind, _, index = device.partition(":")
    if kind not in TIMED:
        raise InvalidCase(f"nothing here times device {kind}; {' and '.join(TIMED)} can be timed")
    if kind == "cuda":
        torch.cuda.set_device(int(index or 0))


def device_name(device: str) -> str:
    """Return the processor's or the GPU's own name; the device's if it has none."""
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name())
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return device


def times(call: Call, device: str, least: int) -> list[float]:
    """Return seconds of one call, measured at least ``least`` times, by the clock that fits the device."""
    return _cuda_times(call, least) if device.startswith("cuda") else _cpu_times(call, least)


def _cpu_times(call: Call, least: int) -> list[float]:
    """Return means of blocks of calls, so long that the clock does not matter."""
    from torch.utils.benchmark import Timer

    threads = torch.get_num_threads()
    timer = Timer("call()", globals={"call": call}, num_threads=threads)  # type: ignore[no-untyped-call,unused-ignore]
    measurement = timer.blocked_autorange(min_run_time=ROUND)
    seconds = [float(value) for value in measurement.times]
    while len(seconds) < least:
        seconds += timer.timeit(measurement.number_per_run).times
    return seconds


def _cuda_times(call: Call, least: int) -> list[float]:
    """Return times of single calls between two events of the GPU, with an empty L2 cache."""
    from triton.testing import do_bench

    seconds: list[float] = []
    rep: float = ROUND_MS
    while len(seconds) < least:
        series = do_bench(call, warmup=WARM_MS, rep=rep, return_mode="all")
        seconds += [float(milliseconds) / 1e3 for milliseconds in series]
        rep = math.ceil(max(ROUND_MS, 1.2e3 * (least - len(seconds)) * max(seconds)))
    return seconds


def spread(seconds: list[float]) -> dict[str, Any]:
    """Return ``median``, ``low`` and ``high`` (quartiles by linear interpolation), ``best`` and ``count`` of
    ``seconds``."""
    series = seconds if len(seconds) > 1 else seconds * 2  # quantiles asks for two
    low, median, high = statistics.quantiles(series, n=4, method="inclusive")
    return {"median": median, "low": low, "high": high, "best": min(seconds), "count": len(seconds)}


def memory(call: Call, device: str) -> int | None:
    """Return the bytes that one call takes at its peak beyond what was held; None if that cannot be measured.

    On CUDA it is what torch's allocator gave out. On the CPU it is the growth of the process's resident set
    (``ru_maxrss``). That comes in pages, and some hundred KiB late: a process's counters are kept by thread.
    """
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        baseline = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated()) - int(baseline)
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)  # else a call could live on what an earlier one has given back
    try:  # the peak of the resident set is reset to its current size (proc(5), ``clear_refs``)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    baseline = _peak()
    call()
    return _peak() - baseline


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def launches(call: Call, device: str) -> int | None:
    """Return how many kernels the GPU runs in one call, by torch.profiler; None on the CPU, and if it sees nothing."""
    if not device.startswith("cuda"):
        return None
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            call()
            torch.cuda.synchronize()
        events = list(profiler.events() or ())
    except RuntimeError:  # no CUPTI, or somebody else profiles
        return None
    kernels = [
        event
        for event in events
        if event.device_type == DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
    ]
    return sum(not event.name.startswith(("Memcpy", "Memset")) for event in kernels) if kernels else None


def copy(device: str, size: int, least: int) -> dict[str, Any]:
    """Copy ``size`` bytes (a quarter of the free memory at most) within the device.

    Returns:
        ``seconds`` (a spread) and ``bytes``, read and written.
    """
    if device.startswith("cuda"):
        size = min(size, torch.cuda.mem_get_info()[0] // 4)
    source = torch.ones(max(size // 4, 1), dtype=torch.float32, device=device)  # ones: pages nobody wrote are not read
    target = torch.zeros_like(source)
    seconds = times(lambda: target.copy_(source), device, least)
    return {"seconds": spread(seconds), "bytes": 2 * source.numel() * source.element_size()}


# --- a model and its inputs as one thing to call again and again ---


class RepeatedCall:
    """The case's first call, to be repeated. Inputs are made once; the grad mode around it is the caller's."""

    def __init__(self, loaded: LoadedCase, target: Callable[..., Any], settings: Settings) -> None:
        """Make the inputs of the first call.

        Args:
            target: the model or its compiled form.

        Raises:
            InvalidCase: making the inputs raised.
        """
        self.module = loaded.module.__name__
        self.notes: list[str] = []
        self.bytes = 0
        """Inputs, parameters, buffers and outputs of the first call."""
        self._target, self._call, self._settings = target, loaded.call, settings
        self._backward = settings.grad == "backward"
        self._cotangents: list[torch.Tensor] | None = None
        args = loaded.make_inputs(0, settings.seed)
        # Only a leaf can be differentiated twice without the graph of what made it.
        self._args = map_tensors(_leaf, args) if self._backward else args
        self._state = [*_tensors(self._args), *loaded.model.parameters(), *loaded.model.buffers()]
        self._sources = [tensor for tensor in self._state if tensor.requires_grad and tensor.is_leaf]
        if len(loaded.makers) > 1:
            self.notes.append(f"of its {len(loaded.makers)} calls the first is timed")
        if self._backward and settings.order > 1:
            self.notes.append("the first backward is timed, not those of a higher order")

    def first(self) -> None:
        """Make the first call, and note from it how the others go."""
        seed_all(self._settings.seed)
        versions = [_version(tensor) for tensor in self._state]
        result = self._forward()
        outputs = _tensors(result)
        self.bytes = _bytes([*self._state, *outputs])
        if self._backward:
            heads = [tensor for tensor in outputs if tensor.requires_grad]
            self._cotangents = [torch.ones_like(tensor) for tensor in heads]
            if heads:
                self._differentiate(heads)
            else:
                self.notes.append("no output takes a gradient: the forward alone is timed")
        if versions != [_version(tensor) for tensor in self._state]:
            self.notes.append("a call writes to its inputs or its state: each goes on from what the last one left")

    def __call__(self) -> None:
        """Call once as a user does, and drop the result."""
        result = self._forward()
        if self._cotangents:
            self._differentiate([tensor for tensor in _tensors(result) if tensor.requires_grad])

    def _forward(self) -> Any:
        with autocast(self._settings):
            return self._call(self._target, self._args)

    def _differentiate(self, heads: list[torch.Tensor]) -> None:
        torch.autograd.backward(heads, self._cotangents)
        for tensor in self._sources:
            tensor.grad = None


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same memory as a leaf if it is the result of an operation that would be differentiated."""
    return tensor.detach().requires_grad_() if tensor.requires_grad and not tensor.is_leaf else tensor


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the tensors' elements; elements that several share, or that one repeats, count once."""
    element_bytes: Counter[int] = Counter()
    storage_bytes: dict[int, int] = {}
    for tensor in {id(tensor): tensor for tensor in tensors}.values():
        if (key := storage_key(tensor)) is not None:
            element_bytes[key] += tensor.numel() * tensor.element_size()
            storage_bytes[key] = int(tensor.untyped_storage().nbytes())
    return sum(min(size, storage_bytes[key]) for key, size in element_bytes.items())
