"""The judgement of a job: all findings, without those about values that torch leaves undefined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from runner.contract.finding import Finding
from runner.contract.oracles import row_of
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.judge import judge
from runner.worker.operators.freedoms import OVERLAP
from runner.worker.program.load import Source
from runner.worker.program.observe import Settings
from runner.worker.rerun.legal_runs import find_undefined


def _refuses_overlap(finding: Finding) -> bool:
    """Return whether a finding is torch's refusal to write through memory that overlaps itself, which eager let
    pass."""
    # So eager itself refuses most such writes. Some it lets pass, with a warning.
    refusal = "more than one element of the written-to tensor refers to a single memory location"
    return row_of(finding.oracle).crash and refusal in str((finding.error or {}).get("message", ""))


def judge_defined(
    evidence: Evidence,
    source: Source,
    settings: Settings,
    begin: Callable[[str], None],
    varies: bool = False,
) -> tuple[Evidence, list[Finding]]:
    """Return all findings, and the evidence to which they belong: findings about undefined values are left out.

    Eager runs under other choices only if a finding may speak of such values, or eager ``varies``. It does not run
    without the float64 reference, since a process that dies in these runs is asked again without both: ``begin`` is
    given that reference's phase when they run, and ``judge`` afterwards.

    Raises:
        InvalidCase: the case cannot be loaded again.
    """
    findings = judge(evidence)
    # Findings about numbers, or about a shape that depends on them, may speak of undefined values.
    may_be_undefined = varies or any(
        row_of(finding.oracle).numeric or finding.oracle == "shape" or _refuses_overlap(finding) for finding in findings
    )
    if not evidence.job.float64 or not may_be_undefined:
        return evidence, findings
    begin("float64")
    exact = bool(evidence.job.tolerance.get("exact"))  # who says so means each side of a kink
    undefined = find_undefined(source, settings, evidence.eager, gradients=not exact)
    begin("judge")
    if not undefined.operators:
        return evidence, findings
    again = replace(
        evidence, labels=[], notes=[], comparisons=0, compared=Counter(), accuracy=[], defined=0, undefined=undefined
    )
    findings = judge(again)
    refused = [finding for finding in findings if OVERLAP in undefined.operators and _refuses_overlap(finding)]
    for finding in refused:
        again.excuse(finding.path or "the call", 0, 0)
    return again, [finding for finding in findings if finding not in refused]
