"""What ran eagerly under a backend, and why, as torch's own record of compilations tells."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from runner.worker.torch_private import counters
from runner.worker.torch_private.doors import Door

_EXCEPTIONS = Door(
    "torch._dynamo.exc", "errors of the compiler that nobody saw are not told from what it does not support"
)

LENGTH = 200  # characters of a reason
LIMIT = re.compile("recompile limit exceeded|cache_size_limit")  # as 2.13 and 2.6 count it
ADDRESS = re.compile(" at 0x[0-9a-f]+")
SKIPPED = re.compile(
    r"(?i)\bdisable\b.*\bfunction\b|marked as skipped|\bskip function\b|\bunsupported builtin\b"
)  # the last two in 2.6
BREAK = re.compile(r"\bskip function graph_break in file .*/torch/_dynamo/decorators\.py")
"""How torch 2.6 records a call of ``torch._dynamo.graph_break``, which runs nothing."""


@dataclass(frozen=True)
class Fallbacks:
    """Frames that ran eagerly: those whose compile error nobody saw, and notes on the others."""

    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_fallbacks(raised: bool) -> Fallbacks:
    """Return what ran eagerly since ``counters.start_counting``. The last error of a run that ``raised`` may be the one
    it raised.

    A frame that torch does not support is left alone and noted. Any other error is raised, unless ``suppress_errors``
    hides it or the case's Python catches it. It may catch what eager raises too.
    """
    found = Fallbacks()
    exceptions = _EXCEPTIONS.find()
    for metrics in counters.compilations() if exceptions is not None else ():
        if not metrics.fail_type:
            continue
        what = f"{metrics.co_name}: {metrics.fail_type}: {_summary(str(metrics.fail_reason or ''))}"
        kind = getattr(exceptions, metrics.fail_type, Exception)
        if issubclass(kind, (exceptions.Unsupported, exceptions.UserError)):
            if not LIMIT.search(what):
                found.notes.append(f"torch compiled nothing of a frame, and its operators ran eagerly: {what}")
        elif metrics.config_suppress_errors or not (raised or issubclass(kind, exceptions.TorchRuntimeError)):
            found.errors.append(what)
    if any(LIMIT.search(reason) for reason in counters.of("unimplemented") or ()):
        found.notes.append("torch reached its recompile limit: some calls ran eagerly under the backend")
    for reason in counters.of("graph_break") or ():
        if SKIPPED.search(_summary(reason)) and not BREAK.search(reason):
            found.notes.append(f"a function that torch.compile is not to trace ran eagerly: {_summary(reason)}")
    return Fallbacks(list(dict.fromkeys(found.errors)), list(dict.fromkeys(found.notes)))


def _summary(reason: str) -> str:
    """Return the first line of a reason without addresses, and the next one where it only says who raised."""
    first, _, rest = ADDRESS.sub("", reason.strip()).partition("\n")
    return " ".join([first, rest.split("\n")[0]] if first.endswith(":") else [first])[:LENGTH]


FLAG = re.compile(r"torch\._dynamo\.config\.\w+(?= ?= ?True)")
"""A flag that torch's hint says to set."""


def why_uncompiled() -> str:
    """Return why no graph was compiled since torch's counters were cleared, and the flag that changes it; empty if
    torch names no reason."""
    for reason in (str(key) for kind in ("unimplemented", "graph_break") for key in counters.of(kind) or ()):
        flag = FLAG.search(reason)
        remedy = f"; to have it traced: config: {{{flag[0]}: true}}" if flag else ""
        return reason.strip().split("\n")[0][:LENGTH] + remedy
    return ""
