"""One run: plans become jobs, outcomes become verdicts, and every step an event.

The session owns no process and no file. It submits jobs to an engine, follows each variant until its verdict stands
(the ladder for a failure, a probe for a difference that a policy may explain), and hands events to its consumers.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from runner.builder.source import Source, build
from runner.diagnose import explain, interpret
from runner.diagnose.stages import STAGES, below, locate, stage_of
from runner.diagnostics import shown_path
from runner.engine.events import RED, Event, Finding, Notice, VariantFinished, VariantPlanned, VariantStarted
from runner.engine.messages import Job, Outcome
from runner.plan import Planned, job, skip_reason
from runner.spec.limits import Limits
from runner.verdict import Verdict, decide, headline, ranked

NO_ANSWER = ("INVALID", "SKIP", "BROKEN")
"""Doubts of a job that never came to the backend."""


class Engine(Protocol):
    """What a session needs of an engine."""

    def submit(self, job: Job) -> None:
        """Run it when there is room."""

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """What ended, after at most ``timeout`` seconds."""

    def running(self) -> list[tuple[Job, float, str]]:
        """Jobs that run now, with their seconds and phase."""


Handler = Callable[[Event], None]
Ticker = Callable[[list[tuple[str, float, str]]], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How a run differs from the plain one. ``files`` maps a suite's name to its file, ``default_python`` needs no ``--python``."""

    use_known: bool = True
    fail_fast: bool = False
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


@dataclass(slots=True)
class _Follow:
    """A variant on its way to a verdict. ``waiting`` holds the keys of jobs not yet back."""

    planned: Planned
    source: Source
    main: Outcome | None = None
    findings: list[Finding] = field(default_factory=list)
    trust: Mapping[str, Any] | None = None
    seen: dict[str, list[Finding]] = field(default_factory=dict)
    explained: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)  # job key -> what it is for
    notes: list[str] = field(default_factory=list)
    float64: bool = True  # until a process dies of it; then no further one is asked for it


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
        self.planned, self.engine, self.handlers, self.options, self.tick = planned, engine, handlers, options, tick
        self.queue = deque(planned)
        self.active: dict[str, _Follow] = {}
        self.owner: dict[str, _Follow] = {}  # job key -> whose it is
        self.red = 0
        self.broken = 0

    def announce(self) -> None:
        """The plan, so that every report knows each variant before anything runs."""
        for planned in self.planned:
            self._emit(planned_event(planned))

    def run(self) -> int:
        """Run everything; pytest's exit code: 0, 1 for red verdicts, 3 when the harness failed somewhere."""
        window = 3 * self.options.slots
        while (self.queue and not self._stopping()) or self.active:
            while self.queue and len(self.active) < window and not self._stopping():
                self._start(self.queue.popleft())
            for outcome in self.engine.wait(0.1) if self.active else ():
                self._advance(outcome)
            if self.tick is not None:
                self.tick([(j.id, seconds, phase) for j, seconds, phase in self.engine.running()])
        return 3 if self.broken else 1 if self.red else 0

    def _stopping(self) -> bool:
        return self.options.fail_fast and self.red > 0

    def _emit(self, event: Event) -> None:
        for handler in self.handlers:
            handler(event)

    # --- one variant ---

    def _start(self, planned: Planned) -> None:
        self._emit(VariantStarted(planned.variant.id, planned.environment.torch))
        source = build(planned.variant, limits=self.options.limits)
        follow = _Follow(planned, source)
        reason = skip_reason(planned)
        errors = [d for d in source.diagnostics if d.severity == "error"]
        if reason:
            self._finish(follow, Verdict("SKIP", reason))
        elif errors:
            self._finish(follow, Verdict("INVALID", f"{errors[0].message} ({errors[0].span})"))
        else:
            self.active[planned.key] = follow
            self._submit(follow, "main")

    def _submit(self, follow: _Follow, purpose: str, **changes: Any) -> None:
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
        self._send(follow, purpose, made)

    def _send(self, follow: _Follow, purpose: str, made: Job) -> None:
        follow.waiting[made.key] = purpose
        self.owner[made.key] = follow
        self.engine.submit(made)

    def _advance(self, outcome: Outcome) -> None:
        follow = self.owner.pop(outcome.job.key)
        purpose = follow.waiting.pop(outcome.job.key)
        if interpret.died_in_float64(outcome) and outcome.job.float64:
            if purpose == "main":
                follow.notes.append(f"float64 reference dropped: {interpret.describe(outcome)} while it ran")
            follow.float64 = False
            self._send(follow, purpose, replace(outcome.job, float64=False))
            return
        findings, trust = interpret.read(outcome, follow.source)
        if purpose == "main":
            self._main(follow, outcome, findings, trust)
        elif purpose in STAGES:
            if findings or (trust or {}).get("verdict") not in NO_ANSWER:
                follow.seen[purpose] = findings
        elif outcome.ended == "result" and not findings and not trust:
            follow.explained.append(purpose)
        if not follow.waiting:
            self._conclude(follow)

    def _main(
        self, follow: _Follow, outcome: Outcome, findings: list[Finding], trust: Mapping[str, Any] | None
    ) -> None:
        follow.main, follow.findings, follow.trust = outcome, findings, trust
        if not findings or (trust or {}).get("verdict") == "INVALID":
            return
        variant = follow.planned.variant
        for stage, backend in below(variant.backend.backend):
            self._submit(follow, stage, backend=backend)
        config = {**variant.case.config, **variant.backend.config}
        stage = stage_of(variant.backend.backend)
        for flag in explain.candidates(findings, stage, follow.source.text, variant.dtype, config):
            self._submit(follow, flag, config={flag: True})

    def _conclude(self, follow: _Follow) -> None:
        del self.active[follow.planned.key]
        trust = follow.trust
        if trust and trust.get("verdict") == "BROKEN":
            self.broken += 1
            self._emit(
                Notice(f"{follow.planned.variant.id}: the harness failed, not the case:\n{trust['reason']}", "error")
            )
            self._finish(follow, Verdict("ERROR", "the harness failed; this says nothing about the backend"))
            return
        variant = follow.planned.variant
        follow.findings = ranked(locate(follow.findings, variant.backend.backend, follow.seen))
        if follow.explained:
            follow.notes += [f"{headline(f)} (passes under {', '.join(follow.explained)})" for f in follow.findings]
            follow.findings = []
        self._finish(
            follow, decide(variant, follow.planned.environment.torch, follow.findings, trust, self.options.use_known)
        )

    def _finish(self, follow: _Follow, verdict: Verdict) -> None:
        self.red += verdict.word in RED
        self._emit(self._event(follow, verdict))

    def _event(self, follow: _Follow, verdict: Verdict) -> VariantFinished:
        plain = planned_event(follow.planned)
        main = follow.main
        record = main.result if main is not None else {}
        labels = [*record.get("labels", ()), *(explain.label(flag) for flag in follow.explained)]
        return VariantFinished(
            **{name: getattr(plain, name) for name in VariantPlanned.__dataclass_fields__},
            verdict=verdict.word,
            seconds=round(main.seconds, 3) if main else 0.0,
            params=dict(follow.planned.variant.params),
            stage=follow.findings[0].stage if follow.findings else None,
            oracles=tuple(dict.fromkeys(f.oracle for f in follow.findings)),
            findings=tuple(follow.findings),
            labels=tuple(dict.fromkeys(labels)),
            notes=(*record.get("notes", ()), *follow.notes),
            reason=verdict.reason,
            stages=_strip(follow),
            graphs=record.get("graphs"),
            graph_breaks=record.get("graph_breaks"),
            break_reasons=tuple(record.get("break_reasons", ())),
            recompiles=record.get("recompiles"),
            comparisons=record.get("comparisons", 0),
            known=verdict.known,
            entry=f"{verdict.entry.file}:{verdict.entry.line}:{verdict.entry.column}" if verdict.entry else None,
            signal=main.signal if main else None,
            stack=main.stack if main else "",
            output=main.output if main and verdict.word not in ("PASS", "XFAIL", "SKIP") else "",
            repro=self._repro(follow.planned) if verdict.word in RED else "",
            place=interpret.place_of((follow.trust or {}).get("error"), follow.source)
            if verdict.word == "INVALID"
            else None,
        )

    def _repro(self, planned: Planned) -> str:
        """The command that runs this variant alone."""
        variant = planned.variant
        file = self.options.files.get(variant.suites[0], variant.case.file)
        words = ["runner", "run", f"{shown_path(file)}::{variant.id.rpartition('::')[2]}", *self.options.flags]
        words += ["--backend", variant.backend.name] if self.options.names_backend else []
        words += ["--device", variant.device] if self.options.names_device else []
        if planned.environment.python != self.options.default_python:
            words += ["--python", planned.environment.python]
        return shlex.join(words)


def planned_event(planned: Planned) -> VariantPlanned:
    """The event that announces a planned variant."""
    variant = planned.variant
    return VariantPlanned(
        id=variant.id,
        case=variant.case_id,
        suite=variant.suites[0],
        suites=variant.suites,
        backend=variant.backend.name,
        torch=planned.environment.torch,
        python=planned.environment.python,
        device=variant.device,
        dtype=variant.dtype,
        label=variant.label,
        file=variant.case.file,
        line=variant.case.span.line,
        column=variant.case.span.column,
    )


def _strip(follow: _Follow) -> dict[str, str]:
    """The ladder as words: each stage ``ok`` or its oracles."""
    if not follow.seen:
        return {}
    seen = {**follow.seen, stage_of(follow.planned.variant.backend.backend): follow.findings}
    return {stage: " ".join(dict.fromkeys(f.oracle for f in found)) or "ok" for stage, found in seen.items()}
