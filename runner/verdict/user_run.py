"""The row ``as-user`` of the ladder: the variant with torch's own settings. It has no say in the stage."""

from __future__ import annotations

from collections.abc import Sequence

from runner.contract.finding import Finding
from runner.contract.oracles import row_of
from runner.engine.messages import Outcome
from runner.verdict.policy import headline, ranked

AS_USER = "as-user"


def is_answer(outcome: Outcome, findings: Sequence[Finding], first: Finding) -> bool:
    """Return whether a run as a user says anything about a failure whose main finding is ``first``.

    Torch's own pool of compile processes takes time and memory, so that a limit counts only where ``first`` is one of
    behaviour.
    """
    limit = any(row_of(finding.oracle).limit for finding in findings)
    return (outcome.ended == "result" and not outcome.record.trust) or (
        bool(findings) and (not limit or row_of(first.oracle).group == "behaviour")
    )


def note_of(findings: Sequence[Finding], first: Finding) -> str:
    """Return the note for a user who does not see the failure; empty for one who sees a failure of its kind."""
    if not findings:
        return 'under torch\'s own settings this passes (docs/judging.md, "Settings")'
    if row_of(first.oracle).group in {row_of(finding.oracle).group for finding in findings}:
        return ""
    return f"under torch's own settings this fails in another way: {headline(ranked(findings)[0])}"
