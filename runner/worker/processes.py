"""What a forked copy of this process needs: messages as lines, folders, and the kernel's help to end with its
parent."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import tempfile
from collections.abc import Mapping
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LONGEST_NUMBER = 4096
"""Bits of an integer in a message. Python writes down, and reads, at most 4300 digits."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return one message as a line of JSON. What JSON lacks (NaN, infinity, sets, tensors) goes as its repr.

    Raises:
        ValueError, RecursionError: the message contains itself.
    """
    try:
        text = json.dumps(message, allow_nan=False, default=repr)
    except (ValueError, TypeError):
        text = json.dumps(_plain(message), allow_nan=False)
    return text.encode() + b"\n"


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if math.isfinite(value):
            return value
        case int() if value.bit_length() > _LONGEST_NUMBER:
            return f"an integer of {value.bit_length()} bits"  # neither side can write it down, nor read it
        case None | bool() | int() | str():
            return value
        case _:
            return repr(value)


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl. A refusal by the kernel is no error: the caller asks for a second line of defence."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def die_with_parent(number: int) -> None:
    """Ask the kernel for signal ``number`` when the parent dies, even by SIGKILL. The caller re-checks its parent."""
    prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Ask the kernel to make every descendant whose parent dies our child, so that we can end it."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children_of(parent: int) -> list[int]:
    """Return the children of a process that have not ended."""
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
            if int(fields[1]) == parent and fields[0] != b"Z":
                pids.append(int(name))
    return pids


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a new folder, which is removed when its ``with`` ends.

    It lies in the engine's folder, which the engine removes after a process was killed.
    """
    return tempfile.TemporaryDirectory(
        prefix="runner-", dir=os.environ.get("RUNNER_SCRATCH"), ignore_cleanup_errors=True
    )
