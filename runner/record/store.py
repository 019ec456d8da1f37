"""The runs kept in ``.runner``: where they are, and what they said."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from runner import console
from runner.cases.limits import Limits
from runner.exit_codes import INTERNAL, UsageError
from runner.files import link_problem
from runner.record.audit import audit, excess
from runner.record.events import Event, RunFinished, RunResumed, RunStarted
from runner.record.journal import Problems, Weight, read_journal

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


def has_latest() -> bool:
    """Return whether a run is kept here."""
    return os.path.isfile(Path(FOLDER, "latest", "events.jsonl"))


def is_kept_here(folder: Path) -> bool:
    """Return whether a path leads to a run in the current directory's ``.runner/runs``, and by no link to another place.

    Raises OSError, or RuntimeError for a loop of links, up to Python 3.12.
    """
    return folder.resolve().parent == Path.cwd().resolve() / FOLDER / "runs"


def latest_problem() -> str:
    """Return why ``latest`` counts as no run: a checkout may bring a link to anywhere. Empty if it may count, or if there is no such link.

    Raises what ``is_kept_here`` does.
    """
    link = Path(FOLDER, "latest")
    target = link.resolve()
    if target == Path.cwd().resolve() / link or is_kept_here(link):  # a copy without links has a folder
        return ""
    return f"{link} leads to {target}, which is not among the runs kept here; name the run's folder, or remove the link"


def journal_of(run: str) -> Path:
    """Return the event log that ``run`` means: a run's folder, its name, its event log, or ``latest``. Raises UsageError."""
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
    problems: Problems

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
    """Read the event log of a run (see ``journal_of``), without the ends that a resumed run went beyond. Raises UsageError."""
    path = journal_of(run)
    try:
        limits = Limits.from_environment()
        events, problems = read_journal(path, limits)
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
