"""Results of more than one run of a variant: whether to run it again, whether two runs agree, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runner.contract.job import Job
from runner.contract.oracles import row_of
from runner.engine.messages import Outcome
from runner.record.events import RED, VariantFinished
from runner.verdict.outcomes import describe

ORDER_DEPENDENT = "order-dependent"
"""Label of a variant that did otherwise once nothing had run before it, or nothing ran beside it."""

OPINIONS = 3
"""Processes of its own in which a variant has to pass before what ran before it is to blame for its failure. A compiler
that goes wrong every other time, as one that chooses kernels by their times may, gets through once in eight times."""

PATIENCE = 3.0
"""How many times its limit a process has that must say again what a warm one has said: it starts cold, on a busy
machine."""

CONFIRMED = ("FAIL", "ERROR")
"""Verdicts for which a variant runs again, alone and in a fresh process, before they are reported."""


def again(results: Sequence[VariantFinished], retries: int = 0, stress: int = 1) -> bool:
    """Whether a variant with these results, oldest first, is run once more."""
    last = results[-1]
    if last.verdict == "SKIP":
        return False
    if stress > 1:
        return len(results) < stress
    return last.verdict in RED and len(results) <= retries


def combined(results: Sequence[VariantFinished], stress: int = 1) -> VariantFinished:
    """One result for all: theirs if they agree, else FLAKY, with the first red one's findings.

    Without a red one they agree too: a failure that the ledger expects now and then showed in some, and speaks for all.
    Under ``stress`` the verdicts are counted: none of them ends the attempts, so they show how often the variant is
    red.
    """
    result = _common(results)
    if stress == 1 or result.verdict == "SKIP":
        return result
    return replace(result, tally=dict(Counter(each.verdict for each in results)))


def _common(results: Sequence[VariantFinished]) -> VariantFinished:
    verdicts = Counter(result.verdict for result in results)
    attempts = len(results)
    if len(verdicts) == 1:
        return replace(results[-1], attempts=attempts) if attempts > 1 else results[-1]
    red = next(((number, result) for number, result in enumerate(results, 1) if result.verdict in RED), None)
    if red is None:
        return replace(next((r for r in results if r.verdict == "XFAIL"), results[-1]), attempts=attempts)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    reason = f"{attempts} runs disagree: {counts}; run {red[0]}: {red[1].reason}"
    return replace(red[1], verdict="FLAKY", reason=reason, attempts=attempts)


def machine_made(outcome: Outcome) -> bool:
    """Whether a busy machine may be what ended this job: too slow, too little memory, the kernel's killer."""
    return outcome.ended in ("timeout", "memory") or outcome.signal == "SIGKILL"


def patient_job(first: Outcome, second: Outcome) -> Job | None:
    """Return the second job once more, alone and with more time, if it was too slow or big to say what the first has
    said."""
    if machine_made(first) or not machine_made(second):
        return None
    return replace(second.job, alone=True, timeout=PATIENCE * second.job.timeout)


def own_fault(first: Outcome) -> bool:
    """Whether nobody else can be behind a failure: nothing had run before in its process, and no busy machine ended
    it."""
    return _failed(first) and not first.earlier_jobs


def opinions(first: Outcome) -> int:
    """How many processes of its own must find nothing before that counts more than what one found after others."""
    return OPINIONS if _failed(first) and first.earlier_jobs else 1


def _failed(outcome: Outcome) -> bool:
    """Found something or died, and not for want of time or memory."""
    return (outcome.ended != "result" or bool(outcome.record.findings)) and not machine_made(outcome)


def disagreement(at_first: str, alone: Outcome) -> str:
    """Why a variant is FLAKY of which a process of its own says something else than before."""
    return f"run again in a fresh process: {summary(alone)}; at first: {at_first}"


def wavering(first: Outcome, passed: int, last: Outcome) -> str:
    """Why a variant is FLAKY that passed in ``passed`` processes of its own, and not in the last."""
    return (
        f"in {passed} of {passed + 1} fresh processes it passes, in the last: {summary(last)}; at first, after "
        f"others: {summary(first)}"
    )


def alike(one: Outcome, other: Outcome) -> bool:
    """Whether two outcomes say the same: how they ended, the kinds of findings with their exceptions, the doubt."""
    return _signature(one) == _signature(other)


def _signature(outcome: Outcome) -> tuple[Any, ...]:
    record = outcome.record
    findings = frozenset((_kind(finding.oracle), (finding.error or {}).get("type")) for finding in record.findings)
    return outcome.ended, outcome.signal, findings, record.trust and record.trust.verdict


def _kind(oracle: str) -> str:
    """An oracle, or what two of them have in common: a kernel that reads foreign memory finds a NaN there or a
    number."""
    group = row_of(oracle).group
    return group if group == "values" else oracle


def summary(outcome: Outcome) -> str:
    """One line for people: what an outcome says."""
    if outcome.ended != "result":
        return describe(outcome)
    trust = outcome.record.trust
    oracles = dict.fromkeys(finding.oracle for finding in outcome.record.findings)
    return ", ".join(oracles) or (f"{trust.verdict}: {trust.reason}" if trust else "passes")


def order_note(shared: Outcome, alone: Outcome) -> str:
    """Both orders of an order-dependent variant."""
    before = ", ".join(shared.earlier_jobs[-20:])
    more = f"{len(shared.earlier_jobs) - 20} others, then " if len(shared.earlier_jobs) > 20 else ""
    where = f"in one process after {more}{before}" if before else "beside other jobs"
    return f"{ORDER_DEPENDENT}: {where}: {summary(shared)}; alone in a fresh process: {summary(alone)}"
