"""``runner known``: the known failures, beside what a run made of them."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cli.arguments import add_paths, settings_of
from runner.cli.variants import load_variants, refuse
from runner.exit_codes import UsageError
from runner.ledger.review import RED_STATES, read_run, review
from runner.ledger.update import plan_changes, rewrite
from runner.record.store import has_latest, read_events
from runner.report.ledger import render_ledger


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner known`` takes."""
    parser.description = (
        "Every known: entry of the paths, and whether a run matched it. 1 when one is fixed, changed or stale."
    )
    add_paths(parser)
    parser.set_defaults(allow_python=True)  # nothing runs
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--run", metavar="RUN", help="a run's folder, its events.jsonl, or latest (the default, if there is one)"
    )
    which.add_argument("--update", metavar="RUN", help="rewrite the entries from this run, and print the diff")
    parser.add_argument("--add", action="store_true", help="with --update: entries for failures that have none")
    parser.add_argument("--dry-run", action="store_true", help="with --update: print the diff and write nothing")


def run(arguments: argparse.Namespace) -> int:
    """Print the entries by state; with ``--update`` rewrite them from a run instead."""
    if (arguments.add or arguments.dry_run) and not arguments.update:
        raise UsageError("--add and --dry-run go with --update RUN")
    loaded = load_variants(arguments)
    chosen = arguments.update or arguments.run or ("latest" if has_latest() else None)
    past = read_run(loaded.variants, read_events(chosen)) if chosen else None
    entries = review(loaded.variants, past)
    left = False  # for somebody to do by hand
    if arguments.update and past is not None:
        plan = plan_changes(entries, loaded.variants, past, arguments.add)
        console.output(rewrite(plan, settings_of(arguments).limits(), arguments.dry_run), end="")
        for note in plan.notes:
            console.message(f"runner: {note}")
        left = bool(plan.notes)
        if not arguments.dry_run:
            loaded = load_variants(arguments)
            past = read_run(loaded.variants, read_events(chosen or ""))
            entries = review(loaded.variants, past)
        for entry in entries:
            if entry.state == "stale":
                console.message(f"runner: {entry.known.span}: stale, take it away by hand: {entry.detail}")
    elif entries:
        console.output(render_ledger(entries, past is not None))
    if loaded.errors:
        return refuse(loaded.diagnostics)
    if not entries and not arguments.update:
        raise UsageError("nothing found: no known: entry here", exit_codes.NOTHING)
    return exit_codes.FAILED if left or any(e.state in RED_STATES for e in entries) else exit_codes.OK
