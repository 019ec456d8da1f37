"""The journal: every event of a run, one JSON object a line, appended as it happens.

What has been written survives whatever becomes of the runner, and each report can be made again from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from runner.engine.events import Event, from_json, to_json


class Journal:
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
        on_problem: Callable[[str], None] | None = None,
        stamp: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self._stamp = dict(stamp or {})
        self.lost = 0
        self._on_problem = on_problem
        self._descriptor = -1
        self._torn = False  # what a write left behind may lack its end
        self._told = False
        self._open()

    def write(self, event: Event) -> bool:
        """Append one event and hand it to the operating system. Returns whether it is in the file."""
        line = json.dumps({**self._stamp, **to_json(event)}, default=repr).encode() + b"\n"
        if not self._open():
            self.lost += 1
            return False
        if self._torn:
            line = b"\n" + line  # so that the torn line spoils itself alone
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            self._torn = self._torn or written > 0
            self.lost += 1
            self._tell(error)
            return False
        self._torn = False
        return True

    def close(self) -> None:
        """Close the file. Can be called twice; a later ``write`` opens it again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:  # some file systems report a full disk only here
                self._tell(error)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> bool:
        if self._descriptor >= 0:
            return True
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered, and not through a file object: that would keep what a failed write left, and write it later.
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            self._torn = not _ends_whole(self._descriptor)
        except OSError as error:
            self._tell(error)
            return False
        return True

    def _tell(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            if self._on_problem is not None:
                reason = error.strerror or str(error)
                self._on_problem(f"the journal {self.path} cannot be written ({reason}); the run goes on without it")


def _ends_whole(descriptor: int) -> bool:
    """Whether a file is empty or ends with a newline; a runner that was killed may have left half a line."""
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def read(path: str | os.PathLike[str]) -> tuple[list[Event], int]:
    """The events of a journal, in order, and how many lines could not be read (torn ones, as a killed runner leaves).

    Events of a kind that this version does not know are left out and not counted.

    Raises:
        OSError: the file cannot be read.
    """
    events: list[Event] = []
    unreadable = 0
    with open(path, "rb") as file:
        for line in file:
            if not line.strip():
                continue
            try:
                event = from_json(json.loads(line))
            except (ValueError, TypeError, AttributeError, RecursionError):  # no JSON, or an event that lacks a field
                unreadable += 1
                continue
            if event is not None:
                events.append(event)
    return events, unreadable
