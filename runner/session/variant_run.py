"""A variant on its way to a verdict, and the event that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner.builder.source import Source
from runner.diagnostics import shown_path
from runner.engine.messages import Outcome
from runner.quote import operand, shell_words
from runner.record.events import RED, Finding, VariantFinished, VariantPlanned
from runner.session import retries
from runner.session.plan import Planned
from runner.verdict import explained as policies
from runner.verdict import outcomes
from runner.verdict.policy import Verdict
from runner.verdict.stages import in_order, stage_of

if TYPE_CHECKING:
    from runner.session.session import Options

_TORCH = ("eager", "eager-again", "float64", "backend")
"""Phases of a job that are torch's own calls. The judge calls torch too, on our account."""


@dataclass(slots=True)
class Follow:
    """One run of a variant. ``waiting`` holds the keys of jobs not yet back.

    ``first`` is what a process said that others had used before, or that ran beside others, when a fresh one was asked again;
    ``confirming`` the verdict that waits for a fresh process to agree.
    """

    planned: Planned
    source: Source
    main: Outcome | None = None
    first: Outcome | None = None
    confirming: Verdict | None = None
    findings: list[Finding] = field(default_factory=list)
    trust: Mapping[str, Any] | None = None
    seen: dict[str, list[Finding]] = field(default_factory=dict)
    explained: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)  # job key -> what it is for
    notes: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    float64: bool = True  # until a process dies of it; then no further one is asked for it
    afresh: bool = False  # no stored result will do
    passed: int = 0  # processes of its own that found nothing, after ``first`` had
    wavered: str = ""  # how two processes of its own disagreed
    earlier: tuple[VariantFinished, ...] = ()  # results of runs before this one
    spent: dict[str, float] = field(default_factory=dict)

    def account(self, outcome: Outcome) -> None:
        """Book the seconds of one of its jobs."""
        if outcome.cached:
            return
        phases: Mapping[str, float] = outcome.result.get("seconds") or {}
        torch = sum(phases.get(name, 0.0) for name in _TORCH)
        parts = {
            "busy": outcome.busy,
            "torch": torch,
            "load": phases.get("load", 0.0),
            "judge": phases.get("judge", 0.0),
        }
        for name, seconds in parts.items():
            self.spent[name] = round(self.spent.get(name, 0.0) + seconds, 6)

    def differs(self, shared: Outcome, alone: Outcome) -> None:
        """Say that a process of its own answered otherwise than the one before."""
        self.labels.append(retries.ORDER_DEPENDENT)
        self.notes.append(retries.order_note(shared, alone))

    def hold(self, shared: Outcome, alone: Outcome, clean: bool) -> None:
        """Hold the last answer of a process of its own against the one before; ``clean`` says that it found nothing."""
        if self.passed and not clean:
            self.wavered = retries.wavering(shared, self.passed, alone)
        elif not retries.alike(shared, alone):
            self.differs(shared, alone)
            if retries.own_fault(shared):
                self.wavered = retries.disagreement(retries.told(shared), alone)

    def event(self, verdict: Verdict, options: Options) -> VariantFinished:
        """What is reported."""
        plain = planned_event(self.planned)
        main = self.main
        record = main.result if main is not None else {}
        labels = [*record.get("labels", ()), *(policies.label(flag) for flag in self.explained), *self.labels]
        labels += ["slow"] if main is not None and not main.cached and main.seconds > options.slow else []
        notes = [*record.get("notes", ()), *self.notes]
        if main is not None and main.lost:
            notes.append(f"run again elsewhere: {main.lost} node{'s' if main.lost > 1 else ''} went away while it ran")
        return VariantFinished(
            **{name: getattr(plain, name) for name in VariantPlanned.__dataclass_fields__},
            verdict=verdict.word,
            seconds=round(main.seconds, 3) if main and not main.cached else 0.0,
            params=dict(self.planned.variant.params),
            stage=self.findings[0].stage if self.findings else None,
            oracles=tuple(dict.fromkeys(f.oracle for f in self.findings)),
            findings=tuple(self.findings),
            labels=tuple(dict.fromkeys(labels)),
            notes=tuple(notes),
            reason=verdict.reason,
            stages=self._strip(),
            graphs=record.get("graphs"),
            graph_breaks=record.get("graph_breaks"),
            break_reasons=tuple(record.get("break_reasons", ())),
            recompiles=record.get("recompiles"),
            kernels=record.get("kernels"),
            vectorized=record.get("vectorized"),
            replays=record.get("replays"),
            comparisons=record.get("comparisons", 0),
            known=verdict.known,
            entry=f"{verdict.entry.file}:{verdict.entry.line}:{verdict.entry.column}" if verdict.entry else None,
            signal=main.signal if main else None,
            stack=main.stack if main else "",
            output=main.output if main and verdict.word not in ("PASS", "XFAIL", "SKIP") else "",
            repro=repro(self.planned, options) if verdict.word in RED else "",
            place=outcomes.place_of((self.trust or {}).get("error"), self.source)
            if verdict.word == "INVALID"
            else None,
            cached=(main.cached or None) if main else None,
            host=(main.host or None) if main else None,
            spent=dict(self.spent),
        )

    def _strip(self) -> dict[str, str]:
        """The ladder as words: each stage ``ok`` or its oracles."""
        if not self.seen:
            return {}
        seen = in_order({**self.seen, stage_of(self.planned.variant.backend.backend): self.findings})
        return {stage: " ".join(dict.fromkeys(f.oracle for f in found)) or "ok" for stage, found in seen.items()}


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
        number=planned.number,
    )


def repro(planned: Planned, options: Options) -> str:
    """The command that runs this variant alone."""
    variant = planned.variant
    file = options.files.get(variant.suites[0], variant.case.file)
    words = ["runner", "run", operand(f"{shown_path(file)}::{variant.id.rpartition('::')[2]}"), *options.flags]
    words += ["--backend", variant.backend.name] if options.names_backend else []
    words += ["--device", variant.device] if options.names_device else []
    if planned.environment.python != options.default_python:
        words += ["--python", planned.environment.python]
    return shell_words(words)
