"""A diagnosis: the ladder, the bisector and the ablations of one failure, put together; what the bisector is told to
look for, and what its answer means."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from runner.builder.source import Source
from runner.cases.model import LAUNCH, Case, Variant
from runner.cases.walk import all_steps
from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.contract.oracles import row_of
from runner.diagnose import ablate
from runner.diagnose.ablate import Change
from runner.diagnose.diagnosis import Ablation, Culprit, Diagnosis
from runner.diagnose.harness import Answer, VariantEngine
from runner.diagnostics import Span, shown_file
from runner.engine.messages import Outcome
from runner.record.events import VariantFinished
from runner.text import of_several
from runner.verdict import outcomes
from runner.verdict.policy import headline, ranked
from runner.verdict.signature import FailureSignature, main_signature, signature_of
from runner.verdict.stages import LADDER, below, stage_of

SECONDS = 60.0
"""One judgement of the bisector's may take so long, on top of which it is a timeout; up to 30 of them are made."""

HANG_SECONDS = 30.0
"""The same for a failure that is a hang, which each wrong answer takes in full."""

BUDGET = 300.0
"""Seconds for all of them; then what is known so far is the answer."""

_WHOLE = {"dynamo": "Dynamo", "aot": "AOT autograd"}
_BACKENDS = dict(LADDER)


@dataclass(frozen=True, slots=True)
class Bisected:
    """What came out: a culprit, a note why it is missing or incomplete, or both."""

    culprit: Culprit | None = None
    note: str = ""


def whole_stage(signature: FailureSignature) -> Bisected | None:
    """Return the answer for a stage in which there is nothing to bisect; None for the others."""
    if signature.stage in _WHOLE:
        name = _WHOLE[signature.stage]
        return Bisected(Culprit(_BACKENDS[signature.stage]), f"torch's bisector cannot switch off parts of {name}")
    if signature.stage not in _BACKENDS:
        return Bisected(note="torch's bisector knows torch's own backends alone")
    return None


def bisection_job(
    engine: VariantEngine, signature: FailureSignature, findings_by_stage: Mapping[str, Sequence[Finding]]
) -> Job | Bisected:
    """Return the job that bisects a failure, or the reason why it cannot be bisected.

    Args:
        engine: of the failing variant.
        signature: of the failure, with its stage.
        findings_by_stage: what the backends below showed; its own stage's is needed where that is below the variant's.
    """
    if engine.variant.backend.backend == LAUNCH:
        return Bisected(note="a launch compiles nothing that could be bisected")
    answer = whole_stage(signature)
    if answer is not None:
        return answer
    stage = str(signature.stage)
    backend, targets = _BACKENDS[stage], [signature]
    if backend != engine.variant.backend.backend:
        group = row_of(signature.oracle).group
        alike = (finding for finding in findings_by_stage.get(stage, ()) if row_of(finding.oracle).group == group)
        targets = [*map(signature_of, alike)]
        if not targets:
            return Bisected(note=f"the failure does not show under {backend}, which the bisector would have to use")
    hangs = any(target.oracle == "timeout" for target in targets)
    arguments = {
        "wanted": [[*target.kind] for target in targets],
        "seconds": HANG_SECONDS if hangs else SECONDS,
        "budget": BUDGET,
    }
    return engine.job("bisect", arguments, timeout=BUDGET + 2 * SECONDS, backend=backend)


def read_bisection(outcome: Outcome, case: Case, source: Source) -> Bisected:
    """Return what a bisecting job answered, with the step of the chain, of which ``source`` was written."""
    if outcome.ended != "result":
        return Bisected(note=f"bisecting failed: {outcomes.describe(outcome)}")
    note = str(outcome.result.get("note") or "")
    if not outcome.result.get("culprit"):
        return Bisected(note=note)
    fields = dict(outcome.result["culprit"])
    span = source.place(fields.pop("line", None))
    place = f"{shown_file(span.file)}:{span.line}" if span else None
    return Bisected(Culprit(**fields, step=step_at(case, span) if span else None, place=place), note)


def step_at(case: Case, span: Span) -> str | None:
    """Return the step that is written at a place, by its last name and its number among those of that name."""
    steps = list(all_steps(case.chain))
    step = next((step for step in steps if step.span == span), None)
    if step is None:
        return None
    name = step.operator.rpartition(".")[2]
    alike = [other.span for other in steps if other.operator.rpartition(".")[2] == name]
    return name if len(alike) == 1 else f"{name}, {of_several(alike.index(span) + 1, len(alike))}"


CROSSREF = "aot_eager_decomp_partition_crossref"
"""Runs every operator beside its fake twin: a kernel and its meta function that disagree show here."""


PARTS = ("the ladder", "torch's bisector and changed settings")
"""The parts of a diagnosis, in order."""


def diagnose(
    engine: VariantEngine,
    bisect: bool = True,
    tick: Callable[[str], None] = lambda part: None,
    ablations: bool = True,
) -> Diagnosis:
    """Return everything that can be found out about the variant's failure; of one that does not fail its verdict alone.

    Args:
        engine: of the variant, entered.
        bisect: ask torch's bisector too, which takes up to some minutes.
        tick: told several times a second which of ``PARTS`` is done.
        ablations: try changed settings too.
    """
    begun = time.monotonic()
    event = engine.verdict(lambda: tick(PARTS[0]))
    signature = main_signature(event.findings) if event.verdict in ("FAIL", "ERROR") else None
    plain = Diagnosis(
        id=event.id,
        torch=event.torch,
        verdict=event.verdict,
        reason=event.reason,
        signature=signature,
        findings=tuple(event.findings),
        stages=_strip(event, engine.variant),
        labels=tuple(event.labels),
        notes=tuple(event.notes),
        run_seconds=event.seconds,
    )
    if signature is None:
        return replace(plain, seconds=round(time.monotonic() - begun, 1))
    changes = ablate.changes(engine.variant, signature, engine.source.text) if ablations else []
    task: Job | Bisected = Bisected(note="not asked for")
    if bisect:
        task = bisection_job(engine, signature, _findings_below(engine, signature, lambda: tick(PARTS[0])))
    cross = engine.job(backend=CROSSREF) if stage_of(engine.variant.backend.backend) == "inductor" else None
    trials = ablate.jobs(engine, changes)
    # The bisector first, which takes longest.
    jobs = [*([] if isinstance(task, Bisected) else [task]), *([cross] if cross else []), *filter(None, trials)]
    answered = dict(zip((job.key for job in jobs), engine.ask(jobs, lambda: tick(PARTS[1])), strict=True))
    bisected = (
        task if isinstance(task, Bisected) else read_bisection(answered[task.key], engine.variant.case, engine.source)
    )
    crossed = engine.read(answered[cross.key]) if cross else None
    answers = [
        (change, engine.read(answered[job.key])) for change, job in zip(changes, trials, strict=True) if job is not None
    ]
    return replace(
        plain,
        stages=_with_crossref(plain.stages, crossed),
        culprit=bisected.culprit,
        bisect_note=bisected.note,
        ablations=tuple(_ablations(engine, signature, answers, lambda: tick(PARTS[1]))),
        notes=(*plain.notes, *_crossref_notes(plain.stages, crossed)),
        seconds=round(time.monotonic() - begun, 1),
    )


def _findings_below(
    engine: VariantEngine, signature: FailureSignature, tick: Callable[[], None]
) -> Mapping[str, Sequence[Finding]]:
    """Return what the guilty stage's own backend shows, where that is not the variant's."""
    backend = dict(below(engine.variant.backend.backend)).get(str(signature.stage))
    if backend is None or whole_stage(signature) is not None:
        return {}
    (outcome,) = engine.ask([engine.job(backend=backend)], tick)
    return {str(signature.stage): engine.read(outcome).findings}


def _ablations(
    engine: VariantEngine,
    signature: FailureSignature,
    answers: Sequence[tuple[Change, Answer]],
    tick: Callable[[], None],
) -> list[Ablation]:
    """What became of the failure; what failed for want of a helping flag is run again without it."""
    repeated = [change for change, answer in answers if ablate.lacks(answer, change.helpers)]
    jobs = [job for job in ablate.jobs(engine, repeated, helpers=False) if job is not None]
    later = map(engine.read, engine.ask(jobs, tick) if jobs else ())
    answers = [(change, next(later) if change in repeated else answer) for change, answer in answers]
    ablations = (ablate.read(signature, change, answer) for change, answer in answers)
    return [ablation for ablation in ablations if ablation is not None]


def _strip(event: VariantFinished, variant: Variant) -> Mapping[str, str]:
    """The ladder; of a backend with nothing below it, its own stage."""
    own = " ".join(event.oracles) or ("ok" if event.verdict == "PASS" else "")
    return event.stages or ({stage_of(variant.backend.backend): own} if own else {})


def _with_crossref(stages: Mapping[str, str], crossed: Answer | None) -> Mapping[str, str]:
    """The strip with what crossref says, after the stage that it repeats."""
    if crossed is None or not (crossed.findings or crossed.sound):
        return stages
    words_of_crossref = " ".join(dict.fromkeys(finding.oracle for finding in crossed.findings)) or "ok"
    strip: dict[str, str] = {}
    for stage, words in stages.items():
        strip[stage] = words
        if stage == "decomposition":
            strip["crossref"] = words_of_crossref
    return strip


def _crossref_notes(stages: Mapping[str, str], crossed: Answer | None) -> list[str]:
    """A failure that only crossref shows."""
    if crossed is None or not crossed.findings or stages.get("decomposition") != "ok":
        return []
    return [f"under {CROSSREF}, which runs each operator beside its fake twin: {headline(ranked(crossed.findings)[0])}"]
