"""Which operators torch runs meanwhile, by its profiler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from runner.worker.torch_private.doors import Door

_UNCHECKED = "what a backend gives back to torch is not counted"
# It prints nothing, unlike the one that succeeds it, and runs in one thread.
_PROFILE = Door("torch.autograd.profiler_legacy:profile", _UNCHECKED)
_IS_RUNNING = Door("torch.autograd:_profiler_enabled", _UNCHECKED)

Event = tuple[str, tuple[str, ...]]
"""The name of an operator, such as ``aten::mm``, and the names of those that called it."""


@contextlib.contextmanager
def profiled() -> Iterator[list[Event] | None]:
    """Note what torch runs in this thread while the block lasts: the list is full afterwards.

    None where this torch cannot say it, or where a profiler runs already.
    """
    profile = _PROFILE.find()
    if profile is None or _IS_RUNNING.call() in (None, True):
        yield None
        return
    events: list[Event] = []
    with profile() as watch:
        yield events
    for event in watch.function_events or ():
        events.append((str(event.name), tuple(_callers(event))))


def _callers(event: object) -> Iterator[str]:
    while (event := getattr(event, "cpu_parent", None)) is not None:
        yield str(getattr(event, "name", ""))
