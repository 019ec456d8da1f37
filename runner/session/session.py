"""One run: a generator of jobs for each variant (``variant_run``), and every step an event.

The session owns no process and no file. It starts variants, in their order and no more at once than there is room for,
and yields events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from runner.engine.messages import Engine
from runner.exit_codes import FAILED, INTERNAL, OK
from runner.record.events import RED, Event, Notice, VariantStarted
from runner.session.context import RunContext
from runner.session.plan import Planned
from runner.session.scheduler import Scheduler
from runner.session.variant_run import VariantResult, run_variant

Ticker = Callable[[list[tuple[str, float, str]]], None]

_TURN = 100
"""Variants that are started between two looks at what runs: limits are enforced while we wait."""


class Session:
    """Runs a plan. ``tick`` is called several times a second with what runs now."""

    def __init__(
        self, planned: Sequence[Planned], engine: Engine, context: RunContext, tick: Ticker | None = None
    ) -> None:
        """Start nothing yet."""
        self.engine, self.context, self.tick = engine, context, tick
        self.queue = deque(planned)
        self.scheduler: Scheduler[VariantResult] = Scheduler(engine)
        self.bad_verdicts = (*RED, "SKIP") if context.settings.fail_on_skip else RED
        self.red = 0
        self.broken = 0
        self.unchecked: set[str] = set()
        self.unfinished = len(self.queue)
        self.late = False  # the deadline passed and something was left

    @property
    def code(self) -> int:
        """pytest's exit code so far: 0, 1 for red verdicts (and SKIP with --fail-on-skip), 3 when the harness failed
        somewhere."""
        return INTERNAL if self.broken else FAILED if self.red else OK

    def events(self) -> Iterator[Event]:
        """Run everything, and yield what happens.

        When the deadline passes, what runs is ended and stays without a verdict: see ``late``.
        """
        # Ahead of the slots, so that none waits for work; unless a failure is to stop what has not begun.
        window = self.context.slots * (3 if self.context.most_failures is None else 1)
        while (self.queue and not self._stopping()) or len(self.scheduler):
            for _ in range(_TURN):
                if not self.queue or len(self.scheduler) >= window or self._stopping():
                    break
                planned = self.queue.popleft()
                yield VariantStarted(planned.variant.id, planned.environment.torch)
                self.scheduler.start(planned.key, run_variant(planned, self.context))
                yield from self._results()
            if len(self.scheduler):
                self.scheduler.wait(0.1)
                yield from self._results()
            if self.tick is not None:
                self.tick([(job.id, seconds, phase) for job, seconds, phase in self.engine.running()])
            if self.context.time_is_up() and (self.queue or len(self.scheduler)):
                self.late = True
                self.scheduler.cancel()
        self.late = self.late or (self.context.time_is_up() and bool(self.queue))

    def _stopping(self) -> bool:
        most = self.context.most_failures
        return (most is not None and self.red >= most) or self.context.time_is_up()

    def _results(self) -> Iterator[Event]:
        for _, result in self.scheduler.results():
            self.broken += len(result.harness_errors)
            for reason in result.harness_errors:
                yield Notice(f"{result.event.id}: the harness failed, not the case:\n{reason}", "error")
            for absence in result.unchecked:
                if absence not in self.unchecked:
                    self.unchecked.add(absence)
                    yield Notice(absence)
            self.red += result.event.verdict in self.bad_verdicts
            self.unfinished -= 1
            yield result.event
