"""Removes old runs from ``.runner/runs``, by a rule that a person can read.

Nothing is removed but folders that ``runner run`` and ``runner merge`` have made, and nothing in them but what they
wrote. No link is followed. A folder with anything else in it stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runner.exit_codes import UsageError
from runner.files import entries_below
from runner.record.events import RunStarted, from_json
from runner.record.journal import lines, parse_line
from runner.record.store import FOLDER, LOCK, Keep, lock
from runner.session import history

_NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9]+(-[0-9]+)?")
"""A run's folder: date, time, process, and a number where that was taken."""

_LOG = "events.jsonl"
_JOB_LOGS = "logs"
_REPORT = r"(?:junit\.xml|diagnosis-[0-9]+\.json)"
_FILES = re.compile(rf"{re.escape(_LOG)}|{LOCK}|{_REPORT}|\.{_REPORT}\.[0-9]+(?:\.[0-9a-f]+)?\.tmp")
"""What a run's folder holds beside the folder of its jobs' logs."""
_JOB_LOG = re.compile(r"[0-9]{5,}-[\w.-]+\.log")
"""What ``LocalEngine`` calls the log of a job."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed: names, oldest first, and their bytes; whether the rest is as the rule wants it."""

    names: tuple[str, ...] = ()
    size: int = 0
    enough: bool = True


def prune(keep: Keep, own: Path | None = None, base: Path | None = None) -> Pruned:
    """Remove the oldest runs until the rule holds, or none is left that may go.

    These stay: ``own``, the run of this process; the run that ``latest`` means; runs that another process writes; runs
    without an end, which ``runner resume`` may go on with; of each suite the last run in which it was red. Raises
    nothing.

    Args:
        keep: the rule.
        own: a folder that stays.
        base: the folder of runs, ``.runner`` if None.
    """
    base = base or Path(FOLDER)
    runs = base / "runs"
    if base.is_symlink() or runs.is_symlink() or not runs.is_dir():
        return Pruned()
    sizes = {name: _size(runs / name) for name in _names(runs)}
    count, total = len(sizes), sum(sizes.values())
    if keep.holds(count, total):
        return Pruned()
    summaries = history.runs(base)
    needed = _needed(summaries, sizes) | {own.name if own is not None else "", _latest(base)}
    removed: list[str] = []
    for name, size in sizes.items():
        if keep.holds(count, total):
            break
        if name in summaries and name not in needed and _remove(runs / name, summaries[name].size):
            removed.append(name)
            count, total = count - 1, total - size
    return Pruned(tuple(removed), sum(sizes[name] for name in removed), keep.holds(count, total))


def _names(runs: Path) -> list[str]:
    """Return the folders that are runs of this user, oldest first."""
    with contextlib.suppress(OSError), os.scandir(runs) as entries:
        names = [entry.name for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)]
        return sorted(name for name in names if _is_own(runs / name))
    return []


def _is_own(folder: Path) -> bool:
    """Return whether a folder is this user's, and holds a run and nothing else."""
    try:
        if folder.stat(follow_symlinks=False).st_uid != os.getuid():
            return False
        logs = folder / _JOB_LOGS
        if not _holds_only(folder, _FILES, _JOB_LOGS) or (logs.is_dir() and not _holds_only(logs, _JOB_LOG)):
            return False
        return isinstance(from_json(parse_line(next(lines(folder / _LOG), b""))), RunStarted)
    except (OSError, ValueError):  # gone meanwhile, or no log of a run
        return False


def _holds_only(folder: Path, files: re.Pattern[str], below: str = "") -> bool:
    """Return whether a folder holds regular files of such names and a folder ``below``, and nothing else.

    Raises OSError.
    """
    with os.scandir(folder) as entries:
        return all(
            entry.name == below
            if entry.is_dir(follow_symlinks=False)
            else entry.is_file(follow_symlinks=False) and files.fullmatch(entry.name)
            for entry in entries
        )


def _needed(summaries: dict[str, history.RunSummary], names: Iterable[str]) -> set[str]:
    """Return the runs that have no end, and of each suite the last red one."""
    ended = [name for name in names if name in summaries and summaries[name].ended]
    last = {suite: name for name in ended for suite in summaries[name].red}
    return {name for name in names if name in summaries and not summaries[name].ended} | {*last.values()}


def _latest(base: Path) -> str:
    try:
        return Path(os.readlink(base / "latest")).name
    except OSError:
        return ""


def _size(folder: Path) -> int:
    size = 0
    for entry in entries_below(folder):
        with contextlib.suppress(OSError):
            size += 0 if entry.is_dir(follow_symlinks=False) else entry.stat(follow_symlinks=False).st_size
    return size


def _remove(folder: Path, log_size: int) -> bool:
    """Remove a run unless another process writes it, or has written since ``log_size``. Return whether it is gone."""
    try:
        with lock(folder):  # resume takes it before it reads the log
            status = os.lstat(folder / _LOG)
            if not _is_own(folder) or not stat.S_ISREG(status.st_mode) or status.st_size != log_size:
                return False
            _empty(folder)
        folder.rmdir()
    except (UsageError, OSError):
        return False
    return True


def _empty(folder: Path) -> None:
    """Remove what a run has written. The log goes last: what a killed process leaves is a run still. Raises OSError."""
    names = sorted(os.listdir(folder), key=lambda name: (name == LOCK, name == _LOG))
    for name in names:
        if name != _JOB_LOGS:
            os.unlink(folder / name)
            continue
        for log in os.listdir(folder / name):
            os.unlink(folder / name / log)
        os.rmdir(folder / name)
