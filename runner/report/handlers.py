"""Handlers of a run's events, and all of them as one: the terminal, and the files of a run.

A handler is any object with the methods of ``Handler``. ``reporters.py`` says which there are. ``EndFile`` is what is
written when the run has ended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from runner import console
from runner.files import is_open_file
from runner.record.events import Event, Notice, RunFinished
from runner.record.journal import Journal
from runner.report.terminal import Reporter

if TYPE_CHECKING:
    from runner.report.site.declared import Declared

Dialect = Literal["extended", "strict"]
"""Of JUnit XML (``junit.py``)."""

Running = Sequence[tuple[str, float, str]]
"""What runs now: (id of the variant, seconds so far, a remark such as the version of torch)."""


class Handler(Protocol):
    """Takes the events of a run. A subclass leaves out ``tick`` or ``close`` where it needs none."""

    def handle(self, event: Event) -> None:
        """Take one event. The first is RunStarted; the last is RunFinished, unless the runner was killed."""

    def tick(self, running: Running) -> None:
        """Notice that time passes, several times a second."""
        return

    def close(self) -> None:
        """End. Nothing comes after it."""
        return


class FileHandler(Handler, Protocol):
    """A handler that writes one file. ``problem`` says why the file is not whole; it is empty or None where it is."""

    path: Path

    @property
    def problem(self) -> str | None:
        """Return what is wrong with the file, if anything."""


Tell = Callable[[str], None]
"""Takes one line for people about a file."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the reporters of a command may know, besides where each writes.

    Args:
        dialect: of JUnit files.
        stamp: goes on every line of event logs.
        again: whether the run goes on where it ended, so that its logs are continued.
        folder: the run's own, which may hold diagnoses.
        declared: returns what the files of the cases of a run say; None to read those that its events name.
        tell: takes one line for people about a file.
    """

    dialect: Dialect = "extended"
    stamp: Mapping[str, str] = field(default_factory=dict)
    again: bool = False
    folder: Path | None = None
    declared: Callable[[Sequence[Event]], Declared] | None = None
    tell: Tell = field(default=lambda problem: None)


Opener = Callable[[Options], FileHandler]
"""Opens a file that was asked for."""


class LogFile(Handler):
    """The event log. What an earlier part of the run has written stands in it already."""

    def __init__(self, path: Path, options: Options) -> None:
        # A log is of one run; but never a device: --events /dev/stdout must stay one.
        if not options.again and os.path.isfile(path) and not is_open_file(path):
            with contextlib.suppress(OSError):  # the log will say what is wrong
                os.truncate(path, 0)
        self.path, self._journal = path, Journal(path, options.tell, options.stamp)

    @property
    def problem(self) -> str:
        """Return how many events are missing, if any."""
        return f"{self._journal.lost} events are lost" if self._journal.lost else ""

    def handle(self, event: Event) -> None:
        """Append one event."""
        self._journal.write(event)

    def close(self) -> None:
        """Close the file."""
        self._journal.close()


class Reports:
    """The terminal, and the files of a run in the order of ``openers``, event logs first."""

    def __init__(self, reporter: Reporter, openers: Iterable[Opener] = (), options: Options = Options()) -> None:
        self.reporter = reporter
        self._problems: list[str] = []
        options = replace(options, tell=self._problems.append)
        self.files = [opener(options) for opener in openers]
        self.files.sort(key=lambda file: not isinstance(file, LogFile))  # logs first: they outlive a kill

    def play(self, events: Iterable[Event]) -> bool:
        """Hand on all events of a run that has ended, and end. Returns whether a file is not whole."""
        for event in events:
            self.handle(event)
        self._end()
        return any(file.problem for file in self.files)

    def replay(self, events: Sequence[Event]) -> None:
        """Hand on what stands in the logs already."""
        for event in events:
            for file in self.files:
                if not isinstance(file, LogFile):
                    file.handle(event)
            self.reporter.replay(event)
        self._tell()

    def handle(self, event: Event) -> None:
        """Hand one event to all."""
        for file in self.files:
            file.handle(event)
        if isinstance(event, RunFinished):  # the last line names what is there, so what is wrong is said before
            self._tell()
            whole = [file for file in self.files if not file.problem]
            whole.sort(key=lambda file: isinstance(file, LogFile))  # the logs last
            self.reporter.reports = [*self.reporter.reports, *(str(file.path) for file in whole)]
        self.reporter.handle(event)
        self._tell()

    def tick(self, running: Running) -> None:
        """Say that time passes, and what runs."""
        for file in self.files:
            file.tick(running)
        self.reporter.tick(running)
        self._tell()

    def _tell(self) -> None:
        while self._problems:
            self.reporter.handle(Notice(self._problems.pop(0)))

    def _end(self) -> None:
        for file in self.files:
            file.close()
        self._tell()
        self.reporter.close()

    def close(self) -> bool:
        """End all. Returns whether a report is not whole."""
        self._end()
        if self.reporter.problem:
            console.message(
                f"runner: standard output could not be written: {self.reporter.problem}; runner report repeats it"
            )
        return bool(self.reporter.problem) or any(file.problem for file in self.files)


class EndFile(Handler):
    """A report of a whole run: ``write`` takes all its events.

    What is wrong with the file is told, and raises nothing.
    """

    def __init__(self, option: str, path: Path, write: Callable[[Sequence[Event]], None], tell: Tell) -> None:
        """``option`` asks for the file, and stands in front of what ``tell`` takes. ``path`` is what a person opens."""
        self.path, self.problem = path, ""
        self.option, self._write, self._tell = option, write, tell
        self._events: list[Event] = []
        self._is_written = False

    def handle(self, event: Event) -> None:
        """Take one event."""
        self._events.append(event)
        if isinstance(event, RunFinished):
            self.write()

    def write(self) -> None:
        """Write what there is, also once more."""
        self._is_written = True
        try:
            self._write(self._events)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            self.problem = f"{self.option} {self.path} could not be written: {why}"
            self._tell(self.problem)

    def close(self) -> None:
        """Write what there is of a run that has no end."""
        if self._events and not self._is_written:
            self.write()
