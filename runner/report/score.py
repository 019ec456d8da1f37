"""How far the backends of a run conform: which share of their variants computes what eager computes.

That as tables for a terminal, as Markdown, as JSON and as a badge. Every table has a column for each backend. Columns
that do not fit the width go on in a further table of the same rows.

Of the variants of a backend, or of one family or dtype of them::

    passed       PASS and XPASS; of a variant whose gradients are not claimed that is a pass of its forward
    judged       passed, XFAIL, FAIL, ERROR, VACUOUS, FLAKY and INVALID
    conformance  passed / judged
    weighed      (passed + the credit of each failure) / judged
    claim        (planned - unclaimed - passed in the forward alone) / planned
    overall      passed, gradients included / (judged + unclaimed)
    delegated    passed of which the backend's own code computed an operator / passed of which this was counted

``unclaimed`` variants are SKIP because the backend does not claim what they need. Other SKIP and NOT-RUN variants, and
those without a result, are in ``planned`` alone. A known failure (XFAIL) is a failure. A result that proves nothing
(VACUOUS, FLAKY, INVALID) is not a pass.

The credit of a failure (XFAIL, FAIL, ERROR) is the place of its severity, from 0, by the number of severities: a wrong
result has none, a bound on graphs 6/7. What proves nothing has none. Shares are kept as whole numbers, so no rounding
enters them.
"""

from __future__ import annotations

import os.path
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from runner import __version__
from runner.cases.suites import SPEC, SUITE
from runner.contract.oracles import METADATA, OTHER_NUMBERS, SEVERITIES, gate_of
from runner.exit_codes import UsageError
from runner.quote import markdown_code, markdown_text, shell_words
from runner.record.events import (
    FORWARD_ALONE,
    Event,
    VariantFinished,
    VariantPlanned,
    end_of,
    grouped,
    start_of,
    variants_of,
)
from runner.report.delegation import delegated_passes
from runner.report.price import price_lines
from runner.report.table import wrap_id
from runner.templates import render_template
from runner.text import draw_table, in_line, one_line, plural
from runner.verdict.signature import severity_of, worst_findings

UNCLAIMED = "unclaimed"
FORWARD = "forward"

OUTCOMES: Mapping[str, str] = {
    "PASS": "computes what eager computes",
    "XPASS": "passes, and the ledger says that it fails",
    FORWARD: "computes its forward as eager does; the backend claims no gradients",
    "XFAIL": "a known failure: the ledger expects it",
    "FAIL": "a wrong answer",
    "ERROR": "no answer",
    "VACUOUS": "proves nothing: nothing was compared",
    "FLAKY": "proves nothing: results differ from run to run",
    "INVALID": "proves nothing: eager itself fails",
    UNCLAIMED: "the backend does not claim what it needs",
    "SKIP": "cannot run here",
    "NOT-RUN": "has no result",
}
"""What becomes of a variant, with its meaning."""

_REASONS = 2  # of an outcome that a message names
_NAMED = 10  # backends of a log that a message names

WHOLE = ("PASS", "XPASS")
PASSED = (*WHOLE, FORWARD)
FAILED = ("XFAIL", "FAIL", "ERROR")
UNPROVEN = ("VACUOUS", "FLAKY", "INVALID")
JUDGED = (*PASSED, *FAILED, *UNPROVEN)

_STEPS = [severity for severity in SEVERITIES if severity != OTHER_NUMBERS]

CREDITS: Mapping[str, int] = {
    severity: _STEPS.index(METADATA if severity == OTHER_NUMBERS else severity) for severity in SEVERITIES
}
"""What a failure of a severity keeps of a pass, in parts of ``UNIT``: of other random numbers, what metadata keep."""

UNIT = len(_STEPS)
"""The credit of a pass."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, both counted."""

    part: int
    whole: int

    @property
    def percent(self) -> float | None:
        """Return the share in per cent, rounded down to one digit: only all of it is 100. None of nothing."""
        return self.part * 1000 // self.whole / 10 if self.whole else None

    def __str__(self) -> str:
        """Return ``97.2%``; a dash of nothing."""
        return "-" if self.percent is None else f"{self.percent:.1f}%"


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of a set of variants: how many have each outcome, and the credit of their failures in parts of
    ``UNIT``."""

    outcomes: Mapping[str, int]
    credit: int = 0
    delegated: Share = Share(0, 0)
    """Passes of which the backend's own code computed something; of a backend of torch's own nothing is counted."""

    def count(self, *outcomes: str) -> int:
        """Return how many variants have one of these outcomes."""
        return sum(self.outcomes.get(outcome, 0) for outcome in outcomes)

    @property
    def planned(self) -> int:
        """Return how many variants there are."""
        return sum(self.outcomes.values())

    @property
    def judged(self) -> int:
        """Return how many variants have a verdict on the backend."""
        return self.count(*JUDGED)

    @property
    def conformance(self) -> Share:
        """Return what passes of what was judged."""
        return Share(self.count(*PASSED), self.judged)

    @property
    def weighed(self) -> Share:
        """Return the same with the credit of failures."""
        return Share(UNIT * self.count(*PASSED) + self.credit, UNIT * self.judged)

    @property
    def claim(self) -> Share:
        """Return what the backend claims of all that was planned."""
        return Share(self.planned - self.count(UNCLAIMED, FORWARD), self.planned)

    @property
    def overall(self) -> Share:
        """Return what passes of what was judged or is not claimed."""
        return Share(self.count(*WHOLE), self.judged + self.count(UNCLAIMED))


@dataclass(frozen=True, slots=True)
class Failures:
    """How many variants fail in one way, and how many of them the ledger knows."""

    variants: int
    known: int


@dataclass(frozen=True, slots=True)
class Column:
    """One backend under one torch in one run. ``run`` counts from 1. ``unclaimed`` says what is needed, and by how many
    variants.

    ``labels`` are the ids of its variants without the backend.
    """

    run: int
    backend: str
    torch: str
    total: Tally
    families: Mapping[str, Tally]
    dtypes: Mapping[str, Tally]
    devices: Mapping[str, Tally]
    oracles: Mapping[str, Failures]
    severities: Mapping[str, Failures]
    unclaimed: Mapping[str, int]
    labels: frozenset[str]
    prices: tuple[str, ...] = ()  # what its unclaimed operators cost, a sentence each


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run. ``unannounced`` variants were to be planned, and its log does not name them."""

    run: str
    log: str
    started: str
    version: str  # runner's
    argv: tuple[str, ...]
    shard: str
    whole: bool  # whether it came to its end
    missing: int  # planned variants without a verdict
    unannounced: int


@dataclass(frozen=True, slots=True)
class Score:
    """The conformance of each backend of one or two runs."""

    runs: tuple[ScoredRun, ...]
    columns: tuple[Column, ...]

    @property
    def shared(self) -> Share:
        """Return how many variants all columns have, of those that any has."""
        labels = [column.labels for column in self.columns]
        return Share(len(frozenset.intersection(*labels)), len(frozenset.union(*labels))) if labels else Share(0, 0)


def score(logs: Sequence[tuple[str, Sequence[Event]]], backends: Collection[str] = ()) -> Score:
    """Return the score of runs; a backend of two runs has its columns side by side.

    Args:
        logs: the path and the events of each run.
        backends: only these; all if empty.

    Raises:
        UsageError: no run has such a backend.
    """
    groups = {
        (*key, number): events
        for number, (_, log) in enumerate(logs, start=1)
        for key, events in grouped(variants_of(log), lambda event: (event.backend, event.torch)).items()
    }
    present = list(dict.fromkeys(backend for backend, _, _ in groups))
    if absent := [name for name in backends if name not in present]:
        known = ", ".join(present[:_NAMED]) + (", ..." if len(present) > _NAMED else "")
        raise UsageError(in_line(f"--backend {absent[0]}: no such backend here: {known or 'there are no backends'}"))
    order = sorted(
        (key for key in groups if not backends or key[0] in backends), key=lambda key: (present.index(key[0]), key[2])
    )
    names = _families({_file(event) for key in order for event in groups[key]})
    columns = tuple(_column(*key, groups[key], names) for key in order)
    runs = tuple(_run(path, events, columns, number) for number, (path, events) in enumerate(logs, start=1))
    return Score(runs, columns)


def unjudged(logs: Sequence[tuple[str, Sequence[Event]]], backends: Collection[str] = ()) -> str:
    """Return what became of the variants of runs in which none was judged, with the most frequent reasons.

    ``backends`` as of ``score``.
    """
    chosen = ((path, [e for e in variants_of(log) if not backends or e.backend in backends]) for path, log in logs)
    return "; ".join(f"{path}: {_outcomes(events)}" for path, events in chosen)


def _outcomes(events: Sequence[VariantPlanned | VariantFinished]) -> str:
    parts = []
    for outcome, members in grouped(events, outcome_of).items():
        reasons = Counter(e.reason for e in members if isinstance(e, VariantFinished) and e.reason)
        why = "; ".join(one_line(reason, 100) for reason, _ in reasons.most_common(_REASONS))
        parts.append(f"{len(members)} {outcome}" + f" ({why})" * bool(why))
    return ", ".join(parts) or "it has no variants"


def outcome_of(event: VariantPlanned | VariantFinished) -> str:
    """Return what became of a variant."""
    if isinstance(event, VariantPlanned):
        return "NOT-RUN"
    if FORWARD_ALONE in event.labels and event.verdict in WHOLE:
        return FORWARD
    return UNCLAIMED if event.verdict == "SKIP" and event.unclaimed else event.verdict


def _file(event: VariantPlanned | VariantFinished) -> str:
    """The file of the case, as ids show it."""
    return event.case.rpartition("::")[0]


def _families(files: Iterable[str]) -> dict[str, str]:
    """Return what to call the family of each file of cases: its path below the folder that all share, without the
    suffix."""
    paths = {file: file.removesuffix(SPEC).removesuffix(SUITE) for file in files}
    folders = [os.path.dirname(path) for path in paths.values()]
    # ``commonpath`` takes no mixture of absolute and relative paths.
    shared = os.path.commonpath(folders) if len({os.path.isabs(path) for path in paths.values()}) == 1 else ""
    return {file: PurePath(path).relative_to(shared).as_posix() if shared else path for file, path in paths.items()}


def _column(
    backend: str, torch: str, run: int, events: Sequence[VariantPlanned | VariantFinished], names: Mapping[str, str]
) -> Column:
    failures = [event for event in events if isinstance(event, VariantFinished) and event.verdict in FAILED]
    return Column(
        run,
        backend,
        torch,
        _tally(events),
        tallies(events, lambda event: names[_file(event)]),
        tallies(events, lambda event: event.dtype),
        tallies(events, lambda event: event.device),
        _failures((oracle, event) for event in failures for oracle in dict.fromkeys(event.oracles)),
        _failures((_severity(event), event) for event in failures),
        Counter(e.unclaimed for e in events if isinstance(e, VariantFinished) and outcome_of(e) == UNCLAIMED),
        frozenset(event.label for event in events),
        tuple(price_lines(events)),
    )


def tallies(
    events: Iterable[VariantPlanned | VariantFinished], key: Callable[[VariantPlanned | VariantFinished], str]
) -> dict[str, Tally]:
    """Return what became of variants, by a key."""
    return {name: _tally([*members]) for name, members in grouped(events, key).items()}


def _tally(events: Sequence[VariantPlanned | VariantFinished]) -> Tally:
    counts: Counter[str] = Counter()
    credit = 0
    for event in events:
        counts[outcome_of(event)] += 1
        if isinstance(event, VariantFinished) and event.verdict in FAILED:
            credit += CREDITS.get(_severity(event), 0)
    passes = [event for event in events if outcome_of(event) in PASSED]
    return Tally(dict(counts), credit, Share(*delegated_passes(passes)))


def _severity(event: VariantFinished) -> str:
    """The worst severity of the findings; empty where a log has none, which earns no credit."""
    return severity_of(worst_findings(event.findings)[0]) if event.findings else ""


def _failures(pairs: Iterable[tuple[str, VariantFinished]]) -> dict[str, Failures]:
    return {
        name: Failures(len(members), sum(event.verdict == "XFAIL" for _, event in members))
        for name, members in grouped(pairs, lambda pair: pair[0]).items()
    }


def _run(path: str, events: Sequence[Event], columns: Iterable[Column], number: int) -> ScoredRun:
    start, end = start_of(events), end_of(events)
    return ScoredRun(
        start.run if start else "",
        path,
        start.started if start else "",
        start.version if start else "",
        start.argv if start else (),
        start.shard if start else "",
        end is not None and not end.interrupted,
        sum(column.total.count("NOT-RUN") for column in columns if column.run == number),
        max(0, start.planned - len(variants_of(events))) if start else 0,
    )


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
conformance: passes of what was judged; \
weighed: a failure keeps a part of a pass (a wrong result 0/7, a graph too many 6/7), \
since a wrong number that nobody notices harms most; \
claim: what the backend claims of all variants;
overall: passes of what was judged or is not claimed; \
by the backend: passes of which its own code computed an operator; in the others torch computed all. \
Shares are rounded down. 2/3 of 5: two of three pass, two more are not claimed.
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
    if any(tally.delegated.whole for tally in totals):
        shares.append(("by the backend", [_of(tally.delegated) for tally in totals]))
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
            "failures by kind of difference",
            _counts([column.oracles for column in columns], lambda name: (gate_of(name), name)),
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


def _of(share: Share) -> str:
    return f"{share} {share.part}/{share.whole}" if share.whole else _NONE


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
    lines += dict.fromkeys(sentence for column in score.columns for sentence in column.prices)
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
        "columns": [_column_dict(column) for column in score.columns],
        "shared": {"part": score.shared.part, "whole": score.shared.whole},
        "notes": notes(score),
    }


def _column_dict(column: Column) -> dict[str, Any]:
    parts = {"families": column.families, "dtypes": column.dtypes, "devices": column.devices}
    failures = {"oracles": column.oracles, "severities": column.severities}
    return {
        "run": column.run,
        "backend": column.backend,
        "torch": column.torch,
        "total": _tally_dict(column.total),
        **{name: {key: _tally_dict(tally) for key, tally in part.items()} for name, part in parts.items()},
        **{name: {key: asdict(value) for key, value in part.items()} for name, part in failures.items()},
        "unclaimed": dict(column.unclaimed),
    }


def _tally_dict(tally: Tally) -> dict[str, Any]:
    shares = {name: getattr(tally, name) for name in _SHARES}
    return {
        "planned": tally.planned,
        "judged": tally.judged,
        "outcomes": dict(tally.outcomes),
        **({"delegated": asdict(tally.delegated)} if tally.delegated.whole else {}),
        **{
            name: {"part": share.part, "whole": share.whole, "percent": share.percent} for name, share in shares.items()
        },
    }


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


def _badge(column: Column, name: str, y: int, score: Score) -> dict[str, str | float]:
    """Return a row of the picture: words, and the widths in pixels of what passes, and of what was judged."""
    tally, run = column.total, score.runs[column.run - 1]
    complete = run.whole and not run.shard and not run.missing and not run.unannounced
    text = f"{tally.conformance} of {tally.claim} claimed" + ("" if complete else ", incomplete")
    whole = tally.overall.whole or 1
    widths = {"passed": _VALUE * tally.overall.part / whole, "judged": _VALUE * tally.judged / whole}
    return {"y": y, "label": one_line(name, 36), "text": text, **widths}
