"""Torch's bisector, asked about one failure: what it is told to look for, and what its answer means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.builder.source import Source
from runner.cases.model import LAUNCH, Case
from runner.cases.walk import all_steps
from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.contract.oracles import row_of
from runner.diagnose.diagnosis import Culprit
from runner.diagnose.harness import VariantEngine
from runner.diagnostics import Span, shown_file
from runner.engine.messages import Outcome
from runner.text import of_several
from runner.verdict import outcomes
from runner.verdict.signature import FailureSignature, signature_of
from runner.verdict.stages import LADDER

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


def task(
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


def read(outcome: Outcome, case: Case, source: Source) -> Bisected:
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
