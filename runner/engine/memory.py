"""How much memory a job holds, and how much of that counts towards its limit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.engine import process_tree

COMPILERS = 2 << 30
"""Bytes that the compilers of one job may hold together before they count towards its limit.

A C++ compiler takes hundreds of MiB whatever the case; how many is its own affair and no finding about the case.
"""


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Bytes that a job's processes hold: ``own`` by what it runs itself, ``compilers`` by compilers it has started."""

    own: int
    compilers: int

    @property
    def excess(self) -> int:
        """What the compilers hold beyond their allowance."""
        return max(0, self.compilers - COMPILERS)

    def over(self, limit: int) -> str:
        """Return how the memory passes ``limit`` bytes; empty if it does not."""
        if self.own + self.excess <= limit:
            return ""
        compilers = f" and compilers {_gib(self.excess)} beyond their {_gib(COMPILERS)}" if self.excess else ""
        return f"resident set {_gib(self.own)}{compilers} passed the limit of {_gib(limit)}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"


class Meter:
    """Measures one job, again and again.

    It remembers what each forked process shared with its parent at first sight.
    """

    def __init__(self, pid: int, base: int | None = None) -> None:
        """Measure the job whose process is ``pid``.

        ``base`` is how many bytes it held before the job; if None, it was forked for it and held what its parent holds.
        """
        self._pid = pid
        self._shared: dict[int, int] = {} if base is None else {pid: base}

    def read(self, table: Mapping[int, process_tree.Process]) -> HeldMemory:
        """Measure what the job holds according to the process table."""
        members = process_tree.tree_members(self._pid, table)
        compilers = _compilers(members, self._pid)
        own = 0
        for process in members:
            if process.pid in compilers:
                continue
            if process.pid == self._pid:
                own += process.resident - self._inherited(process, table)
            elif process.copy:  # also a process about to become a compiler, which for a moment is all of its parent
                own += max(0, process.resident - self._inherited(process, table))
            else:
                own += process.resident
        return HeldMemory(max(0, own), sum(process.resident for process in members if process.pid in compilers))

    def _inherited(self, process: process_tree.Process, table: Mapping[int, process_tree.Process]) -> int:
        parent = table.get(process.parent)
        if process.pid not in self._shared and parent is not None:
            self._shared[process.pid] = parent.resident
        return self._shared.get(process.pid, 0)


def _compilers(members: list[process_tree.Process], pid: int) -> set[int]:
    """Return the processes of a job's tree that are compilers or were started by one; never the job's own process
    ``pid``."""
    helpers = [process for process in members if process.pid != pid]
    return process_tree.add_descendants({helper.pid for helper in helpers if process_tree.is_compiler(helper)}, helpers)


def machine_memory() -> int:
    """Return bytes of memory this machine, or the container around us, has."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # absent, or the word "max"
            sizes.append(int(Path(path).read_text()))
    return min(sizes)
