"""What each variant did the last time, over all runs kept here: for ``--lf``, ``--ff``, ``--order smart`` and shards by
duration. And which of these runs go: old ones, by a rule that a person can read.

The journals are the truth. ``.runner/history.json`` saves reading them again, and remembers the verdicts of runs that
were removed; a run that is missing in it, because its runner was killed or two ran at once, is read from its journal.
It counts with the user's signature alone: whoever can write into a checkout could else say what ``--lf`` leaves out.

Nothing is removed but folders that ``runner run`` and ``runner merge`` have made, and nothing in them but what they
wrote. No link is followed. A folder with anything else in it stays as it is.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.cases.limits import Limits
from runner.exit_codes import UsageError
from runner.files import entries_below, foreign_link
from runner.record.events import GREEN, RED, Event, Key, RunFinished, RunResumed, RunStarted, VariantFinished, from_json
from runner.record.journal import Problems, lines, parse_line, stream_journal
from runner.record.signing import NoKey, read_signed, why_foreign, write_signed
from runner.record.store import FOLDER, LOCK, Keep, lock, start_order
from runner.session.plan import Planned

_VERSION = 3
_PURPOSE = "history"
_VERDICTS = frozenset((*GREEN, *RED, "NOT-RUN"))


@dataclass(frozen=True, slots=True)
class Last:
    """The last verdict of a variant under one torch, and the seconds of a slot that it took when it last ran."""

    verdict: str
    seconds: float
    own: bool = True
    """Whether this user's own log on this machine says so."""

    @property
    def red(self) -> bool:
        """Whether it failed."""
        return self.verdict in RED


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What must be known of a run before it is removed: the bytes of its journal, whether it came to its end, its red
    suites.

    ``verdicts`` is how many of its verdicts are in the history: those of a run that goes on later are newer than other
    runs.
    """

    size: int
    ended: bool
    red: frozenset[str]
    verdicts: int = 0


def key_of(planned: Planned) -> Key:
    """The key of a planned variant."""
    return planned.variant.id, planned.environment.torch


def slot_seconds(event: VariantFinished) -> float:
    """Return how long a variant's processes had a slot, all together."""
    return float(event.spent.get("busy") or event.seconds)


def read(base: Path | None = None) -> dict[Key, Last]:
    """What every variant did last. Never raises: without readable files nothing is known."""
    return read_runs(base)[0]


def seconds_by_key() -> dict[Key, float]:
    """Return the seconds of a slot that each variant took when it last ran here."""
    return {key: last.seconds for key, last in read().items()}


def update(base: Path | None = None) -> None:
    """Write the history down, so that the next ``read`` is quick. A folder that cannot be written is no error."""
    base = base or Path(FOLDER)
    if foreign_link(base) or not (base / "runs").is_dir():
        return
    history, summaries = read_runs(base)
    data = {
        "version": _VERSION,
        "runs": {name: [each.size, each.ended, sorted(each.red), each.verdicts] for name, each in summaries.items()},
        "last": [[id_, torch, last.verdict, last.seconds, last.own] for (id_, torch), last in history.items()],
    }
    with contextlib.suppress(OSError, NoKey):
        write_signed(base / "history.json", json.dumps(data), _PURPOSE, str(base.resolve()))


def seconds_of(events: Iterable[Event]) -> dict[str, float]:
    """Seconds of a slot by variant id, all its torch versions together, from a run's events."""
    found: dict[str, float] = {}
    for event in events:
        if isinstance(event, VariantFinished) and not event.cached:
            found[event.id] = found.get(event.id, 0.0) + slot_seconds(event)
    return found


def ordered(planned: Sequence[Planned], history: Mapping[Key, Last], how: str) -> list[Planned]:
    """The order of a run. ``how`` is ``plan`` (as it stands), ``failed-first``, or ``smart``.

    ``smart``: failed ones first, then what has never run, then the longest first, so that no slot is left with a long
    one at the end while the others are idle.
    """
    if how == "plan":
        return list(planned)

    def rank(one: Planned) -> tuple[int, float]:
        last = history.get(key_of(one))
        if last is None or how == "failed-first":
            return (0 if last is not None and last.red else 1, 0.0)
        return (0 if last.red else 2, -last.seconds)

    return sorted(planned, key=rank)  # stable: what ranks alike keeps the plan's order


def read_runs(base: Path | None = None) -> tuple[dict[Key, Last], dict[str, RunSummary]]:
    """Return what every variant did last, and a summary of each run that has a readable journal, by its folder's name.

    A run that goes on is read again. Raises nothing.
    """
    base = base or Path(FOLDER)
    history: dict[Key, Last] = {}
    known: dict[str, RunSummary] = {}
    # None yet, torn, somebody else's, another version's, or whatever stands there instead.
    with contextlib.suppress(OSError, NoKey, ValueError, TypeError, KeyError, RecursionError, OverflowError):
        history, known = _stored(base / "history.json")
    summaries: dict[str, RunSummary] = {}
    for journal in sorted(base.glob("runs/*/events.jsonl"), key=lambda path: start_order(path.parent.name)):
        name = journal.parent.name
        with contextlib.suppress(OSError):
            size = journal.stat().st_size  # before it is read: what is appended meanwhile is for the next time
            before = known.get(name)
            if before is None or before.size != size:
                known[name] = _take(journal, size, history, before.verdicts if before and before.size < size else 0)
            summaries[name] = known[name]
    return history, summaries


def _take(journal: Path, size: int, history: dict[Key, Last], taken: int) -> RunSummary:
    """Add a run's verdicts but the first ``taken`` to the history, in one pass, and return its summary.

    Raises OSError.
    """
    end: RunFinished | None = None
    files: dict[str, str] = {}
    red: set[str] = set()
    verdicts, own = 0, False
    for event in stream_journal(journal, Problems()):
        if isinstance(event, VariantFinished):
            verdicts += 1
            if verdicts > taken:
                before = history.get(event.key)
                seconds = before.seconds if event.cached and before is not None else slot_seconds(event)
                history[event.key] = Last(event.verdict, seconds, own)
            red.update(event.suites if event.verdict in RED else ())
        elif isinstance(event, RunStarted):
            own = not why_foreign(event)
            files.update(event.suites)
        elif isinstance(event, RunResumed):
            end = None
        elif isinstance(event, RunFinished):
            end = event
    ended = end is not None and not end.interrupted
    return RunSummary(size, ended, frozenset(files.get(suite, suite) for suite in red), verdicts)


def _stored(path: Path) -> tuple[dict[Key, Last], dict[str, RunSummary]]:
    """What ``update`` has written.

    Raises OSError, NoKey, and for anything else ValueError, TypeError, KeyError or RecursionError.
    """
    data = json.loads(read_signed(path, Limits().log_bytes, _PURPOSE, str(path.parent.resolve())))
    if data["version"] != _VERSION:
        raise ValueError(f"{path} is of another version")
    history: dict[Key, Last] = {}
    for id_, torch, verdict, seconds, own in data["last"]:
        is_typed = (type(id_), type(torch), type(own)) == (str, str, bool)
        if not (is_typed and verdict in _VERDICTS and math.isfinite(seconds)):
            raise ValueError(f"{path} holds something else than verdicts")
        history[id_, torch] = Last(verdict, float(seconds), own)
    summaries = {
        name: RunSummary(size, ended, frozenset(red), *verdicts)
        for name, (size, ended, red, *verdicts) in dict(data["runs"]).items()
    }
    for summary in summaries.values():
        if (
            {type(summary.size), type(summary.verdicts)} != {int}
            or type(summary.ended) is not bool
            or not all(type(s) is str for s in summary.red)
        ):
            raise ValueError(f"{path} holds something else than runs")
    return history, summaries


_NAME = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9]+(-[0-9]+)?")
"""A run's folder: date, time, process, and a number where that was taken."""

_LOG = "events.jsonl"
LINES = "lines.signed"
"""The lines that a run recorded, in a compact form."""
_JOB_LOGS = "logs"
_REPORT = r"(?:junit\.xml|diagnosis-[0-9]+\.json)"
_FILES = re.compile(rf"{re.escape(_LOG)}|{LOCK}|{re.escape(LINES)}|{_REPORT}|\.{_REPORT}\.[0-9]+(?:\.[0-9a-f]+)?\.tmp")
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
    _, summaries = read_runs(base)
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
        return sorted((name for name in names if _is_own(runs / name)), key=start_order)
    return []


def _is_own(folder: Path) -> bool:
    """Return whether a folder is this user's, and holds a run and nothing else."""
    logs = folder / _JOB_LOGS
    try:
        return (
            folder.stat(follow_symlinks=False).st_uid == os.getuid()
            and _holds_only(folder, _FILES, _JOB_LOGS)
            and (not logs.is_dir() or _holds_only(logs, _JOB_LOG))
            and isinstance(from_json(parse_line(next(lines(folder / _LOG), b""))), RunStarted)
        )
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


def _needed(summaries: dict[str, RunSummary], names: Iterable[str]) -> set[str]:
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
    logs = folder / _JOB_LOGS
    if logs.is_dir():
        for name in os.listdir(logs):
            os.unlink(logs / name)
        os.rmdir(logs)
    for name in sorted(os.listdir(folder), key=lambda name: (name == LOCK, name == _LOG)):
        os.unlink(folder / name)
