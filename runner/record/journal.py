"""The journal: every event of a run, one JSON object a line, appended as it happens.

What has been written survives whatever becomes of the runner, and each report can be made again from it. What is read
may come from anybody: each line is held against the published schema (``schema/events.schema.json``). Then ``audit``
looks at what the events say together: each thing once, and what cannot be true of one run. A log carries no signature
but its command line's, so that a careful edit cannot be noticed; a careless one is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import errno
import gc
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.cases.limits import Limits, show_size
from runner.files import PIPE, is_open_file, is_pipe, open_output, open_regular
from runner.record.event_schema import Unfit
from runner.record.events import (
    RED,
    Event,
    Notice,
    RunStarted,
    VariantFinished,
    VariantPlanned,
    end_of,
    from_json,
    start_of,
    to_json,
)
from runner.text import cap, one_line, plural

NAMED = 10
"""Problems of a log that are named; the others are counted."""

DEPTH = 100
"""How deep the values of a line may be nested. A YAML file's may be 40 deep (``limits.py``)."""

_LINE = Limits().log_line_bytes


class Journal(contextlib.AbstractContextManager["Journal"]):
    """Appends events to a file. Trouble with the file never stops a run.

    The first failure is told to ``on_problem``, once; later events are tried again, since a disk may get room.
    Events that could not be written are lost: the journal is then shorter, but every line that it has is whole.

    Args:
        path: the file; its folder is made. An existing journal is continued.
        on_problem: takes one line for people.
        stamp: keys that every line gets beside the event's own, which win.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        on_problem: Callable[[str], None] = lambda _: None,
        stamp: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self._stamp = dict(stamp or {})
        self.lost = 0
        self._on_problem = on_problem
        self._descriptor = -1
        self._torn = False  # what a write left behind may lack its end
        self._reported = False
        self._open()

    def write(self, event: Event) -> bool:
        """Append one event and hand it to the operating system. Returns whether it is in the file."""
        line = self._line(event)
        if not self._open():
            self.lost += 1
            return False
        if self._torn:
            line = b"\n" + line  # so that the torn line spoils itself alone
        byte_count = 0
        try:
            while byte_count < len(line):
                byte_count += os.write(self._descriptor, line[byte_count:])
        except OSError as error:
            self._torn = self._torn or byte_count > 0
            self.lost += 1
            self._report(error)
            return False
        self._torn = False
        return True

    def _line(self, event: Event) -> bytes:
        line = json.dumps({**self._stamp, **to_json(event)}, default=repr).encode() + b"\n"
        if len(line) <= _LINE:
            return line
        # A reader refuses such a line. A shortened verdict is worth more than none.
        short = json.dumps(_cut({**self._stamp, **to_json(event)}), default=repr).encode() + b"\n"
        if len(short) <= _LINE:
            return short
        name = f" of {event.id[:200]}" if isinstance(event, VariantFinished) else ""
        return self._line(Notice(f"an event{name} was too long for the log ({show_size(len(line))})", "error"))

    def close(self) -> None:
        """Close the file. Can be called twice; a later ``write`` opens it again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:  # some file systems report a full disk only here
                self.lost += 1
                self._report(error)

    def __exit__(self, *about: object) -> None:
        self.close()

    def _open(self) -> bool:
        if self._descriptor >= 0:
            return True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if is_open_file(self.path):
                self._descriptor = open_output(self.path)
                return True
            if is_pipe(self.path):
                raise OSError(errno.EINVAL, PIPE)
            # Unbuffered, and not through a file object: that would keep what a failed write left, and write it later.
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            size = os.fstat(self._descriptor).st_size  # a runner that was killed may have left half a line
            self._torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
        except OSError as error:
            self._report(error)
            return False
        return True

    def _report(self, error: OSError) -> None:
        if not self._reported:
            self._reported = True
            reason = error.strerror or str(error)
            self._on_problem(f"the journal {self.path} cannot be written ({reason}); the run goes on without it")


def _cut(value: Any) -> Any:
    """A value with its long texts and lists shortened."""
    if isinstance(value, str):
        return cap(value, 4096)
    if isinstance(value, Mapping):
        return {cap(str(key), 4096): _cut(item) for key, item in list(value.items())[:100]}
    if isinstance(value, list | tuple):
        return [_cut(item) for item in value[:100]]
    return _cut(dataclasses.asdict(value)) if dataclasses.is_dataclass(type(value)) else value


class Weight(enum.IntEnum):
    """What a problem of a log means."""

    USUAL = 0
    """As killed runners, full disks and two runners at once leave it."""
    DOUBTFUL = 1
    """Its events contradict each other."""
    REFUSED = 2
    """It holds lines that no runner has written; they are left out."""


@dataclass(slots=True)
class Problems:
    """What is wrong with a log: the first ``NAMED`` in words, the others counted. Empty is false.

    ``worst`` is the largest weight of them.
    """

    named: list[str] = field(default_factory=list)
    count: int = 0
    worst: Weight = Weight.USUAL

    def __len__(self) -> int:
        return self.count

    def add(self, text: str, weight: Weight = Weight.DOUBTFUL) -> None:
        """Add one more problem."""
        self.count += 1
        self.worst = max(self.worst, weight)
        if len(self.named) < NAMED:
            self.named.append(one_line(text))

    def lines(self) -> list[str]:
        """Return all problems in words, in at most ``NAMED`` lines and one more."""
        unnamed = self.count - len(self.named)
        return [*self.named, f"and {unnamed} more"] if unnamed else [*self.named]


def read_journal(path: str | os.PathLike[str], limits: Limits | None = None) -> tuple[list[Event], Problems]:
    """Return all events of a journal, in order, and the lines left out. Raises OSError as ``stream_journal`` does."""
    problems = Problems()
    with _without_gc():
        return [*stream_journal(path, problems, limits)], problems


def stream_journal(path: str | os.PathLike[str], problems: Problems, limits: Limits | None = None) -> Iterator[Event]:
    """Yield the events of a journal, in order. A journal may have gigabytes, and this holds one line of it.

    Lines left out are added to ``problems``: torn ones, and those that do not fit the schema. A torn line begins an
    event and lacks its end, as a killed runner or a full disk leaves it. Events of a kind that this version does not
    know are left out without a word.

    Args:
        path: the journal.
        problems: gets what is wrong with a line.
        limits: those of the environment if None.

    Raises:
        OSError: the file cannot be read, is no regular file, or is larger than ``log_bytes``.
    """
    limits = limits or _usual_limits()
    for number, line in _numbered(path, limits):
        if len(line) > limits.log_line_bytes:
            problems.add(
                f"line {number}: it has more than {show_size(limits.log_line_bytes)} (log_line_bytes)", Weight.REFUSED
            )
            continue
        try:
            event = from_json(parse_line(line))
        except json.JSONDecodeError as error:
            if _is_torn(line, error):
                problems.add(f"line {number}: cut short, as a killed runner leaves it", Weight.USUAL)
            else:
                problems.add(f"line {number}, column {error.colno}: no JSON: {error.msg}", Weight.REFUSED)
        except ValueError as error:  # Unfit, bytes that are no UTF-8, an integer of thousands of digits
            problems.add(f"line {number}: {error}", Weight.REFUSED)
        else:
            if event is not None:
                yield event


def _is_torn(line: bytes, error: json.JSONDecodeError) -> bool:
    """Whether the text ends too early. A power failure may leave zeros."""
    if not line.strip(b"\0\r\n "):
        return True
    early = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
    return line.startswith(b"{") and (early or not line.rstrip().endswith(b"}"))


def parse_line(line: bytes) -> Any:
    """Return the JSON of a line. Raises ValueError, also for what is nested deeper than ``DEPTH``."""
    try:
        data = json.loads(line)
    except RecursionError:
        raise Unfit(f"nested deeper than {DEPTH}") from None
    # Few lines have that many brackets, so the depth of few is looked at.
    if line.count(b"[") + line.count(b"{") > DEPTH and _depth(data) > DEPTH:
        raise Unfit(f"nested deeper than {DEPTH}")
    return data


def _depth(value: Any) -> int:
    """How deep lists and mappings are nested, without recursion."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, list | dict)]:
        depth += 1
        level = [part for item in level for part in (item.values() if isinstance(item, dict) else item)]
    return depth


def numbered_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes]]:
    """Return the lines of a journal that are not blank and not too long, each with its number.

    Raises OSError as ``stream_journal`` does.
    """
    limits = _usual_limits()
    return ((number, line) for number, line in _numbered(path, limits) if len(line) <= limits.log_line_bytes)


def lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yield the same lines without their numbers."""
    return (line for _, line in numbered_lines(path))


def _usual_limits() -> Limits:
    """The limits of the environment; the defaults where these cannot be read, of which commands speak elsewhere."""
    try:
        return Limits.from_environment()
    except ValueError:
        return Limits()


def _numbered(path: str | os.PathLike[str], limits: Limits) -> Iterator[tuple[int, bytes]]:
    """The lines of a journal that are not blank, each with its number. Raises OSError.

    One that is longer than ``log_line_bytes`` comes with one byte more than that.
    """
    limit, number = limits.log_line_bytes, 0
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limits.log_bytes:
            reason = (
                f"it has {show_size(size)}, and log_bytes is {show_size(limits.log_bytes)}; "
                "RUNNER_LIMIT_LOG_BYTES in the environment changes that"
            )
            raise OSError(errno.EINVAL, reason, os.fspath(path))
        while line := file.readline(limit + 1):
            number += 1
            piece = line
            while len(piece) > limit and not piece.endswith(b"\n"):
                piece = file.readline(limit + 1)
            if not line.isspace():
                yield number, line


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """Without looks for cycles, of which JSON has none: over a long log they take half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_BADNESS = ("PASS", "XFAIL", "SKIP", "NOT-RUN", "VACUOUS", "FLAKY", "INVALID", "XPASS", "ERROR", "FAIL")
"""Verdicts, the worst last: of two contradictory ones it counts."""

_CLEAN = frozenset({"PASS", "XPASS", "VACUOUS", "NOT-RUN"})
"""Verdicts that no finding goes with."""

SUITES = 1000
"""How many suites a log may name: each is a table and a part of the JUnit file."""

_EDITED = "this log was edited, or written by another program"


def audit(events: Iterable[Event], problems: Problems) -> list[Event]:
    """Return the events with one start, one plan and one verdict a variant; add what was wrong to ``problems``."""
    events = _one_start(list(events), problems)
    events = _one_plan(events, problems)
    events = _one_verdict(events, problems)
    for text in (*_counts(events), *_verdicts(events), *_end(events)):
        problems.add(text)
    return events


def excess(events: Iterable[Event]) -> str:
    """Return why no report can be made of a log whose events are few, but would fill a report; empty when one can."""
    names: set[str] = set()
    variants = entries = 0
    for event in events:
        if isinstance(event, VariantPlanned | VariantFinished):
            names.update(event.suites)
            variants += 1
            entries += len(event.suites)
    if len(names) > SUITES:
        return f"its variants are of {len(names):,} suites; at most {SUITES:,} are read"
    if entries > SUITES + 50 * variants:
        return f"its {variants:,} variants are in {entries:,} places of suites; at most 50 for each are read"
    return ""


def _one_start(events: list[Event], problems: Problems) -> list[Event]:
    places = [number for number, event in enumerate(events) if isinstance(event, RunStarted)]
    if places and places[0] > 0:
        problems.add(f"{plural(places[0], 'event')} before run-started: {_EDITED}", Weight.REFUSED)
    if len(places) > 1:
        problems.add(
            f"run-started stands there {len(places)} times: several runs, of which the first counts", Weight.REFUSED
        )
    # First, as every reader expects it.
    return [*(events[place] for place in places[:1]), *(event for event in events if not isinstance(event, RunStarted))]


def _one_plan(events: list[Event], problems: Problems) -> list[Event]:
    planned: dict[tuple[str, str], VariantPlanned] = {}
    kept_events: list[Event] = []
    for event in events:
        if isinstance(event, VariantPlanned):
            first = planned.get(event.key)
            if first == event:
                problems.add(f"{_name(event)} is planned twice; it counts once", Weight.USUAL)
            elif first is not None:
                problems.add(f"{_name(event)} is planned twice, in different words; the first counts: {_EDITED}")
            if first is not None:
                continue
            planned[event.key] = event
        kept_events.append(event)
    return kept_events


def _one_verdict(events: list[Event], problems: Problems) -> list[Event]:
    results: dict[tuple[str, str], tuple[int, VariantFinished]] = {}  # with their places
    doubled: set[int] = set()
    for place, event in enumerate(events):
        if not isinstance(event, VariantFinished):
            continue
        earlier, first = results.setdefault(event.key, (place, event))
        if earlier == place:
            continue
        later_counts = _BADNESS.index(event.verdict) > _BADNESS.index(first.verdict)
        if first.verdict == event.verdict:
            problems.add(f"{_name(event)} finished twice, both times {event.verdict}; it counts once", Weight.USUAL)
        elif first.verdict == "NOT-RUN":  # it ran later
            later_counts = True
        else:
            worse = event.verdict if later_counts else first.verdict
            problems.add(f"{_name(event)} finished twice, {first.verdict} and {event.verdict}; {worse} counts")
        doubled.add(earlier if later_counts else place)
        if later_counts:
            results[event.key] = place, event
    return [event for place, event in enumerate(events) if place not in doubled]


def _counts(events: Sequence[Event]) -> Iterator[str]:
    """Whether what was announced is there."""
    planned = {event.key for event in events if isinstance(event, VariantPlanned)}
    for event in events:
        if isinstance(event, VariantFinished) and event.key not in planned:
            yield f"{_name(event)} has the verdict {event.verdict} and was never planned: {_EDITED}"
    start = start_of(events)
    end = end_of(events)
    whole = end is not None and not end.interrupted
    if start and start.planned and (len(planned) > start.planned or (whole and len(planned) < start.planned)):
        yield f"run-started announces {plural(start.planned, 'variant')}, and {len(planned)} are planned: {_EDITED}"


def _verdicts(events: Sequence[Event]) -> Iterator[str]:
    """Whether verdicts fit their findings."""
    for event in events:
        if not isinstance(event, VariantFinished):
            continue
        if event.findings and event.verdict in _CLEAN:
            yield (
                f"{_name(event)} has the verdict {event.verdict}, and {plural(len(event.findings), 'finding')}: "
                f"{_EDITED}"
            )
        elif event.verdict in ("FAIL", "XFAIL") and not event.findings:
            yield f"{_name(event)} has the verdict {event.verdict}, and no finding: {_EDITED}"


def _end(events: Sequence[Event]) -> Iterator[str]:
    """Whether the exit code fits the verdicts."""
    end = end_of(events)
    if end is None or end.interrupted or end.exit_code not in (0, 1):
        return
    results = [event for event in events if isinstance(event, VariantFinished)]
    bad = any(event.verdict in (*RED, "SKIP") for event in results)  # --fail-on-skip
    if end.exit_code == 1 and not bad:
        yield f"the run ended with exit code 1, and none of {plural(len(results), 'verdict')} is red: {_EDITED}"
    missing = {event.key for event in events if isinstance(event, VariantPlanned)} - {event.key for event in results}
    if end.exit_code == 0 and missing:
        yield f"the run ended with exit code 0, and {len(missing)} of its variants have no verdict: {_EDITED}"


def _name(event: VariantPlanned | VariantFinished) -> str:
    return f"{event.id} (torch {event.torch})"
