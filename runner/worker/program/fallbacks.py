"""What ran eagerly under a backend because torch's compiler gave up, as torch's own record of compilations tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch._dynamo import exc
from torch._dynamo.utils import (
    CompilationMetrics,
    clear_compilation_metrics,
    counters,
    get_compilation_metrics,
    set_compilation_metrics_limit,
)

LENGTH = 200  # characters of a reason
MOST = 4096  # compilations that torch remembers; by itself 64
LIMIT = re.compile("recompile limit exceeded|cache_size_limit")  # as 2.13 and 2.6 count it
ADDRESS = re.compile(" at 0x[0-9a-f]+")
SKIPPED = re.compile(r"(?i)\bdisable\b.*\bfunction\b|marked as skipped|\bskip function\b")  # the last in 2.6


@dataclass(frozen=True)
class Fallbacks:
    """Frames that ran eagerly: those whose compile error nobody saw, and notes on the others."""

    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def forget_compilations() -> None:
    """Have torch forget its compilations, and remember more of the next ones."""
    set_compilation_metrics_limit(MOST)
    clear_compilation_metrics()


def find_fallbacks(raised: bool) -> Fallbacks:
    """Return what ran eagerly since ``forget_compilations``. The last error of a run that ``raised`` may be the one that it raised.

    A frame that torch does not support is left alone and noted. Any other error is raised, unless ``suppress_errors`` hides it or
    the case's Python catches it. It may catch what eager raises too.
    """
    found = Fallbacks()
    for metrics, kind in _failures():
        what = f"{metrics.co_name}: {metrics.fail_type}: {_summary(str(metrics.fail_reason or ''))}"
        if issubclass(kind, (exc.Unsupported, exc.UserError)):
            if not LIMIT.search(what):
                found.notes.append(f"torch compiled nothing of a frame, and its operators ran eagerly: {what}")
        elif metrics.config_suppress_errors or not (raised or issubclass(kind, exc.TorchRuntimeError)):
            found.errors.append(what)
    if any(LIMIT.search(str(reason)) for reason in counters["unimplemented"]):
        found.notes.append("torch reached its recompile limit: some calls ran eagerly under the backend")
    for reason in map(str, counters["graph_break"]):
        if SKIPPED.search(_summary(reason)):
            found.notes.append(f"a function that torch.compile is not to trace ran eagerly: {_summary(reason)}")
    return Fallbacks(list(dict.fromkeys(found.errors)), list(dict.fromkeys(found.notes)))


def _failures() -> Iterator[tuple[CompilationMetrics, type[BaseException]]]:
    """Yield frames that torch failed to compile, each with the class of the error where it is one of Dynamo's."""
    for metrics in get_compilation_metrics():
        if metrics.fail_type:
            yield metrics, getattr(exc, metrics.fail_type, Exception)


def _summary(reason: str) -> str:
    """Return the first line of a reason without addresses, and the next one where it only says who raised."""
    first, _, rest = ADDRESS.sub("", reason.strip()).partition("\n")
    return " ".join([first, rest.split("\n")[0]] if first.endswith(":") else [first])[:LENGTH]
