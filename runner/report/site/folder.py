"""The pages of a run as files of a folder: which there are, what is on each, and how they get there.

``index.html`` has the groups of failures, the table of cases and the ledger, in at most ``SIZE`` bytes. ``times.html``
says which variants were slow, and on what each backend spent its time. The page of a failure has its cause, its
numbers, where it is written, what runs, and how to see it again.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import UndefinedError
from markupsafe import Markup

from runner.contract.oracles import rank_of
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnostics import Span, shown_file
from runner.exit_codes import UsageError
from runner.files import open_regular, replace_file
from runner.ledger.review import RED_STATES, STATES, Entry, read_run, review
from runner.quote import command_words, shell_words
from runner.record.events import (
    GREEN,
    RED,
    Event,
    Key,
    Notice,
    RunFinished,
    RunStarted,
    VariantFinished,
    VariantPlanned,
    end_of,
    grouped,
    start_of,
)
from runner.record.journal import parse_line
from runner.report.delegation import delegation_lines
from runner.report.diagnosis import cause_parts, finding_parts, stage_steps
from runner.report.failure import Group, commands_of, headline, properties_of, shown_rows, span
from runner.report.handlers import EndFile, Options
from runner.report.site.results import GROUPS, Declared, Results, declared_of, results_of
from runner.report.table import cell_text, several_environments, star_lines
from runner.templates import read_file, render_template, template
from runner.text import cap, clean, duration, in_line, one_line, plural, seconds, visible
from runner.verdict.stages import in_order

SIZE = 4_500_000
"""Bytes of the page. Rows without a failure are left out first."""

_MEMBERS = 12  # links of a group
_OPTIONS = 150  # values of a filter
_COLUMNS = 60
_MANY = 500  # rows from which on only those that are seen are laid out
_NOTICES = 50
_LONG = 400  # characters of an id; a longer one is cut
_WORD = 100  # of a backend, an oracle, a stage or a tag
_FIRST_FACTS = ("torch", "started", "command")
"""What a reader asks first of a run."""
_WORDS = (*GREEN, *RED, "NOT-RUN")


@dataclass(frozen=True, slots=True)
class Cell:
    """One variant in the table."""

    text: str
    verdict: str
    style: str
    severity: str = ""
    oracles: str = ""
    stage: str = ""
    group: str = ""
    page: str = ""


@dataclass(slots=True)
class Row:
    """One case with its axes: cells by column."""

    label: str
    suite: str
    tags: str
    cells: dict[int, Cell] = field(default_factory=dict)

    @property
    def loud(self) -> bool:
        """Whether it holds something other than PASS, SKIP and NOT-RUN."""
        return any(cell.verdict not in ("PASS", "SKIP", "NOT-RUN") for cell in self.cells.values())


def render_overview(events: Sequence[Event], results: Results, declared: Declared) -> str:
    """Return the page."""
    started = start_of(events)
    ended = end_of(events)
    facts = _facts(started, ended)
    columns, rows = _table(results, declared)
    entries = review_ledger(events, declared)
    notices = [event for event in events if isinstance(event, Notice)]
    several = several_environments(events)
    red = sum(len(group.members) for group in results.groups)
    paged = sum(event.key in results.pages for group in results.groups for event in group.members)
    shown_columns = columns[:_COLUMNS]
    values: dict[str, Any] = {
        "title": _title(results),
        "counts": results.counts,
        "summary": " · ".join(f"{name} {facts[name]}" for name in _FIRST_FACTS if name in facts),
        "facts": [*facts.items()],
        "notices": [(event.severity, one_line(event.message, 1000)) for event in notices[:_NOTICES]],
        "more_notices": max(0, len(notices) - _NOTICES),
        "without_page": red - paged,
        "filters": _filters(columns, rows),
        "columns": [(one_line(backend, _WORD), one_line(torch, _WORD)) for backend, torch in shown_columns],
        "several": several,
        "more_columns": len(columns) - len(shown_columns),
        "sections": (),
        "is_long": len(rows) > _MANY,
        "left_out": 0,
        "stars": [*star_lines(results.finished), *delegation_lines(results.finished)],
        "problem": one_line(declared.problem, 600),
    }
    for most in (GROUPS, GROUPS // 10, 1):  # markup makes hostile text longer
        values |= {
            "groups": [_group(group, results) for group in results.groups[:most]],
            "more_groups": max(0, len(results.groups) - most),
            "ledger": ledger_parts(results, entries, declared, most),
        }
        bare = len(render_template("run.html.j2", **values).encode("utf-8", "backslashreplace"))
        if bare < SIZE // 2:
            break
    values["sections"], values["left_out"] = _bounded(rows, len(shown_columns), SIZE - bare)
    return render_template("run.html.j2", **values)


def _title(results: Results) -> str:
    suites = list(dict.fromkeys(name for event in results.variants.values() for name in event.suites))
    return one_line(", ".join(suites[:6]) + (f" and {len(suites) - 6} more" if len(suites) > 6 else "") or "run", 200)


def _facts(started: RunStarted | None, ended: RunFinished | None) -> dict[str, str]:
    if started is None:
        return {}
    torches = [f"{e.get('build') or e.get('torch')} (Python {e.get('version')})" for e in started.environments]
    rows = shown_rows(
        ("run", started.run),
        ("started", f"{started.started} UTC" if started.started else ""),
        ("took", duration(ended.seconds) if ended else ""),
        ("end", "interrupted" if ended is None or ended.interrupted else f"exit code {ended.exit_code}"),
        ("torch", ", ".join(torches)),
        ("command", shell_words(started.argv)),
        ("shard", started.shard),
        ("host", started.host),
        ("runner", started.version),
        limit=1000,
    )
    return dict(rows)


def _table(results: Results, declared: Declared) -> tuple[list[tuple[str, str]], list[Row]]:
    """The columns (backend, torch) and the rows, both in the order of the plan."""
    columns: dict[tuple[str, str], int] = {}
    rows: dict[tuple[str, str], Row] = {}
    for event in results.variants.values():
        column = columns.setdefault((event.backend, event.torch), len(columns))
        at = (event.suite, event.label)
        if at not in rows:
            tags = " ".join(_word(tag) for tag in declared.tags(event)[:_MEMBERS])
            rows[at] = Row(in_line(event.label), one_line(event.suite, _WORD), tags)
        rows[at].cells[column] = _cell(event, results)
    return list(columns), list(rows.values())


def _cell(event: VariantFinished | VariantPlanned, results: Results) -> Cell:
    if isinstance(event, VariantPlanned):
        return Cell("NOT-RUN", "NOT-RUN", "quiet")
    kind = "ok" if event.verdict == "PASS" else "red" if event.verdict in RED else "quiet"
    return Cell(
        one_line(cell_text(event), _WORD), _word(event.verdict), kind,
        _word(event.severity or ""), " ".join(map(_word, event.oracles[:8])), _word(event.stage or ""),
        _word(event.signature_id) if event.verdict in RED else "", results.pages.get(event.key, ""),
    )  # fmt: skip


def _word(text: str) -> str:
    """Text as one word without blanks, as the filters compare it."""
    return "_".join(one_line(text, _WORD).split())


def _bounded(rows: Sequence[Row], columns: int, room: int) -> tuple[list[tuple[str, list[Markup]]], int]:
    """The rows by suite that fit into ``room`` bytes, those with a failure first, and how many are left out."""
    make = template("run_row.html.j2")
    fitting: dict[int, Markup] = {}
    suites: set[str] = set()
    for number, row in sorted(enumerate(rows), key=lambda item: not item[1].loud):
        cells = [row.cells.get(column) for column in range(columns)]
        text = visible(make.render(label=one_line(row.label, _LONG), tags=row.tags, cells=cells))
        heading = 0 if row.suite in suites else 200 + 6 * len(row.suite.encode("utf-8", "backslashreplace"))
        size = len(text.encode("utf-8", "backslashreplace")) + 2 + heading
        if size <= room:
            room -= size
            suites.add(row.suite)
            fitting[number] = Markup(text)  # of a template that escapes
    sections = grouped(sorted(fitting), lambda number: rows[number].suite)
    return [(suite, [fitting[n] for n in numbers]) for suite, numbers in sections.items()], len(rows) - len(fitting)


def _filters(columns: Sequence[tuple[str, str]], rows: Sequence[Row]) -> list[tuple[str, list[tuple[str, int]], int]]:
    """The filters: name, values with how many results have each, and how many values are left out."""
    cells = [(row, column, cell) for row in rows for column, cell in row.cells.items()]
    counts = {
        "verdict": Counter(cell.verdict for _, _, cell in cells),
        "severity": Counter(cell.severity for _, _, cell in cells if cell.severity),
        "oracle": Counter(word for _, _, cell in cells for word in cell.oracles.split()),
        "stage": Counter(cell.stage for _, _, cell in cells if cell.stage),
        "backend": Counter(one_line(columns[column][0], _WORD) for _, column, _ in cells),
        "torch": Counter(one_line(columns[column][1], _WORD) for _, column, _ in cells),
        "tag": Counter(tag for row, _, _ in cells for tag in {*row.tags.split()}),
    }
    order: dict[str, Any] = {"severity": rank_of, "verdict": lambda word: (*_WORDS, word).index(word)}
    filters = []
    for name, counter in counts.items():
        values = sorted(counter, key=order.get(name, str))
        filters.append((name, [(value, counter[value]) for value in values[:_OPTIONS]], max(0, len(values) - _OPTIONS)))
    return filters


def _group(group: Group, results: Results) -> dict[str, Any]:
    members = group.members
    first = next((event for event in members if event.key in results.pages), members[0])
    return {
        "id": _word(first.signature_id),
        "anchor": results.anchor(first),
        "severity": _word(group.severity or first.verdict),
        "signature": one_line(group.title.removeprefix(first.signature_id), 400),
        "headline": headline(first, 600),
        "page": results.pages.get(first.key, ""),
        "repro": first.repro if len(first.repro) <= 2000 and command_words(first.repro) else "",
        "count": len(members),
        "members": [_member(event, results) for event in members[:_MEMBERS]],
        "more": max(0, len(members) - _MEMBERS),
    }


def _member(event: VariantFinished, results: Results) -> dict[str, str]:
    return {
        "id": one_line(event.id, _LONG),
        "torch": in_line(event.torch),
        "verdict": _word(event.verdict),
        "page": results.pages.get(event.key, ""),
    }


_NAMED = 5
_ADDRESS = re.compile(r"https://[\w./?=%~:#&+-]+", re.ASCII)


def review_ledger(events: Sequence[Event], declared: Declared) -> list[Entry]:
    """Return every entry of the run's cases as their files hold it now, with what became of it in the run.

    The log may come from another folder, so its files are looked for here. Without files there is no entry.
    """
    if not any(variant.known for variant in declared.every):
        return []
    return review(declared.every, read_run(declared.every, declared.localized(events)))


def ledger_parts(results: Results, entries: Sequence[Entry], declared: Declared, most: int) -> dict[str, Any]:
    """Return what the page shows: a row for each entry that the run met or that calls for action, and how many others
    there are.

    Args:
        results: of the run.
        entries: of ``review_ledger``.
        declared: what the files of the cases say.
        most: rows.
    """
    met = grouped(
        (event for event in results.finished if event.known or event.entry),
        lambda event: (_local(event, declared), event.known or ""),
    )
    states = {_place(entry): entry for entry in entries}
    rows = [_row(place, known, events, states.get(place), results) for (place, known), events in met.items()]
    places = {place for place, _ in met}
    others = [entry for entry in entries if _place(entry) not in places]
    rows += [
        _row(_place(entry), entry.known.issue or entry.known.reason or "", [], entry, results)
        for entry in others
        if entry.state in RED_STATES
    ]
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
    cases = [case.name for case in entry.cases[:_NAMED]] if entry and not met else []
    return {
        "entry": one_line(_shown(place), 300),
        "known": one_line(known, 300),
        "address": known if _ADDRESS.fullmatch(known) and len(known) <= 300 else "",
        "state": entry.state if entry else "",
        "detail": one_line(entry.detail, 300) if entry else "",
        "verdicts": ", ".join(f"{count} {in_line(verdict)}" for verdict, count in counts.items()),
        "red": any(event.verdict in RED for event in met) or (entry is not None and entry.state in RED_STATES),
        "members": [{"id": one_line(name, 300), "page": ""} for name in cases] or [_member(event,
        results) for event in met[:_NAMED]],
        "more": max(0, (len(met) or len(entry.cases if entry else ())) - _NAMED),
    }  # fmt: skip


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


_SLOWEST = 100
_BACKENDS = 200
_PARTS = (("busy", "busy"), ("torch", "in torch"), ("load", "loading"), ("judge", "comparing"))


def render_times(results: Results) -> str:
    """Return the page."""
    finished = [event for event in results.finished if not event.cached]
    slowest = sorted(finished, key=lambda event: -seconds(event.seconds))[:_SLOWEST]
    longest = max((seconds(event.seconds) for event in slowest), default=0.0) or 1.0
    totals = grouped(finished, lambda event: (event.backend, event.torch))
    return render_template(
        "times.html.j2",
        measured=plural(len(finished), "result"),
        cached=len(results.finished) - len(finished),
        parts=[meaning for _, meaning in _PARTS],
        totals=[
            (one_line(backend, 100), in_line(torch), len(events), *_seconds_of(events))
            for (backend, torch), events in [*totals.items()][:_BACKENDS]
        ],
        slowest=[
            (
                duration(event.seconds), f"{100 * seconds(event.seconds) / longest:.2f}", one_line(event.id, 400),
                in_line(event.torch), in_line(event.verdict), results.pages.get(event.key, ""),
            )
            for event in slowest
        ],
    )  # fmt: skip


def _seconds_of(events: Sequence[VariantFinished]) -> tuple[str, str, list[str]]:
    """The seconds of results: together, of one on average, and by what they were spent on."""
    total = sum(seconds(event.seconds) for event in events)
    parts = [duration(sum(seconds(event.spent.get(name, 0.0)) for event in events)) for name, _ in _PARTS]
    return duration(total), duration(total / len(events)), parts


TEXT = 32 * 1024
"""Bytes of a source, a stack or an output on a page."""

_FINDINGS = 8
_CAUSE = 1 << 20  # characters of a diagnosis with its heat map
_ALIKE = 10  # links to failures of the same signature
_PURPOSES = {
    "why": "all of it in one command: stage, operator, smallest case, script",
    "diagnose": "the stage, the pass and the operator",
    "reduce": "the smallest case that fails alike",
    "repro": "a script that needs torch alone",
    "issue": "a bug report",
}


Cause = tuple[Diagnosis, Mapping[str, Any] | None]
"""A diagnosis and the record of its heat map."""


def render_page(
    event: VariantFinished, results: Results, declared: Declared, log: str, cause: Cause | None
) -> str:  # fmt: skip
    """Return the page of a failure.

    Args:
        event: the result.
        results: of the run, for the links to others of its signature.
        declared: what the files of cases say.
        log: the name of the file beside the page that holds its whole output; empty if it has no file.
        cause: its diagnosis and the record of its heat map, where the run has them.
    """
    group = results.group(event)
    alike = [
        other for other in (group.members if group else ()) if other.key != event.key and other.key in results.pages
    ]
    place = span(event)
    error = event.findings[0].error if event.findings else None
    line = (error or {}).get("line")
    return render_template(
        "failure.html.j2",
        title=one_line(event.id, 1000),
        verdict=in_line(event.verdict),
        red=group is not None,
        headline=headline(event, 2000) if event.verdict != "PASS" else "",
        signature_id=in_line(event.signature_id),
        properties=_page_properties(event),
        steps=stage_steps(in_order(event.stages), event.stage),
        findings=[finding_parts(finding) for finding in event.findings[:_FINDINGS]],
        more_findings=max(0, len(event.findings) - _FINDINGS),
        anchor=results.anchor(event),
        cause=_cause(*cause) if cause else "",
        signal=one_line(event.signal or "", 300),
        stack=cap(clean(event.stack), TEXT).strip("\n"),
        output=cap(clean(event.output), TEXT).strip("\n"),
        log=log,
        place=one_line(f"{shown_file(place.file)}:{place.line}:{place.column}", 600),
        yaml=[(number, clean(text), marked) for number, text, marked in declared.excerpt(event)],
        resolved=cap(clean(declared.resolved(event)), TEXT),
        source=_numbered(declared.source(event), line if isinstance(line, int) else 0),
        repro=event.repro if command_words(event.repro) else "",
        commands=[(command, _PURPOSES[name]) for name, command in commands_of(event).items()],
        alike=[(results.pages[other.key].rpartition("/")[2], one_line(f"{other.id} {other.torch}",
            400)) for other in alike[:_ALIKE]],
        more_alike=max(0, (len(group.members) - 1 if group else 0) - len(alike[:_ALIKE])),
    )  # fmt: skip


def _cause(diagnosis: Diagnosis, picture: Mapping[str, Any] | None) -> Markup:
    """What the run's folder says of the cause. A file there may hold anything: one that makes no sense is left out."""
    for record in (picture, None):
        try:
            text = render_template("cause.html.j2", **cause_parts(diagnosis, record))
        except (ArithmeticError, AttributeError, LookupError, TypeError, UndefinedError, ValueError):
            continue
        if len(text) <= _CAUSE:
            return Markup(text)  # of a template that escapes
    return Markup()


def _page_properties(event: VariantFinished) -> list[tuple[str, str]]:
    return shown_rows(
        *(row for row in properties_of(event) if row[0] != "stages"),
        ("operator", event.operator),
        ("compared", ", ".join(f"{name} {count:,}" for name, count in event.compared.items())),
        ("backend", event.backend),
        ("torch", event.torch),
        ("dtype, device", f"{event.dtype}, {event.device}"),
        ("params", ", ".join(f"{name}={value}" for name, value in event.params.items())),
        ("suites", ", ".join(event.suites)),
        ("known", event.known or ""),
        ("time", duration(event.seconds)),
        ("result of", event.cached or ""),
        ("attempts", str(event.attempts) if event.attempts > 1 else ""),
        ("host", event.host or ""),
        limit=600,
    )


def _numbered(source: str, marked: int) -> list[tuple[int, str, bool]]:
    text = cap(clean(source), TEXT).rstrip("\n")
    return [(n, line, n == marked) for n, line in enumerate(text.split("\n"), 1)] if text else []


PAGES_SIZE = 64 << 20
"""Bytes of all pages of failures together."""

LOG = 256 * 1024
"""Bytes of a log beside a page."""

INDEX = "index.html"
MARK = '<meta name="generator" content="torch-spec-runner">'
"""By which an earlier report in a folder is known. It is replaced; any other folder must be empty."""

_UNFINISHED = (
    f"<!doctype html>{MARK}<title>unfinished</title><p>The writing of this report did not come to its end.".encode()
)
_OWN = re.compile(r"\d{5,}\.(html|txt)")
_JSON = 4 << 20  # bytes of a diagnosis


def reporter(path: Path, options: Options) -> EndFile:
    """Return the reporter ``html``, whose path is a folder."""
    declare = options.declared or declared_of
    return EndFile(
        "--html", path / INDEX, lambda events: write_folder(path, events, declare(events), options.folder), options.tell
    )


def check_folder(path: str, option: str = "--html", mark: str = MARK, kind: str = "report of a run") -> None:
    """Raise UsageError for a folder with something in it that is no earlier report, or no other site with a mark."""
    folder = Path(path)
    try:
        if not folder.is_dir() or not any(folder.iterdir()):
            return
        with open_regular(folder / INDEX) as index:
            known = mark.encode() in index.read(4000)
    except FileNotFoundError:
        known = False
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from None
    if not known:
        raise UsageError(f"{option} {path}: there is something in it that is no {kind}; name another folder")


def write_folder(folder: Path, events: Sequence[Event], declared: Declared, run_folder: Path | None) -> None:
    """Write the report of a run into a folder, its first page last. Pages of an earlier report there go away.

    Args:
        folder: is made if need be; ``check_folder`` has looked at it.
        events: of the run.
        declared: what the files of its cases say.
        run_folder: where its diagnoses are; None if nowhere.

    Raises:
        OSError: a file cannot be written.
    """
    failures = folder / "failures"
    if failures.is_symlink():
        raise OSError(errno.EINVAL, "a link, not a folder", str(failures))
    # Links of an earlier first page lead to pages that are about to change. Where the writing is cut short, this one
    # marks the folder.
    replace_file(folder / INDEX, [_UNFINISHED])
    failures.mkdir(exist_ok=True)
    for old in failures.iterdir():
        if _OWN.fullmatch(old.name):
            old.unlink()
    for name, data in pages(events, results_of(events), declared, run_folder):
        if name == INDEX:
            replace_file(folder / name, [data])
        else:
            (folder / name).unlink(missing_ok=True)  # a link is not followed
            with open(folder / name, "xb") as file:
                file.write(data)


def pages(
    events: Sequence[Event], results: Results, declared: Declared, run_folder: Path | None
) -> Iterator[tuple[str, bytes]]:
    """Yield each file of a report: its path in the folder, and its content."""
    for name in ("page.css", "report.css", "report.js"):
        yield name, read_file(name).encode()
    causes = read_causes(run_folder) if run_folder else {}
    room = PAGES_SIZE
    for event in results.finished:
        address = results.pages.get(event.key)
        if address is None:
            continue
        log = _log(event)
        name = f"{address[:-5]}.txt" if log else ""
        page = _encoded(render_page(event, results, declared, name.rpartition("/")[2], causes.get(event.key)))
        room -= len(page) + len(log)
        if room < 0:
            del results.pages[event.key]
            continue
        yield address, page
        if log:
            yield name, log
    yield "times.html", _encoded(render_times(results))
    yield INDEX, _encoded(render_overview(events, results, declared))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _log(event: VariantFinished) -> bytes:
    """What the process of a variant printed, and its stack."""
    parts = [("stack", event.stack), ("output", event.output)]
    parts += [(f"trace of {f.oracle}", str((f.error or {}).get("trace") or "")) for f in event.findings[:4]]
    text = "\n".join(f"--- {name}\n{clean(value)}" for name, value in parts if value.strip())
    return _encoded(cap(text, LOG))


def read_causes(run_folder: Path) -> dict[Key, Cause]:
    """Return the diagnoses that ``runner run --diagnose`` left in a run's folder; what cannot be read is left out."""
    from runner.diagnose.diagnosis import diagnosis_of

    causes: dict[Key, Cause] = {}
    for path in sorted(run_folder.glob("diagnosis-*.json"))[:100]:
        try:
            with open_regular(path) as file:
                if os.fstat(file.fileno()).st_size > _JSON:
                    continue
                data = parse_line(file.read())
            picture = data.pop("heat_map", None)
            diagnosis = diagnosis_of(data)
            causes[str(diagnosis.id), str(diagnosis.torch)] = (diagnosis, picture)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            continue
    return causes
