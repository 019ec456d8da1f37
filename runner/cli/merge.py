"""``runner merge``: the shards' logs read, joined, and reported as one run."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from runner import exit_codes
from runner.cli import outputs
from runner.cli.arguments import add_junit, add_outputs
from runner.exit_codes import UsageError
from runner.files import replace_text
from runner.record.events import Event, RunFinished
from runner.record.journal import Journal, Weight
from runner.record.store import journal_of, make_latest, new_folder, read_log, started_of
from runner.report.handlers import Options, Reports
from runner.report.junit import render as render_junit
from runner.report.terminal import Reporter
from runner.session.shards import check_stamps, merge


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner merge`` takes."""
    parser.description = (
        "One event log, table and JUnit file from the runs of --shard 1/N to N/N. Refuses missing, doubled and "
        "foreign shards."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder or its event log, one for each shard")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="write events.jsonl and junit.xml here (default: a new run's folder)"
    )
    add_junit(parser, "JUnit XML here too")
    add_outputs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Join the runs into a new one; its exit code. Raises UsageError when they are not all the shards of one plan."""
    outputs.check(arguments, {os.path.realpath(journal_of(run)) for run in arguments.runs})
    chosen = outputs.reporters_of(arguments)
    events = merge([_shard(run) for run in arguments.runs])
    folder = _folder(arguments.output)
    start = started_of(events)
    events[events.index(start)] = replace(start, folder=str(folder))
    try:
        xml = render_junit(events, arguments.junit_dialect)
    except ValueError as error:  # two variants whose testcases would have one name
        raise UsageError(f"cannot merge: these logs make no report: {error}") from None
    reports = [folder / "junit.xml", *([Path(arguments.junit)] if arguments.junit else [])]
    problems: list[str] = []
    with Journal(folder / "events.jsonl", problems.append, {"plan": start.plan}) as journal:
        for event in events:
            journal.write(event)
    try:
        for path in reports:
            replace_text(path, xml)
    except OSError as error:
        problems.append(f"{error.filename} cannot be written: {error.strerror}")
    if problems:
        raise UsageError(problems[0])
    make_latest(folder)
    terminal = Reporter(reports=[str(path) for path in (*reports, folder / "events.jsonl")])
    options = Options(dialect=arguments.junit_dialect, stamp={"plan": start.plan})
    failed = Reports(terminal, chosen, options).play(events)
    code = next(event.exit_code for event in reversed(events) if isinstance(event, RunFinished))
    return exit_codes.INTERNAL if failed and code in (exit_codes.OK, exit_codes.FAILED) else code


def _shard(run: str) -> list[Event]:
    """The events of one shard's run. Raises UsageError when its log cannot be what that run has written."""
    log = read_log(run)
    log.print_problems()
    if log.problems.worst > Weight.USUAL:
        raise UsageError(f"cannot merge: {log.path} is not as its run wrote it; run that shard again")
    check_stamps(log.path)
    return log.events


def _folder(output: str | None) -> Path:
    """A folder for the joined run. Raises UsageError when it cannot be made, or has a run already."""
    if output is None:
        folder, warning = new_folder()
        if warning:
            raise UsageError(f"{warning}; name a folder with -o")
        return folder
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"-o {folder}: {error.strerror}") from None
    if (folder / "events.jsonl").exists() or (folder / "events.jsonl").is_symlink():
        raise UsageError(f"-o {folder}: there is a run already; name another folder")
    return folder
