"""The known failures of a run's first page: what became of each entry of the ledger."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.diagnostics import Span, shown_file
from runner.ledger.review import RED_STATES, STATES, Entry, read_run, review
from runner.record.events import RED, Event, VariantFinished, VariantPlanned
from runner.report.site.declared import Declared
from runner.report.site.results import Results
from runner.text import in_line, one_line, plural

_MEMBERS = 5
_ADDRESS = re.compile(r"https://[\w./?=%~:#&+-]+", re.ASCII)


def review_ledger(events: Sequence[Event], declared: Declared) -> list[Entry]:
    """Return every entry of the run's cases as their files hold it now, with what became of it in the run.

    The log may come from another folder, so its files are looked for here. Without files there is no entry.
    """
    if not any(variant.case.known for variant in declared.every):
        return []
    files: dict[tuple[str, str], str] = {}  # many variants are of few files
    here: list[Event] = []
    for event in events:
        if isinstance(event, VariantPlanned | VariantFinished):
            key = event.file, event.case.partition("::")[0]
            files[key] = files[key] if key in files else declared.local(event.file, event)
            event = replace(event, file=files[key])
        here.append(event)
    return review(declared.every, read_run(declared.every, here))


def ledger_parts(results: Results, entries: Sequence[Entry], declared: Declared, most: int) -> dict[str, Any]:
    """Return what the page shows: a row for each entry that the run met or that calls for action, and how many others there are.

    Args:
        results: of the run.
        entries: of ``review_ledger``.
        declared: what the files of the cases say.
        most: rows.
    """
    met: dict[tuple[str, str], list[VariantFinished]] = {}
    for event in results.finished:
        if event.known or event.entry:
            met.setdefault((_local(event, declared), event.known or ""), []).append(event)
    states = {_place(entry): entry for entry in entries}
    rows = [_row(place, known, events, states.get(place), results) for (place, known), events in met.items()]
    places = {place for place, _ in met}
    others = [entry for entry in entries if _place(entry) not in places]
    rows += [_row(_place(entry), entry.known.issue or entry.known.reason or "", [], entry, results) for entry in others if entry.state in RED_STATES]  # fmt: skip
    rows.sort(key=lambda row: (not row["red"], STATES.index(row["state"]) if row["state"] in STATES else len(STATES)))
    quiet = Counter(entry.state for entry in others if entry.state not in RED_STATES)
    return {
        "rows": rows[:most],
        "more": max(0, len(rows) - most),
        "total": plural(len(rows), "entry", "entries"),
        "quiet": ", ".join(f"{count} {state}" for state, count in sorted(quiet.items())),
    }


def _row(
    place: str, known: str, met: Sequence[VariantFinished], entry: Entry | None, results: Results
) -> dict[str, Any]:
    counts = Counter(event.verdict for event in met)
    cases = [case.name for case in entry.cases[:_MEMBERS]] if entry and not met else []
    return {
        "entry": one_line(_shown(place), 300),
        "known": one_line(known, 300),
        "address": known if _ADDRESS.fullmatch(known) and len(known) <= 300 else "",
        "state": entry.state if entry else "",
        "detail": one_line(entry.detail, 300) if entry else "",
        "verdicts": ", ".join(f"{count} {in_line(verdict)}" for verdict, count in counts.items()),
        "red": any(event.verdict in RED for event in met) or (entry is not None and entry.state in RED_STATES),
        "members": [{"id": one_line(name, 300), "page": ""} for name in cases] or [_member(event, results) for event in met[:_MEMBERS]],
        "more": max(0, (len(met) or len(entry.cases if entry else ())) - _MEMBERS),
    }  # fmt: skip


def _member(event: VariantFinished, results: Results) -> Mapping[str, str]:
    return {"id": one_line(event.id, 400), "page": results.pages.get(event.key, "")}


def _place(entry: Entry) -> str:
    span = entry.known.span
    return f"{span.file}:{span.line}:{span.column}"


def _local(event: VariantFinished, declared: Declared) -> str:
    """The place of a result's entry, its file as it lies on this machine; as the log names it where it does not."""
    span, _ = Span.of(event.entry or "") or (None, "")
    return f"{declared.local(span.file, event) or span.file}:{span.line}:{span.column}" if span else event.entry or ""


def _shown(place: str) -> str:
    span, _ = Span.of(place) or (None, "")
    return f"{shown_file(span.file)}:{span.line}:{span.column}" if span else place
