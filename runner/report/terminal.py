"""The report on the terminal: a line a result, then the table, the failures by signature, a summary.

The plain path is the first-class one: that is what CI logs are made of. Live lines appear only where a person watches:
how far a run is, how long it still takes, and what runs now. They are drawn by rich, and taken away before anything
else is printed. Names in them are anybody's text: control characters are shown, and what has no width of its own is
left out, so that a line never is longer than it was measured.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from runner import console
from runner.diagnostics import shown_file
from runner.quote import command_words, operand, shell_word
from runner.record.events import (
    FORWARD_ALONE,
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
    variants_of,
)
from runner.report.delegation import delegation_lines
from runner.report.failure import Group, groups_of, headline, next_lines, render_failure, render_groups, span
from runner.report.past_verdicts import rate_lines
from runner.report.price import price_lines
from runner.report.table import NOT_RUN, compared_lines, render_table, several_environments, uncompared
from runner.session.history import slot_seconds
from runner.text import duration, in_line, indent, one_line, plural, seconds

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

_PRIOR = 0.05
"""Share of the plan that counts as having taken what it took before: one short variant alone must not set the pace."""


class Estimate:
    """Takes the plan and the verdicts of a run, and says how many seconds are left.

    Args:
        earlier: the seconds of a slot that variants took when they last ran.
    """

    def __init__(self, earlier: Mapping[Key, float]) -> None:
        """Know nothing of the run yet."""
        self._earlier = earlier
        self._open: dict[Key, float | None] = {}  # without a verdict yet: the earlier seconds, None where nobody knows
        self._by_id: dict[str, float] = {}  # earlier seconds: what runs is known by its id alone
        self._known = 0.0  # earlier seconds of all that is open
        self._unknown = 0  # how many open ones have none
        self._plan = 0.0  # earlier seconds of the whole plan
        self._planned = 0  # how many of the plan have earlier seconds
        self._before = self._now = 0.0  # of those with a verdict: earlier seconds, and seconds in this run
        self._spent, self._ran = 0.0, 0  # seconds of all that ran in this run, and their number
        self._slots = 1  # the most that ran at one time

    def take(self, event: Event) -> None:
        """Take in what the run does."""
        match event:
            case VariantPlanned():
                before = self._open[event.key] = self._earlier.get(event.key)
                if before is None:
                    self._unknown += 1
                    return
                self._by_id[event.id] = before
                self._known += before
                self._plan += before
                self._planned += 1
            case VariantFinished():
                seconds = 0.0 if event.cached else slot_seconds(event)
                if not event.cached and event.verdict != "SKIP":
                    self._spent += seconds
                    self._ran += 1
                if event.key not in self._open:
                    return
                before = self._open.pop(event.key)
                if before is None:
                    self._unknown -= 1
                    return
                self._known -= before
                self._before += before
                self._now += seconds

    def seconds_left(self, running: Iterable[tuple[str, float]]) -> float | None:
        """Return the seconds until the last verdict; None while nothing is known.

        Args:
            running: the id of each variant that runs, with its seconds so far.
        """
        running = [*running]
        self._slots = max(self._slots, len(running))
        typical = self._typical()
        if typical is None:
            return None
        pace = self._pace()
        work = max(self._known, 0.0) * pace + self._unknown * typical
        longest = 0.0
        for id_, so_far in running:
            expected = self._by_id[id_] * pace if id_ in self._by_id else typical
            work -= min(so_far, expected)
            longest = max(longest, expected - so_far)
        return max(work / self._slots, longest, 0.0)

    def _pace(self) -> float:
        """Return how many times as long as before variants take now."""
        prior = _PRIOR * self._plan
        return (self._now + prior) / (self._before + prior) if prior > 0 else 1.0

    def _typical(self) -> float | None:
        """Return the seconds of a variant of which no earlier run is known; None where there is nothing to go by."""
        if self._ran:
            return self._spent / self._ran
        return self._plan / self._planned if self._planned else None


_RUNNING = 8  # running variants that are shown, at most
_BAR = 24  # columns of the bar, at most
_SHORTEST_BAR = 6
_WIDE = 60  # columns from which on there is room for phases and the time so far
_PHASE = 20  # characters of a phase, which a worker names
_PERIOD = 0.1  # seconds between two drawings
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})
"""Categories of characters that join others or have no width: terminals disagree on them."""


class Status:
    """Live lines on one terminal.

    Args:
        stream: the terminal.
        environ: the environment, which rich asks for the terminal's size and kind.
        colour: whether colours are wanted.
        width: columns; as wide as the terminal is at that moment if None.
        clock: seconds of a clock that only goes forward.
    """

    def __init__(
        self,
        stream: TextIO,
        environ: Mapping[str, str],
        colour: bool,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Draw nothing yet."""
        self._stream, self._environ, self._colour, self._width, self._clock = stream, environ, colour, width, clock
        self._live: Live | None = None
        self._drawing = False
        self._begun, self._drawn = clock(), float("-inf")
        self._onsets: dict[str, float] = {}  # of each variant that runs: when its first process began

    @property
    def visible(self) -> bool:
        """Return whether the lines stand on the terminal now."""
        return self._live is not None

    def note(self, running: Sequence[tuple[str, float, str]]) -> list[tuple[str, float, str]]:
        """Return what runs, the longest first, with the seconds since the first process of each variant began."""
        now = self._clock()
        onsets: dict[str, float] = {}
        phases: dict[str, str] = {}
        for id_, so_far, phase in running:  # a variant may have several processes at one time
            known = self._onsets.get(id_, now)
            onsets[id_] = min(onsets.get(id_, known), known, now - so_far)
            phases.setdefault(id_, phase)
        self._onsets = onsets
        return sorted(((id_, now - onset, phases[id_]) for id_, onset in onsets.items()), key=lambda entry: -entry[1])

    def due(self) -> bool:
        """Return whether it is time to draw again.

        What runs changes several times a second, and nobody reads that fast.
        """
        return not self.visible or self._clock() >= self._drawn + _PERIOD

    def draw(
        self, count: int, total: int, red: int, left: float | None, longest: Sequence[tuple[str, float, str]]
    ) -> None:
        """Draw the lines, in place of those that stand there. Raises OSError and ValueError as the stream does.

        Args:
            count: variants with a verdict.
            total: how many variants there are.
            red: how many verdicts are red.
            left: an estimate in seconds, None where it is not known.
            longest: what runs, of ``note``.
        """
        self._drawing = True
        try:
            if self._live is None:
                self._start()
            assert self._live is not None
            width = self._live.console.width - 1  # a full last column makes some terminals begin a new line
            head = self._head(count, max(total, count, 1), red, left, bool(longest), width)
            self._live.update(_lines(self._live.console, head, longest, width), refresh=True)
        finally:
            self._drawing = False
        self._drawn = self._clock()

    def print(self, text: str) -> None:
        """Print whole lines above the live ones. Raises OSError and ValueError as the stream does."""
        from rich.text import Text

        assert self._live is not None
        self._drawing = True
        try:
            self._live.console.print(Text.from_ansi(text), soft_wrap=True, highlight=False)
        finally:
            self._drawing = False

    def clear(self) -> None:
        """Take the lines away; the next ``draw`` brings them back. Raises OSError and ValueError as the stream does."""
        if self._drawing:  # a signal's handler came between; what is being written cannot be taken back
            return
        live, self._live = self._live, None
        console.before_messages(None)
        if live is not None:
            live.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.live import Live

        # No refresh thread: the engine ticks, and a thread would make forked workers less safe.
        # What the person asked for is known already; rich would ask the environment again.
        terminal = Console(
            file=self._stream,
            force_terminal=True,
            width=self._width,
            markup=False,
            highlight=False,
            color_system="standard" if self._colour else None,
            no_color=not self._colour,
            _environ=self._environ,
        )
        live = Live(console=terminal, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)
        live.start()
        terminal.show_cursor(True)  # rich hides it; a killed process could not bring it back
        self._live = live
        console.before_messages(self.clear)

    def _head(self, count: int, total: int, red: int, left: float | None, running: bool, width: int) -> RenderableType:
        """Return a bar, where there is room for one, and in words how far the run is."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        words = [(f"{count}/{total}", "")]
        words += [(f"{red} red", "red")] if red else []
        words += [(_clock_text(self._clock() - self._begun), "")] if width >= _WIDE else []
        if not count and not running:
            words.append(("workers start", ""))
        elif left is not None:
            words.append((f"about {_clock_text(left)} left", ""))
        text = Text(", ", no_wrap=True, overflow="crop").join(Text(word, style) for word, style in words)
        bar = min(_BAR, width - text.cell_len - 1)
        if bar < _SHORTEST_BAR:
            return text
        colour = "red" if red else "green"
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_row(ProgressBar(total, count, width=bar, complete_style=colour, finished_style=colour), text)
        return grid


def _lines(
    terminal: Console, head: RenderableType, longest: Sequence[tuple[str, float, str]], width: int
) -> RenderableType:
    """Return ``head``, and below it a line for each variant that runs, as far as there is room."""
    from rich.console import Group
    from rich.text import Text

    rows = max(1, min(_RUNNING, terminal.height // 3))
    dots = "..." if terminal.options.ascii_only else "\u2026"
    lines = [head]
    for id_, so_far, phase in longest[:rows]:
        remark = f"  {_plain(phase)[:_PHASE]}" if phase and width >= _WIDE else ""
        line = f"{_clock_text(so_far):>8}  "
        title = shortened(_plain(id_), width - len(line) - len(remark), dots)
        lines.append(Text.assemble(line, title, (remark, "dim"), no_wrap=True, overflow="crop"))
    if len(longest) > rows:
        lines.append(Text(f"          and {len(longest) - rows} more", "dim", no_wrap=True, overflow="crop"))
    return Group(*lines)


def shortened(text: str, room: int, dots: str) -> str:
    """Return the end of ``text`` in at most ``room`` columns: of an id it says more than the beginning."""
    from rich.cells import cell_len

    if cell_len(text) <= room:
        return text
    room -= len(dots)
    start = len(text)
    while start and (room := room - cell_len(text[start - 1])) >= 0:
        start -= 1
    return dots + text[start:]


def _plain(text: str) -> str:
    """Return a name on one line, without characters that have no width of their own."""
    return in_line("".join(c for c in text if unicodedata.category(c) not in _NO_WIDTH))


def _clock_text(seconds: float) -> str:
    """Return whole seconds: tenths would only flicker."""
    return f"{seconds:.0f}s" if seconds < 99.5 else duration(seconds)


WORDS = {"PASS": "passed", "FAIL": "failed", "ERROR": "error", "NOT-RUN": "not run"}
"""How the summary counts a verdict; the others are their own lower-case word."""

_ORDER = ("PASS", "FAIL", "ERROR", "INVALID", "XPASS", "VACUOUS", "FLAKY", "XFAIL", "SKIP", NOT_RUN)
_ROWS = 2000  # of the table: nobody reads a longer one on a screen
_BLOCKS = 500  # groups of failures, each with its first member in full
_NEEDS = 5  # that a backend does not claim, in the summary
_MEMBERS = 10  # further members of a group
_NARROWEST = 20  # columns of text that is wrapped
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
    before, for an estimate; it is called only where somebody sees one. Without ``progress`` a result has no line of its
    own: the table and the failures have it. Without ``table`` the lines of results stand for it.
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
        progress: bool = True,
        table: bool = True,
        slow: float = _SLOW,
        earlier: Callable[[], Mapping[Key, float]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slow, self._earlier, self._progress, self._table = slow, earlier, progress, table
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
        self._next_remark: dict[str, float] = {}  # running variant to when to speak of it again
        self._closed = False
        self._broken = False
        self.problem = ""  # why what was printed is not whole; a reader that went away does not count
        self._muted = False

    @property
    def is_broken(self) -> bool:
        """Return whether nothing can be printed any more, since the reader went away for example."""
        return self._broken

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
                if self._progress and (event.verdict in RED or not self._quiet):
                    self._line(self._result(event))
                for line in compared_lines(event) if self._progress and self._verbose else ():
                    self._line(self._below(line))
                if len(self._finished) >= self._planned:
                    self.clear()  # nothing runs any more, and the end may take a moment
            case Notice() if not (self._quiet and event.severity == "info"):
                self._warnings += event.severity != "info"
                colour = "red" if event.severity == "error" else "yellow"
                title = f"{in_line(event.severity)}: "
                lines = self._wrapped(one_line(event.message, 2000), len(title))
                self._line(self._paint(title, colour) + ("\n" + " " * len(title)).join(lines))
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
        run = f", run {event.run}" if event.run else ""  # else nothing of it is kept
        return f"runner {event.version}{torch}{run} on {event.host}"

    def _result(self, event: VariantFinished) -> str:
        """Return ``PASS [  1.23s] id``: a fixed shape, so that people can grep for it.

        On a live terminal what has no room behind the id stands below.
        """
        verdict = f"{in_line(event.verdict):>7}"
        torch = f" torch {event.torch}" if self._several else ""
        total = max(self._planned, len(self._finished))
        time = " cached" if event.cached else f"{seconds(event.seconds):6.2f}s"
        line = f" [{time}] {in_line(event.id + torch)}"
        painted, count = self._paint(verdict, colour_of(event.verdict)) + line, f"({len(self._finished)}/{total})"
        parts = one_line(", ".join(uncompared(event)), 100)
        remark = headline(event, 100) if event.verdict != "PASS" else f"not compared: {parts}" if parts else ""
        words = f"{count} - {remark}" if remark else count
        if self._live and len(f"{verdict}{line} {words}") > self._columns:
            return f"{painted}\n{self._below(words)}"
        return f"{painted} {count} - {self._paint(remark, 'dim')}" if remark else f"{painted} {count}"

    def _below(self, text: str) -> str:
        """Return what stands below the line of a result."""
        return "\n".join(self._paint(line, "dim") for line in indent(self._wrapped(text, 17), 17))

    def _wrapped(self, text: str, by: int) -> list[str]:
        """Return ``text`` in lines that a live terminal has room for behind ``by`` columns; elsewhere as it is."""
        width = max(self._columns - by - 1, _NARROWEST)
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) if self._live else [text]

    @property
    def _columns(self) -> int:
        return self._width or shutil.get_terminal_size((120, 24)).columns

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
        self._status.draw(len(self._finished), self._planned, self._red, left, longest)

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
        width = self._columns
        folder = self._started.folder if self._started else ""
        hint = f"runner report {shell_word(operand(folder))} > FILE writes them all" if folder else ""
        if (
            self._table
            and not self._quiet
            and (table := render_table(self._events, width, paint, None if self._whole else _ROWS, hint))
        ):
            self._line("\n" + table)
        results = (event for event in variants_of(self._events) if isinstance(event, VariantFinished))
        groups = groups_of(result for result in results if result.verdict not in (*GREEN, NOT_RUN))
        blocks = groups if self._whole else groups[:_BLOCKS]
        for group in blocks:
            self._write(self._with_link(console.visible_in_colour("\n" + self._block(group, hint)), group.members[0]))
        if len(groups) > len(blocks):
            count = sum(len(group.members) for group in groups[len(blocks) :])
            remark = f"and {count:,} more, which the reports hold"
            self._line("\n" + remark + (f"; {hint}" if hint else ""))
        if len(blocks) > 1:
            self._line("\n" + render_groups(blocks, width))
        self._line("\n" + self._summary(event))
        for line in (
            *price_lines(self._finished),
            *delegation_lines(self._finished),
            *rate_lines(self._finished, self._several),
        ):
            self._line(line)
        if self.reports:
            is_wide = self._live and len("reports: " + ", ".join(self.reports)) > width
            self._write("reports: " + (",\n         " if is_wide else ", ").join(map(self._linked, self.reports)))
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
        needs = Counter(
            in_line(result.unclaimed) for result in self._finished if result.verdict == "SKIP" and result.unclaimed
        )
        unclaimed = ", ".join(f"{need} {count}" for need, count in needs.most_common(_NEEDS))
        words = WORDS | ({"SKIP": f"skip (not claimed: {unclaimed})"} if unclaimed else {})
        parts = [
            self._paint(f"{counts[verdict]} {words.get(verdict, in_line(verdict.lower()))}", colour_of(verdict))
            for verdict in ordered
        ] or ["nothing ran"]
        if forwards := sum(FORWARD_ALONE in result.labels for result in self._finished):
            parts.append(f"{forwards} of them the forward alone")
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
        return console.painted(text, colour) if self._colour else text

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
        self._write(console.visible_in_colour(text))

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
                self._stream.write(console.without_commands(text, self._stream) + "\n")
                self._stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self._give_up(error)

    def _give_up(self, error: OSError | ValueError) -> None:
        self._broken = True
        if not isinstance(error, BrokenPipeError):
            self.problem = getattr(error, "strerror", None) or str(error)
