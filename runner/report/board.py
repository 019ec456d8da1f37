"""A board: how backends conform over many runs, as the values of a static site.

A series is what one backend under one torch made of one suite, from run to run. Each series is compared with itself as
it was before its last run, a week and a month ago, and with the same suite under the torch before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from packaging.version import InvalidVersion, Version

from runner.exit_codes import UsageError
from runner.quote import shell_words
from runner.record.events import Key, VariantFinished, VariantPlanned, grouped, variants_of
from runner.record.store import Log
from runner.report.difference import Change, Comparison, compare, sides
from runner.report.score import PASSED, UNCLAIMED, Column, Tally, outcome_of, score, tallies
from runner.report.site.results import results_of
from runner.templates import read_file, render_template
from runner.text import one_line

PERIODS: Mapping[str, timedelta] = {
    "the run before": timedelta(),
    "a week before": timedelta(days=7),
    "a month before": timedelta(days=30),
}
"""What the newest run of a series is compared with: the newest run that is at least so much older."""

RUNS = "runs"
"""The folder of the site with a folder for the report of each run."""

_ROWS = 200  # changes of a section on a page
_DATES = 12  # columns of a page of a case file, the newest
_NAME = 100
_SHOWN = ("broken", "fixed")
_WIDTH, _HEIGHT = 120, 28  # of a trend, in pixels


@dataclass(frozen=True, slots=True)
class Entry:
    """One backend under one torch in one run.

    ``report`` is the folder of the run's report in the site, and ``pages`` has the addresses in it of the variants that
    have a page. ``events`` are the results by file of cases, and ``files`` says what became of those of each file.
    """

    log: Log
    column: Column
    started: datetime
    report: str
    pages: Mapping[Key, str]
    events: Mapping[str, Sequence[VariantPlanned | VariantFinished]]
    files: Mapping[str, Tally]
    machine: str = ""

    @property
    def date(self) -> str:
        """Return the day on which the run began: ``2026-11-29``."""
        return self.started.strftime("%Y-%m-%d")


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """The runs of a suite by one backend under one torch, the oldest first."""

    backend: str
    torch: str
    suites: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def newest(self) -> Entry:
        """Return the last entry."""
        return self.entries[-1]

    @property
    def anchor(self) -> str:
        """Return the name of its place on the backend's page."""
        return _slug(f"{self.torch} {' '.join(self.suites)}")

    def before(self, period: timedelta) -> Entry | None:
        """Return the newest entry that is older than the last one by a period; None without one."""
        older = [entry for entry in self.entries[:-1] if self.newest.started - entry.started >= period]
        return older[-1] if older else None


@dataclass(frozen=True, slots=True)
class Step:
    """What differs between two entries: ``since`` says which the older one is."""

    since: str
    old: Entry
    new: Entry
    comparison: Comparison

    def rows(self, section: str) -> list[dict[str, str]]:
        """Return the changes of a section, those that fail alike together, with the address of each one's page."""
        blocks = self.comparison.blocks(section, _ROWS)
        return [_row(change, self.new) for _, changes in blocks for change in changes]


@dataclass(frozen=True, slots=True)
class Board:
    """All series, by backend, suite and torch."""

    series: tuple[Series, ...]

    @property
    def logs(self) -> dict[str, Log]:
        """Return the log of each run by the folder of its report."""
        return {entry.report: entry.log for series in self.series for entry in series.entries}

    def steps(self, series: Series) -> list[Step]:
        """Return what changed in a series since each of the periods, and since the torch before. A run that two
        periods mean is compared once."""
        steps: list[Step] = []
        for since, period in PERIODS.items():
            old = series.before(period)
            if old is not None:
                steps.append(_step(since, old, series.newest))
        older = [entry for entry in self.series if _is_before(entry, series)]
        if older:
            former = max(older, key=lambda each: _version(each.torch))
            steps.append(_step(f"torch {former.torch}", former.newest, series.newest))
        return steps


def board_of(runs: Iterable[tuple[Log, str]]) -> Board:
    """Return the board of runs.

    Args:
        runs: the log of each, and what is known of its machine.

    Raises:
        UsageError: a log does not say when its run began.
    """
    found: dict[tuple[str, tuple[str, ...], str], list[Entry]] = {}
    for log, machine in runs:
        started = _started(log)
        suites = tuple(sorted(log.started.suites)) or ("no suite",)
        report = f"{RUNS}/{started:%Y%m%d-%H%M%S}-{_digest(str(log.path))}"
        pages = results_of(log.events).pages
        for column in score([(str(log.path), log.events)]).columns:
            events = _events(log, column)
            entry = Entry(log, column, started, report, pages, grouped(events, _file), tallies(events, _file), machine)
            found.setdefault((column.backend, suites, column.torch), []).append(entry)
    ordered = sorted(found, key=lambda key: (key[0], key[1], _version(key[2])))
    return Board(
        tuple(
            Series(key[0], key[2], key[1], tuple(sorted(found[key], key=lambda entry: entry.started)))
            for key in ordered
        )
    )


def _events(log: Log, column: Column) -> list[VariantPlanned | VariantFinished]:
    key = (column.backend, column.torch)
    return [event for event in variants_of(log.events) if (event.backend, event.torch) == key]


def _file(event: VariantPlanned | VariantFinished) -> str:
    return event.case.rpartition("::")[0]


def _started(log: Log) -> datetime:
    try:
        return datetime.fromisoformat(log.started.started.removesuffix("Z")).replace(tzinfo=None)
    except ValueError:
        raise UsageError(f"{log.path} does not say when its run began: {one_line(log.started.started, 40)!r}") from None


def _version(text: str) -> tuple[bool, Version, str]:
    """What orders versions; any other text comes first."""
    try:
        return True, Version(text), text
    except InvalidVersion:
        return False, Version("0"), text


def _is_before(other: Series, series: Series) -> bool:
    same = (other.backend, other.suites) == (series.backend, series.suites)
    return same and _version(other.torch) < _version(series.torch)


def _step(since: str, old: Entry, new: Entry) -> Step:
    torches, backends = (old.column.torch, new.column.torch), (old.column.backend, new.column.backend)
    return Step(since, old, new, compare(*sides(old.log, new.log, torches, backends)))


def _row(change: Change, new: Entry) -> dict[str, str]:
    event = change.new
    address = new.pages.get(event.key, "") if event else ""
    return {
        "id": one_line(change.id, 300),
        "old": change.verdicts[0],
        "new": change.verdicts[1],
        "why": one_line(change.reason or (event.reason if event else ""), 200),
        "page": f"{new.report}/{address}" if address else "",
    }


def _slug(text: str) -> str:
    """Return a name for files, folders and anchors, of letters, digits, dots and dashes, that no other text has."""
    plain = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:60]
    return f"{plain or 'x'}-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


# --- pages ---


def pages(board: Board) -> Iterator[tuple[str, str]]:
    """Yield each page of the site but the reports of runs: its name, and its text."""
    steps = {entry: board.steps(entry) for entry in board.series}
    backends = {name: f"backend-{_slug(name)}.html" for name in dict.fromkeys(entry.backend for entry in board.series)}
    files = {
        name: f"cases-{_slug(name)}.html"
        for name in sorted({file for each in board.series for entry in each.entries for file in entry.files})
    }
    yield "board.css", read_file("page.css") + read_file("board.css")
    yield "index.html", _index(board, steps, backends, files)
    for name, page in backends.items():
        own = [entry for entry in board.series if entry.backend == name]
        yield page, _backend(name, own, steps)
    for name, page in files.items():
        yield page, _case_file(name, board, backends)


def _index(
    board: Board, steps: Mapping[Series, Sequence[Step]], backends: Mapping[str, str], files: Mapping[str, str]
) -> str:
    rows = []
    for series in board.series:
        page = backends[series.backend]
        rows.append(
            {
                **_facts(series.newest),
                "backend": one_line(series.backend, _NAME),
                "suites": one_line(", ".join(series.suites), _NAME),
                "trend": _trend(series),
                "page": f"{page}#{series.anchor}",
                "broken": {
                    step.since: (len(step.comparison.section("broken")), f"{page}#{_anchor(step, series)}")
                    for step in steps[series]
                },
            }
        )
    broken = [
        {
            "backend": one_line(series.backend, _NAME),
            "torch": one_line(series.torch, _NAME),
            "old": step.old.date,
            "new": step.new.date,
            "rows": step.rows("broken"),
        }
        for series in board.series
        for step in steps[series]
        if step.since == "a week before" and step.comparison.section("broken")
    ]
    worst = {name: min(shares) for name in files if (shares := _shares(name, board))}
    listed = sorted(worst.items(), key=lambda item: (item[1], item[0]))
    return render_template(
        "board.html.j2",
        runs=len(board.logs),
        newest=max((series.newest.date for series in board.series), default=""),
        rows=rows,
        periods=[*PERIODS],
        broken=broken,
        files=[(one_line(name, _NAME), files[name], f"{share:.1f}%") for name, share in listed],
    )


def _facts(entry: Entry) -> dict[str, Any]:
    total = entry.column.total
    return {
        "torch": one_line(entry.column.torch, _NAME),
        "date": entry.date,
        "conformance": str(total.conformance),
        "claim": str(total.claim),
        "planned": total.planned,
        "report": f"{entry.report}/index.html",
    }


def _trend(series: Series) -> dict[str, Any] | None:
    """The conformance of each run of a series as points of a picture; None of a single run."""
    shares = [(entry.started, entry.column.total.conformance.percent) for entry in series.entries]
    known = [(time, share) for time, share in shares if share is not None]
    if len(known) < 2:
        return None
    least, first = min(share for _, share in known), known[0][0]
    length = (known[-1][0] - first).total_seconds() or 1.0
    room = max(100.0 - least, 0.1)
    points = [
        (2 + (time - first).total_seconds() / length * (_WIDTH - 4), 2 + (100.0 - share) / room * (_HEIGHT - 4))
        for time, share in known
    ]
    text = f"conformance from {known[0][1]:.1f}% to {known[-1][1]:.1f}% in {len(known)} runs"
    return {"points": points, "text": text, "width": _WIDTH, "height": _HEIGHT}


def _anchor(step: Step, series: Series) -> str:
    return f"{series.anchor}-{_slug(step.since)}"


def _backend(name: str, own: Sequence[Series], steps: Mapping[Series, Sequence[Step]]) -> str:
    parts = []
    for series in own:
        parts.append(
            {
                "anchor": series.anchor,
                "torch": one_line(series.torch, _NAME),
                "suites": one_line(", ".join(series.suites), _NAME),
                "trend": _trend(series),
                "history": [_history(entry) for entry in reversed(series.entries)],
                "steps": [
                    {
                        "anchor": _anchor(step, series),
                        "since": one_line(step.since, _NAME),
                        "old": step.old.date,
                        "new": step.new.date,
                        "counts": step.comparison.counts,
                        "sections": {section: step.rows(section) for section in _SHOWN},
                        "command": shell_words(["runner", "diff", step.old.log.path, step.new.log.path]),
                    }
                    for step in steps[series]
                ],
            }
        )
    return render_template("board_backend.html.j2", heading=one_line(name, _NAME), parts=parts, most=_ROWS)


def _history(entry: Entry) -> dict[str, Any]:
    start, total = entry.log.started, entry.column.total
    failures = {name: failures.variants for name, failures in entry.column.severities.items() if name}
    return {
        **_facts(entry),
        "weighed": str(total.weighed),
        "failures": ", ".join(f"{count} {one_line(name, 40)}" for name, count in failures.items()) or "none",
        "missing": total.count("NOT-RUN"),
        "version": one_line(start.version, 40),
        "machine": one_line(entry.machine, 200),
        "command": one_line(shell_words(start.argv), 300),
    }


def _shares(name: str, board: Board) -> list[float]:
    newest = [entry.newest.files for entry in board.series]
    shares = [files[name].conformance for files in newest if name in files]
    return [share.percent for share in shares if share.percent is not None]


def _case_file(name: str, board: Board, backends: Mapping[str, str]) -> str:
    own = [each for each in board.series if any(name in entry.files for entry in each.entries)]
    dates = sorted({entry.date for each in own for entry in each.entries})[-_DATES:]
    rows = []
    for series in own:
        by_date = {entry.date: entry for entry in series.entries if name in entry.files}
        cells = [_cell(by_date.get(date), name) for date in dates]
        rows.append(
            {
                "backend": one_line(series.backend, _NAME),
                "torch": one_line(series.torch, _NAME),
                "page": f"{backends[series.backend]}#{series.anchor}",
                "cells": cells,
            }
        )
    failing = [row for series in own for row in _failing(series.newest, name)]
    return render_template(
        "board_cases.html.j2", heading=one_line(name, _NAME), dates=dates, rows=rows, failing=failing[:_ROWS]
    )


def _cell(entry: Entry | None, name: str) -> tuple[str, str]:
    if entry is None:
        return "", ""
    return str(entry.files[name].conformance), f"{entry.report}/index.html"


def _failing(entry: Entry, name: str) -> Iterator[dict[str, str]]:
    """The variants of a case file that have no passing verdict in a run."""
    for event in entry.events.get(name, ()):
        verdict = outcome_of(event)
        if verdict not in (*PASSED, UNCLAIMED, "SKIP"):
            address = entry.pages.get(event.key, "")
            yield {
                "id": one_line(event.id, 300),
                "torch": one_line(event.torch, _NAME),
                "verdict": one_line(verdict, 20),
                "reason": one_line(getattr(event, "reason", ""), 200),
                "page": f"{entry.report}/{address}" if address else "",
            }
