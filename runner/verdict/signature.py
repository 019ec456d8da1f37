"""When two failures count as one: stage, oracle, exception class, and the message without what varies between sightings.

Two other comparisons differ on purpose. ``session.retries`` compares how whole runs ended, without stages and messages.
``diagnose.similar`` scores how alike two failures are, and compares operators too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.record.events import Finding
from runner.verdict.policy import ranked
from runner.worker.pattern import mark_of


@dataclass(frozen=True, slots=True)
class FailureSignature:
    """The identity of a failure. ``error`` is the class of the exception, ``pattern`` its message as ``pattern_of`` makes it."""

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
