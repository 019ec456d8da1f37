"""One run: a generator of jobs for each variant (``variant_run``), and every step an event.

The session owns no process and no file. It starts variants, in their order and no more at once than there is room for, and
hands events to its consumers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from runner.exit_codes import FAILED, INTERNAL, OK
from runner.record.events import RED, Event, Notice, VariantStarted
from runner.session.options import Options
from runner.session.plan import Planned
from runner.session.scheduler import Engine, Scheduler
from runner.session.variant_run import VariantResult, run_variant

Handler = Callable[[Event], None]
Ticker = Callable[[list[tuple[str, float, str]]], None]

_TURN = 100
"""Variants that are started between two looks at what runs: limits are enforced while we wait."""


class Session:
    """Runs a plan. ``handlers`` get every event in order; ``tick`` is called several times a second with what runs now."""

    def __init__(
        self,
        planned: Sequence[Planned],
        engine: Engine,
        handlers: Sequence[Handler],
        options: Options,
        tick: Ticker | None = None,
    ) -> None:
        """Start nothing yet."""
        self.engine, self.handlers, self.options, self.tick = engine, handlers, options, tick
        self.queue = deque(planned)
        self.scheduler: Scheduler[VariantResult] = Scheduler(engine)
        self.red = 0
        self.broken = 0
        self.late = False  # the deadline passed and something was left

    def run(self) -> int:
        """Run everything; return pytest's exit code: 0, 1 for red verdicts, 3 when the harness failed somewhere.

        When the deadline passes, what runs is ended and stays without a verdict: see ``late``.
        """
        # Ahead of the slots, so that none waits for work; unless a failure is to stop what has not begun.
        window = self.options.slots * (3 if self.options.max_fail is None else 1)
        while (self.queue and not self._stopping()) or len(self.scheduler):
            for _ in range(_TURN):
                if not self.queue or len(self.scheduler) >= window or self._stopping():
                    break
                self._start(self.queue.popleft())
            if len(self.scheduler):
                self.scheduler.wait(0.1)
                self._report()
            if self.tick is not None:
                self.tick([(job.id, seconds, phase) for job, seconds, phase in self.engine.running()])
            if self.options.time_is_up() and (self.queue or len(self.scheduler)):
                self.late = True
                self.scheduler.cancel()
        self.late = self.late or (self.options.time_is_up() and bool(self.queue))
        return INTERNAL if self.broken else FAILED if self.red else OK

    def _stopping(self) -> bool:
        full = self.options.max_fail is not None and self.red >= self.options.max_fail
        return full or self.options.time_is_up()

    def _start(self, planned: Planned) -> None:
        self._emit(VariantStarted(planned.variant.id, planned.environment.torch))
        self.scheduler.start(planned.key, run_variant(planned, self.options))
        self._report()

    def _report(self) -> None:
        for _, result in self.scheduler.results():
            self.broken += len(result.harness_errors)
            for reason in result.harness_errors:
                self._emit(Notice(f"{result.event.id}: the harness failed, not the case:\n{reason}", "error"))
            self.red += result.event.verdict in RED
            self._emit(result.event)

    def _emit(self, event: Event) -> None:
        for handler in self.handlers:
            handler(event)
