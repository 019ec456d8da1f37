"""Ctrl-C, SIGTERM and SIGHUP: the first ends a command in order, the third ends it at once.

A signal raises KeyboardInterrupt where the program is. Inside ``held`` it is only noted. Code that must not end
half-way, such as the end of a run, asks for it with ``check``, or gets it when ``held`` ends. All of it happens in the
main thread, where Python runs handlers; in another thread ``held`` does nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

from runner import console, exit_codes

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LAST = 3
"""The signal that ends the command at once."""
_BURST = 0.3
"""Seconds in which further signals are the same wish: ``timeout`` sends two, a terminal that closes also."""


class _State:
    """What has come so far. Changed by the handler, which Python runs in the main thread between two instructions."""

    count = 0
    newest = float("-inf")
    depth = 0
    pending = False


def install() -> None:
    """Handle the signals from now on.

    One that is ignored already (``nohup``, a shell's background job) stays ignored.
    """
    for number in SIGNALS:
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handle)


def ignore() -> None:
    """Let no signal disturb what is left: the process is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Note signals instead of raising KeyboardInterrupt.

    The outermost one raises it at its end, unless ``noted`` was asked.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _State.depth += 1
    try:
        yield
    finally:
        _State.depth -= 1
    if _State.depth == 0:
        check()


def check() -> None:
    """Raise KeyboardInterrupt if a signal was noted."""
    if noted():
        raise KeyboardInterrupt


def noted() -> bool:
    """Return whether a signal was noted, and forget it."""
    pending, _State.pending = _State.pending, False
    return pending


def _handle(number: int, frame: FrameType | None) -> None:
    now = time.monotonic()
    if now - _State.newest < _BURST:
        return
    _State.newest = now
    _State.count += 1
    if _State.count >= LAST:
        os._exit(exit_codes.INTERRUPTED)  # the workers see that their connection is gone, and end
    if _State.count == LAST - 1:
        console.message("runner: ending; a third signal ends it at once, without reports")
    if _State.depth:
        _State.pending = True
    else:
        raise KeyboardInterrupt
