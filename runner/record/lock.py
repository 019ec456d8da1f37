"""One writer a run: a lock that the operating system gives back when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import stat
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from runner.exit_codes import UsageError

NAME = "lock"
"""The file in the run's folder. It stays there; what counts is the lock on it."""


def lock(folder: Path) -> contextlib.ExitStack:
    """Become the only writer of a run's folder, until the result is closed or this process ends.

    A folder that cannot be written, or a file system without locks, does not stop a run: then nothing is locked.
    Raises UsageError, which names the holder, when another process writes there.
    """
    stack, descriptor = _take(
        folder / NAME,
        os.O_RDWR | os.O_NOFOLLOW,
        lambda descriptor: f"another process writes to {folder}: {_described(descriptor)}; wait until it has ended",
    )
    if descriptor >= 0:
        with contextlib.suppress(OSError):  # a full disk
            os.ftruncate(descriptor, 0)
            since = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
            holder = {"pid": os.getpid(), "host": platform.node(), "since": since}
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    return stack


def lock_file(path: str, option: str = "--events") -> contextlib.ExitStack:
    """Become the only writer of a log that a person named by an option, until the result is closed or this process
    ends.

    A device, a pipe, and a file system without locks lock nothing.

    Raises:
        UsageError: another process writes it.
    """
    return _take(path, os.O_RDONLY, lambda _: f"{option} {path}: another run writes this file; name another one")[0]


def _take(path: str | os.PathLike[str], flags: int, refusal: Callable[[int], str]) -> tuple[contextlib.ExitStack, int]:
    """Lock a regular file, which is made. Return what gives the lock back, and the descriptor; -1 where nothing is
    locked.

    Raises:
        UsageError: another process has the lock; ``refusal`` gives the text, of a descriptor that can be read.
    """
    stack = contextlib.ExitStack()
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError:
        return stack, -1
    stack.callback(os.close, descriptor)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return stack, -1
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with stack:
            raise UsageError(refusal(descriptor)) from None
    except OSError:  # no locks here
        return stack, -1
    return stack, descriptor


def _described(descriptor: int) -> str:
    """Who holds the lock, in words."""
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']} UTC"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):  # not written yet, or by somebody else
        return "it does not say which"
