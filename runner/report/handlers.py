"""Handlers of a run's events, and all of them as one: the terminal, and the files of a run.

A handler is any object with the methods of ``Handler``. ``EndFile`` is what is written when the run has ended, and
``LiveFile`` what is complete at every instant, whatever happens to this process, the disk or the folder.
``--report NAME=PATH`` chooses one (``docs/extending.md``); ``--junit FILE`` is short for ``--report junit=FILE``. All
are loaded in one way, when they are asked for. Another package adds one by an entry point of the group
``runner.reporters``, or a person names ``package:function``.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from runner import console
from runner.exit_codes import UsageError
from runner.files import is_open_file, replace_file
from runner.record.events import Event, Notice, RunFinished
from runner.record.journal import Journal
from runner.report.terminal import Reporter
from runner.text import one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from runner.report.site.results import Declared

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


GROUP = "runner.reporters"
"""The group of entry points by which a package adds reporters: functions of a ``Path`` that return a ``Handler``."""

BUILT_IN = {
    "events": "runner.report.handlers:LogFile",
    "junit": "runner.report.junit:reporter",
    "ctrf": "runner.report.ctrf:reporter",
    "html": "runner.report.site.folder:reporter",
    "github": "runner.report.github:reporter",
}
"""The runner's own. Each is a function of a ``Path`` and of ``Options`` that returns a ``FileHandler``."""


class PluginFile:
    """A handler of another package. What it raises spoils its own report and nothing else."""

    _handler: Handler

    def __init__(self, name: str, make: Callable[[Path], Handler], path: Path, options: Options) -> None:
        self.path, self.problem = path, ""
        self._name, self._tell = name, options.tell
        self._try(lambda: setattr(self, "_handler", make(path)))

    def _try(self, act: Callable[[], object]) -> None:
        if self.problem:  # it has missed something, so nothing more of it can be right
            return
        try:
            act()
        except Exception as error:  # noqa: BLE001  whatever somebody else's code does
            self.problem = f"--report {self._name}={self.path}: {type(error).__name__}: {one_line(str(error), 500)}"
            self._tell(self.problem)

    def handle(self, event: Event) -> None:
        """Hand one event on."""
        self._try(lambda: self._handler.handle(event))

    def tick(self, running: Running) -> None:
        """Hand on what runs."""
        self._try(lambda: self._handler.tick(running))

    def close(self) -> None:
        """Let it end."""
        self._try(lambda: self._handler.close())


def built_in(name: str, path: str | Path) -> Opener:
    """Return a reporter of ``BUILT_IN`` that is to write there."""
    return partial(pkgutil.resolve_name(BUILT_IN[name]), Path(path))


def choose(request: str) -> Opener:
    """Return the reporter that a ``NAME=PATH`` of the command line asks for.

    Only this one is imported. Raises UsageError for another form, an unknown name, and a package that fails.
    """
    name, equals, path = request.partition("=")
    if not (name and equals and path):
        raise UsageError(f"--report {one_line(request, 200)}: write NAME=PATH; {_installed_words()}")
    if name in BUILT_IN:
        return built_in(name, path)
    from importlib.metadata import EntryPoint

    points = _points()
    if name not in points and ":" not in name:
        raise UsageError(f"--report {one_line(request, 200)}: no reporter {one_line(name, 80)!r}; {_installed_words()}")
    try:
        make = _load(points.get(name) or EntryPoint(name, name, GROUP))
    except Exception as error:  # noqa: BLE001  whatever the package does while it is imported
        reason = f"{type(error).__name__}: {one_line(str(error), 500)}"
        raise UsageError(f"--report {one_line(request, 200)}: {reason}") from None
    return partial(PluginFile, name, make, Path(path))


def _points() -> dict[str, EntryPoint]:
    """Return what installed packages register, by its name; the import is long, and few commands ask."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


def _load(point: EntryPoint) -> Callable[..., Any]:
    """Import a reporter. For ``package:function`` the current folder is looked at last, as for backends."""
    here = os.getcwd()
    with contextlib.ExitStack() as stack:
        if point.name == point.value and here not in sys.path:
            sys.path.append(here)
            stack.callback(sys.path.remove, here)
        constructor: Any = point.load()
    if not callable(constructor):
        raise TypeError(f"{point.value} cannot be called")
    return constructor  # type: ignore[no-any-return]


def _installed_words() -> str:
    names = sorted(_points())
    listed = f"installed are {', '.join(names)}" if names else f"no package installs one (entry points of {GROUP})"
    return f"{listed}; package:function names one that is not installed; the runner has {', '.join(BUILT_IN)}"


_EVERY = 0.3  # least seconds between two writes
_SHARE = 10  # and at least so many times as long as the last write took
_RATE = 512 << 10  # and on average no more bytes a second: a run may last for days, and its file have 100 MB


class LiveFile:
    """Keeps the content of ``path`` equal to the pieces that ``content`` returns.

    Each write goes to a second file in the same folder, which then replaces the first. A reader so sees the old text or
    the new one. Writing takes at most a tenth of the time, and 512 KiB a second. After a failure the file stays as it
    was, ``on_problem`` gets the reason once, and later writes try again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        content: Callable[[], Iterable[bytes]],
        on_problem: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = os.path.abspath(path)
        self.problem: str | None = None  # why the file is not up to date, once a write has failed
        self._content = content
        self._on_problem = on_problem or (lambda _: None)
        self._clock = clock
        self._dirty = True
        self._next = float("-inf")

    def touch(self) -> None:
        """Note that the content has changed."""
        self._dirty = True

    def write(self, *, now: bool = False) -> None:
        """Bring the file up to date, if it is time or ``now`` is set. A file that cannot be written raises nothing."""
        start = self._clock()
        if not now and (not self._dirty or start < self._next):
            return
        if not self._dirty and os.path.exists(self.path):  # up to date, and nobody has cleared the folder since
            return
        why, size = "", 0
        try:
            size = replace_file(self.path, self._content())
        except (OSError, ValueError) as error:  # ValueError: what cannot be written down, such as two cases of one name
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        end = self._clock()
        self._next = end + max(_EVERY, _SHARE * (end - start), size / _RATE)
        if why:
            self.failed(why)
        else:
            self._dirty, self.problem = False, None

    def failed(self, why: str) -> None:
        """Remember the problem, and report it unless the last attempt had the same one."""
        earlier, self.problem = self.problem, f"{self.path} could not be written: {why}"
        if self.problem != earlier:  # set first: on_problem may send an event that comes back here
            self._on_problem(self.problem)
