"""Every consumer of a run's events, as one."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner import console
from runner.record.events import Event, Notice, RunFinished
from runner.record.journal import Journal
from runner.report.junit import JUnitFile
from runner.report.terminal import Reporter


@dataclass(slots=True)
class Reports:
    """The terminal, and the files of a run: those in its folder first, then those that were asked for."""

    reporter: Reporter
    junits: list[JUnitFile]
    journals: list[Journal]
    problems: list[str]

    @classmethod
    def open(
        cls, arguments: argparse.Namespace, folder: Path, stamp: Mapping[str, str], again: bool = False
    ) -> Reports:
        """The reports that ``arguments`` ask for. ``stamp`` goes on every line of the journals.

        ``again`` says that the run goes on where it ended: its journals are continued.
        """
        problems: list[str] = []
        junits = [folder / "junit.xml"] + ([Path(arguments.junit)] if arguments.junit else [])
        journals = [folder / "events.jsonl"] + ([Path(arguments.events)] if arguments.events else [])
        # A log is of one run; but never a device: --events /dev/stdout must stay one.
        if arguments.events and os.path.isfile(arguments.events) and not again:
            with contextlib.suppress(OSError):  # the journal will say what is wrong
                os.truncate(arguments.events, 0)
        reporter = Reporter(slow=arguments.slow)
        told: Callable[[str], None] = problems.append
        return cls(
            reporter,
            [JUnitFile(path, arguments.junit_dialect, told) for path in junits],
            [Journal(path, told, stamp) for path in journals],
            problems,
        )

    def replay(self, events: Sequence[Event]) -> None:
        """What stands in the journals already, for the other reports."""
        for event in events:
            for junit in self.junits:
                junit.handle(event)
            self.reporter.replay(event)
        self._tell()

    def handle(self, event: Event) -> None:
        """One event for all."""
        for journal in self.journals:
            journal.write(event)
        for junit in self.junits:
            junit.handle(event)
        if isinstance(event, RunFinished):  # the last line names what is there, so what is wrong is said before
            self._tell()
            self.reporter.reports = [str(path) for path, problem in self._files() if not problem]
        self.reporter.handle(event)
        self._tell()

    def _files(self) -> list[tuple[Path, bool]]:
        """Each file, and whether it does not say everything."""
        junits = [(junit.path, bool(junit.problem)) for junit in self.junits]
        return [*junits, *((journal.path, bool(journal.lost)) for journal in self.journals)]

    def tick(self, running: list[tuple[str, float, str]]) -> None:
        """Time passes; this is what runs."""
        for junit in self.junits:
            junit.tick()
        self.reporter.tick(running)
        self._tell()

    def _tell(self) -> None:
        while self.problems:
            self.reporter.handle(Notice(self.problems.pop(0)))

    def close(self) -> bool:
        """Whether a report is not whole."""
        for junit in self.junits:
            junit.close()
        for journal in self.journals:
            journal.close()
        self._tell()
        self.reporter.close()
        if self.reporter.problem:
            console.message(
                f"runner: standard output could not be written: {self.reporter.problem}; runner report repeats it"
            )
        return bool(self.reporter.problem) or any(problem for _, problem in self._files())
