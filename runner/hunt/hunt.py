"""The order of a hunt: rounds while there is time for one more, between them reductions that keep to their share, then
reports."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from runner.diagnostics import InputError
from runner.hunt import triage
from runner.hunt.groups import CASE, Group, Known, folder_of, groups_of, write_groups
from runner.hunt.rounds import Rounds
from runner.hunt.state import Line, Reduction, Report, State, append
from runner.hunt.work import Share, reduce_group, report_group
from runner.text import one_line, plural

LEAST = 20.0
"""Seconds that a reduction needs to be worth its start."""
REPORT = 60.0
"""Seconds that a report needs to be worth its start.

Under inductor the script alone may take 40, because its kernels are built anew.
"""
SHARE = 1 / 3
"""Part of the time that reductions and reports may take."""
SLOTS = 2
"""Slots of a reduction or a report while others wait.

A reduction tries that many candidates at once, and drops those behind the first success.
"""
TICK = 0.5
"""Seconds between two looks at what goes on."""

Work = Callable[[Group, Share, Callable[[], None]], Reduction | Report]
"""What is done with one group, in a thread of its own.

It calls the third argument several times a second, which may end it.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a hunt goes on: seconds or rounds, both counted from its first beginning.

    ``each`` bounds one reduction, and one report.
    """

    budget: float | None = None
    rounds: int | None = None
    each: float = 120.0


class Hunt:
    """A hunt in a folder. ``tell`` takes a line for each finished round, reduction and report."""

    def __init__(
        self, folder: Path, state: State, places: dict[str, str], rounds: Rounds, bounds: Bounds,
        tell: Callable[[str], None]
    ) -> None:  # fmt: skip
        """Take up what ``state`` has. Raises InputError for a triage that cannot be read."""
        self.folder, self.state, self.rounds, self.bounds, self.tell = folder, state, rounds, bounds, tell
        self._places, self._triage = places, triage.read(folder)
        self._earlier, self._began = state.hunting + state.reducing, time.monotonic()

    @property
    def elapsed(self) -> float:
        """Return the seconds of this hunt, those before it was resumed included."""
        return self._earlier + time.monotonic() - self._began

    def groups(self) -> list[Group]:
        """Return its groups as they are now.

        People may edit the triage meanwhile; half of an edit is no reason to end.
        """
        with contextlib.suppress(InputError):
            self._triage = triage.read(self.folder)
        return groups_of(self.state, Known(self._places, self._triage))

    def run(self) -> None:
        """Hunt until the budget is used up. Raises KeyboardInterrupt when a person ends it."""
        while self.has_time():
            self._round()
            self._reduce(self.allowance())
        self._reduce(self._remaining())
        self._report(self._remaining())  # at the end: a group without a reduced case is worth more than a report
        write_groups(self.folder, self.state.head, self.groups())

    def has_time(self) -> bool:
        """Return whether one more round may begin: it lasts about as long as the last one, and reductions have their
        share."""
        rounds, bounds = self.state.rounds, self.bounds
        if bounds.rounds is not None and len(rounds) >= bounds.rounds:
            return False
        if bounds.budget is None or not rounds:
            return True
        groups = self.groups()
        wanted = REPORT * sum(group.is_unreported for group in groups)
        if any(group.is_pending for group in groups):
            wanted = math.inf
        reserved = max(0.0, min(wanted, SHARE * bounds.budget - self.state.reducing))
        return self.elapsed + rounds[-1].drawing + rounds[-1].running + reserved <= bounds.budget

    def allowance(self) -> float:
        """Return the seconds that reductions may take now without passing their share of the time so far; without a
        budget, all."""
        if self.bounds.budget is None:
            return math.inf
        return min(SHARE / (1 - SHARE) * self.state.hunting - self.state.reducing, self._remaining())

    def _remaining(self) -> float:
        return math.inf if self.bounds.budget is None else self.bounds.budget - self.elapsed

    def _round(self) -> None:
        groups = {group.id: group for group in self.groups()}

        def has_group(key: str) -> bool:
            return key in self._places or (key in groups and (folder_of(self.folder, key) / CASE).is_file())

        done = self.rounds.run(self.state.next_round, has_group)
        self._add(done)
        fresh = [group for group in self.groups() if group.id not in groups and group.is_new]
        names = "".join(
            f"\n  new: {one_line(f'{group.id} {group.first.severity}: {group.first.signature}', 150)}"
            for group in fresh
        )
        self.tell(
            f"round {done.round}: {done.variants} variants, {len(done.red)} red, "
            f"{plural(len(fresh), 'new group')}{names}"
        )

    def _reduce(self, seconds: float) -> None:
        """Reduce groups that wait while the seconds are enough for one more."""

        def reduce(group: Group, share: Share, tick: Callable[[], None]) -> Reduction:
            return reduce_group(self.folder, group, self.rounds.settings, self.rounds.ledger, share, tick)

        self._work("reducing", reduce, lambda group: group.is_pending, LEAST, seconds)

    def _report(self, seconds: float) -> None:
        """Report reduced cases while the seconds are enough for one more."""

        def report(group: Group, share: Share, tick: Callable[[], None]) -> Report:
            return report_group(self.folder, group, self.rounds.settings, share, tick)

        self._work("reporting", report, lambda group: group.is_unreported, REPORT, seconds)

    def _work(self, verb: str, work: Work, waits: Callable[[Group], bool], least: float, seconds: float) -> None:
        """Do this with groups that wait for it, the worst first and several at once.

        ``least`` seconds are enough for one more.
        """
        deadline = time.monotonic() + seconds
        slots = self.rounds.settings.slots()
        width = max(1, slots // SLOTS)
        running: dict[Future[Reduction | Report], str] = {}
        is_ended = threading.Event()

        def tick() -> None:
            if is_ended.is_set():
                raise KeyboardInterrupt

        with ThreadPoolExecutor(width) as pool, interrupting(is_ended):
            while True:
                waiting = [group for group in self.groups() if waits(group) and group.id not in running.values()]
                remaining = deadline - time.monotonic()
                if remaining < min(least, self.bounds.each):
                    waiting = []
                beside = min(width, len(running) + len(waiting))
                for group in waiting[: width - len(running)]:
                    share = Share(min(remaining, self.bounds.each), max(1, slots // beside), beside)
                    running[pool.submit(work, group, share, tick)] = group.id
                if not running:
                    return
                self.rounds.say(
                    f"{verb} {plural(len(running), 'group')}; {', '.join(running.values())}; {len(waiting)} wait"
                )
                for future in wait(running, TICK, FIRST_COMPLETED).done:
                    key = running.pop(future)
                    done = future.result()
                    self._add(done)
                    self.tell(f"{key}: {done}")

    def _add(self, line: Line) -> None:
        """Record what is done. The groups' files follow: they can be made again, and the record cannot."""
        append(self.folder, line)
        self.state.add(line)
        write_groups(self.folder, self.state.head, self.groups())


@contextlib.contextmanager
def interrupting(event: threading.Event) -> Iterator[None]:
    """Set an event where the context ends by an exception, so that the threads inside it end too."""
    try:
        yield
    except BaseException:
        event.set()
        raise
