"""The process table, the process tree of a job, its memory and its compilers, and how to kill a whole tree (Linux)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PF_FORKNOEXEC = 0x40
_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # CONFIG_PROC_CHILDREN
_DRIVERS = "g++ gcc c++ cc clang++ clang amdclang++ amdclang icpx icx nvcc hipcc"
_PASSES = "cc1plus cc1 lto1 cicc cudafe++ ptxas ptxas-blackwell fatbinary as"
_LINKERS = "collect2 lto-wrapper ld ld.bfd ld.gold ld.lld ld.mold lld mold nvlink"
_COMPILERS = frozenset(f"{_DRIVERS} {_PASSES} {_LINKERS}".split())
_VERSION = re.compile(r"-\d+(\.\d+)*$")
GRACE = 0.2  # seconds


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table.

    ``resident`` is in bytes, pages shared with others included. ``copy`` says that it was forked and has not started
    another program since, so that it shares its parent's pages. ``name`` is the kernel's. ``stopped`` is by SIGSTOP,
    not by a debugger.
    """

    pid: int
    parent: int
    group: int
    session: int
    zombie: bool
    resident: int
    copy: bool
    name: str
    stopped: bool = False


def processes() -> dict[int, Process]:
    """Return the process table, by id. Costs about 20 microseconds a process."""
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return {pid: process for pid in pids if (process := stat(pid)) is not None}


def trees(roots: Iterable[int]) -> dict[int, Process]:
    """Return processes and all their descendants, by id; the whole table where the kernel does not list children."""
    table: dict[int, Process] = {}
    queue = list(roots)
    while queue:
        pid = queue.pop()
        process = None if pid in table else stat(pid)
        if process is None:
            continue
        table[pid] = process
        children = _children(pid)
        if children is None:
            return processes()
        queue += children
    return table


def _children(pid: int) -> list[int] | None:
    """Children of all threads of a process; None if the kernel was built without such lists."""
    pids: list[int] = []
    with contextlib.suppress(OSError):  # it has just ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    pids += map(int, file.read().split())
            except OSError:
                if not _LISTS_CHILDREN:
                    return None
    return pids


def stat(pid: int) -> Process | None:
    """Return one line of the process table; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            start, _, tail = file.read().rpartition(b")")
    except OSError:
        return None
    fields = tail.split()
    state, parent, group, session = fields[:4]
    return Process(
        pid=pid,
        parent=int(parent),
        group=int(group),
        session=int(session),
        zombie=state in b"ZX",
        resident=int(fields[21]) * _PAGE,
        copy=bool(int(fields[6]) & _PF_FORKNOEXEC),
        name=start.partition(b"(")[2].decode(errors="surrogateescape"),
        stopped=state == b"T",
    )


def tree_members(pid: int, table: Mapping[int, Process]) -> list[Process]:
    """Return process ``pid`` with its session, its group and all their descendants, without dead ones.

    ``pid`` comes first, and each parent before its children: a server must hear of its own end before it sees a job of
    its end.
    """
    roots = {number for number, process in table.items() if pid in (number, process.session, process.group)}
    members = add_descendants(roots, table.values()) - {0, 1, os.getpid()}

    def depth(number: int) -> int:
        steps = 0
        while number in members and steps < len(members):  # a table read while processes end may hold a circle
            number, steps = table[number].parent, steps + 1
        return steps

    order = sorted(members, key=lambda number: (number != pid, depth(number), number))
    return [table[number] for number in order if not table[number].zombie]


def add_descendants(roots: set[int], processes: Iterable[Process]) -> set[int]:
    """Return ``roots`` and the ids of those ``processes`` that descend from them."""
    members, candidates = set(roots), list(processes)
    while children := {process.pid for process in candidates if process.parent in members} - members:
        members |= children
    return members


def kill_tree(pid: int, *, reaped: bool = False) -> None:
    """Kill a job's process with its session, its group and all their descendants, and nothing else.

    ``reaped`` says that the process itself has been collected, so that its number may be somebody else's by now. (As
    the number of a session or a group it is not given out again while that has members.)

    A compiler among them gets SIGTERM first, and ``GRACE`` seconds, while the job itself is stopped; what it was
    writing is removed. Otherwise a half-written shared library would stay in Inductor's cache under a valid name, and
    the next job would load it.
    """
    if pid <= 1:
        return
    if not reaped:
        _signal(pid, signal.SIGSTOP)
    kill_descendants(pid)
    if not reaped:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        _signal(pid, signal.SIGKILL)


def kill_descendants(pid: int) -> None:
    """Kill a process tree as ``kill_tree`` does, but spare the process itself."""
    signalled: set[int] = set()
    partial_outputs: set[str] = set()
    deadline = time.monotonic() + GRACE
    while helpers := [process.pid for process in tree_members(pid, processes()) if process.pid != pid]:
        asks_first = time.monotonic() < deadline
        for helper in helpers:
            partial_outputs |= _output_files(helper)
            if not asks_first or helper not in signalled:
                _signal(helper, signal.SIGTERM if asks_first else signal.SIGKILL)
            signalled.add(helper)
        if time.monotonic() > deadline + 2:
            break  # in uninterruptible sleep; it goes when the kernel lets it
        time.sleep(0.005)
    for path in partial_outputs:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _output_files(pid: int) -> set[str]:
    """The file that a compiler or linker is writing: its ``-o``."""
    words = _command(pid)
    if "-o" not in words[:-1] or not _names_compiler(words[0]):
        return set()
    try:
        folder = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return set()
    return {os.path.join(folder, words[words.index("-o") + 1])}


def is_compiler(process: Process) -> bool:
    """Return whether a process is a compiler, an assembler or a linker, by its own name or the one it was called by."""
    # The kernel's name for it is cut at 15 characters; the command of a script begins with the shell's.
    return _names_compiler(process.name) or _names_compiler(_command(process.pid)[0])


def _names_compiler(path: str) -> bool:
    name = _VERSION.sub("", os.path.basename(path))
    return any(name == known or name.endswith(f"-{known}") for known in _COMPILERS)


def _command(pid: int) -> list[str]:
    """Return the command line of a process as words; one empty word if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
    except OSError:
        return [""]


ALLOWANCE = 2 << 30
"""Bytes that the compilers of one job may hold together before they count towards its limit.

A C++ compiler takes hundreds of MiB whatever the case; how many is its own affair and no finding about the case.
"""


def over_limit(own: int, compilers: int, limit: int) -> str:
    """Return how the memory of a job passes ``limit`` bytes; empty if it does not.

    Args:
        own: bytes that are held by what it runs itself.
        compilers: bytes that are held by compilers that it has started.
    """
    excess = max(0, compilers - ALLOWANCE)
    if own + excess <= limit:
        return ""
    beyond = f" and compilers {_gib(excess)} beyond their {_gib(ALLOWANCE)}" if excess else ""
    return f"resident set {_gib(own)}{beyond} passed the limit of {_gib(limit)}"


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

    def read(self, table: Mapping[int, Process]) -> tuple[int, int]:
        """Return the bytes that the job holds by what it runs itself, and by compilers, as the process table says."""
        members = tree_members(self._pid, table)
        helpers = [process for process in members if process.pid != self._pid]  # the job's own process is no compiler
        compilers = add_descendants({helper.pid for helper in helpers if is_compiler(helper)}, helpers)
        own = sum(self._own(process, table) for process in members if process.pid not in compilers)
        return max(0, own), sum(process.resident for process in members if process.pid in compilers)

    def _own(self, process: Process, table: Mapping[int, Process]) -> int:
        """Return what a process holds beyond what it shared at first sight.

        A copy may be about to become a compiler, and for a moment is all of its parent.
        """
        if not process.copy and process.pid != self._pid:
            return process.resident
        parent = table.get(process.parent)
        if process.pid not in self._shared and parent is not None:
            self._shared[process.pid] = parent.resident
        own = process.resident - self._shared.get(process.pid, 0)
        return own if process.pid == self._pid else max(0, own)


def machine_memory() -> int:
    """Return bytes of memory this machine, or the container around us, has."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # absent, or the word "max"
            sizes.append(int(Path(path).read_text()))
    return min(sizes)
