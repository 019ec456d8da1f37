"""How long a run still takes: by the times of earlier runs of its variants, else by the times of this run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runner.record.events import Event, Key, VariantFinished, VariantPlanned
from runner.session.history import slot_seconds

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
