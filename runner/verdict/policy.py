"""Policy: what findings mean, given what the case expects and what the ledger knows.

The row ``as-user`` of the ladder is the variant with torch's own settings. It has no say in the stage.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from runner.cases.model import THREADS, Known, Variant
from runner.cases.patterns import matches_anywhere
from runner.cases.versions import matches
from runner.contract.finding import Finding
from runner.contract.job import Trust
from runner.contract.oracles import CRASHES, gate_of, row_of
from runner.diagnostics import Span
from runner.engine.messages import Outcome
from runner.record.events import Word
from runner.verdict.stages import contains

COMPILER_OWN = ("BackendCompilerFailed", "InductorError", "InternalTorchDynamoError", "Unsupported")
"""Exceptions by which a compiler says that it failed itself."""

_SEARCHED = 16_384
"""Characters of an exception in which the pattern of an entry is looked for: a worker sends no more than a quarter."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A word, one line why, and if an entry of the ledger was used, its issue or reason and its place.

    ``unclaimed`` is what a variant that is SKIP needs and its backend does not claim.
    """

    word: Word
    reason: str = ""
    known: str | None = None
    entry: Span | None = None
    unclaimed: str = ""


def decide(
    variant: Variant, torch: str, findings: Sequence[Finding], trust: Trust | None, use_known: bool = True
) -> Verdict:
    """The verdict of a variant under one torch.

    ``findings`` carry their stages. ``trust`` is the worker's doubt (FLAKY, VACUOUS, INVALID, SKIP with a reason), if
    any. Order: an invalid case says nothing about a compiler; then findings against the ledger; then doubt; then an
    entry that did not come true.
    """
    doubt = trust and trust.verdict
    assert doubt != "BROKEN", "a harness that failed says nothing about a variant"
    if trust and doubt and doubt in ("INVALID", "SKIP"):
        return Verdict(doubt, trust.reason)
    entries = [k for k in variant.case.known if applies(k, variant, torch)] if use_known else []
    if findings:
        answer = answering(entries, findings)
        if answer is not None:
            return _used(answer, "XFAIL", answer.reason or answer.issue or "")
        first = ranked(unexplained(entries, findings))[0]
        word: Word = "ERROR" if is_crash(first) else "FAIL"
        if entries:
            return _used(entries[0], word, f"{headline(first)}; the ledger expects {_signature(entries[0])}")
        return Verdict(word, headline(first))
    if trust and doubt:
        return Verdict(doubt, trust.reason)
    certain = [entry for entry in entries if not shows_sometimes(entry)]
    if certain:
        return _used(certain[0], "XPASS", f"passes, and the ledger says it fails: {_signature(certain[0])}")
    return Verdict("PASS")


def excuse_wavering(variant: Variant, torch: str, runs: Sequence[Sequence[Finding]]) -> Verdict | None:
    """XFAIL for a variant that fails in some of its processes alone, and each time as an entry with ``sometimes`` says.

    ``runs`` are the findings, with their stages, of each process that failed. None means that no entry expects one of
    them.
    """
    entries = [k for k in variant.case.known if shows_sometimes(k) and applies(k, variant, torch)]
    answers = [answering(entries, findings) for findings in runs]
    if not answers or answers[0] is None or None in answers:
        return None
    return _used(answers[0], "XFAIL", answers[0].reason or answers[0].issue or "")


def answering(entries: Sequence[Known], findings: Sequence[Finding]) -> Known | None:
    """Return the first of the entries that explains one of the findings.

    None if a finding is left unexplained: a second failure is not known.
    """
    if unexplained(entries, findings):
        return None
    return next((entry for entry in entries if any(explains(entry, f) for f in findings)), None)


def unexplained(entries: Sequence[Known], findings: Sequence[Finding]) -> list[Finding]:
    """The findings that none of the entries explains."""
    return [finding for finding in findings if not any(explains(entry, finding) for entry in entries)]


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """The findings, the one that speaks for the variant first."""
    return sorted(findings, key=lambda f: gate_of(f.oracle))


def is_crash(finding: Finding) -> bool:
    """Whether the compiled run gave no answer."""
    chain = (finding.error or {}).get("chain") or ()
    return finding.oracle in CRASHES or (finding.oracle == "error-type" and any(name in COMPILER_OWN for name in chain))


def headline(finding: Finding) -> str:
    """One line: the oracle, where, and what."""
    place = f" at {finding.path}" if finding.path else ""
    return f"{finding.oracle}{place}: {finding.message.splitlines()[0] if finding.message else ''}"


def applies(entry: Known, variant: Variant, torch: str) -> bool:
    """Whether an entry speaks of this variant: all that it names must match."""
    selectors = (
        (entry.backend, (variant.backend.name, variant.backend.backend)),
        (entry.device, (variant.device, variant.device.partition(":")[0])),
        (entry.dtype, (variant.dtype,)),
        (entry.platform, (sys.platform,)),
        (entry.threads, (variant.threads or THREADS,)),
    )
    return (
        all(not wanted or set(wanted) & set(have) for wanted, have in selectors)
        and all(name in variant.params and variant.params[name] == value for name, value in entry.params.items())
        and (entry.stage is None or contains(variant.backend.backend, entry.stage))
        and matches(entry.torch, torch)
    )


def shows_sometimes(entry: Known) -> bool:
    """Return whether a pass is no surprise: the entry says so, or is about what a benchmark chooses."""
    return entry.sometimes or entry.choice is not None


def explains(entry: Known, finding: Finding) -> bool:
    """Whether a finding has the signature that an entry pins: stage, oracle, exception, a benchmark's choice."""
    error = finding.error or {}
    lines = [*(error.get("chain") or ()), f"{error.get('type', '')}: {error.get('message', '')}", finding.message]
    return (
        (entry.stage is None or finding.stage == entry.stage)
        and (not entry.oracle or finding.oracle in entry.oracle)
        and (entry.choice is None or finding.choice == entry.choice)
        and (entry.error is None or matches_anywhere(entry.error, "\n".join(lines)[:_SEARCHED]))
    )


def _used(entry: Known, word: Word, reason: str) -> Verdict:
    return Verdict(word, reason, entry.issue or entry.reason, entry.span)


def _signature(entry: Known) -> str:
    parts = [" or ".join(entry.oracle) or "a failure"]
    parts += [f"at stage {entry.stage}"] if entry.stage else []
    parts += [f"with {entry.error}"] if entry.error else []
    parts += [f"by a benchmark ({entry.choice})"] if entry.choice else []
    parts += [f"(line {entry.span.line})"]
    return " ".join(parts)


AS_USER = "as-user"


def counts_as_user(outcome: Outcome, findings: Sequence[Finding], first: Finding) -> bool:
    """Return whether a run as a user says anything about a failure whose main finding is ``first``.

    Torch's own pool of compile processes takes time and memory, so that a limit counts only where ``first`` is one of
    behaviour.
    """
    limit = any(row_of(finding.oracle).limit for finding in findings)
    return (outcome.ended == "result" and not outcome.record.trust) or (
        bool(findings) and (not limit or row_of(first.oracle).group == "behaviour")
    )


def as_user_note(findings: Sequence[Finding], first: Finding) -> str:
    """Return the note for a user who does not see the failure; empty for one who sees a failure of its kind."""
    if not findings:
        return 'under torch\'s own settings this passes (docs/judging.md, "Settings")'
    if row_of(first.oracle).group in {row_of(finding.oracle).group for finding in findings}:
        return ""
    return f"under torch's own settings this fails in another way: {headline(ranked(findings)[0])}"
