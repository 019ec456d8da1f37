"""A file or folder that is written when the run has ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from runner.record.events import Event, RunFinished
from runner.report.handlers import Handler, Tell


class EndFile(Handler):
    """A report of a whole run: ``write`` takes all its events. What is wrong with the file is told, and raises nothing."""

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
