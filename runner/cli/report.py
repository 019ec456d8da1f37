"""``runner report``: reports from a run's event log."""

from __future__ import annotations

import argparse
import os

from runner.cli import outputs
from runner.cli.arguments import add_junit
from runner.cli.run import report_again
from runner.record.store import journal_of


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner report`` takes."""
    parser.description = "The table, the failures, and JUnit if asked."
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="latest", help="a run's folder, its events.jsonl, or latest"
    )
    add_junit(parser, "write JUnit XML; - is standard output")


def run(arguments: argparse.Namespace) -> int:
    """Make the reports again."""
    outputs.check(arguments, {os.path.realpath(journal_of(arguments.run))})
    return report_again(arguments)
