"""``runner rerun``: repeats an earlier run, by the command line that began it."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cli.past_run import add_run, command_line
from runner.cli.run import run_again
from runner.record.events import RED, finished_of, planned_of
from runner.record.store import read_log


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner rerun`` takes."""
    parser.description = "A new run by the command line of an earlier one. Options after -- are added to it."
    parser.usage = "runner rerun [-h] [--yes] [--failed] [RUN] [-- OPTION ...]"
    add_run(parser, "example: runner rerun --failed -- --stress 20 -j 1")
    parser.add_argument("--failed", action="store_true", help="only what has no good verdict in it")


def run(arguments: argparse.Namespace) -> int:
    """A new run by the same command line; with ``--failed`` of what had no good verdict."""
    log = read_log(arguments.run)
    log.demand_whole()
    only = None
    if arguments.failed:
        finished = finished_of(log.events)
        only = frozenset(key for key in planned_of(log.events) if key not in finished or finished[key].verdict in RED)
        if not only:
            console.message(f"runner: nothing failed in run {log.started.run}")
            return exit_codes.NOTHING
    parsed = command_line(arguments, log.started, arguments.more, "pass them after -- to have them")
    return run_again(parsed, only)
