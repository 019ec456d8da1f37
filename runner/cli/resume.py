"""``runner resume``: finishes an earlier run, by the command line that began it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from runner import console, exit_codes
from runner.cli.past_run import add_run, command_line
from runner.cli.run import Past, run_again
from runner.exit_codes import UsageError
from runner.files import entries_below, link_problem
from runner.record.events import RED, RunFinished, finished_of, planned_of
from runner.record.store import is_kept_here, journal_of, lock, read_log

_ENDS = (exit_codes.FAILED, exit_codes.INTERNAL, exit_codes.USAGE, exit_codes.NOTHING)
"""Codes that a complete run may have ended with although no verdict is red: ``--fail-on-skip``, cases with errors, a
defect."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner resume`` takes."""
    parser.description = (
        "Run what has no verdict yet, by the command line that began the run, into its folder and reports."
    )
    add_run(parser, "One process at a time writes to a run's folder.")


def run(arguments: argparse.Namespace) -> int:
    """Run what an interrupted or killed run has no verdict for, into the same folder and reports."""
    folder = _folder_of(journal_of(arguments.run))
    with lock(folder):  # before its log is read: another process may be about to add to it
        log = read_log(str(folder))
        log.demand_whole()
        planned, finished = planned_of(log.events).keys(), finished_of(log.events)
        if finished.keys() - planned:
            raise UsageError(
                f"run {log.started.run} cannot go on: its log lacks the plan of what has a verdict; runner rerun "
                "runs it anew"
            )
        last = log.events[-1]
        whole = len(planned) == log.started.planned
        if whole and planned <= finished.keys() and isinstance(last, RunFinished) and not last.interrupted:
            console.message(f"runner: nothing is left to do in run {log.started.run}; runner report shows it")
            red = any(result.verdict in RED for result in finished.values())
            code = last.exit_code if last.exit_code in _ENDS else exit_codes.OK
            return exit_codes.FAILED if red and code in (exit_codes.OK, exit_codes.NOTHING) else code
        parsed = command_line(arguments, log.started, [], "runner rerun RUN -- OPTION ... takes them")
        if folder.is_relative_to(os.getcwd()):
            folder = folder.relative_to(os.getcwd())
        # Killed while it announced its plan, it has run nothing: then the command line says again what to select.
        return run_again(parsed, frozenset(planned) if whole else None, Past(folder, log.events))


def _folder_of(journal: Path) -> Path:
    """The folder of a run that is to go on. Raises UsageError where it is or holds a link: links may lead anywhere."""
    folder = journal.parent.resolve()
    if journal.name != "events.jsonl":
        raise UsageError(f"{journal} cannot go on: a run goes on in its own folder, in events.jsonl")
    if not is_kept_here(folder) and (problem := link_problem(journal.parent)):
        raise UsageError(f"{journal.parent} cannot go on: {problem}")
    # Before anything is written: an archive may hold a link in place of a file of the run.
    for entry in entries_below(folder):
        if entry.is_symlink():
            raise UsageError(f"{folder} cannot go on: {entry.path} is a link to somewhere else")
    return folder
