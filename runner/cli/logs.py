"""Commands that read event logs and run nothing: ``report``, ``merge`` and ``history``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from runner import console, exit_codes
from runner.cli import outputs
from runner.cli.arguments import add_junit, add_outputs, add_verbose, describe
from runner.files import replace_text
from runner.record.events import RunFinished
from runner.record.journal import Journal, Weight
from runner.record.store import Log, make_latest, new_folder, read_log, started_of
from runner.report import past_verdicts
from runner.report.handlers import Options, Reports
from runner.report.junit import render as render_junit
from runner.report.terminal import Reporter, colour_of, modes
from runner.session.shards import check_stamps, merge
from runner.text import one_line, plural


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner report`` takes."""
    parser.description = "The table, the failures, and JUnit or pages if asked."
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="latest", help="a run's folder, its events.jsonl, or latest"
    )
    add_junit(parser, "write JUnit XML; - is standard output")
    add_outputs(parser)
    add_verbose(parser)


def run_report(arguments: argparse.Namespace) -> int:
    """Make the reports again, by the same code that makes them during a run."""
    log = read_log(arguments.run)
    log.print_problems()
    events = log.events
    outputs.check_of_logs(arguments, log)
    chosen = outputs.reporters_of(arguments)
    if arguments.junit:
        try:
            text = render_junit(events, arguments.junit_dialect)
        except ValueError as error:  # two variants whose testcases would have one name
            raise exit_codes.UsageError(f"--junit {arguments.junit}: this log makes no report: {error}") from None
        if arguments.junit == "-":
            console.output(text)
            return exit_codes.OK
        outputs.write("--junit", arguments.junit, text)
    if not isinstance(events[-1], RunFinished):
        events.append(RunFinished(exit_codes.INTERRUPTED, 0.0, interrupted=True))
    terminal = Reporter(
        whole=not sys.stdout.isatty(), verbose=arguments.detail == "verbose", quiet=arguments.detail == "quiet"
    )
    options = Options(dialect=arguments.junit_dialect, folder=log.path.parent)
    return exit_codes.INTERNAL if Reports(terminal, chosen, options).play(events) else exit_codes.OK


def add_merge(parser: argparse.ArgumentParser) -> None:
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


def run_merge(arguments: argparse.Namespace) -> int:
    """Join the runs into a new one; its exit code. Raises UsageError when they are not all the shards of one plan."""
    logs = [_shard(run) for run in arguments.runs]
    outputs.check_of_logs(arguments, *logs)
    chosen = outputs.reporters_of(arguments)
    events = merge([log.events for log in logs])
    folder = _merged_folder(arguments.output)
    start = started_of(events)
    events[events.index(start)] = replace(start, folder=str(folder))
    try:
        xml = render_junit(events, arguments.junit_dialect)
    except ValueError as error:  # two variants whose testcases would have one name
        raise exit_codes.UsageError(f"cannot merge: these logs make no report: {error}") from None
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
        raise exit_codes.UsageError(problems[0])
    make_latest(folder)
    terminal = Reporter(reports=[str(path) for path in (*reports, folder / "events.jsonl")])
    options = Options(dialect=arguments.junit_dialect, stamp={"plan": start.plan})
    failed = Reports(terminal, chosen, options).play(events)
    code = next(event.exit_code for event in reversed(events) if isinstance(event, RunFinished))
    return exit_codes.INTERNAL if failed and code in (exit_codes.OK, exit_codes.FAILED) else code


def _shard(run: str) -> Log:
    """The log of one shard's run. Raises UsageError when its log cannot be what that run has written."""
    log = read_log(run)
    log.print_problems()
    if log.problems.worst > Weight.USUAL:
        raise exit_codes.UsageError(f"cannot merge: {log.path} is not as its run wrote it; run that shard again")
    check_stamps(log.path)
    return log


def _merged_folder(output: str | None) -> Path:
    """A folder for the joined run. Raises UsageError when it cannot be made, or has a run already."""
    if output is None:
        folder, warning = new_folder()
        if warning:
            raise exit_codes.UsageError(f"{warning}; name a folder with -o")
        return folder
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise exit_codes.UsageError(f"-o {folder}: {error.strerror}") from None
    if (folder / "events.jsonl").exists() or (folder / "events.jsonl").is_symlink():
        raise exit_codes.UsageError(f"-o {folder}: there is a run already; name another folder")
    return folder


_HISTORY = """\
examples:
  runner history first.spec.yaml::scaled_relu
  runner history 'first.spec.yaml::scaled_relu[float32,cpu]@inductor'
  runner history scaled_relu                  in any file

The flake rate is the share of red attempts of runs with --stress, with
Wilson's 95 % interval. It counts the newest such run and those of the same
plan: the same cases and the same torch.

exit codes: 0 there are verdicts, 4 bad arguments, 5 there are no verdicts
"""


def add_history(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner history`` takes."""
    describe(
        parser,
        "The verdicts of a case over the runs kept here, the newest first: torch, backend, time, stage, signature, "
        "flake rate.",
        _HISTORY,
    )
    parser.add_argument(
        "case", metavar="CASE", help="an id with or without its axes and backend, a case's name, or a file"
    )


def run_history(arguments: argparse.Namespace) -> int:
    """Print the table."""
    if not arguments.case:
        raise exit_codes.UsageError("the name of the case is empty")
    verdicts, runs = past_verdicts.past_verdicts(arguments.case)
    if not verdicts:
        where = f"in the {plural(runs, 'run')} kept here" if runs else "here: no run is kept in .runner/runs"
        raise exit_codes.UsageError(f"no verdict of {one_line(arguments.case, 200)} {where}", exit_codes.NOTHING)
    colour = modes(sys.stdout, os.environ)[0]
    width = shutil.get_terminal_size((120, 24)).columns
    paint = (lambda text, verdict: console.painted(text, colour_of(verdict))) if colour else None
    console.output(past_verdicts.render(verdicts, width, paint), colours=colour)
    return exit_codes.OK
