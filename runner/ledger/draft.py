"""A ledger in a file of its own, drafted from a run: an entry for each group of failures with one signature."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

from runner.cases.model import Variant
from runner.cases.operator_names import operators_like
from runner.cases.suites import DRAFT
from runner.contract.oracles import gate_of
from runner.files import read_bytes
from runner.ledger.edit import Unfit, append_entries, block_text
from runner.ledger.review import Judged, Run
from runner.record.events import grouped
from runner.text import plural
from runner.verdict.operators import BEFORE, BEHIND
from runner.verdict.policy import answering, applying

_HEAD = """\
# Known failures, drafted by runner known --write. Say in each reason why it fails, or name an issue:.
known:
"""


def draft_entries(run: Run) -> list[dict[str, Any]]:
    """Return an entry for each backend and signature of the failures that no entry explains."""
    failures = (judged for judged in run.judged if judged.verdict in ("FAIL", "ERROR") and any(judged.signature))
    groups = grouped(
        (judged for judged in failures if _is_unknown(judged)),
        lambda judged: (judged.variant.backend.name, judged.signature[0]),
    )
    return [_entry(backend, signature, members) for (backend, signature), members in groups.items()]


def with_entries(path: str, entries: Sequence[dict[str, Any]], variants: Sequence[Variant]) -> str:
    """Return the text of a ledger with more entries: of the file at ``path``, or of a new one where that is empty.

    Raises Unfit where they cannot be added. The file's own entries are among those of ``variants``.
    """
    if not path:
        return _HEAD + block_text(entries, "  ") + "\n"
    try:
        text = read_bytes(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unfit(str(error)) from None
    file = os.path.realpath(path)
    spans = [entry.span for variant in variants[:1] for entry in variant.ledger if entry.span.file == file]
    if not spans:
        head, empty, tail = text.partition("known: []")
        if not empty:
            raise Unfit("it has no entry behind which others could stand: write known: [] there")
        return f"{head}known:\n{block_text(entries, '  ')}{tail}"
    return append_entries(text, max(spans, key=lambda span: (span.line, span.column)), entries)


def _is_unknown(judged: Judged) -> bool:
    return answering(applying(judged.variant, judged.torch), judged.findings, judged.signature) is None


def _entry(backend: str, signature: str, failures: Sequence[Judged]) -> dict[str, Any]:
    variants = [judged.variant for judged in failures]
    findings = [finding for judged in failures for finding in judged.findings]
    stages = {finding.stage for finding in findings}
    operators = _operators(failures)
    cases = dict.fromkeys(glob.escape(f"{os.path.basename(v.where)}::{v.case.name}") for v in variants)
    return {
        "case": None if operators else [*cases],
        "operators": operators or None,
        "stage": stages.pop() if len(stages) == 1 else None,
        "oracle": sorted({finding.oracle for finding in findings}, key=gate_of),
        "signature": signature,
        "backend": backend,
        "dtype": [*dict.fromkeys(variant.dtype for variant in variants)],
        "reason": f"{DRAFT}: {plural(len(failures), 'variant')}, such as {variants[0].id}",
    }


def _operators(failures: Sequence[Judged]) -> list[str]:
    """Return the operator that the signature names, where each of the cases calls it."""
    names = {judged.operator.removeprefix(BEFORE).removeprefix(BEHIND) for judged in failures}
    patterns = tuple(names) if len(names) == 1 else ()
    calls = (next(operators_like(judged.variant.case, patterns), None) for judged in failures)
    return [*patterns] if patterns and all(calls) else []
