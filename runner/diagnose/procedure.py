"""A diagnosis: the ladder, the bisector and the ablations of one failure, put together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from runner.cases.model import Variant
from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.diagnose import ablate
from runner.diagnose import bisect as bisector
from runner.diagnose.ablate import Change
from runner.diagnose.bisect import Bisected
from runner.diagnose.diagnosis import Ablation, Diagnosis
from runner.diagnose.harness import Answer, VariantEngine
from runner.record.events import VariantFinished
from runner.verdict.policy import headline, ranked
from runner.verdict.signature import FailureSignature, main_signature
from runner.verdict.stages import below, stage_of

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
        task = bisector.task(engine, signature, _findings_below(engine, signature, lambda: tick(PARTS[0])))
    cross = engine.job(backend=CROSSREF) if stage_of(engine.variant.backend.backend) == "inductor" else None
    trials = ablate.jobs(engine, changes)
    # The bisector first, which takes longest.
    jobs = [*([] if isinstance(task, Bisected) else [task]), *([cross] if cross else []), *filter(None, trials)]
    outcomes = dict(zip((job.key for job in jobs), engine.ask(jobs, lambda: tick(PARTS[1])), strict=True))
    bisected = (
        task if isinstance(task, Bisected) else bisector.read(outcomes[task.key], engine.variant.case, engine.source)
    )
    crossed = engine.read(outcomes[cross.key]) if cross else None
    answers = [
        (change, engine.read(outcomes[job.key])) for change, job in zip(changes, trials, strict=True) if job is not None
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
    if backend is None or bisector.whole_stage(signature) is not None:
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
