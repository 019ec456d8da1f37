"""What a job of GitHub Actions shows: a summary of the run, and remarks at lines of YAML.

GitHub drops a summary of more than 1 MiB, and shows ten errors and ten warnings of a step. So both are bounded here,
the worst comes first, and the last remark says where the rest is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner import console
from runner.diagnostics import Diagnostic, Span, repository_path, shown_file
from runner.files import open_output
from runner.quote import command_words, workflow_command
from runner.record.events import RED, Event, Notice, end_of, start_of
from runner.report.failure import Group, headline, span
from runner.report.handlers import EndFile, Options
from runner.report.site.results import Results, results_of
from runner.templates import render_template
from runner.text import duration, in_line, one_line, plural

SUMMARY = 1 << 20
"""Bytes of a step's summary."""

REMARKS = 10
"""Errors of a step that GitHub shows, and warnings."""

_ROOM = ((50, 300), (50, 0), (5, 0))  # groups and results that a summary lists, in the order in which they are tried


def reporter(path: Path, options: Options) -> EndFile:
    """Return the reporter ``github``, which appends to the summary of a step, and prints."""
    return EndFile("--github", path, lambda events: report_run(events, path), options.tell)


def report_run(events: Sequence[Event], path: Path) -> None:
    """Append the summary of a run to ``path``, and print its remarks.

    Raises:
        OSError: the summary cannot be written.
    """
    results = results_of(events)
    for line in remarks_of(events, results):
        console.command(line)
    append_summary(events, results, path)


def append_summary(events: Sequence[Event], results: Results, path: Path) -> None:
    """Append the summary of a run to a file, as much of it as GitHub takes beside what is there.

    Raises:
        OSError: it cannot be written.
    """
    room = SUMMARY - (path.stat().st_size if path.exists() else 0)
    for groups, members in _ROOM:
        data = f"\n\n{render_summary(events, results, groups, members)}\n".encode("utf-8", "backslashreplace")
        if len(data) <= room:
            with open(open_output(path, os.O_APPEND), "ab") as file:
                file.write(data)
            return
    console.message("runner: --github: the summary of this step is full, so it says nothing of this run")


def render_summary(events: Sequence[Event], results: Results, groups: int, members: int) -> str:
    """Return the summary with the worst ``groups`` and the first ``members`` red results: HTML without an empty line.

    GitHub takes HTML within Markdown as it is up to an empty line. What others wrote stands in ``code``, where GitHub
    makes no mention, link or picture of it.
    """
    red = [event for event in results.finished if event.verdict in RED]
    started = start_of(events)
    ended = end_of(events)
    text = render_template(
        "summary.html.j2",
        title=f"{plural(len(red), 'red result')} of {len(results.variants)}" if red else f"{len(results.variants)} "
            "results, none red",
        interrupted=ended is None or ended.interrupted,
        counts=results.counts,
        seconds=duration(ended.seconds) if ended else "",
        torches=one_line(", ".join(dict.fromkeys(str(e.get("torch")) for e in started.environments)))
        if started
        else "",
        groups=[_group(group) for group in results.groups[:groups]],
        more_groups=max(0, len(results.groups) - groups),
        members=[(in_line(event.verdict), one_line(event.id, 300), one_line(event.torch, 60), headline(event,
        200)) for event in red[:members]],
        more=max(0, len(red) - members),
        run=one_line(started.run, 100) if started else "RUN",
    )  # fmt: skip
    return "\n".join(line for line in text.split("\n") if line.strip())


def _group(group: Group) -> dict[str, object]:
    first = group.members[0]
    place = span(first)
    return {
        "count": len(group.members),
        "severity": one_line(group.severity or first.verdict, 60),
        "title": one_line(group.title, 200),
        "id": one_line(first.id, 300),
        "place": one_line(f"{shown_file(place.file)}:{place.line}", 300),
        "message": headline(first),
        "repro": first.repro if len(first.repro) <= 600 and command_words(first.repro) else "",
    }


def remarks_of(events: Iterable[Event], results: Results) -> list[str]:
    """Return the commands that mark lines of YAML: an error for each group of failures, and a warning for each
    notice."""
    errors = []
    for group in results.groups:
        first = group.members[0]
        entry = Span.of(first.entry or "") if first.verdict == "XPASS" else None
        place = entry[0] if entry else span(first)
        lines = [
            headline(first),
            *([f"and {len(group.members) - 1} more of this signature"] if len(group.members) > 1 else []),
        ]
        lines += [first.repro] if command_words(first.repro) and len(first.repro) <= 1000 else []
        title = one_line(f"{first.verdict} {first.id.partition('::')[2] or first.id} {first.torch}", 200)
        errors.append(_remark("error", place, title, "\n".join(lines)))  # fmt: skip
    warnings = []
    for event in events:
        if isinstance(event, Notice):
            at, words = Span.of(event.message) or (None, "")
            warnings.append(_remark("warning", at, "runner", one_line(words or event.message, 1000)))
    return [*_bounded("error", errors, "signatures"), *_bounded("warning", warnings, "warnings")]


def diagnostic_remarks(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """Return the commands that mark what is wrong with files."""
    remarks: dict[str, list[str]] = {"error": [], "warning": []}
    for diagnostic in diagnostics:
        text = "\n".join(filter(None, (one_line(diagnostic.message, 1000), one_line(diagnostic.hint, 1000))))
        remarks[diagnostic.severity].append(_remark(diagnostic.severity, diagnostic.span, "runner validate", text))
    return [line for kind, lines in remarks.items() for line in _bounded(kind, lines, f"{kind}s")]


def _remark(kind: str, place: Span | None, title: str, message: str) -> str:
    file = repository_path(place.file) if place else ""
    if not file or not place:
        return workflow_command(kind, message, title=title)
    # GitHub shows a remark with a column only where it ends on the same line.
    return workflow_command(
        kind, message, file=file, line=place.line, endLine=place.line, col=place.column,
        endColumn=place.column + place.length, title=title,
    )  # fmt: skip


def _bounded(kind: str, lines: Sequence[str], noun: str) -> list[str]:
    if len(lines) <= REMARKS:
        return [*lines]
    where = (
        "in the log of this step"
        if not os.environ.get("GITHUB_STEP_SUMMARY")
        else "in the summary and the log of this step"
    )
    pointer = workflow_command(kind, f"{len(lines) - REMARKS + 1} more {noun} stand {where}", title="runner")
    return [*lines[: REMARKS - 1], pointer]
