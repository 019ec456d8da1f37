"""Calls of code that belongs to a case's objects: what raises, or does not end, must not end or delay the job."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

SECONDS = 0.5
"""How long a call may take that reads what an object holds in memory."""

_REASON_LENGTH = 200
_Result = TypeVar("_Result")


class Refusal(Exception):
    """An object cannot be read; the text says why."""


class _Late(BaseException):
    """The call takes too long."""


def ask(function: Callable[[], _Result]) -> _Result:
    """Return what a function returns.

    Raises:
        Refusal: it raises, or takes longer than ``SECONDS``. Only the main thread can stop it.
    """
    try:
        with _limit():
            return function()
    except _Late:
        raise Refusal(f"reading it takes longer than {SECONDS} s") from None
    except BaseException as error:
        raise Refusal(f"reading it raises {describe(error)}") from error


def describe(error: BaseException) -> str:
    """Return the class and the message of an error, whose own text may raise."""
    try:
        return f"{type(error).__name__}: {error}"[:_REASON_LENGTH]
    except Exception:  # noqa: BLE001  an exception of the case
        return type(error).__name__


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    """Raise ``_Late`` in the block after ``SECONDS``, and again, since the block may catch it."""
    before = signal.getsignal(signal.SIGALRM)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, SECONDS, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)
