"""When two failures count as one: stage, oracle, exception class, and the message without what varies between
sightings.

``FailureSignature`` tells whether a changed case still fails alike. ``result_signature`` is the text by which reports
group results; it looks deeper: at the exception behind the compiler's own, its frame inside torch, and the operator.

Two other comparisons differ on purpose. ``session.retries`` compares how whole runs ended, without stages and messages.
``diagnose.similar`` scores how alike two failures are, and compares operators too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.contract.finding import Finding, mark_of, pattern_of
from runner.contract.oracles import rank_of, row_of
from runner.record.events import RED, VariantFinished
from runner.verdict.operators import BEFORE, BEHIND, plain_form
from runner.verdict.policy import ranked

_DTYPES = re.compile(
    r"\b(?:torch\.)?(?:(?:cuda\.)?(?:Float|Double|Half|BFloat16|Int|Long|Short|Char|Byte|Bool)Tensor"
    r"|Complex(?:Float|Double|Half)|BFloat16|Float|Double|Half|Int|Long|Short|Char|Byte|Bool"
    r"|b?float\d+(?:_\w+)?|u?int\d+(?:_t)?|complex\d+|bool)\b"
)
"""How torch's messages name a dtype: by its own name, C++'s, or that of a tensor's old class."""

_EMPTY = re.compile(r"\[\]|\(\)")
"""A shape without dimensions, or a call; ``pattern_of`` writes one with numbers as ``(…)``."""

_READ = 4096
"""Characters of a message or a reason that are looked at: a log may hold any number."""

_MISSING = re.compile(r"eager raised (\w+)(?:: (.*))?; compiled returned", re.DOTALL)
"""The message of ``missing-error``: eager's class, and the first line of what it said."""


@dataclass(frozen=True, slots=True)
class FailureSignature:
    """The identity of a failure.

    ``error`` is the class of the exception, ``pattern`` its message as ``pattern_of`` makes it.
    """

    oracle: str
    stage: str | None
    error: str = ""
    pattern: str = ""

    @property
    def kind(self) -> tuple[str, str, str]:
        """Return oracle, exception class and pattern: the signature without its stage."""
        return self.oracle, self.error, self.pattern

    def matches(self, other: FailureSignature) -> bool:
        """Return whether both are of one kind, at one stage. The stage counts where both name one."""
        return self.kind == other.kind and (None in (self.stage, other.stage) or self.stage == other.stage)

    def __str__(self) -> str:
        """Return it for people: ``compile-error at inductor: InductorError: AssertionError``."""
        place = f"{self.oracle} at {self.stage}" if self.stage else self.oracle
        return ": ".join(filter(None, (place, self.error, self.pattern)))


def signature_of(finding: Finding) -> FailureSignature:
    """Return the signature of a finding that knows its stage."""
    oracle, error, pattern = mark_of(finding.oracle, finding.error)
    return FailureSignature(oracle, finding.stage, error, pattern)


def main_signature(findings: Sequence[Finding]) -> FailureSignature | None:
    """Return the signature of the highest-ranked finding; None without findings."""
    return signature_of(ranked(findings)[0]) if findings else None


def shows(signature: FailureSignature, findings: Sequence[Finding]) -> bool:
    """Return whether one of the findings matches the signature."""
    return any(signature.matches(signature_of(finding)) for finding in findings)


def severity_of(finding: Finding) -> str:
    """Return what a finding is worth; an old log does not say it."""
    return finding.severity or row_of(finding.oracle).severity


def worst_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of the oracle that speaks for a result: of the worst severity, and there the first by
    rank."""
    by_rank = sorted(ranked(findings), key=lambda finding: rank_of(severity_of(finding)))
    return [f for f in by_rank if (f.oracle, severity_of(f)) == (by_rank[0].oracle, severity_of(by_rank[0]))]


def assess(event: VariantFinished) -> VariantFinished:
    """Return the result with its severity and its signature."""
    text = result_signature(event)
    severity = severity_of(worst_findings(event.findings)[0]) if event.findings else None
    return replace(event, severity=severity, signature=text, signature_id=id_of(text) if text else "")


def result_signature(event: VariantFinished) -> str:
    """Return what results that fail alike have in common, as ``compile-error at inductor: KeyError: '…' in
    _inductor/ir.py:f``.

    A verdict other than FAIL, ERROR and XFAIL speaks by its reason. The text is empty for a green result without
    findings.
    """
    if event.findings and event.verdict in ("FAIL", "ERROR", "XFAIL"):
        return failure_signature(event.findings, event.operator)
    return f"{event.verdict}: {_general(event.reason)}" if event.verdict in RED else ""


def failure_signature(findings: Sequence[Finding], operator: str) -> str:
    """Return the signature of a failure by its findings, of which there is one at least."""
    return _of_finding(worst_findings(findings)[0], operator)


def id_of(signature: str) -> str:
    """Return the name of a signature: the first 8 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(signature.encode("utf-8", "backslashreplace")).hexdigest()[:8]


def _of_finding(finding: Finding, operator: str) -> str:
    """Return oracle, stage, exception and frame. The operator stands where no message and no frame tells failures
    apart.

    A finding that is worth less than its oracle's has none: a view that is left out gives the same object, whichever
    view it is.
    """
    error = finding.error or {}
    row = row_of(finding.oracle)
    origin = error.get("origin") or {"type": error.get("type"), "message": error.get("message")}
    kind, message = str(origin.get("type") or ""), str(origin.get("message") or "") if row.message else ""
    missing = _MISSING.match(finding.message[:_READ]) if finding.oracle == "missing-error" else None
    if missing is not None:
        kind, message = missing[1], missing[2] or ""
    usual = severity_of(finding) == row.severity
    named = bool(operator) and usual and not row.message and not origin.get("frame")
    text = finding.oracle if usual else f"{finding.oracle} ({finding.severity})"
    way = next((way for way in (BEFORE, BEHIND) if operator.startswith(way)), "of ")
    text += f" {way}{plain_form(operator.removeprefix(way))}" * named + f" at {finding.stage}" * bool(finding.stage)
    text = ": ".join(filter(None, (text, kind, _general(message))))
    return text + (f" in {origin['frame']}" if origin.get("frame") else "")


def _general(message: str) -> str:
    """Return the telling line of a message without what differs between shapes, dtypes and names."""
    return _EMPTY.sub("(…)", pattern_of(_DTYPES.sub("dtype", message[:_READ])))
