"""One run: plans become jobs, outcomes become verdicts, and every step an event.

The session owns no process and no file. It submits jobs to an engine, follows each variant until its verdict stands
(the ladder for a failure, a probe for a difference that a policy may explain, a fresh process for what is red), and
hands events to its consumers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from runner.builder.source import Source, build
from runner.cases.limits import Limits
from runner.engine.messages import Job, Outcome
from runner.record.events import RED, Event, Finding, Notice, VariantFinished, VariantStarted
from runner.session import retries as attempts
from runner.session.plan import Planned, job, skip_reason
from runner.session.variant_run import Follow
from runner.verdict import explained, outcomes
from runner.verdict.policy import Verdict, decide, headline, ranked
from runner.verdict.stages import STAGES, below, locate, stage_of

NO_ANSWER = ("INVALID", "SKIP", "BROKEN")
"""Doubts of a job that never came to the backend."""

_TURN = 100
"""Variants that are started, or found to be none for this machine, between two looks at what runs."""


class Engine(Protocol):
    """What a session needs of an engine."""

    def submit(self, job: Job) -> None:
        """Run it when there is room."""

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """What ended, after at most ``timeout`` seconds."""

    def running(self) -> list[tuple[Job, float, str]]:
        """Jobs that run now, with their seconds and phase."""

    def cancel_all(self) -> list[Job]:
        """End what runs and drop what waits."""


Handler = Callable[[Event], None]
Ticker = Callable[[list[tuple[str, float, str]]], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How a run differs from the plain one. ``files`` maps a suite's name to its file, ``default_python`` needs no ``--python``.

    ``isolation`` is one of the engine's, or ``auto``: processes that live on for accelerators, a forked one a variant else.
    ``deadline`` is on ``time.monotonic``'s clock.
    """

    use_known: bool = True
    max_fail: int | None = None
    retries: int = 0
    stress: int = 1
    isolation: str = "auto"
    confirm: bool = False
    deadline: float | None = None
    slow: float = 60.0  # seconds of one process after which a variant is labelled
    imports: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    slots: int = 1
    seed: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    default_python: str = ""
    flags: tuple[str, ...] = ()  # further flags that reproducing needs
    names_backend: bool = False  # backends, and devices, were named on the command line
    names_device: bool = False
    limits: Limits = field(default_factory=Limits)


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
        self.engine, self.handlers, self.options, self.tick = engine, handlers, options, tick
        self.queue = deque(planned)
        self.active: dict[str, Follow] = {}
        self.owner: dict[str, Follow] = {}  # job key -> whose it is
        self.red = 0
        self.broken = 0
        self.late = False  # the deadline passed and something was left

    def run(self) -> int:
        """Run everything; pytest's exit code: 0, 1 for red verdicts, 3 when the harness failed somewhere.

        When the deadline passes, what runs is ended and stays without a verdict: see ``late``.
        """
        # Ahead of the slots, so that none waits for work; unless a failure is to stop what has not begun.
        window = self.options.slots * (3 if self.options.max_fail is None else 1)
        while (self.queue and not self._stopping()) or self.active:
            for _ in range(_TURN):  # not all that is skipped at one go: limits are enforced while we wait
                if not self.queue or len(self.active) >= window or self._stopping():
                    break
                self._start(self.queue.popleft())
            for outcome in self.engine.wait(0.1) if self.active else ():
                self._advance(outcome)
            if self.tick is not None:
                self.tick([(j.id, seconds, phase) for j, seconds, phase in self.engine.running()])
            if self._time_is_up() and (self.queue or self.active):
                self.late = True
                self.engine.cancel_all()
                self.active.clear()
        self.late = self.late or (self._time_is_up() and bool(self.queue))
        return 3 if self.broken else 1 if self.red else 0

    def _time_is_up(self) -> bool:
        return self.options.deadline is not None and time.monotonic() >= self.options.deadline

    def _stopping(self) -> bool:
        return self._time_is_up() or (self.options.max_fail is not None and self.red >= self.options.max_fail)

    def _emit(self, event: Event) -> None:
        for handler in self.handlers:
            handler(event)

    # --- one variant ---

    def _start(self, planned: Planned, earlier: tuple[VariantFinished, ...] = (), afresh: bool = False) -> None:
        if not earlier and not afresh:
            self._emit(VariantStarted(planned.variant.id, planned.environment.torch))
        reason = skip_reason(planned)
        source = Source("", ()) if reason else build(planned.variant, limits=self.options.limits)
        follow = Follow(planned, source, earlier=earlier, afresh=afresh)
        errors = [d for d in source.diagnostics if d.severity == "error"]
        if reason:
            self._finish(follow, Verdict("SKIP", reason))
        elif errors:
            self._finish(follow, Verdict("INVALID", f"{errors[0].message} ({errors[0].span})"))
        else:
            self.active[planned.key] = follow
            self._submit(follow, "main", self._isolation(planned))

    def _isolation(self, planned: Planned) -> str:
        if self.options.isolation != "auto":
            return self.options.isolation
        return "fork" if planned.variant.device in ("cpu", "meta") else "living"

    def _submit(self, follow: Follow, purpose: str, isolation: str, alone: bool = False, **changes: Any) -> None:
        made = job(
            follow.planned,
            follow.source,
            imports=self.options.imports,
            paths=self.options.paths,
            suffix=f" {purpose}",
            float64=follow.float64,
            seed=self.options.seed,
            **changes,
        )
        made = replace(made, isolation=isolation, alone=alone, cacheable=made.cacheable and not follow.afresh)
        self._send(follow, purpose, made)

    def _send(self, follow: Follow, purpose: str, made: Job) -> None:
        follow.waiting[made.key] = purpose
        self.owner[made.key] = follow
        self.engine.submit(made)

    def _advance(self, outcome: Outcome) -> None:
        follow = self.owner.pop(outcome.job.key)
        purpose = follow.waiting.pop(outcome.job.key)
        follow.account(outcome)
        if outcomes.died_in_float64(outcome) and outcome.job.float64:
            if purpose == "main":
                follow.notes.append(f"float64 reference dropped: {outcomes.describe(outcome)} while it ran")
            follow.float64 = False
            self._send(follow, purpose, replace(outcome.job, float64=False))
            return
        if outcome.signal == "SIGKILL" and self.options.confirm and not outcome.job.alone:
            # Somebody or the kernel did that; a process that ends itself so will do it again.
            if purpose == "main":
                follow.first = outcome
            again = replace(outcome.job, alone=True, isolation=self._apart(follow.planned))
            self._send(follow, purpose, again)
            return
        if purpose == "confirm":
            self._confirm(follow, outcome)
            return
        findings, trust = outcomes.read(outcome, follow.source)
        if purpose == "main":
            self._main(follow, outcome, findings, trust)
        elif purpose in STAGES:
            if findings or (trust or {}).get("verdict") not in NO_ANSWER:
                follow.seen[purpose] = findings
        elif outcome.ended == "result" and not findings and not trust:
            follow.explained.append(purpose)
        if not follow.waiting:
            self._conclude(follow)

    def _main(self, follow: Follow, outcome: Outcome, findings: list[Finding], trust: Mapping[str, Any] | None) -> None:
        doubt = (trust or {}).get("verdict")
        if outcome.job.isolation == "living" and (findings or doubt not in (None, "SKIP", "BROKEN")):
            # What ran before it in that process may be to blame: only a process of its own is believed.
            follow.first = outcome
            self._submit(follow, "main", self._apart(follow.planned), alone=attempts.machine_made(outcome))
            return
        if follow.first is not None:
            clean = not findings and doubt is None
            follow.passed += clean
            if clean and follow.passed < attempts.opinions(follow.first):
                follow.afresh = True  # one stored answer, given twice, is one opinion
                self._submit(follow, "main", self._apart(follow.planned))
                return
            follow.hold(follow.first, outcome, clean)
            if follow.wavered:
                findings = findings or outcomes.read(follow.first, follow.source)[0]
        follow.main, follow.findings, follow.trust = outcome, findings, trust
        if not findings or doubt == "INVALID" or follow.wavered:
            return
        variant = follow.planned.variant
        isolation = outcome.job.isolation
        for stage, backend in below(variant.backend.backend):
            self._submit(follow, stage, isolation, backend=backend)
        config = variant.config
        stage = stage_of(variant.backend.backend)
        for flag in explained.candidates(findings, stage, follow.source.text, variant.dtype, config):
            self._submit(follow, flag, isolation, config={flag: True})

    def _apart(self, planned: Planned) -> str:
        """Isolation that shares nothing. On accelerators the forked processes' parent has only imported torch."""
        return "fresh" if planned.variant.device in ("cpu", "meta") else "fork"

    def _conclude(self, follow: Follow) -> None:
        trust = follow.trust
        if trust and trust.get("verdict") == "BROKEN":
            self.broken += 1
            self._emit(
                Notice(f"{follow.planned.variant.id}: the harness failed, not the case:\n{trust['reason']}", "error")
            )
            self._finish(follow, Verdict("ERROR", "the harness failed; this says nothing about the backend"))
            return
        if follow.wavered:
            self._finish(follow, Verdict("FLAKY", follow.wavered))
            return
        variant = follow.planned.variant
        follow.findings = ranked(locate(follow.findings, variant.backend.backend, follow.seen))
        if follow.explained:
            follow.notes += [f"{headline(f)} (passes under {', '.join(follow.explained)})" for f in follow.findings]
            follow.findings = []
        verdict = decide(variant, follow.planned.environment.torch, follow.findings, trust, self.options.use_known)
        if verdict.word in RED and follow.main is not None and follow.main.cached:
            self._start(follow.planned, follow.earlier, afresh=True)  # what is red is never an old result
            return
        unconfirmed = (
            self.options.confirm and follow.first is None and attempts.wants_confirmation(verdict.word, follow.main)
        )
        if unconfirmed and follow.main is not None:
            follow.confirming = verdict
            alone = attempts.machine_made(follow.main)
            self._submit(follow, "confirm", self._apart(follow.planned), alone)
        else:
            self._finish(follow, verdict)

    def _confirm(self, follow: Follow, alone: Outcome) -> None:
        """A fresh process has answered too."""
        main, verdict = follow.main, follow.confirming
        assert main is not None and verdict is not None
        if alone.ended == "broken" or attempts.alike(main, alone):
            self._finish(follow, verdict)
        elif attempts.machine_made(main):  # too slow or too big beside others: what it does alone counts
            follow.first, follow.seen, follow.explained = main, {}, []
            self._main(follow, alone, *outcomes.read(alone, follow.source))
            if not follow.waiting:
                self._conclude(follow)
        else:
            follow.differs(main, alone)
            reason = attempts.disagreement(verdict.reason, alone)
            self._finish(follow, replace(verdict, word="FLAKY", reason=reason))

    def _finish(self, follow: Follow, verdict: Verdict) -> None:
        self.active.pop(follow.planned.key, None)
        results = (*follow.earlier, follow.event(verdict, self.options))
        if attempts.again(results, self.options.retries, self.options.stress) and not self._time_is_up():
            self._start(follow.planned, results)
            return
        final = attempts.combined(results)
        self.red += final.verdict in RED
        self._emit(final)
