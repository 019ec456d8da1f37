"""The runs kept in ``.runner``: where they are, who writes them, how many stay, and what they said.

A run has one writer, by a lock that the operating system gives back when its holder ends, however it ends. How many
runs are kept stands as a person writes it: ``50 runs, 2 GiB``. The latest run here printed ids, so what it meant by
them counts; a log that this user did not write on this machine says nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import platform
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from runner import console
from runner.cases.limits import Limits, parse_size, show_size
from runner.exit_codes import INTERNAL, UsageError
from runner.files import link_problem
from runner.record.events import Event, RunFinished, RunResumed, RunStarted, VariantFinished, VariantPlanned, from_json
from runner.record.journal import Problems, Weight, audit, excess, lines, parse_line, read_journal
from runner.record.signing import why_foreign
from runner.text import plural

KEEP_VARIABLE = "RUNNER_KEEP"
"""Environment variable with the rule for all runs."""

_KEPT_RUNS = re.compile(r"([0-9]{1,9}) *runs?")


@dataclass(frozen=True, slots=True)
class Keep:
    """At most so many runs of at most so many bytes together; None is no bound."""

    runs: int | None = None
    size: int | None = None

    def __str__(self) -> str:
        parts = [plural(self.runs, "run")] if self.runs is not None else []
        return ", ".join([*parts, show_size(self.size)] if self.size is not None else parts) or "all"

    def holds(self, runs: int, size: int) -> bool:
        """Return whether so many runs of so many bytes may stay."""
        return (self.runs is None or runs <= self.runs) and (self.size is None or size <= self.size)


USUAL_KEEP = Keep(50, 2 << 30)


def parse_keep(text: str) -> Keep:
    """Return the rule that a text says: ``50 runs``, ``2 GiB``, both with a comma between them, or ``all``.

    Raises ValueError.
    """
    if text.strip() == "all":
        return Keep()
    runs = size = None
    try:
        for part in (part.strip() for part in text.split(",")):
            match = _KEPT_RUNS.fullmatch(part)
            if match and runs is None and int(match[1]):
                runs = int(match[1])
            elif match or size is not None or part[-1:].isdigit():  # 50 alone is no 50 bytes
                raise ValueError(part)
            else:
                size = parse_size(part)
    except ValueError:
        shown = repr(text if len(text) <= 40 else text[:37] + "...")
        raise ValueError(f"{shown} is no rule such as '50 runs, 2 GiB', '50 runs', '2 GiB' or 'all'") from None
    return Keep(runs, size)


def keep_from_environment(environ: Mapping[str, str] | None = None) -> Keep:
    """Return the rule of RUNNER_KEEP, or the usual one. Raises UsageError where the variable says something else."""
    text = (os.environ if environ is None else environ).get(KEEP_VARIABLE)
    if text is None:
        return USUAL_KEEP
    try:
        return parse_keep(text)
    except ValueError as error:
        raise UsageError(f"environment variable {KEEP_VARIABLE}: {error}") from None


LOCK = "lock"
"""The file in the run's folder. It stays there; what counts is the lock on it."""


def lock(folder: Path) -> contextlib.ExitStack:
    """Become the only writer of a run's folder, until the result is closed or this process ends.

    A folder that cannot be written, or a file system without locks, does not stop a run: then nothing is locked.
    Raises UsageError, which names the holder, when another process writes there.
    """
    stack, descriptor = _take(
        folder / LOCK,
        os.O_RDWR | os.O_NOFOLLOW,
        lambda descriptor: f"another process writes to {folder}: {_described(descriptor)}; wait until it has ended",
    )
    if descriptor >= 0:
        with contextlib.suppress(OSError):  # a full disk
            os.ftruncate(descriptor, 0)
            since = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}).encode(), 0)
    return stack


def is_locked(folder: Path) -> bool:
    """Return whether another process, or another part of this one, writes to a run's folder."""
    if not (folder / LOCK).is_file():
        return False
    try:
        with _take(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW, str)[0]:
            return False
    except UsageError:
        return True


def lock_file(path: str, option: str = "--events") -> contextlib.ExitStack:
    """Become the only writer of a log that a person named by an option, until the result is closed or this process
    ends.

    A device, a pipe, and a file system without locks lock nothing.

    Raises:
        UsageError: another process writes it.
    """
    return _take(path, os.O_RDONLY, lambda _: f"{option} {path}: another run writes this file; name another one")[0]


def _take(path: str | os.PathLike[str], flags: int, refusal: Callable[[int], str]) -> tuple[contextlib.ExitStack, int]:
    """Lock a regular file, which is made. Return what gives the lock back, and the descriptor; -1 where nothing is
    locked.

    Raises:
        UsageError: another process has the lock; ``refusal`` gives the text, of a descriptor that can be read.
    """
    stack = contextlib.ExitStack()
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError:
        return stack, -1
    stack.callback(os.close, descriptor)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return stack, -1
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with stack:
            raise UsageError(refusal(descriptor)) from None
    except OSError:  # no locks here
        return stack, -1
    return stack, descriptor


def _described(descriptor: int) -> str:
    """Who holds the lock, in words."""
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']} UTC"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):  # not written yet, or by somebody else
        return "it does not say which"


FOLDER = ".runner"
"""Where runs are kept, in the current directory, as pytest keeps its cache."""


def new_folder() -> tuple[Path, str]:
    """Make a new folder for a run; return it, and why it is not where it should be, or an empty text.

    Names order runs by their start, so they hold the time in UTC: local time is set back each autumn.

    Raises UsageError when there is no place at all.
    """
    base = Path(FOLDER)
    try:
        if problem := link_problem(base / "runs"):
            raise OSError(errno.ELOOP, problem)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-") + str(os.getpid())
        folder = base / "runs" / stamp
        number = 1
        while folder.exists():  # a clock set back, and the same process number again
            number += 1
            folder = base / "runs" / f"{stamp}-{number}"
        (folder / "logs").mkdir(parents=True)
        with contextlib.suppress(FileExistsError), open(base / ".gitignore", "x") as ignore:  # "x" follows no link
            ignore.write("*\n")
        return folder, ""
    except OSError as error:  # full, read-only, somebody's own file of that name
        try:
            folder = Path(tempfile.mkdtemp(prefix="runner-"))
            (folder / "logs").mkdir()
        except OSError as neither:
            raise UsageError(
                f"runs can be kept neither here ({error.strerror}) nor in a temporary folder ({neither.strerror})",
                INTERNAL,
            ) from None
        return folder, f"cannot keep runs here ({error.strerror}); this one is in {folder}"


def start_order(name: str) -> list[tuple[int, str]]:
    """Return a key that orders the names of runs by their start: numbers count as such, as those of processes do."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split("([0-9]+)", name)]


def output_folder(option: str | None, name: str) -> Path:
    """Return the folder of ``--output``, which must be new or empty, or else ``name`` in a new run's folder; absolute.

    Raises:
        UsageError: there is something in it, or it cannot be made.
    """
    folder = Path(option or name)
    if option is None:
        base, warning = new_folder()
        if warning:
            console.message(f"runner: {warning}")
        folder = base / name
    try:
        if option and (problem := link_problem(option)):
            raise UsageError(f"--output {folder}: {problem}")
        folder.mkdir(exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"--output {folder}: there is something in it; name another folder, or remove this one")
    except OSError as error:
        raise UsageError(f"--output {folder}: {error.strerror}") from None
    return folder.resolve()


def make_latest(folder: Path) -> None:
    """Let ``latest`` mean this run, now that its journal has begun. A run that is kept elsewhere is not."""
    base = Path(FOLDER)
    if folder.parent != base / "runs":
        return
    link = base / f"latest.{os.getpid()}"
    try:
        link.unlink(missing_ok=True)
        link.symlink_to(Path("runs") / folder.name)
        link.replace(base / "latest")
    except OSError as error:
        console.message(f"runner: {base / 'latest'} still names another run ({error.strerror})")


def is_kept_here(folder: Path) -> bool:
    """Return whether a path leads to a run in the current directory's ``.runner/runs``, and by no link to another
    place.

    Raises OSError, or RuntimeError for a loop of links, up to Python 3.12.
    """
    return folder.resolve().parent == Path.cwd().resolve() / FOLDER / "runs"


def latest_problem() -> str:
    """Return why ``latest`` counts as no run: a checkout may bring a link to anywhere. Empty if it may count, or if
    there is no such link.

    Raises what ``is_kept_here`` does.
    """
    link = Path(FOLDER, "latest")
    target = link.resolve()
    if target == Path.cwd().resolve() / link or is_kept_here(link):  # a copy without links has a folder
        return ""
    return f"{link} leads to {target}, which is not among the runs kept here; name the run's folder, or remove the link"


def journal_of(run: str) -> Path:
    """Return the event log that ``run`` means: a run's folder, its name, its event log, or ``latest``.

    Raises UsageError.
    """
    path = Path(FOLDER, "latest") if run == "latest" else Path(run)
    if not run:
        raise UsageError("the name of the run is empty; name its folder, its event log, or latest")
    try:
        if run == "latest" and (problem := latest_problem()):
            raise UsageError(problem)
        if not path.exists() and Path(FOLDER, "runs", run).is_dir():
            path = Path(FOLDER, "runs", run)
        journal = path / "events.jsonl" if path.is_dir() else path
        if journal.is_file():
            return journal
        if path.is_dir():
            reason = f"no event log in {path.resolve()}: a run's folder holds events.jsonl"
        else:
            kind = "it is no regular file" if path.exists() else "there is no such file"
            reason = f"no event log at {path}: {kind}"
    except (OSError, RuntimeError) as error:  # RuntimeError: Python 3.10 raises it for a loop of links
        reason = f"no event log at {run}: {getattr(error, 'strerror', None) or error}"
    raise UsageError(reason)


@dataclass(frozen=True, slots=True)
class Log:
    """A run's event log as it was read: its clean events, and what was wrong with it."""

    path: Path
    events: list[Event]
    problems: Problems = field(default_factory=Problems)

    @property
    def started(self) -> RunStarted:
        """The run's first event."""
        return started_of(self.events)

    def print_problems(self) -> None:
        """Print what was wrong with the log, a line each."""
        for line in self.problems.lines():
            console.message(f"runner: {self.path}: {line}")

    def demand_whole(self) -> None:
        """Say what was wrong. Raises UsageError when lines were left out that no killed runner leaves so."""
        self.print_problems()
        if self.problems.worst == Weight.REFUSED:
            raise UsageError(
                f"{self.path} was changed after it was written; runner report shows what can be read of it"
            )


def read_log(run: str) -> Log:
    """Read the event log of a run (see ``journal_of``), without the ends that a resumed run went beyond.

    Raises UsageError.
    """
    path = journal_of(run)
    try:
        events, problems = read_journal(path, Limits.from_environment())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    if not any(isinstance(event, RunStarted) for event in events):
        reason = problems.named[0] if problems else "it has no line"
        raise UsageError(f"{path} is no event log: {reason}")
    if reason := excess(events):
        raise UsageError(f"{path} cannot be used: {reason}")
    return Log(path, settled(audit(events, problems)), problems)


def read_events(run: str) -> list[Event]:
    """Read the events of a run (see ``read_log``), and print what was wrong with its log. Raises UsageError."""
    log = read_log(run)
    log.print_problems()
    return log.events


def settled(events: list[Event]) -> list[Event]:
    """Return the events without the ends before the last resumption."""
    last = max((n for n, event in enumerate(events) if isinstance(event, RunResumed)), default=0)
    return [event for n, event in enumerate(events) if n >= last or not isinstance(event, RunFinished)]


def started_of(events: list[Event]) -> RunStarted:
    """Return a run's first event."""
    return next(event for event in events if isinstance(event, RunStarted))


def latest_suites(identifiers: Collection[str]) -> dict[str, str]:
    """Return the suite file by which the latest run planned each of these ids, for those that it planned by a suite.

    An id without its backend, as rows of a table have it, counts too.
    """
    asked = {text for text in identifiers if "::" in text and ("@" in text or text.endswith("]"))}
    events = _latest_events() if asked else iter(())
    started = next(events, None)
    if not isinstance(started, RunStarted):
        return {}
    return {
        name: started.suites[event.suite]
        for event in itertools.takewhile(lambda event: isinstance(event, VariantPlanned), events)
        if isinstance(event, VariantPlanned) and started.suites.get(event.suite, event.file) != event.file
        for name in asked & {event.id, event.label}
    }


def latest_seed() -> int:
    """Return the ``--seed`` of the latest run's command line; 0 without one."""
    return next((int(value) for value in reversed(latest_options("--seed")) if value.removeprefix("-").isdecimal()), 0)


def latest_options(name: str) -> tuple[str, ...]:
    """Return what followed each use of an option on the latest run's command line."""
    started = next(_latest_events(), None)
    if not isinstance(started, RunStarted):
        return ()
    words = [part for word in started.argv for part in word.split("=", 1)]
    return tuple(value for option, value in itertools.pairwise(words) if option == name)


def latest_result(identifier: str) -> VariantFinished | None:
    """Return what the latest run says of a variant: of several versions of torch the first that has a finding."""
    name = json.dumps(identifier).encode()
    results = [event for event in _latest_events(name) if isinstance(event, VariantFinished) and event.id == identifier]
    return next((event for event in results if event.findings), results[-1] if results else None)


def _latest_events(text: bytes = b"") -> Iterator[Event | None]:
    """The events of the latest run whose lines hold a text, after its first; none of a run that began elsewhere."""
    try:
        if latest_problem():
            return
        for number, line in enumerate(lines(Path(FOLDER, "latest", "events.jsonl"))):
            if number and text not in line:
                continue
            event = from_json(parse_line(line))
            if isinstance(event, RunStarted) and (number or why_foreign(event) or event.cwd != os.getcwd()):
                return
            if not number and not isinstance(event, RunStarted):
                return
            yield event
    except (OSError, ValueError, RuntimeError):  # no such run, one whose log is torn, or a loop of links
        return
