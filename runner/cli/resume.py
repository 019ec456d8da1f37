"""Taking up an earlier run: ``resume`` finishes it, ``rerun`` repeats it, both by the command line that began it.

That command line stands in the run's event log. One that this user did not write on this machine is a stranger's: what is
left of its command line is shown and asked about, and the folder is the current one (``foreign.py``).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from runner import console, exit_codes, quote
from runner.cli.foreign import agree, taken_words
from runner.cli.run import Past
from runner.exit_codes import UsageError
from runner.record import lock
from runner.record.events import RED, RunFinished, RunStarted, VariantFinished, VariantPlanned
from runner.record.signing import why_foreign
from runner.record.store import Log, journal_of, read_log
from runner.session import history
from runner.text import one_line

Run = Callable[[argparse.Namespace, list[str], "frozenset[history.Key] | None", "Past | None"], int]
"""``commands.run`` with what it is to be limited to, and the run to go on with."""


def resume(arguments: argparse.Namespace, run: Run) -> int:
    """Run what an interrupted or killed run has no verdict for, into the same folder and reports."""
    folder = _folder_of(journal_of(arguments.run))
    with lock.lock(folder):  # before its log is read: another process may be about to add to it
        log = read_log(str(folder))
        log.demand_whole()
        planned, finished = _state(log)
        if finished.keys() - planned:
            raise UsageError(
                f"run {log.started.run} cannot go on: its log lacks the plan of what has a verdict; runner rerun runs it anew"
            )
        last = log.events[-1]
        whole = len(planned) == log.started.planned
        if whole and planned <= finished.keys() and isinstance(last, RunFinished) and not last.interrupted:
            console.message(f"runner: nothing is left to do in run {log.started.run}; runner report shows it")
            return _code(last, finished.values())
        words, parsed = _command_line(arguments, log.started, [], "runner rerun RUN -- OPTION ... takes them")
        if folder.is_relative_to(os.getcwd()):
            folder = folder.relative_to(os.getcwd())
        # Killed while it announced its plan, it has run nothing: then the command line says again what to select.
        return run(parsed, words, frozenset(planned) if whole else None, Past(folder, log.events))


def rerun(arguments: argparse.Namespace, run: Run) -> int:
    """A new run by the same command line; with ``--failed`` of what had no good verdict."""
    log = read_log(arguments.run)
    log.demand_whole()
    planned, finished = _state(log)
    only = None
    if arguments.failed:
        only = frozenset(key for key in planned if key not in finished or finished[key].verdict in RED)
        if not only:
            console.message(f"runner: nothing failed in run {log.started.run}")
            return exit_codes.NOTHING
    words, parsed = _command_line(arguments, log.started, arguments.more, "pass them after -- to have them")
    return run(parsed, words, only, None)


def _folder_of(journal: Path) -> Path:
    """The folder of a run that is to go on. Raises UsageError where it holds links: they may lead anywhere."""
    folder = journal.parent.resolve()
    if journal.name != "events.jsonl":
        raise UsageError(f"{journal} cannot go on: a run goes on in its own folder, in events.jsonl")
    # Before anything is written: an archive may hold a link in place of a file of the run.
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(parent, name)):
                raise UsageError(f"{folder} cannot go on: {os.path.join(parent, name)} is a link to somewhere else")
    return folder


def _state(log: Log) -> tuple[set[history.Key], dict[history.Key, VariantFinished]]:
    planned = {(e.id, e.torch) for e in log.events if isinstance(e, VariantPlanned)}
    finished = {(e.id, e.torch): e for e in log.events if isinstance(e, VariantFinished)}
    return planned, finished


def _code(end: RunFinished, results: Iterable[VariantFinished]) -> int:
    """The exit code of a run that is complete."""
    if any(result.verdict in RED for result in results):
        return exit_codes.FAILED
    return end.exit_code if end.exit_code in (exit_codes.USAGE, exit_codes.NOTHING) else exit_codes.OK


def _command_line(
    arguments: argparse.Namespace, started: RunStarted, extra_words: Sequence[str], advice: str
) -> tuple[list[str], argparse.Namespace]:
    """The words of a run's command line with ``extra_words``, and their meaning; the current folder becomes the run's.

    Raises UsageError, among others when they are somebody else's and nobody agrees to them.
    """
    words = [*started.argv[1:]]
    if words[:1] != ["run"]:
        raise UsageError(
            f"run {one_line(started.run)} was made by {one_line(quote.shell_words(started.argv))}: "
            "only what runner run began can go on"
        )
    reason = why_foreign(started)
    withheld: list[str] = []
    if reason:
        words, withheld = taken_words(words, arguments.options)
    cut = words.index("--") if "--" in words else len(words)  # what follows -- are paths
    words = [*words[:cut], *extra_words, *words[cut:]]
    parsed = _parsed(arguments, words)  # first: what is no command line is nothing to ask about
    if reason:
        agree(reason, words, withheld, arguments.yes, advice)
    else:
        _go_to(started)
    return words, parsed


def _parsed(arguments: argparse.Namespace, words: Sequence[str]) -> argparse.Namespace:
    """What a command line means. Raises UsageError, also when it only asks for help."""
    text = io.StringIO()
    try:
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
            parsed: argparse.Namespace = arguments.parse(words)
    except SystemExit as end:
        reason = text.getvalue().partition("error: ")[2] if end.code else "it asks for help, and runs nothing"
        command = one_line(quote.shell_words(["runner", *words]))
        raise UsageError(f"cannot run {command}: {one_line(reason)}") from None
    return parsed


def _go_to(started: RunStarted) -> None:
    """The folder in which the run began: its paths are relative to it."""
    if not started.cwd or started.cwd == os.getcwd():
        return
    try:
        os.chdir(started.cwd)
    except OSError as error:
        raise UsageError(f"run {started.run} began in {started.cwd}, which is out of reach: {error.strerror}") from None
    console.message(f"runner: in {started.cwd}")
