"""What torch's compiler counts and records: graphs, breaks, recompilations, kernels, cache hits, what ran eagerly.

A count is None where this torch has no such counter. It is never 0 for that reason.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from runner.worker.torch_private.doors import Door, report, version

_COUNTERS = Door("torch._dynamo.utils:counters", "graphs, graph breaks and graphs from caches are not counted")
_METRICS = Door("torch._dynamo.utils:get_compilation_metrics", "recompilations are not counted")
_LIMIT = Door("torch._dynamo.utils:set_compilation_metrics_limit", "only the last 64 compilations are looked at")
_CLEAR = Door("torch._dynamo.utils:clear_compilation_metrics", "recompilations are not counted")
_RESET = Door("torch._inductor.metrics:reset", "Inductor's kernels are not counted")
_KERNELS = Door("torch._inductor.metrics:generated_kernel_count", "Inductor's kernels are not counted")
_METRICS_MODULE = Door(
    "torch._inductor.metrics", "Inductor's counts are not in a debug folder, and bytes are not counted"
)
_BYTES = Door("torch._inductor.metrics:num_bytes_accessed", "bytes are those of inputs and outputs")
_NODES = Door("torch._inductor.metrics:ir_nodes_pre_fusion", "whether Inductor has compiled anything is not known")
_BYTES_LOG = Door("torch._inductor.compile_fx:inductor_metrics_log", "bytes are those of inputs and outputs", ("2.13",))
_TIMES = Door("torch._dynamo.utils:compile_times", "seconds by phase are not in a debug folder")
_VECTORIZED = Door("torch._inductor.metrics:generated_cpp_vec_kernel_count", "kernels with vectors are not counted")
for _door in (_COUNTERS, _METRICS, _LIMIT, _CLEAR):
    _door.find()  # before a case can replace it

_BENCHMARKS = {"padding": "pad_mm_bench", "autotuning": "select_algorithm_autotune"}
"""Inductor's counts of benchmarks, by what they choose. torch 2.6 counts none of padding."""

COUNTS = ("graphs", "graph_breaks", "recompiles")
"""What a case may bound, by the names that ``expect`` has for it."""

MOST = 4096  # compilations that torch remembers; by itself 64

_lost: frozenset[str] | None = None


def start_counting() -> None:
    """Forget what torch compiled and counted before."""
    torch.compiler.reset()
    if (counters := _COUNTERS.find()) is not None:
        counters.clear()
    _LIMIT.call(MOST)
    _CLEAR.call()
    if _RESET.is_loaded() and (reset := _RESET.now()) is not None:
        reset()


def of(kind: str) -> dict[str, int] | None:
    """Return the counts of one kind, such as ``graph_break``, by name; None without counters."""
    counters = _COUNTERS.find()
    return None if counters is None else {str(key): int(value) for key, value in counters.get(kind, {}).items()}


def everything() -> dict[str, dict[str, int]]:
    """Return all counts by kind and name."""
    return {kind: of(kind) or {} for kind in list(_COUNTERS.find() or ())}


def benchmarked() -> tuple[str, ...]:
    """Return what torch has chosen by a benchmark since ``start_counting``, of the contract's CHOICES.

    What it chose by a benchmark of an earlier compilation in this process is left out.
    """
    counts = of("inductor") or {}
    return tuple(choice for choice, name in _BENCHMARKS.items() if counts.get(name))


def graphs() -> int | None:
    """Return how many graphs Dynamo has given to backends since ``start_counting``."""
    counts = of("stats")
    return None if counts is None else counts.get("unique_graphs", 0)


def recompiles() -> int | None:
    """Return how often a frame was compiled that had been compiled.

    The id of such a compilation is ``frame/n`` with n > 0, on 2.6 as on 2.13. Of more compilations than ``MOST`` it is
    a lower bound.
    """
    if _METRICS.find() is None or _CLEAR.find() is None:
        return None
    ids = (str(metrics.compile_id or "").partition("/") for metrics in compilations())
    attempts = ((frame, attempt.partition("_")[0]) for frame, _, attempt in ids)
    return len({(frame, number) for frame, number in attempts if number.isdigit() and int(number) > 0})


def compilations() -> Sequence[Any]:
    """Return torch's own records of its compilations since ``start_counting``, failed ones included."""
    return _METRICS.call() or ()


def kernels() -> tuple[int | None, int | None]:
    """Return how many kernels Inductor has generated, and how many of them have vector instructions.

    A graph from a cache counts as when it was compiled.
    """
    return (_KERNELS.now(), _VECTORIZED.now()) if _KERNELS.is_loaded() else (0, 0)


def generated() -> int | None:
    """Return how many kernels Inductor has generated, also where it was not loaded before; None where it has lowered no
    graph."""
    return _KERNELS.now() if _NODES.now() else None


def bytes_accessed() -> int:
    """Return how many bytes Inductor's kernels move by its own count; 0 where it has none."""
    return int(_BYTES.now() or 0)


@contextlib.contextmanager
def counting_bytes() -> Iterator[None]:
    """Let Inductor count bytes: newer versions (2.13; 2.6 always does) count only where this log is on.

    Nobody reads it.
    """
    log = _BYTES_LOG.now()
    if log is None:
        yield
        return
    original = log.level, log.propagate
    log.setLevel("INFO")
    log.propagate = False
    try:
        yield
    finally:
        log.setLevel(original[0])
        log.propagate = original[1]


def kernel_counts() -> dict[str, int]:
    """Return Inductor's own counts: kernels generated, vectorized ones, nodes before fusion, ..."""
    counts = vars(_METRICS_MODULE.now() or object)
    return {name: value for name, value in counts.items() if type(value) is int and not name.startswith("_")}


def times() -> dict[str, list[float]]:
    """Return the seconds of each entry into a phase of a compilation, by phase. Phases contain each other."""
    if _TIMES.find() is None:
        return {}
    names, values = _TIMES.find()(repr="csv", aggregate=False)
    return {
        str(name): [float(part) for part in str(value).split(",")] for name, value in zip(names, values, strict=False)
    }


def lost(counts: Iterable[str]) -> frozenset[str]:
    """Return which of COUNTS this torch no longer counts under the names that are read here. What is lost is reported.

    A function is compiled by a backend that counts for itself. Nothing is lost where torch compiles nothing at all, as
    a case may ask it to: then zeros are right.
    """
    global _lost
    if _lost is None:
        _lost = _try_counts()
    gone = (_lost or frozenset[str]()).intersection(counts)
    for name in sorted(gone):
        report(f"torch {version()} counts {name.replace('_', ' ')} under another name: they are not checked")
    return gone


def _try_counts() -> frozenset[str] | None:
    """Compile, with a graph break and a recompilation, and return which counts did not move; None if torch compiled
    nothing."""
    called: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        called.append(1)
        return graph.forward

    interrupt = torch.compiler.disable(lambda: None)

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        interrupt()
        return y.cos()

    before = _values()
    try:
        compiled = torch.compile(broken, backend=backend, dynamic=False)
        for size in (2, 3):
            compiled(torch.ones(size))
    except Exception:  # noqa: BLE001  flags of the case may forbid any of it
        return None
    if len(called) < 4:
        return None
    return frozenset(name for name, value in _values().items() if value == before[name])


def _values() -> dict[str, int | None]:
    breaks = of("graph_break")
    return {
        "graphs": graphs(),
        "graph_breaks": None if breaks is None else sum(breaks.values()),
        "recompiles": recompiles(),
    }


# --- what ran eagerly under a backend, and why ---

_EXCEPTIONS = Door(
    "torch._dynamo.exc", "errors of the compiler that nobody saw are not told from what it does not support"
)
_LENGTH = 200  # characters of a reason
_LIMIT_HIT = re.compile("recompile limit exceeded|cache_size_limit")  # as 2.13 and 2.6 count it
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
_SKIPPED = re.compile(
    r"(?i)\bdisable\b.*\bfunction\b|marked as skipped|\bskip function\b|\bunsupported builtin\b"
)  # the last two in 2.6
_BREAK = re.compile(r"\bskip function graph_break in file .*/torch/_dynamo/decorators\.py")
"""How torch 2.6 records a call of ``torch._dynamo.graph_break``, which runs nothing."""
_FLAG = re.compile(r"torch\._dynamo\.config\.\w+(?= ?= ?True)")
"""A flag that torch's hint says to set."""


def find_fallbacks(raised: bool) -> tuple[list[str], list[str]]:
    """Return which frames ran eagerly since ``start_counting``: those whose compile error nobody saw, and notes on the
    others. The last error of a run that ``raised`` may be the one it raised.

    A frame that torch does not support is left alone and noted. Any other error is raised, unless ``suppress_errors``
    hides it or the case's Python catches it. It may catch what eager raises too.
    """
    errors: dict[str, None] = {}
    notes: dict[str, None] = {}
    exceptions = _EXCEPTIONS.find()
    for metrics in compilations() if exceptions is not None else ():
        if not metrics.fail_type:
            continue
        what = f"{metrics.co_name}: {metrics.fail_type}: {_summary(str(metrics.fail_reason or ''))}"
        kind = getattr(exceptions, metrics.fail_type, Exception)
        if issubclass(kind, (exceptions.Unsupported, exceptions.UserError)):
            if not _LIMIT_HIT.search(what):
                notes[f"torch compiled nothing of a frame, and its operators ran eagerly: {what}"] = None
        elif metrics.config_suppress_errors or not (raised or issubclass(kind, exceptions.TorchRuntimeError)):
            errors[what] = None
    if any(_LIMIT_HIT.search(reason) for reason in of("unimplemented") or ()):
        notes["torch reached its recompile limit: some calls ran eagerly under the backend"] = None
    for reason in of("graph_break") or ():
        if _SKIPPED.search(_summary(reason)) and not _BREAK.search(reason):
            notes[f"a function that torch.compile is not to trace ran eagerly: {_summary(reason)}"] = None
    return [*errors], [*notes]


def _summary(reason: str) -> str:
    """Return the first line of a reason without addresses, and the next one where it only says who raised."""
    first, _, rest = _ADDRESS.sub("", reason.strip()).partition("\n")
    return " ".join([first, rest.split("\n")[0]] if first.endswith(":") else [first])[:_LENGTH]


def why_uncompiled() -> str:
    """Return why no graph was compiled since torch's counters were cleared, and the flag that changes it; empty if
    torch names no reason."""
    for reason in (str(key) for kind in ("unimplemented", "graph_break") for key in of(kind) or ()):
        flag = _FLAG.search(reason)
        remedy = f"; to have it traced: config: {{{flag[0]}: true}}" if flag else ""
        return reason.strip().split("\n")[0][:_LENGTH] + remedy
    return ""
