"""One writer a run: a lock that the operating system gives back when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import stat
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
    stack = contextlib.ExitStack()
    try:
        descriptor = os.open(
            folder / NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666
        )
    except OSError:
        return stack
    stack.callback(os.close, descriptor)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            since = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
            holder = {"pid": os.getpid(), "host": platform.node(), "since": since}
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
    except BlockingIOError:
        description = _described(descriptor)
        stack.close()
        raise UsageError(f"another process writes to {folder}: {description}; wait until it has ended") from None
    except OSError:  # no locks here, or a full disk
        pass
    return stack


def lock_file(path: str) -> contextlib.ExitStack:
    """Become the only writer of a log that a person named, until the result is closed or this process ends.

    A device, a pipe, and a file system without locks lock nothing.

    Raises:
        UsageError: another process writes it.
    """
    stack = contextlib.ExitStack()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError:
        return stack
    stack.callback(os.close, descriptor)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stack.close()
        raise UsageError(f"--events {path}: another run writes this file; name another one") from None
    except OSError:  # no locks here
        pass
    return stack


def _described(descriptor: int) -> str:
    """Who holds the lock, in words."""
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']} UTC"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):  # not written yet, or by somebody else
        return "it does not say which"
