"""What a hunt has done, as ``hunt.jsonl`` in its folder: a first line for the hunt, then one for each round, reduction
and report.

A line is written once its round, reduction or report is over. A round that was cut short has none: its seed draws it
again. Groups and tables are made from these lines alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from runner.exit_codes import UsageError
from runner.files import naming
from runner.record.journal import lines, parse_line
from runner.text import one_line, plural

FILE = "hunt.jsonl"
LAYOUT = 1
"""The version of the file's form."""

SIGNATURE_ID = re.compile(r"[0-9a-f]{8}")
"""What may be the id of a signature. It names a folder, and the file may come from a stranger."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Head:
    """What a hunt draws and runs. It stays the same when the hunt goes on, or its results would not belong together."""

    seed: int
    profile: str
    batch: int  # cases drawn in a round
    torch: str  # the build that draws and is judged
    ops: str = ""
    depth: tuple[int, ...] = ()
    backend: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    shard: tuple[int, ...] = ()  # which of how many: every such round is this hunt's, and others do the rest
    guided: bool = False  # what was reached steers what is drawn
    mutate: tuple[str, ...] = ()  # spec files whose cases a guided hunt changes
    lines: bool = False  # lines of the compiler count among what was reached
    timeout: float = 0.0  # seconds that a variant may take; 0 for what variants have otherwise
    allow_python: bool = False  # models in Python are changed too
    twins: bool = False  # a part of the cases has a twin
    layout: int = LAYOUT


@dataclass(frozen=True, slots=True)
class Red:
    """A red result. ``id`` names the file of its round, ``number`` is its case's, ``known`` the place of an entry that
    explains it."""

    id: str
    number: int
    verdict: str
    signature_id: str
    signature: str
    severity: str = ""
    stage: str = ""
    oracle: str = ""
    reason: str = ""
    known: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """A finished round: how many cases were valid, how many variants ran, seconds of drawing and of running, and what
    was red."""

    round: int
    cases: int
    variants: int
    drawing: float
    running: float
    verdicts: Mapping[str, int] = field(default_factory=dict)
    red: tuple[Red, ...] = ()
    reached: tuple[str, ...] = ()  # of a guided hunt: what no earlier round reached
    parents: tuple[int, ...] = ()  # the numbers of the cases that are worth a change


@dataclass(frozen=True, slots=True)
class Reduction:
    """A finished reduction of the first case of a group.

    ``problem`` says why there is no smaller case; else it is empty.
    """

    reduction: str  # the id of the signature
    seconds: float
    problem: str = ""
    before: int = 0  # operators
    after: int = 0
    elements: int = 0
    complete: bool = False
    known: str = ""  # the place of an entry that explains the smaller case
    case: str = ""  # a hash of the smaller case without its name: groups that come to one case often have one cause

    def __str__(self) -> str:
        """Return what came of it on one line."""
        return self.problem or f"{self.before} -> {self.after} operators"


@dataclass(frozen=True, slots=True)
class Report:
    """A report of a group's reduced case. ``problem`` says why it was not written; else it is empty."""

    report: str  # the id of the signature
    seconds: float
    problem: str = ""
    unmet: int = 0  # rules for reports that are not met
    culprit: str = ""  # as torch's bisector names it
    cause: str = ""  # a hash of the culprit and the smaller case's operators, stage and oracle; empty for a vague one

    def __str__(self) -> str:
        """Return what came of it on one line."""
        rules = f"; {plural(self.unmet, 'rule')} not met" if self.unmet else ""
        return f"no report: {self.problem}" if self.problem else f"report written{rules}"


Line = Head | Round | Reduction | Report


@dataclass(slots=True)
class State:
    """All that a hunt has done so far."""

    head: Head
    rounds: list[Round] = field(default_factory=list)
    reductions: dict[str, Reduction] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)

    @property
    def next_round(self) -> int:
        """Return the number of the next round: the first of its shard, or one shard after the last."""
        index, count = self.head.shard or (1, 1)
        return max((record.round for record in self.rounds), default=index - 1 - count) + count

    @property
    def hunting(self) -> float:
        """Return the seconds that all rounds took."""
        return sum(record.drawing + record.running for record in self.rounds)

    @property
    def reducing(self) -> float:
        """Return the seconds that all reductions and reports took."""
        return sum(record.seconds for record in self.reductions.values()) + sum(
            record.seconds for record in self.reports.values()
        )

    def add(self, line: Line) -> None:
        """Add a finished round, reduction or report."""
        match line:
            case Round():
                self.rounds.append(line)
            case Reduction():
                self.reductions[line.reduction] = line
            case Report():
                self.reports[line.report] = line


def append(folder: Path, line: Line) -> None:
    """Append a line to the file of a hunt, and wait until it is on the disk. Raises OSError."""
    text = json.dumps(dataclasses.asdict(line)).encode() + b"\n"
    descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            text = b"\n" + text  # the line that a killed hunt left half-written spoils itself alone
        with naming(folder / FILE):
            while text:
                text = text[os.write(descriptor, text) :]
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(folder: Path) -> State | None:
    """Return what the hunt of a folder has done; None where no hunt has begun. The last head before the first round
    counts.

    Raises:
        UsageError: the file cannot be read, or is of no hunt.
    """
    path = folder / FILE
    if not path.exists():
        return None
    state: State | None = None
    try:
        for number, text in enumerate(lines(path), 1):
            line = _line(text, f"{path}:{number}")
            if isinstance(line, Head):
                state = state if state is not None and state.rounds else State(line)
            elif line is not None and state is not None:
                state.add(line)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    return state


def _line(text: bytes, place: str) -> Line | None:
    """Return a line of the file; None for one that a killed hunt left half-written."""
    try:
        data = parse_line(text)
    except json.JSONDecodeError:
        return None
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from None
    if type(data) is not dict:
        raise UsageError(f"{place}: no line of a hunt")
    with contextlib.suppress(KeyError, TypeError):
        if "layout" in data and data["layout"] != LAYOUT:
            raise UsageError(f"{place}: the hunt is of another version of runner")
        if "round" in data:
            record = _typed(Round, {**data, "red": [_typed(Red, red) for red in data["red"]]})
            if all(type(count) is int for count in record.verdicts.values()):
                return record
        elif "reduction" in data:
            return _typed(Reduction, data)
        elif "report" in data:
            return _typed(Report, data)
        else:
            head = _typed(Head, data)
            if not head.shard or (len(head.shard) == 2 and 1 <= head.shard[0] <= head.shard[1]):
                return head
    raise UsageError(f"{place}: no line of a hunt: {one_line(text.decode('utf-8', 'replace'), 100)}")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "float": (float, int), "bool": (bool,), "tuple[int, ...]": (list,), "tuple[str, "
        "...]": (list,),
    "tuple[Red, ...]": (list,), "Mapping[str, int]": (dict,),
}  # fmt: skip
_ITEMS = {"tuple[int, ...]": int, "tuple[str, ...]": str, "tuple[Red, ...]": Red}


def _typed(cls: type[T], data: Mapping[str, Any]) -> T:
    """Return an object of a class of this module from plain data. Raises TypeError, KeyError for what does not fit."""
    values = {}
    kinds = {item.name: str(item.type) for item in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in kinds.keys() & data.keys():
        value, kind = data[name], kinds[name]
        is_typed = type(value) in _TYPES[kind] and (
            kind not in _ITEMS or all(type(item) is _ITEMS[kind] for item in value)
        )
        is_huge = type(value) is int and abs(value) >= 1 << 63  # it counts nothing, and may be too large for a float
        is_id = name in ("signature_id", "reduction", "report")
        if not is_typed or is_huge or (is_id and not SIGNATURE_ID.fullmatch(value)):
            raise TypeError(name)
        values[name] = tuple(value) if kind in _ITEMS else value
    return cls(**values)
