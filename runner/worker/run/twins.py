"""The twin of a case: an equal program, compiled. What it gives is held against what the compiled program gives.

Both may be off by as much as roundings allow. So a finding counts only where the twin lies outside the rules against
the compiled program, and against eager too, with all excuses that the judge knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.contract.oracles import TWIN, row_of
from runner.worker import thresholds
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.judge import judge
from runner.worker.judge.procedure import judge_defined
from runner.worker.program.load import Source
from runner.worker.program.observe import Observation, Settings, observe

ORACLES = frozenset(
    ("compile-error", "runtime-error", "structure", "shape", "dtype", "mutation", "nonfinite", "value", "grad")
)
"""What is asked of a twin: it computes the same, and may lay it out in memory in another way."""


def reason_against(job: Job, evidence: Evidence, seconds: dict[str, float]) -> str:
    """Return why a case is not compared with its twin; empty where it is. ``seconds`` say how long each part took."""
    tolerance = job.tolerance or {}
    if evidence.eager.error is not None:
        return "eager raises"
    if any(call.drew_random for call in evidence.eager.calls):
        return "eager draws random numbers"
    if tolerance.get("exact") or tolerance.get("values"):
        return "the case asks for more than an equal program keeps"
    if not job.float64:
        return "there is no float64 reference"
    if sum(seconds.values()) + thresholds.TWIN_TIME.value * seconds.get("backend", 0.0) > job.timeout:
        return "too little time is left"
    return ""


def judge_twin(
    evidence: Evidence, twin: Observation, source: Source, settings: Settings, begin: Callable[[str], None]
) -> list[Finding]:
    """Return the findings about a compiled twin. ``evidence`` is of the case, whose compiled run has no finding.

    Raises:
        InvalidCase: the case cannot be loaded again.
    """
    bare = replace(evidence, compiled=twin, labels=[], notes=[], compared=Counter(), accuracy=[], again=())
    against_eager, findings = judge_defined(bare, source, settings, begin)
    findings = [finding for finding in findings if finding.oracle in ORACLES]
    if not findings:
        return []
    beside = replace(against_eager, eager=evidence.compiled, labels=[], notes=[], compared=Counter(), accuracy=[])
    places = {finding.path for finding in judge(beside) if finding.oracle in ORACLES}
    findings = [finding for finding in findings if finding.path in places]
    if any(row_of(finding.oracle).crash for finding in findings) and _raises_in_eager(source, settings):
        evidence.note("the twin raises in eager too; it is not compared")
        return []
    return [_renamed(finding) for finding in findings]


def _raises_in_eager(source: Source, settings: Settings) -> bool:
    loaded = source.load(settings.seed, twin=True)
    return observe(loaded, loaded.model, settings).error is not None


def _renamed(finding: Finding) -> Finding:
    severity = finding.severity or row_of(finding.oracle).severity
    return replace(finding, oracle=TWIN, message=f"{finding.oracle}: {finding.message}", severity=severity)
