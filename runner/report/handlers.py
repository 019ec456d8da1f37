"""Handlers of a run's events, and all of them as one: the files of a run, those that a person asked for, and the terminal.

A handler is any object with the methods of ``Handler``. Another package adds one by an entry point of the group
``runner.reporters``, or a person names ``package:function``; ``--report NAME=PATH`` chooses it (``docs/extending.md``).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol, TypeVar

from runner import console
from runner.exit_codes import UsageError
from runner.record.events import Event, Key, Notice, RunFinished
from runner.record.journal import Journal
from runner.report.junit import Dialect, JUnitFile
from runner.report.terminal import Reporter
from runner.text import one_line

GROUP = "runner.reporters"
"""The group of entry points by which a package adds reporters. Each is a function of a ``Path`` that returns a ``Handler``."""

Running = Sequence[tuple[str, float, str]]
"""What runs now: (id of the variant, seconds so far, a remark such as the version of torch)."""


class Handler(Protocol):
    """Takes the events of a run. A subclass that writes only at the end leaves out ``tick``."""

    def handle(self, event: Event) -> None:
        """Take one event. The first is RunStarted; the last is RunFinished, unless the runner was killed."""

    def tick(self, running: Running) -> None:
        """Notice that time passes, several times a second."""

    def close(self) -> None:
        """End. Nothing comes after it."""


class FileHandler(Handler, Protocol):
    """A handler that writes one file. ``problem`` says why the file is not whole; it is empty or None where it is."""

    path: Path

    @property
    def problem(self) -> str | None:
        """Return what is wrong with the file, if anything."""


Added = TypeVar("Added", bound=FileHandler)

Tell = Callable[[str], None]
"""Takes one line for people about a file."""


class LogFile:
    """The event log. What an earlier part of the run has written stands in it already."""

    def __init__(self, path: Path, tell: Tell, stamp: Mapping[str, str]) -> None:
        self.path, self._journal = path, Journal(path, tell, stamp)

    @property
    def problem(self) -> str:
        """Return how many events are missing, if any."""
        return f"{self._journal.lost} events are lost" if self._journal.lost else ""

    def handle(self, event: Event) -> None:
        """Append one event."""
        self._journal.write(event)

    def tick(self, running: Running) -> None:
        """Do nothing: each event is written as it comes."""

    def close(self) -> None:
        """Close the file."""
        self._journal.close()


@dataclass(frozen=True, slots=True)
class Chosen:
    """A reporter of another package that a person asked for, and where it is to write."""

    name: str
    make: Callable[[Path], Handler]
    path: Path


class PluginFile:
    """A handler of another package. What it raises spoils its own report and nothing else."""

    def __init__(self, chosen: Chosen, tell: Tell) -> None:
        self.path, self.problem = chosen.path, ""
        self._name, self._tell = chosen.name, tell
        self._handler: Handler | None = None
        self._try(lambda: setattr(self, "_handler", chosen.make(chosen.path)))

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001  whatever somebody else's code does
            self._handler = None  # it has missed something, so nothing more of it can be right
            self.problem = f"--report {self._name}={self.path}: {type(error).__name__}: {one_line(str(error), 500)}"
            self._tell(self.problem)

    def handle(self, event: Event) -> None:
        """Hand one event on."""
        if (handler := self._handler) is not None:
            self._try(lambda: handler.handle(event))

    def tick(self, running: Running) -> None:
        """Hand on what runs."""
        if (handler := self._handler) is not None:
            self._try(lambda: handler.tick(running))

    def close(self) -> None:
        """Let it end."""
        if (handler := self._handler) is not None:
            self._try(handler.close)


def choose(requests: Iterable[str]) -> list[Chosen]:
    """Return the reporters that ``NAME=PATH`` texts of the command line ask for.

    Only these are imported. Raises UsageError for another form, a name that is not installed, and a package that fails.
    """
    return [_chosen(request) for request in requests]


def _chosen(request: str) -> Chosen:
    name, equals, path = request.partition("=")
    if not (name and equals and path):
        raise UsageError(f"--report {one_line(request, 200)}: write NAME=PATH; {_installed_words()}")
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points and ":" not in name:
        raise UsageError(f"--report {one_line(request, 200)}: no reporter {one_line(name, 80)!r}; {_installed_words()}")
    try:
        make = _load(points.get(name) or EntryPoint(name, name, GROUP))
    except Exception as error:  # noqa: BLE001  whatever the package does while it is imported
        reason = f"{type(error).__name__}: {one_line(str(error), 500)}"
        raise UsageError(f"--report {one_line(request, 200)}: {reason}") from None
    return Chosen(name, make, Path(path))


def _load(point: EntryPoint) -> Callable[[Path], Handler]:
    """Import a reporter; where a person named ``package:function``, the current folder is looked at last, as for backends."""
    here = os.getcwd()
    with contextlib.ExitStack() as stack:
        if point.name == point.value and here not in sys.path:
            sys.path.append(here)
            stack.callback(sys.path.remove, here)
        import_module(point.module)
        constructor: Any = point.load()
    if not callable(constructor):
        raise TypeError(f"{point.value} cannot be called")
    return constructor  # type: ignore[no-any-return]


def _installed_words() -> str:
    names = sorted({point.name for point in entry_points(group=GROUP)})
    listed = f"installed are {', '.join(names)}" if names else f"no package installs one (entry points of {GROUP})"
    return f"{listed}; package:function names one that is not installed"


class Reports:
    """The terminal, and the files of a run: those in its folder first, then those that were asked for."""

    def __init__(self, reporter: Reporter, chosen: Sequence[Chosen] = ()) -> None:
        """``chosen`` are the reporters of other packages."""
        self.reporter = reporter
        self._problems: list[str] = []
        self.files: list[FileHandler] = [PluginFile(choice, self._problems.append) for choice in chosen]

    @classmethod
    def open(
        cls,
        folder: Path,
        stamp: Mapping[str, str],
        *,
        junit: str | None = None,
        dialect: Dialect = "extended",
        events: str | None = None,
        chosen: Sequence[Chosen] = (),
        slow: float,
        verbose: bool = False,
        quiet: bool = False,
        earlier: Callable[[], Mapping[Key, float]] = dict,
        again: bool = False,
    ) -> Reports:
        """Open the reports of a run.

        Args:
            folder: the run's own, which always has an event log and a JUnit file.
            stamp: goes on every line of the logs.
            junit: where a further JUnit file is wanted; ``dialect`` is that of both.
            events: where a further log is wanted.
            chosen: reporters of other packages.
            slow: seconds after which the terminal calls a variant slow.
            verbose: whether the terminal says of each variant what was compared.
            quiet: whether it prints failures and the summary alone.
            earlier: returns the seconds that variants took before, for an estimate on the terminal.
            again: whether the run goes on where it ended, so that its logs are continued.
        """
        # A log is of one run; but never a device: --events /dev/stdout must stay one.
        if events and os.path.isfile(events) and not again:
            with contextlib.suppress(OSError):  # the log will say what is wrong
                os.truncate(events, 0)
        logs = [folder / "events.jsonl", *([Path(events)] if events else [])]
        junits = [folder / "junit.xml", *([Path(junit)] if junit else [])]
        reports = cls(Reporter(slow=slow, verbose=verbose, quiet=quiet, earlier=earlier), chosen)
        tell = reports._problems.append
        reports.files[:0] = [LogFile(path, tell, stamp) for path in logs]  # first: they outlive a kill
        reports.files[len(logs) : len(logs)] = [JUnitFile(path, dialect, tell) for path in junits]
        return reports

    def add(self, make: Callable[[Tell], Added]) -> Added:
        """Add a file, and return it. ``make`` makes it of what takes one line for people about it."""
        file = make(self._problems.append)
        self.files.append(file)
        return file

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
        self.reporter.tick([*running])
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
