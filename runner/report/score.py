"""The conformance of backends as tables for a terminal, as Markdown, as JSON and as a badge.

Every table has a column for each backend. Columns that do not fit the width go on in a further table of the same rows.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runner import __version__
from runner.contract.oracles import gate_of
from runner.quote import markdown_code, markdown_text, shell_words
from runner.report.table import wrap_id
from runner.templates import render_template
from runner.text import draw_table, in_line, one_line, plural
from runner.verdict.score import CREDITS, OUTCOMES, UNCLAIMED, UNIT, Column, Failures, Score, ScoredRun, Tally

SCHEMA = 1
"""The version of ``schema/score.schema.json``."""

# Columns of a terminal that a backend's name and a row's name take, before they go on in the next line.
_HEADING, _NAME = 16, 30
_ROWS = 500  # of a table in Markdown: GitHub cuts a step's summary at 1 MiB
_NONE = "-"

_SHARES: Mapping[str, Callable[[Tally], object]] = {
    "conformance": lambda tally: tally.conformance,
    "weighed": lambda tally: tally.weighed,
    "claim": lambda tally: tally.claim,
    "overall": lambda tally: tally.overall,
}
_MEANINGS = """\
conformance: passes of what was judged; weighed: with the credit of failures, by severity; \
claim: what the backend claims of all variants;
overall: passes of what was judged or is not claimed. Shares are rounded down. \
2/3 of 5: two of three pass, two more are not claimed.
The formula: docs/score.md"""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a name and a cell for each column of the score."""

    title: str
    rows: Sequence[tuple[str, Sequence[str]]]


def names(score: Score) -> list[str]:
    """Return what each column is called: its backend, its torch where a run has several, and the number of its run
    where there are two."""
    several = any(len(torches) > 1 for torches in (_torches(score, run) for run in range(1, len(score.runs) + 1)))
    return [
        column.backend + f" {column.torch}" * several + f" ({column.run})" * (len(score.runs) > 1)
        for column in score.columns
    ]


def _torches(score: Score, run: int) -> list[str]:
    return list(dict.fromkeys(column.torch for column in score.columns if column.run == run))


def tables(score: Score) -> list[Table]:
    """Return all tables. Rows that hold nothing in any column are left out, and so are devices where there is one."""
    columns = score.columns
    totals = [column.total for column in columns]
    shares = [(name, [str(share(tally)) for tally in totals]) for name, share in _SHARES.items()]
    outcomes = [
        (name, [str(tally.count(name)) for tally in totals])
        for name in OUTCOMES
        if any(tally.count(name) for tally in totals)
    ]
    by_device = [column.devices for column in columns]
    needs = dict.fromkeys(need for column in columns for need in column.unclaimed)
    parts = [
        Table("conformance", shares),
        Table("variants", [*outcomes, ("planned", [str(tally.planned) for tally in totals])]),
        Table("not claimed", [(need, [str(column.unclaimed.get(need, 0)) for column in columns]) for need in needs]),
        Table("conformance by family", _shares([column.families for column in columns], sorted)),
        Table("conformance by dtype", _shares([column.dtypes for column in columns])),
        Table(
            "conformance by device",
            _shares(by_device) if len({name for part in by_device for name in part}) > 1 else [],
        ),
        Table(
            "failures by oracle", _counts([column.oracles for column in columns], lambda name: (gate_of(name), name))
        ),
        Table("failures by severity, and the credit of one", _severities(columns)),
    ]
    return [part for part in parts if part.rows]


def _shares(
    parts: Sequence[Mapping[str, Tally]], order: Callable[[Iterable[str]], Iterable[str]] = list
) -> list[tuple[str, list[str]]]:
    """Return ``97.2% 71/73`` for each name and column, with ``of 90`` where 17 more are not claimed."""
    present = dict.fromkeys(name for part in parts for name in part)
    return [(name, [_share(part.get(name)) for part in parts]) for name in order(present)]


def _share(tally: Tally | None) -> str:
    if tally is None or not tally.judged:
        return UNCLAIMED if tally and tally.count(UNCLAIMED) else _NONE
    text = f"{tally.conformance} {tally.conformance.part}/{tally.conformance.whole}"
    return f"{text} of {tally.overall.whole}" if tally.count(UNCLAIMED) else text


def _counts(parts: Sequence[Mapping[str, Failures]], key: Callable[[str], Any]) -> list[tuple[str, list[str]]]:
    present = sorted({name for part in parts for name in part}, key=key)
    return [(name, [_count(part.get(name)) for part in parts]) for name in present]


def _count(failures: Failures | None) -> str:
    if failures is None:
        return "0"
    return f"{failures.variants} ({failures.known} known)" if failures.known else str(failures.variants)


def _severities(columns: Sequence[Column]) -> list[tuple[str, list[str]]]:
    places = [*CREDITS]
    rows = _counts(
        [column.severities for column in columns], lambda name: places.index(name) if name in CREDITS else len(places)
    )
    return [(f"{name or 'unknown'} {CREDITS.get(name, 0)}/{UNIT}", cells) for name, cells in rows]


def notes(score: Score) -> list[str]:
    """Return what a reader must know of the figures, a sentence each."""
    lines = []
    for number, run in enumerate(score.runs, start=1):
        which = f"run {number}" if len(score.runs) > 1 else "the run"
        if run.missing or run.unannounced or not run.whole:
            lines.append(
                f"{which} is not complete: {plural(run.missing + run.unannounced, 'variant')} without a verdict, "
                "which no share counts"
            )
        if run.shard:
            lines.append(f"{which} is shard {run.shard} of a larger one; runner merge joins the shards")
    if len(score.columns) > 1 and score.shared.part < score.shared.whole:
        lines.append(f"the columns do not have the same variants: all have {score.shared.part} of {score.shared.whole}")
    return [one_line(line) for line in lines]


def _titles(score: Score) -> list[str]:
    """Return a line for each run: what was run, under which torch, when, and by which command."""
    lines = []
    for number, run in enumerate(score.runs, start=1):
        torches = ", ".join(_torches(score, number)) or _NONE
        where = f"torch {torches}, runner {run.version}, {run.started} (run {run.run}, {run.log})"
        lines.append(one_line(f"{number}: {where}" if len(score.runs) > 1 else where, 400))
    return lines


def _command(run: ScoredRun) -> str:
    return one_line(shell_words(run.argv), 400)


def render(score: Score, width: int) -> str:
    """Return the tables as text of at most ``width`` columns, as far as names allow it."""
    head = []
    for title, run in zip(_titles(score), score.runs, strict=True):
        head += [*textwrap.wrap(title, width, break_on_hyphens=False), _command(run)]
    parts = ["\n".join(head)]
    heads = ["\n".join(wrap_id(in_line(name), _HEADING)) for name in names(score)]
    parts += [f"{table.title}\n{_drawn(table, heads, width)}" for table in tables(score)]
    remarks = [*notes(score), " ".join(_MEANINGS.split())]
    parts.append("\n".join(line for remark in remarks for line in textwrap.wrap(remark, width)))
    return "\n\n".join(parts)


def _drawn(table: Table, heads: Sequence[str], width: int) -> str:
    labels = ["\n".join(wrap_id(in_line(name), _NAME)) for name, _ in table.rows]
    widest = [
        max(map(len, [*head.split("\n"), *(cells[n] for _, cells in table.rows)])) + 4 for n, head in enumerate(heads)
    ]
    room = width - max(len(line) for label in labels for line in label.split("\n"))
    drawings = []
    start = 0
    while start < len(heads):
        end = start + 1
        while end < len(heads) and sum(widest[start : end + 1]) <= room:
            end += 1
        body = [[label, *cells[start:end]] for label, (_, cells) in zip(labels, table.rows, strict=True)]
        drawings.append(draw_table(body, ["", *heads[start:end]], right=True))
        start = end
    return "\n\n".join(drawings)


def render_markdown(score: Score) -> str:
    """Return the tables as Markdown, for a page, a pull request or a step's summary."""
    heads = " | ".join(markdown_text(name) for name in names(score))
    lines = ["## Conformance", ""]
    for title, run in zip(_titles(score), score.runs, strict=True):
        lines.append(f"* {markdown_text(title)}: {markdown_code(_command(run))}")
    lines += [f"* {markdown_text(note)}" for note in notes(score)]
    for table in tables(score):
        lines += ["", f"### {table.title}", "", f"| | {heads} |", "| --- |" + " ---: |" * len(score.columns)]
        lines += [
            f"| {markdown_text(name)} | {' | '.join(map(markdown_text, cells))} |" for name, cells in table.rows[:_ROWS]
        ]
        lines += ["", f"and {len(table.rows) - _ROWS:,} more rows"] if len(table.rows) > _ROWS else []
    return "\n".join([*lines, "", " ".join(_MEANINGS.split())]) + "\n"


def to_dict(score: Score) -> dict[str, Any]:
    """Return it as ``schema/score.schema.json`` describes."""
    return {
        "schema": SCHEMA,
        "runner": __version__,
        "credits": {name: credit / UNIT for name, credit in CREDITS.items()},
        "runs": [{**asdict(run), "argv": [*run.argv]} for run in score.runs],
        "columns": [_column(column) for column in score.columns],
        "shared": {"part": score.shared.part, "whole": score.shared.whole},
        "notes": notes(score),
    }


def _column(column: Column) -> dict[str, Any]:
    parts = {"families": column.families, "dtypes": column.dtypes, "devices": column.devices}
    failures = {"oracles": column.oracles, "severities": column.severities}
    return {
        "run": column.run,
        "backend": column.backend,
        "torch": column.torch,
        "total": _tally(column.total),
        **{name: {key: _tally(tally) for key, tally in part.items()} for name, part in parts.items()},
        **{name: {key: asdict(value) for key, value in part.items()} for name, part in failures.items()},
        "unclaimed": dict(column.unclaimed),
    }


def _tally(tally: Tally) -> dict[str, Any]:
    shares = {name: getattr(tally, name) for name in _SHARES}
    return {
        "planned": tally.planned,
        "judged": tally.judged,
        "outcomes": dict(tally.outcomes),
        **{
            name: {"part": share.part, "whole": share.whole, "percent": share.percent} for name, share in shares.items()
        },
    }


@dataclass(frozen=True, slots=True)
class Badge:
    """A row of the picture: words, and the widths in pixels of what passes, of what was judged, and of all."""

    y: int
    label: str
    text: str
    passed: float
    judged: float


_ROW, _LABEL, _VALUE = 28, 260, 260  # pixels: height of a badge, and the widths of its halves


def badge(score: Score) -> str:
    """Return a badge for each column as an SVG picture: conformance and claim, over a bar of all that was judged or is
    not claimed."""
    rows = [
        _badge(column, name, n * _ROW, score)
        for n, (column, name) in enumerate(zip(score.columns, names(score), strict=True))
    ]
    text = render_template(
        "score.svg.j2", badges=rows, label_width=_LABEL, value_width=_VALUE, row=_ROW, height=len(rows) * _ROW
    )
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + text


def _badge(column: Column, name: str, y: int, score: Score) -> Badge:
    tally, run = column.total, score.runs[column.run - 1]
    complete = run.whole and not run.shard and not run.missing and not run.unannounced
    text = f"{tally.conformance} of {tally.claim} claimed" + ("" if complete else ", incomplete")
    whole = tally.overall.whole or 1
    return Badge(y, one_line(name, 36), text, _VALUE * tally.overall.part / whole, _VALUE * tally.judged / whole)
