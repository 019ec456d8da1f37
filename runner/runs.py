"""The runs kept in ``.runner``: where they are, and what they said."""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from runner.engine.events import Event, RunFinished, RunResumed, RunStarted
from runner.engine.journal import read as read_journal
from runner.exits import UsageError

FOLDER = ".runner"
"""Where runs are kept, in the current directory, as pytest keeps its cache."""


def new_folder() -> tuple[Path, str]:
    """A new folder for a run and, when it is not where it should be, why."""
    base = Path(FOLDER)
    try:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S-") + str(os.getpid())
        folder = base / "runs" / stamp
        number = 1
        while folder.exists():  # a clock set back, and the same process number again
            number += 1
            folder = base / "runs" / f"{stamp}-{number}"
        (folder / "logs").mkdir(parents=True)
        if not (base / ".gitignore").exists():
            (base / ".gitignore").write_text("*\n")
        return folder, ""
    except OSError as error:  # full, read-only, somebody's own file of that name
        folder = Path(tempfile.mkdtemp(prefix="runner-"))
        (folder / "logs").mkdir()
        return folder, f"cannot keep runs here ({error.strerror}); this one is in {folder}"


def output_folder(asked: str | None, name: str) -> Path:
    """The folder of ``--output``, which must be new or empty, or else ``name`` in a new run's folder; absolute.

    Raises:
        UsageError: there is something in it, or it cannot be made.
    """
    if asked is None:
        base, warning = new_folder()
        if warning:
            print(f"runner: {warning}", file=sys.stderr)
        asked = str(base / name)
    folder = Path(asked)
    try:
        folder.mkdir(parents=True, exist_ok=True)
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
        print(f"runner: {base / 'latest'} still names another run ({error.strerror})", file=sys.stderr)


def has_latest() -> bool:
    """Whether a run is kept here."""
    return Path(FOLDER, "latest", "events.jsonl").is_file()


def journal_of(run: str) -> Path:
    """The event log that ``run`` means: a run's folder, its name, its event log, or ``latest``. Raises UsageError."""
    path = Path(FOLDER, "latest") if run == "latest" else Path(run)
    if not path.exists() and Path(FOLDER, "runs", run).is_dir():
        path = Path(FOLDER, "runs", run)
    journal = path / "events.jsonl" if path.is_dir() else path
    if not journal.is_file():
        raise UsageError(f"no event log at {journal}; a run's folder holds events.jsonl")
    return journal


def read_events(run: str) -> list[Event]:
    """The events of a run (see ``journal_of``). Ends that a resumed run went beyond are left out. Raises UsageError."""
    journal = journal_of(run)
    events, unreadable = read_journal(journal)
    if not any(isinstance(e, RunStarted) for e in events):
        raise UsageError(f"{journal} is no event log")
    if unreadable:
        print(f"runner: {unreadable} lines of {journal} could not be read", file=sys.stderr)
    return settled(events)


def settled(events: list[Event]) -> list[Event]:
    """The events without the ends before the last resumption."""
    last = max((n for n, event in enumerate(events) if isinstance(event, RunResumed)), default=0)
    return [event for n, event in enumerate(events) if n >= last or not isinstance(event, RunFinished)]


def started_of(events: list[Event]) -> RunStarted:
    """A run's first event."""
    return next(event for event in events if isinstance(event, RunStarted))
