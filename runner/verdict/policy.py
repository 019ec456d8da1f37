"""Policy: what findings mean, given what the case expects and what the ledger knows.

The row ``as-user`` of the ladder is the variant with torch's own settings. It has no say in the stage.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from functools import lru_cache

from runner.cases.model import THREADS, Backend, Known, Variant
from runner.cases.operator_names import operators_like
from runner.cases.patterns import matches_anywhere
from runner.cases.suites import LEDGER
from runner.cases.versions import matches
from runner.contract.finding import Finding
from runner.contract.job import Trust
from runner.contract.oracles import CRASHES, gate_of, row_of
from runner.diagnostics import Span, shown_path
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
    variant: Variant,
    torch: str,
    findings: Sequence[Finding],
    trust: Trust | None,
    use_known: bool = True,
    signature: Collection[str] = (),
) -> Verdict:
    """The verdict of a variant under one torch.

    ``findings`` carry their stages. ``trust`` is the worker's doubt (FLAKY, VACUOUS, INVALID, SKIP with a reason), if
    any. ``signature`` has the names of the failure's, where these are known. Order: an invalid case says nothing about
    a compiler; then findings against the ledger; then doubt; then an entry of the case that did not come true. Of a
    ledger in a file of its own that shows only when all has run.
    """
    doubt = trust and trust.verdict
    assert doubt != "BROKEN", "a harness that failed says nothing about a variant"
    if trust and doubt and doubt in ("INVALID", "SKIP"):
        return Verdict(doubt, trust.reason)
    entries = applying(variant, torch) if use_known else []
    if findings:
        answer = answering(entries, findings, signature)
        if answer is not None:
            return _used(answer, "XFAIL", answer.reason or answer.issue or "")
        first = ranked(unexplained(entries, findings, signature))[0]
        word: Word = "ERROR" if is_crash(first) else "FAIL"
        if entries:
            return _used(entries[0], word, f"{headline(first)}; the ledger expects {_signature(entries[0])}")
        return Verdict(word, headline(first))
    if trust and doubt:
        return Verdict(doubt, trust.reason)
    own = {id(entry) for entry in variant.case.known}
    certain = [entry for entry in entries if id(entry) in own and not shows_sometimes(entry)]
    return surprise(certain[0]) if certain else Verdict("PASS")


def surprise(entry: Known) -> Verdict:
    """Return the verdict of a pass where an entry expects a failure."""
    return _used(entry, "XPASS", f"passes, and the ledger says it fails: {_signature(entry)}")


def applying(variant: Variant, torch: str) -> list[Known]:
    """Return the entries that speak of a variant under a torch, in order.

    Where the forward is judged alone, a pass refutes none: the failure may be one of gradients.
    """
    entries = [entry for entry in variant.known if applies(entry, variant, torch)]
    return [replace(entry, sometimes=True) for entry in entries] if variant.forward_alone else entries


def excuse_wavering(variant: Variant, torch: str, runs: Sequence[Sequence[Finding]]) -> Verdict | None:
    """XFAIL for a variant that fails in some of its processes alone, and each time as an entry with ``sometimes`` says.

    ``runs`` are the findings, with their stages, of each process that failed. None means that no entry expects one of
    them.
    """
    entries = [entry for entry in applying(variant, torch) if shows_sometimes(entry)]
    answers = [answering(entries, findings) for findings in runs]
    if not answers or answers[0] is None or None in answers:
        return None
    return _used(answers[0], "XFAIL", answers[0].reason or answers[0].issue or "")


def answering(entries: Sequence[Known], findings: Sequence[Finding], signature: Collection[str] = ()) -> Known | None:
    """Return the first of the entries that explains one of the findings.

    None if a finding is left unexplained: a second failure is not known.
    """
    if unexplained(entries, findings, signature):
        return None
    return next((entry for entry in entries if any(explains(entry, f, signature) for f in findings)), None)


def unexplained(
    entries: Sequence[Known], findings: Sequence[Finding], signature: Collection[str] = ()
) -> list[Finding]:
    """The findings that none of the entries explains."""
    return [finding for finding in findings if not any(explains(entry, finding, signature) for entry in entries)]


def effects(
    entries: Sequence[Known], findings: Sequence[Finding], signature: Collection[str] = ()
) -> Iterator[tuple[Known, str]]:
    """Yield each of the entries that speak of a failure, with what it met.

    That is ``matched``, ``otherwise`` or ``shadowed`` by an entry before it. A failure that they do not explain counts
    against the first, as in ``decide``.
    """
    if answering(entries, findings, signature) is None:
        for entry in entries:
            yield entry, "otherwise" if entry is entries[0] else "shadowed"
        return
    for entry in entries:
        yield entry, "matched" if any(explains(entry, finding, signature) for finding in findings) else "shadowed"
        findings = unexplained([entry], findings, signature)


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
        (entry.device, (variant.device, variant.device.partition(":")[0])),
        (entry.dtype, (variant.dtype,)),
        (entry.platform, (sys.platform,)),
        (entry.threads, (variant.threads or THREADS,)),
    )
    return (
        all(not wanted or set(wanted) & set(have) for wanted, have in selectors)
        and all(name in variant.params and variant.params[name] == value for name, value in entry.params.items())
        and matches(entry.torch, torch)
        and concerns(entry, variant.backend)
        and speaks_of(entry, variant)
    )


def concerns(entry: Known, backend: Backend) -> bool:
    """Whether an entry may speak of variants under a backend, by ``backend`` and ``stage``."""
    return names_backend(entry, backend) and (entry.stage is None or contains(backend.backend, entry.stage))


def names_backend(entry: Known, backend: Backend) -> bool:
    """Whether ``backend`` of an entry means a backend, by the name in ids or torch's: ``!NAME`` is all but this one."""
    names = {backend.name, backend.backend}
    unwanted = {name[1:] for name in entry.backend if name.startswith("!")}
    wanted = {name for name in entry.backend if not name.startswith("!")}
    return not names & unwanted and (not wanted or bool(names & wanted))


def speaks_of(entry: Known, variant: Variant) -> bool:
    """Whether an entry may speak of the variant's case, by ``case`` and ``operators``."""
    return (not entry.case or _names(entry.case, variant.case.name, variant.case_id)) and (
        not entry.operators or next(operators_like(variant.case, entry.operators), None) is not None
    )


@lru_cache(10_000)
def _names(patterns: tuple[str, ...], name: str, full: str) -> bool:
    """Whether one of the patterns is that of a case's name, or of ``FILE::NAME`` with any folders before it."""
    plain = "|".join(translate(pattern) for pattern in patterns if "::" not in pattern)
    whole = "|".join(f"(?:.*/)?{translate(pattern)}" for pattern in patterns if "::" in pattern)
    return bool((plain and re.match(plain, name)) or (whole and re.match(whole, full)))


def shows_sometimes(entry: Known) -> bool:
    """Return whether a pass is no surprise: the entry says so, or is about what a benchmark chooses."""
    return entry.sometimes or entry.choice is not None


def explains(entry: Known, finding: Finding, signature: Collection[str] = ()) -> bool:
    """Whether a finding is what an entry pins: stage, oracle, exception, a benchmark's choice, and the failure's
    signature, which has these names."""
    error = finding.error or {}
    lines = [*(error.get("chain") or ()), f"{error.get('type', '')}: {error.get('message', '')}", finding.message]
    return (
        (entry.stage is None or finding.stage == entry.stage)
        and (not entry.oracle or finding.oracle in entry.oracle)
        and (entry.choice is None or finding.choice == entry.choice)
        and (entry.signature is None or entry.signature in signature)
        and (entry.error is None or matches_anywhere(entry.error, "\n".join(lines)[:_SEARCHED]))
    )


def _used(entry: Known, word: Word, reason: str) -> Verdict:
    return Verdict(word, reason, entry.issue or entry.reason, entry.span)


def _signature(entry: Known) -> str:
    parts = [" or ".join(entry.oracle) or "a failure"]
    parts += [f"at stage {entry.stage}"] if entry.stage else []
    parts += [f"with {entry.error}"] if entry.error else []
    parts += [f"as {entry.signature!r}"] if entry.signature else []
    parts += [f"by a benchmark ({entry.choice})"] if entry.choice else []
    file = f"{shown_path(entry.span.file)}:" if entry.span.file.endswith(LEDGER) else "line "
    parts += [f"({file}{entry.span.line})"]
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
