"""A run held against a ledger that it did not have: the failures that the ledger explains become XFAIL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runner.cases.model import Known
from runner.exit_codes import UsageError
from runner.ledger.review import read_run
from runner.record.events import Event, VariantFinished
from runner.report.site.results import declared_of
from runner.verdict.policy import answering, applying


def with_ledger(events: Sequence[Event], entries: Sequence[Known]) -> list[Event]:
    """Return the events with XFAIL for each failure that an entry explains. The files of the cases are read again.

    Raises:
        UsageError: they cannot be read here, so that nobody knows which case an entry means.
    """
    if not entries:
        return [*events]
    declared = declared_of(events)
    if not declared.every:
        raise UsageError(f"--ledger: which cases an entry means is not known here: {declared.problem}")
    variants = [replace(variant, ledger=(*variant.ledger, *entries)) for variant in declared.every]
    known = {
        (judged.id, judged.torch): answer
        for judged in read_run(variants, declared.localized(events)).judged
        if judged.verdict in ("FAIL", "ERROR")
        and (answer := answering(applying(judged.variant, judged.torch), judged.findings, judged.signature))
    }
    return [_excused(event, known.get(event.key)) if isinstance(event, VariantFinished) else event for event in events]


def _excused(event: VariantFinished, entry: Known | None) -> VariantFinished:
    return event if entry is None else replace(event, verdict="XFAIL", known=entry.issue or entry.reason)
