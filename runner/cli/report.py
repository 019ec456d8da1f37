"""``runner report``: reports from a run's event log."""

from __future__ import annotations

import argparse
import os
import sys

from runner import console, exit_codes
from runner.cli import outputs
from runner.cli.arguments import add_junit, add_outputs, add_verbose
from runner.exit_codes import UsageError
from runner.record.events import RunFinished
from runner.record.store import journal_of, read_events
from runner.report.handlers import Options, Reports
from runner.report.junit import render as render_junit
from runner.report.terminal import Reporter


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner report`` takes."""
    parser.description = "The table, the failures, and JUnit or pages if asked."
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="latest", help="a run's folder, its events.jsonl, or latest"
    )
    add_junit(parser, "write JUnit XML; - is standard output")
    add_outputs(parser)
    add_verbose(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the reports again, by the same code that makes them during a run."""
    outputs.check(arguments, {os.path.realpath(journal_of(arguments.run))})
    chosen = outputs.reporters_of(arguments)
    events = read_events(arguments.run)
    if arguments.junit:
        try:
            text = render_junit(events, arguments.junit_dialect)
        except ValueError as error:  # two variants whose testcases would have one name
            raise UsageError(f"--junit {arguments.junit}: this log makes no report: {error}") from None
        if arguments.junit == "-":
            console.output(text)
            return exit_codes.OK
        outputs.write("--junit", arguments.junit, text)
    if not isinstance(events[-1], RunFinished):
        events.append(RunFinished(exit_codes.INTERRUPTED, 0.0, interrupted=True))
    terminal = Reporter(
        whole=not sys.stdout.isatty(), verbose=arguments.detail == "verbose", quiet=arguments.detail == "quiet"
    )
    options = Options(dialect=arguments.junit_dialect, folder=journal_of(arguments.run).parent)
    return exit_codes.INTERNAL if Reports(terminal, chosen, options).play(events) else exit_codes.OK
