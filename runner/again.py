"""Taking up an earlier run: ``resume`` finishes it, ``rerun`` repeats it, both by the command line that began it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from runner import exits, history
from runner.engine.events import RED, Event, RunFinished, RunStarted, VariantFinished, VariantPlanned
from runner.exits import UsageError
from runner.running import Past
from runner.runs import journal_of, read_events, started_of

Run = Callable[[argparse.Namespace, list[str], "frozenset[history.Key] | None", "Past | None"], int]
"""``commands.run`` with what it is to be limited to, and the run to go on with."""


def resume(arguments: argparse.Namespace, run: Run) -> int:
    """Run what an interrupted or killed run has no verdict for, into the same folder and reports."""
    events = read_events(arguments.run)
    folder = journal_of(arguments.run).resolve().parent
    started, planned, finished = _state(events)
    last = events[-1]
    whole = len(planned) == started.planned
    if whole and planned <= finished.keys() and isinstance(last, RunFinished) and not last.interrupted:
        print(f"runner: nothing is left to do in run {started.run}; runner report shows it", file=sys.stderr)
        return last.exit_code
    words = _words(started)
    parsed = arguments.parse(words)
    _go_to(started)
    if folder.is_relative_to(os.getcwd()):
        folder = folder.relative_to(os.getcwd())
    # Killed while it announced its plan, it has run nothing: then the command line says again what to select.
    return run(parsed, words, frozenset(planned) if whole else None, Past(folder, events))


def rerun(arguments: argparse.Namespace, run: Run) -> int:
    """A new run by the same command line; with ``--failed`` of what had no good verdict."""
    events = read_events(arguments.run)
    started, planned, finished = _state(events)
    words = [*_words(started), *arguments.more]
    parsed = arguments.parse(words)
    only = None
    if arguments.failed:
        only = frozenset(key for key in planned if key not in finished or finished[key].verdict in RED)
        if not only:
            print(f"runner: nothing failed in run {started.run}", file=sys.stderr)
            return exits.NOTHING
    _go_to(started)
    return run(parsed, words, only, None)


def _state(
    events: list[Event],
) -> tuple[RunStarted, set[history.Key], dict[history.Key, VariantFinished]]:
    planned = {(e.id, e.torch) for e in events if isinstance(e, VariantPlanned)}
    finished = {(e.id, e.torch): e for e in events if isinstance(e, VariantFinished)}
    return started_of(events), planned, finished


def _words(started: RunStarted) -> list[str]:
    words = list(started.argv[1:])
    if words[:1] != ["run"]:
        raise UsageError(
            f"run {started.run} was made by {' '.join(started.argv)}: only what runner run began can go on"
        )
    return words


def _go_to(started: RunStarted) -> None:
    """The folder in which the run began: its paths are relative to it."""
    if not started.cwd or started.cwd == os.getcwd():
        return
    try:
        os.chdir(started.cwd)
    except OSError as error:
        raise UsageError(f"run {started.run} began in {started.cwd}, which is out of reach: {error.strerror}") from None
    print(f"runner: in {started.cwd}", file=sys.stderr)
