"""Temporary folders that end with their process, and the removal of those that killed processes have left.

A folder stays locked as long as its process lives. The kernel drops the lock however the process ends, so a folder
whose lock is free has no owner. A process number that is used again cannot protect it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner import exit_codes, interrupts
from runner.contract.settings import CACHE_FOLDER
from runner.files import remove_tree
from runner.text import one_line

PREFIX = "runner-scratch-"
"""How their names begin. Reports are never kept in one."""
VARIABLE = "RUNNER_SCRATCH"
"""Environment variable of workers: the folder for what they write (see ``runner/worker/processes.py``)."""
LONGEST = 70
"""Bytes that the path around it may have: a Unix socket in the folder has at most 107."""
FALLBACK = "/tmp"
"""Where temporary folders are made if they cannot be where TMPDIR says."""

_locks: dict[Path, int] = {}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Make a folder that lasts as long as the context. Raises UsageError as ``make`` does."""
    path = make()
    try:
        yield path
    finally:
        with interrupts.held():
            remove(path)


def make(prefix: str = PREFIX, longest: int = LONGEST) -> Path:
    """Make a new folder for this process alone, until ``remove``. First remove those of processes that have ended.

    Args:
        prefix: how its name begins.
        longest: bytes that the path around it may have; else it is made in ``/tmp``, and so where torch could not
        compile.

    Raises:
        UsageError: no temporary folder can be made.
    """
    try:
        base = tempfile.gettempdir()
        if len(os.fsencode(base)) > longest or compile_problem(base):
            base = FALLBACK
        if not _locks:
            sweep(Path(base), prefix)
        while True:
            path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except FileNotFoundError:  # another process's sweep met it before its lock
                continue
            with contextlib.suppress(OSError):  # a file system without locks: no sweep removes anything there either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.is_dir():  # a sweep may have come between
                _locks[path] = descriptor
                return path
            os.close(descriptor)
    except OSError as error:
        raise exit_codes.UsageError(
            f"no temporary folder can be made: {error.strerror}; the variable TMPDIR may name another place",
            exit_codes.INTERNAL,
        ) from None


def compile_problem(folder: str) -> str:
    """Return why torch's Inductor cannot compile in a folder; empty if it can.

    ``torch._inductor.cpp_builder`` writes paths into a command line as they are, and splits it again as a shell does.
    """
    if not re.search(r"[\s'\"\\]", folder, re.ASCII):
        return ""
    return f"torch compiles nothing in a path with a blank, a quote or a backslash, such as {one_line(folder, 500)}"


def compile_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return these variables so that torch can compile under them: without folders that it cannot compile in."""
    variables = {**environ, **({"TMPDIR": FALLBACK} if compile_problem(tempfile.gettempdir()) else {})}
    if compile_problem(variables.get(CACHE_FOLDER, "")):
        del variables[CACHE_FOLDER]
    return variables


def remove(path: Path) -> None:
    """Remove a folder that ``make`` made, whatever became of it."""
    remove_tree(path)
    if path in _locks:
        os.close(_locks.pop(path))


def sweep(base: Path, prefix: str = PREFIX) -> None:
    """Remove this user's folders in ``base`` whose process is gone.

    Links are not followed, and errors are no matter.
    """
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for name in [entry.path for entry in entries if entry.name.startswith(prefix)]:
            with contextlib.suppress(OSError):
                _remove_if_free(name)


def _remove_if_free(name: str) -> None:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises OSError while its process lives
            remove_tree(name)
    finally:
        os.close(descriptor)
