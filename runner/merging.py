"""``runner merge``: the shards' logs read, joined, and reported as one run."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from runner.engine.events import RunFinished, RunStarted
from runner.engine.journal import Journal
from runner.exits import UsageError
from runner.merge import check_stamps, merge
from runner.report.junit import render as render_junit
from runner.report.terminal import Reporter
from runner.runs import journal_of, make_latest, new_folder, read_events


def merge_runs(arguments: argparse.Namespace) -> int:
    """Join the runs into a new one; its exit code. Raises UsageError when they are not all the shards of one plan."""
    for run in arguments.runs:
        check_stamps(journal_of(run))
    events = merge([read_events(run) for run in arguments.runs])
    if arguments.output:
        folder = Path(arguments.output)
        if (folder / "events.jsonl").exists():
            raise UsageError(f"-o {folder}: there is a run already; name another folder")
    else:
        folder, warning = new_folder()
        if warning:
            raise UsageError(f"{warning}; name a folder with -o")
    start = next(event for event in events if isinstance(event, RunStarted))
    events[events.index(start)] = replace(start, folder=str(folder))
    xml = render_junit(events, arguments.junit_dialect)
    reports = [folder / "junit.xml", *([Path(arguments.junit)] if arguments.junit else [])]
    problems: list[str] = []
    with Journal(folder / "events.jsonl", problems.append, {"plan": start.plan}) as journal:
        for event in events:
            journal.write(event)
    try:
        for path in reports:
            path.write_text(xml, encoding="utf-8")
    except OSError as error:
        problems.append(f"{error.filename} cannot be written: {error.strerror}")
    if problems:
        raise UsageError(problems[0])
    make_latest(folder)
    reporter = Reporter(reports=[str(path) for path in (*reports, folder / "events.jsonl")])
    for event in events:
        reporter.handle(event)
    reporter.close()
    return next(event.exit_code for event in reversed(events) if isinstance(event, RunFinished))
