"""``runner known``: the known failures beside what a run made of them, as a table: entries by state, totals."""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from runner import console, exit_codes, quote
from runner.cases.model import Backend
from runner.cases.suites import DRAFT, LEDGER
from runner.cli import outputs
from runner.cli.arguments import PATHS, argument, command, defaults, one_of, setting, settings_of
from runner.cli.variants import load_variants, refuse
from runner.diagnostics import shown_path
from runner.ledger.draft import draft_entries, with_entries
from runner.ledger.edit import Unfit
from runner.ledger.review import RED_STATES, STATES, Entry, Run, read_run, review
from runner.ledger.update import plan_changes, rewrite
from runner.record.store import FOLDER, read_events
from runner.session.collect import Loaded
from runner.session.nodes import split_paths
from runner.text import draw_table, in_line, one_line, plural
from runner.verdict.policy import concerns, shows_sometimes

_ISSUE = re.compile(r"https?://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)/?$")


def render_ledger(entries: Sequence[Entry], judged: bool) -> str:
    """Return the whole report. Without a run (``judged`` is false) there are no states."""
    ordered = sorted(entries, key=lambda e: STATES.index(e.state)) if judged else entries
    headers = ["state", "where", "case", "torch", "stage", "oracles", "error", "issue or reason", "review"]
    rows = [[entry.state, *_row(entry)][not judged :] for entry in ordered]
    parts = [draw_table(rows, headers[not judged :])]
    remarks = [f"{e.known.span}: {e.state}: {e.detail}" for e in ordered if e.state in RED_STATES or e.is_idle]
    remarks += [f"{e.known.span}: was to be looked at again by {e.known.review}" for e in ordered if e.due]
    parts += ["\n".join(map(in_line, remarks))] if remarks else []
    return "\n\n".join([*parts, _totals(entries, judged)])


def _row(entry: Entry) -> list[str]:
    known = entry.known
    names = [case.name for case in entry.cases]
    why = f"{known.why}: " if known.why != "bug" else ""
    why += "sometimes: " * shows_sometimes(known)
    cells = (
        f"{shown_path(known.span.file)}:{known.span.line}",
        f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names) or "none",
        known.torch or "any",
        known.stage or "any",
        " ".join(known.oracle) or "any",
        one_line(known.error or "", 40),
        one_line(why + (_ISSUE.sub(r"\1#\2", known.issue) if known.issue else known.reason or ""), 48),
        f"{known.review or ''}{' due' if entry.due else ''}",
    )
    return [*map(in_line, cells)]


def _totals(entries: Sequence[Entry], judged: bool) -> str:
    counts = Counter(entry.state for entry in entries)
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state] and judged]
    due = sum(entry.due for entry in entries)
    parts += [f"review due for {due}"] if due else []
    return ": ".join(filter(None, (plural(len(entries), "entry", "entries"), ", ".join(parts))))


def _backends_in_question(arguments: argparse.Namespace, loaded: Loaded, past: Run | None) -> list[Backend]:
    """Return those of ``--backend``, else those that the run had here; none if that is not known."""
    variants = loaded.variants if arguments.backend else [j.variant for j in past.judged] if past else []
    return [*{(v.backend.name, v.backend.backend): v.backend for v in variants}.values()]


def _tell_left_out(number: int, backends: Sequence[Backend]) -> None:
    """Say how many entries the table lacks because they speak of other backends."""
    names = in_line(", ".join(backend.name for backend in backends))
    console.message(
        f"runner: {plural(number, 'entry', 'entries')} left out: no variant under {names} is meant by "
        f"{'it' if number == 1 else 'them'}; --backend NAME asks for other backends"
    )


@command(
    "Every known: entry of the paths, and whether a run matched it. 1 when one is fixed, changed or stale.",
    *PATHS,
    defaults(allow_python=True),
    setting("backend", help="only entries that may speak of this backend (default: of the backends of the run)"),
    setting("ledger"),
    one_of(
        argument(
            "--run", metavar="RUN", help="a run's folder, its events.jsonl, or latest (the default, if there is one)"
        ),
        argument("--update", metavar="RUN", help="rewrite the entries from this run, and print the diff"),
    ),
    argument("--add", action="store_true", help="with --update: entries for failures that have none"),
    argument("--dry-run", action="store_true", help="with --update: print the diff and write nothing"),
    argument(
        "--write",
        metavar="FILE",
        help="draft a ledger in a file of its own, from the failures of the run that no entry explains; entries that "
        "are there stay",
    ),
)
def run(arguments: argparse.Namespace) -> int:
    """Print the entries by state; with ``--update`` rewrite them from a run instead."""
    if (arguments.add or arguments.dry_run) and not arguments.update:
        raise exit_codes.UsageError("--add and --dry-run go with --update RUN")
    chosen = (
        arguments.update or arguments.run or ("latest" if Path(FOLDER, "latest", "events.jsonl").is_file() else None)
    )
    if arguments.write:
        return _write_draft(arguments, chosen)
    loaded = load_variants(arguments)
    past = _read(arguments, loaded, chosen) if chosen else None
    entries = review(loaded.variants, past)
    notes: list[str] = []  # what somebody is to do by hand
    if arguments.update and past is not None:
        plan = plan_changes(entries, loaded.variants, past, arguments.add)
        named = [Path.cwd(), *map(Path, split_paths(arguments.paths)[0])]
        folders = {path.resolve() if path.is_dir() else path.resolve().parent for path in named}
        console.output(rewrite(plan, settings_of(arguments).limits(), folders, arguments.dry_run), end="")
        notes = plan.notes
        for note in notes:
            console.message(f"runner: {note}")
        if not arguments.dry_run:
            loaded = load_variants(arguments)
            entries = review(loaded.variants, _read(arguments, loaded, chosen or ""))
        for entry in entries:
            if entry.state == "stale":
                console.message(f"runner: {entry.known.span}: stale, take it away by hand: {entry.detail}")
    elif entries:
        backends = _backends_in_question(arguments, loaded, past)
        shown = [e for e in entries if not backends or any(concerns(e.known, backend) for backend in backends)]
        if shown:
            console.output(render_ledger(shown, past is not None))
        if len(shown) < len(entries):
            _tell_left_out(len(entries) - len(shown), backends)
    if loaded.errors:
        return refuse(loaded.diagnostics)
    if not entries and not arguments.update:
        raise exit_codes.UsageError("nothing found: no known: entry here", exit_codes.NOTHING)
    return exit_codes.FAILED if notes or any(e.state in RED_STATES for e in entries) else exit_codes.OK


def _read(arguments: argparse.Namespace, loaded: Loaded, run: str) -> Run:
    """Return what a run says of the variants, under the backends of ``--backend`` alone if there are any."""
    past = read_run(loaded.variants, read_events(run))
    return past.narrowed(arguments.backend) if arguments.backend else past


def _write_draft(arguments: argparse.Namespace, chosen: str | None) -> int:
    """Write a ledger from what a run shows, beside the entries that are there; their reasons are left to a person."""
    path: str = arguments.write
    if arguments.update or chosen is None:
        raise exit_codes.UsageError("--write FILE drafts from --run RUN, else from the latest run of this folder")
    if not path.endswith(LEDGER):
        raise exit_codes.UsageError(f"--write {path}: ledgers end in {LEDGER}")
    is_there = os.path.lexists(path)
    arguments.ledger += [path] if is_there else []
    loaded = load_variants(arguments, drafts=True)
    if loaded.errors:
        return refuse(loaded.errors)
    entries = draft_entries(_read(arguments, loaded, chosen))
    if not entries:
        console.message("runner: nothing to write: an entry explains each failure of this run")
        return exit_codes.OK
    try:
        text = with_entries(path if is_there else "", entries, loaded.variants)
    except Unfit as error:
        raise exit_codes.UsageError(f"--write {path}: {error}") from None
    outputs.write("--write", path, text)
    words = ["runner", "validate", quote.operand(path), *settings_of(arguments).flags("no_project")]
    check = quote.shell_words(words)
    console.message(f"runner: {plural(len(entries), 'entry', 'entries')} drafted in {in_line(path)}: write the reasons")
    console.message(f"in place of {DRAFT}; {check} says what is left")
    return exit_codes.OK
