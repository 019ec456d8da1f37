"""What makes two failures the same one: stage, oracle, exception class, and the message without what varies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.record.events import Finding
from runner.verdict.policy import ranked
from runner.worker.pattern import mark_of
from runner.worker.pattern import pattern_of as pattern_of


@dataclass(frozen=True, slots=True)
class Signature:
    """A failure's own mark. ``error`` is the class of the exception, ``pattern`` its message as ``pattern_of`` makes it."""

    oracle: str
    stage: str | None
    error: str = ""
    pattern: str = ""

    def __str__(self) -> str:
        """For people: ``compile-error at inductor: InductorError: AssertionError``."""
        told = f"{self.oracle} at {self.stage}" if self.stage else self.oracle
        return ": ".join(filter(None, (told, self.error, self.pattern)))


def signature_of(finding: Finding) -> Signature:
    """The mark of a finding that knows its stage."""
    oracle, error, pattern = mark_of(finding.oracle, finding.error)
    return Signature(oracle, finding.stage, error, pattern)


def speaking(findings: Sequence[Finding]) -> Signature | None:
    """The mark of the finding that speaks for a variant; None where there is none."""
    return signature_of(ranked(findings)[0]) if findings else None


def shows(signature: Signature, findings: Sequence[Finding]) -> bool:
    """Whether one of the findings has that mark. The stage counts where both name one."""
    return any(_same(signature, signature_of(finding)) for finding in findings)


def _same(wanted: Signature, found: Signature) -> bool:
    stages = wanted.stage is None or found.stage is None or wanted.stage == found.stage
    exact = (wanted.oracle, wanted.error, wanted.pattern) == (found.oracle, found.error, found.pattern)
    return stages and exact
