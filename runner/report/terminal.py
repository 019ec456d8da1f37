"""The report on the terminal: a line a result, then the table, the failures by signature, a summary.

The plain path is the first-class one: that is what CI logs are made of. Live lines (``status.py``) appear only where a
person watches.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from runner.console import painted, visible_in_colour, without_commands
from runner.diagnostics import shown_file
from runner.quote import command_words, operand, shell_word
from runner.record.events import (
    GREEN,
    RED,
    Event,
    Key,
    Notice,
    RunFinished,
    RunResumed,
    RunStarted,
    VariantFinished,
    VariantPlanned,
)
from runner.report.failure import headline, render_failure, span
from runner.report.groups import Group, groups_of, next_lines, render_groups
from runner.report.past_verdicts import rate_lines
from runner.report.status import Estimate, Progress, Status
from runner.report.table import NOT_RUN, compared_lines, render_table, several_environments
from runner.text import duration, in_line, indent, one_line, plural, seconds

WORDS = {"PASS": "passed", "FAIL": "failed", "ERROR": "error", "NOT-RUN": "not run"}
"""How the summary counts a verdict; the others are their own lower-case word."""

_ORDER = ("PASS", "FAIL", "ERROR", "INVALID", "XPASS", "VACUOUS", "FLAKY", "XFAIL", "SKIP", NOT_RUN)
_ROWS = 2000  # of the table: nobody reads a longer one on a screen
_BLOCKS = 500  # groups of failures, each with its first member in full
_MEMBERS = 10  # further members of a group
_SLOW = 60.0  # seconds between two remarks in a log that something is still running


def colour_of(verdict: str) -> str:
    """Return ``red``, ``green`` or ``yellow``. Yellow is a variant that did not run, or failed as expected."""
    if verdict in RED:
        return "red"
    return "green" if verdict == "PASS" else "yellow" if verdict in (*GREEN, NOT_RUN) else "red"


def modes(stream: TextIO, environ: Mapping[str, str]) -> tuple[bool, bool]:
    """Return (colour, live lines) for this stream.

    NO_COLOR takes colours away, TERM=dumb and CI live lines too. FORCE_COLOR colours a pipe.
    """
    try:
        tty = stream.isatty()
    except (AttributeError, ValueError):  # not a real file, or closed
        tty = False
    able = tty and environ.get("TERM") != "dumb"
    live = able and not environ.get("CI")
    if environ.get("NO_COLOR"):
        return False, live
    return able or environ.get("FORCE_COLOR", "") not in ("", "0"), live


def shows_links(environ: Mapping[str, str]) -> bool:
    """Return whether a terminal takes links (OSC 8). Those named here print them, or parts of them.

    FORCE_HYPERLINK decides it either way, as for cargo and npm.
    """
    if wish := environ.get("FORCE_HYPERLINK"):
        return wish != "0"
    return not environ.get("TERM", "").startswith(("dumb", "linux", "eterm", "screen"))


class Reporter:
    """Prints events as they come. ``reports`` are files that other reports write, named at the end.

    At the end of a very long run only what went wrong is in the table, unless ``whole`` says otherwise. With
    ``verbose`` each result says what was compared, and each member of a group is named. With ``quiet`` failures,
    warnings and the summary are printed, and nothing is live. ``earlier`` returns the seconds that variants took
    before, for an estimate; it is called only where somebody sees one.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        reports: Sequence[str] = (),
        width: int | None = None,
        environ: Mapping[str, str] | None = None,
        whole: bool = False,
        verbose: bool = False,
        quiet: bool = False,
        slow: float = _SLOW,
        earlier: Callable[[], Mapping[Key, float]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slow, self._earlier, self._clock = slow, earlier, clock
        self._whole, self._verbose, self._quiet = whole, verbose, quiet
        self._stream = sys.stdout if stream is None else stream
        self._environ = os.environ if environ is None else environ
        self._colour, self._live = modes(self._stream, self._environ)
        self._width = width  # None: as wide as the terminal is at that moment
        self.reports = reports  # those that are whole, when the run ends
        self._events: list[Event] = []  # what the table is made of
        self._finished: list[VariantFinished] = []
        self._started: RunStarted | None = None
        self._planned = 0
        self._red = 0
        self._warnings = 0
        self._several = False
        self._links = self._live and self._colour and shows_links(self._environ)
        self._status = Status(self._stream, self._environ, self._colour, width, clock)
        self._estimate: Estimate | None = None
        self._begun = clock()
        self._next_remark: dict[str, float] = {}  # running variant to when to speak of it again
        self._closed = False
        self._broken = False
        self.problem = ""  # why what was printed is not whole; a reader that went away does not count
        self._muted = False

    # --- events ----------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        """Print the line of this event, if it has one. Never raises because of the stream."""
        if self._estimate is not None:
            self._estimate.take(event)
        match event:
            case RunStarted():
                self._started = event
                self._events.append(event)
                self._several = several_environments(self._events)
                if not self._quiet:
                    self._line(self._paint(in_line(self._banner(event)), "dim"))
            case RunResumed():
                self._line(
                    self._paint(in_line(f"run {event.run} goes on: {event.finished} verdicts stand already"), "dim")
                )
            case VariantPlanned():
                self._planned += 1
                self._events.append(event)
            case VariantFinished():
                if not self._finished:
                    self._several = several_environments([*self._events, event])
                self._finished.append(event)
                self._red += event.verdict in RED
                self._events.append(event)
                if event.verdict in RED or not self._quiet:
                    self._line(self._result(event))
                for line in indent(compared_lines(event), 17) if self._verbose else ():
                    self._line(self._paint(line, "dim"))
                if len(self._finished) >= self._planned:
                    self.clear()  # nothing runs any more, and the end may take a moment
            case Notice() if not (self._quiet and event.severity == "info"):
                self._warnings += event.severity != "info"
                colour = "red" if event.severity == "error" else "yellow"
                self._line(f"{self._paint(in_line(event.severity) + ':', colour)} {one_line(event.message, 2000)}")
            case RunFinished():
                self.clear()
                self._end(event)

    def replay(self, event: Event) -> None:
        """Take in an event of an earlier part of the run, which was printed at that time."""
        self._muted = True
        self.handle(event)
        self._muted = False

    def _banner(self, event: RunStarted) -> str:
        versions = dict.fromkeys(str(environment.get("torch")) for environment in event.environments)
        torch = f", torch {' and '.join(versions)}" if versions else ""
        return f"runner {event.version}{torch}, run {event.run} on {event.host}"

    def _result(self, event: VariantFinished) -> str:
        """Return ``PASS [  1.23s] id``: a fixed shape, so that people can grep for it."""
        verdict = self._paint(f"{in_line(event.verdict):>7}", colour_of(event.verdict))
        torch = f" torch {event.torch}" if self._several else ""
        total = max(self._planned, len(self._finished))
        time = " cached" if event.cached else f"{seconds(event.seconds):6.2f}s"
        line = f"{verdict} [{time}] {in_line(event.id + torch)} ({len(self._finished)}/{total})"
        return line if event.verdict == "PASS" else f"{line} - {self._paint(headline(event, 100), 'dim')}"

    def tick(self, running: Sequence[tuple[str, float, str]]) -> None:
        """Show what runs now: (id, seconds so far, a remark such as the phase)."""
        if self._closed or self._broken or self._quiet:
            return
        if self._live:
            try:
                self._show(running)
            except (OSError, ValueError) as error:
                self._give_up(error)
            return
        now_running = {f"{id_} {remark}".rstrip(): so_far for id_, so_far, remark in running}
        self._next_remark = {title: self._next_remark.get(title, self._slow) for title in now_running}
        for title, so_far in now_running.items():
            if so_far >= self._next_remark[title]:
                self._line(f"{self._paint('   SLOW', 'yellow')} [> {self._next_remark[title]:.0f}s] {in_line(title)}")
                self._next_remark[title] = (so_far // self._slow + 1) * self._slow

    def _show(self, running: Sequence[tuple[str, float, str]]) -> None:
        longest = self._status.note(running)
        if not self._status.due():
            return
        if self._estimate is None:
            self._estimate = Estimate(self._earlier())
            for event in self._events:
                self._estimate.take(event)
        left = self._estimate.seconds_left((id_, so_far) for id_, so_far, _ in longest)
        count = len(self._finished)
        progress = Progress(count, max(self._planned, count), self._red, self._clock() - self._begun, left)
        self._status.draw(progress, longest)

    def clear(self) -> None:
        """Take the live lines away; the next ``tick`` brings them back."""
        try:
            self._status.clear()
        except (OSError, ValueError) as error:
            self._give_up(error)

    def close(self) -> None:
        """Take the live lines away for good. Safe to call twice, and without a RunFinished."""
        self._closed = True
        self.clear()

    # --- the end ---------------------------------------------------------------------------

    def _end(self, event: RunFinished) -> None:
        paint = (lambda text, verdict: self._paint(text, colour_of(verdict))) if self._colour else None
        width = self._width or shutil.get_terminal_size((120, 24)).columns
        folder = self._started.folder if self._started else ""
        hint = f"runner report {shell_word(operand(folder))} > FILE writes them all" if folder else ""
        if not self._quiet and (
            table := render_table(self._events, width, paint, None if self._whole else _ROWS, hint)
        ):
            self._line("\n" + table)
        planned = [(event.id, event.torch) for event in self._events if isinstance(event, VariantPlanned)]
        order = {key: place for place, key in enumerate(planned)}
        red = [result for result in self._finished if result.verdict not in GREEN and result.verdict != NOT_RUN]
        red.sort(key=lambda result: order.get((result.id, result.torch), len(order)))
        groups = groups_of(red)
        blocks = groups if self._whole else groups[:_BLOCKS]
        for group in blocks:
            self._write(self._with_link(visible_in_colour("\n" + self._block(group, hint)), group.members[0]))
        if len(groups) > len(blocks):
            results = sum(len(group.members) for group in groups[len(blocks) :])
            remark = f"and {results:,} more, which the reports hold"
            self._line("\n" + remark + (f"; {hint}" if hint else ""))
        if len(blocks) > 1:
            self._line("\n" + render_groups(blocks, width))
        self._line("\n" + self._summary(event))
        for line in rate_lines(self._finished, self._several):
            self._line(line)
        if self.reports:
            self._write("reports: " + ", ".join(map(self._linked, self.reports)))
        if self._started and self._started.folder:
            self._write("run folder: " + self._linked(self._started.folder))
        for line in next_lines(groups, width):
            self._line(line)

    def _block(self, group: Group, hint: str) -> str:
        """Return the first member of a group in full, and below it a command for each other member."""
        first, *siblings = group.members
        torch = f" torch {first.torch}" if self._several else ""
        lines = [self._paint(in_line(f"{first.verdict} {first.id}{torch}"), "red"), render_failure(first)]
        excerpt = siblings if self._whole or self._verbose else siblings[:_MEMBERS]
        if siblings:
            lines.append(f"  {len(siblings):,} more of this signature:")
        for member in excerpt:
            torch = f"  # torch {member.torch}" if self._several else ""
            lines.append("    " + in_line((member.repro if command_words(member.repro) else member.id) + torch))
        if len(excerpt) < len(siblings):
            lines.append(f"    and {len(siblings) - len(excerpt):,} more" + (f"; {hint}" if hint else ""))
        return "\n".join(lines)

    def _summary(self, event: RunFinished) -> str:
        """Return ``3 passed, 1 failed, 1 xfail in 12.3s``."""
        counts = Counter[str](result.verdict for result in self._finished)
        if (unfinished := self._planned - len(self._finished)) > 0:
            counts[NOT_RUN] += unfinished
        ordered = [verdict for verdict in _ORDER if verdict in counts] + [v for v in counts if v not in _ORDER]
        parts = [
            self._paint(f"{counts[verdict]} {WORDS.get(verdict, in_line(verdict.lower()))}", colour_of(verdict))
            for verdict in ordered
        ] or ["nothing ran"]
        if cached := sum(result.cached is not None for result in self._finished):
            parts.append(f"{cached} of them cached")
        if loaded := sum(bool(result.stored_graphs and not result.cached) for result in self._finished):
            parts.append(f"{loaded} of them with graphs of earlier runs")
        if self._warnings:
            parts.append(self._paint(plural(self._warnings, "warning"), "yellow"))
        text = f"{', '.join(parts)} in {duration(event.seconds)}"
        return text + (self._paint(", interrupted", "red") if event.interrupted else "")

    # --- output ----------------------------------------------------------------------------

    def _paint(self, text: str, colour: str) -> str:
        return painted(text, colour) if self._colour else text

    def _linked(self, path: str, shown: str = "") -> str:
        """Return a path as it is printed, or as ``shown``, and as a link where the terminal takes one."""
        text = in_line(shown or path)
        if not self._links:
            return text
        from rich.style import Style

        try:
            address = Path(path).absolute().as_uri()
        except (OSError, ValueError):  # the current folder is gone, or a lone surrogate
            return text
        return Style(link=address).render(text)

    def _with_link(self, text: str, event: VariantFinished) -> str:
        """Return a printed failure with a link at the place that it is about."""
        file = span(event).file
        return text.replace(
            f"\n --> {in_line(shown_file(file))}:", f"\n --> {self._linked(file, shown_file(file))}:", 1
        )

    def _line(self, text: str) -> None:
        """Print one or more lines, in which our own colours alone are obeyed."""
        self._write(visible_in_colour(text))

    def _write(self, text: str) -> None:
        """Print what is safe to print. A reader that went away (``| head``) or a full disk must not end the run."""
        if self._broken or self._muted:
            return
        try:
            encoding = self._stream.encoding or "utf-8"
            text = text.encode(encoding, "backslashreplace").decode(encoding)
            if self._status.visible:
                self._status.print(text)
            else:
                self._stream.write(without_commands(text, self._stream) + "\n")
                self._stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self._give_up(error)

    def _give_up(self, error: OSError | ValueError) -> None:
        self._broken = True
        if not isinstance(error, BrokenPipeError):
            self.problem = getattr(error, "strerror", None) or str(error)
