"""The ledger as a table: entries by state, what to do about them, totals."""

from __future__ import annotations

import re
from collections.abc import Sequence

from runner.diagnostics import shown_path
from runner.ledger.review import RED_STATES, STATES, Entry
from runner.text import draw_table, in_line, one_line, plural

_ISSUE = re.compile(r"https?://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)/?$")


def render_ledger(entries: Sequence[Entry], judged: bool) -> str:
    """Return the whole report. Without a run (``judged`` is false) there are no states."""
    ordered = sorted(entries, key=lambda e: STATES.index(e.state)) if judged else entries
    headers = ["where", "case", "torch", "stage", "oracles", "error", "issue or reason", "review"]
    rows = [([entry.state] if judged else []) + _row(entry) for entry in ordered]
    parts = [draw_table(rows, (["state"] if judged else []) + headers)]
    remarks = [f"{e.known.span}: {e.state}: {e.detail}" for e in ordered if e.state in RED_STATES]
    remarks += [f"{e.known.span}: was to be looked at again by {e.known.review}" for e in ordered if e.due]
    if remarks:
        parts.append("\n".join(map(in_line, remarks)))
    parts.append(_totals(entries, judged))
    return "\n\n".join(parts)


def _row(entry: Entry) -> list[str]:
    known = entry.known
    names = [case.name for case in entry.cases]
    why = f"{known.why}: " if known.why != "bug" else ""
    why += "sometimes: " * known.sometimes
    cells = [
        f"{shown_path(known.span.file)}:{known.span.line}",
        names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
        known.torch or "any",
        known.stage or "any",
        " ".join(known.oracle) or "any",
        one_line(known.error or "", 40),
        one_line(why + (_ISSUE.sub(r"\1#\2", known.issue) if known.issue else known.reason or ""), 48),
        f"{known.review or ''}{' due' if entry.due else ''}",
    ]
    return [in_line(cell) for cell in cells]


def _totals(entries: Sequence[Entry], judged: bool) -> str:
    counts = {state: sum(entry.state == state for entry in entries) for state in STATES}
    parts = [f"{count} {state}" for state, count in counts.items() if count and judged]
    due = sum(entry.due for entry in entries)
    parts += [f"review due for {due}"] if due else []
    total = plural(len(entries), "entry", "entries")
    return f"{total}: {', '.join(parts)}" if parts else total
