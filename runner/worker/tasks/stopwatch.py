"""Measurements of times, memory, kernel launches, and a copy, on the CPU and on CUDA, in seconds and bytes.

On the CPU ``torch.utils.benchmark.Timer`` measures. On CUDA it would measure something else: a block of calls by the
host's clock, which holds the launches and finds the last call's data in the L2 cache. ``do_bench`` measures one call
between two events of the GPU, with that cache cleared. Neither measures memory or counts kernels. Eager and compiled
are timed in turns, and a ``Measurement`` is of one series, so the quartiles of all are taken here.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import resource
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from runner.worker.program.errors import InvalidCase

TIMED = ("cpu", "cuda")
"""Devices that there is a clock for."""
ROUND = 0.2
"""Seconds that one series lasts on the CPU at least: blocked_autorange's own default."""
WARM_MS, ROUND_MS = 25, 100
"""do_bench's own defaults: milliseconds of warming up, and of one series."""

Call = Callable[[], object]


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


def synchronize(device: str) -> None:
    """Wait until the device has finished its work."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


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
        seconds += [
            float(milliseconds) / 1e3 for milliseconds in do_bench(call, warmup=WARM_MS, rep=rep, return_mode="all")
        ]
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
    if not _forget_peak():
        return None
    baseline = _peak()
    call()
    return _peak() - baseline


def _forget_peak() -> bool:
    """Reset the peak of the resident set to its current size (proc(5), ``clear_refs``)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


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
