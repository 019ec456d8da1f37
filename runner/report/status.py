"""The live lines at the end of a terminal: how far a run is, how long it still takes, and what runs now.

They are drawn by rich, and taken away before anything else is printed. Names in them are anybody's text: control
characters are shown, and what has no width of its own is left out, so that a line never is longer than it was measured.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from runner import console
from runner.record.events import Event, Key, VariantFinished, VariantPlanned
from runner.session.history import slot_seconds
from runner.text import duration, in_line

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
        if isinstance(event, VariantPlanned):
            self._plan_one(event.key)
        elif isinstance(event, VariantFinished):
            self._finish(event)

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
        for id_, seconds in running:
            expected = self._by_id[id_] * pace if id_ in self._by_id else typical
            work -= min(seconds, expected)
            longest = max(longest, expected - seconds)
        return max(work / self._slots, longest, 0.0)

    def _plan_one(self, key: Key) -> None:
        seconds = self._open[key] = self._earlier.get(key)
        if seconds is None:
            self._unknown += 1
            return
        self._by_id[key[0]] = seconds
        self._known += seconds
        self._plan += seconds
        self._planned += 1

    def _finish(self, event: VariantFinished) -> None:
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

    def _pace(self) -> float:
        """Return how many times as long as before variants take now."""
        prior = _PRIOR * self._plan
        return (self._now + prior) / (self._before + prior) if prior > 0 else 1.0

    def _typical(self) -> float | None:
        """Return the seconds of a variant of which no earlier run is known; None where there is nothing to go by."""
        if self._ran:
            return self._spent / self._ran
        return self._plan / self._planned if self._planned else None


_ROWS = 8  # running variants that are shown, at most
_BAR = 24  # columns of the bar, at most
_SHORTEST_BAR = 6
_WIDE = 60  # columns from which on there is room for phases and the time so far
_PHASE = 20  # characters of a phase, which a worker names
_PERIOD = 0.1  # seconds between two drawings
_NO_WIDTH = frozenset({"Mn", "Me", "Cf"})
"""Categories of characters that join others or have no width: terminals disagree on them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. ``left`` is an estimate in seconds, None where it is not known."""

    count: int
    total: int
    red: int
    seconds: float
    left: float | None


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
        self._drawn = float("-inf")
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
        for id_, seconds, phase in running:  # a variant may have several processes at one time
            known = self._onsets.get(id_, now)
            onsets[id_] = min(onsets.get(id_, known), known, now - seconds)
            phases.setdefault(id_, phase)
        self._onsets = onsets
        return sorted(((id_, now - onset, phases[id_]) for id_, onset in onsets.items()), key=lambda entry: -entry[1])

    def due(self) -> bool:
        """Return whether it is time to draw again.

        What runs changes several times a second, and nobody reads that fast.
        """
        return not self.visible or self._clock() >= self._drawn + _PERIOD

    def draw(self, progress: Progress, longest: Sequence[tuple[str, float, str]]) -> None:
        """Draw the lines, in place of those that stand there. Raises OSError and ValueError as the stream does."""
        self._drawing = True
        try:
            if self._live is None:
                self._start()
            assert self._live is not None
            self._live.update(self._lines(self._live.console, progress, longest), refresh=True)
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

    def _lines(
        self, terminal: Console, progress: Progress, longest: Sequence[tuple[str, float, str]]
    ) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        width = terminal.width - 1  # a full last column makes some terminals begin a new line
        rows = max(1, min(_ROWS, terminal.height // 3))
        dots = "..." if terminal.options.ascii_only else "\u2026"
        lines: list[RenderableType] = [self._head(progress, bool(longest), width)]
        for id_, seconds, phase in longest[:rows]:
            remark = f"  {_plain(phase)[:_PHASE]}" if phase and width >= _WIDE else ""
            line = f"{_clock_text(seconds):>8}  "
            title = shortened(_plain(id_), width - len(line) - len(remark), dots)
            lines.append(Text.assemble(line, title, (remark, "dim"), no_wrap=True, overflow="crop"))
        if len(longest) > rows:
            lines.append(Text(f"          and {len(longest) - rows} more", "dim", no_wrap=True, overflow="crop"))
        return Group(*lines)

    def _head(self, progress: Progress, running: bool, width: int) -> RenderableType:
        """Return a bar, where there is room for one, and in words how far the run is."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        total = max(progress.total, progress.count, 1)
        words = [(f"{progress.count}/{total}", "")]
        if progress.red:
            words.append((f"{progress.red} red", "red"))
        if width >= _WIDE:
            words.append((_clock_text(progress.seconds), ""))
        if not progress.count and not running:
            words.append(("workers start", ""))
        elif progress.left is not None:
            words.append((f"about {_clock_text(progress.left)} left", ""))
        text = Text(", ", no_wrap=True, overflow="crop").join(Text(word, style) for word, style in words)
        bar = min(_BAR, width - text.cell_len - 1)
        if bar < _SHORTEST_BAR:
            return text
        colour = "red" if progress.red else "green"
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_row(ProgressBar(total, progress.count, width=bar, complete_style=colour, finished_style=colour), text)
        return grid


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
