"""The verdicts of a run that another process makes, as they come: read from its event log."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO

import runner
from runner.engine.interpreters import tail, without_current_folder
from runner.files import open_regular, read_text, write_anew
from runner.record.events import VariantFinished, from_json
from runner.record.journal import parse_line
from runner.text import clean

LOG, OUTPUT, END = "events.jsonl", "output.txt", "end"
"""Files of the folder: the event log, what the run has printed, and its exit code once it has ended."""

_FINISHED = b'"event": "variant-finished"'
"""Part of each line that holds a verdict. No text inside a line reads so: its quotes would be escaped."""
_PAUSE = 0.02
_START = """
import sys
sys.path[:] = [sys.argv[1], *filter(None, sys.path)]
from runner.pytest_plugin.host import main
sys.exit(main())
"""
"""Not ``-m``: a module of that name in the current folder would be run instead."""
_GRACE = 30.0
"""Seconds in which a run that was told to end has to end its processes."""


class NoVerdict(Exception):
    """The run has ended without a word about a variant."""


class ResultLog:
    """The event log of a run, read while it grows."""

    def __init__(self, folder: Path) -> None:
        """Open nothing yet: the log comes with the run's first event."""
        self.folder = folder
        self._file: IO[bytes] | None = None
        self._rest = b""
        self._events: dict[str, VariantFinished] = {}

    def wait(self, id: str) -> VariantFinished:
        """Return the verdict of a variant as soon as it is there. Raises NoVerdict."""
        while True:
            end = self._end()  # asked first: what was written before the end is read below
            self._read()
            if id in self._events:
                return self._events[id]
            if end is not None:
                printed = clean(tail(self.folder / OUTPUT)).strip()
                raise NoVerdict(f"no verdict: the run has ended{end}" + (f"\n{printed}" if printed else ""))
            time.sleep(_PAUSE)

    def has_all(self, ids: Collection[str]) -> bool:
        """Return whether each of these variants has a verdict."""
        self._read()
        return all(id in self._events for id in ids)

    def _end(self) -> str | None:
        """Return how the run has ended, in words; None as long as it goes on.

        Without its folder nobody will ever say.
        """
        try:
            return f" with exit code {read_text(self.folder / END)}"
        except OSError:
            return None if self.folder.is_dir() else ""

    def _read(self) -> None:
        if self._file is None:
            try:
                self._file = open_regular(self.folder / LOG)
            except OSError:
                return
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):  # a full disk has cut it: there is no verdict
                event = from_json(parse_line(line)) if _FINISHED in line else None
                if isinstance(event, VariantFinished):
                    self._events[event.id] = event


class RunProcess:
    """``runner run`` in a process of its own: neither the folder nor the variables that tests change are its own.

    It ends when its standard input does, so also when pytest is killed.
    """

    def __init__(self, folder: Path, here: Path, words: Sequence[str], ids: Sequence[str] | None) -> None:
        """Start it.

        Args:
            folder: for its log.
            here: the folder in which it runs.
            words: its command line.
            ids: the variants to run; all if None.
        """
        with open(folder / OUTPUT, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(Path(runner.__file__).parents[1])],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=here,
                env=without_current_folder(os.environ),
                start_new_session=True,  # a Ctrl-C at the terminal is pytest's to handle
            )
        assert self._process.stdin is not None
        request = {"words": [*words], "ids": ids if ids is None else [*ids], "log": str(folder / LOG)}
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which each variant will say
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        self._watch = threading.Thread(target=self._note_end, args=(folder,), daemon=True)
        self._watch.start()

    def _note_end(self, folder: Path) -> None:
        code = self._process.wait()
        beside = folder / f"{END}.tmp"
        try:
            write_anew(beside, str(code))
            beside.replace(folder / END)
        except OSError:  # pytest has removed the folder
            return

    def stop(self, now: bool) -> None:
        """Wait for its end; with ``now`` ask for it. One that does not come is killed, and its workers notice."""
        assert self._process.stdin is not None
        if now:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._watch.join(_GRACE if now else None)
        if self._process.poll() is None:
            self._process.kill()
            self._watch.join(_GRACE)
