"""What ``resume`` and ``rerun`` share: the run that they take up, and the command line that began it.

That command line stands in the run's event log. One that this user did not write on this machine is a stranger's: what is
left of its command line is shown and asked about, and the folder is the current one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Mapping, Sequence

from runner import console, quote
from runner.cli import run
from runner.cli.arguments import Parser, set_epilog
from runner.exit_codes import UsageError
from runner.record.events import RunStarted
from runner.record.signing import why_foreign
from runner.text import one_line

_FOREIGN = """\
A log that you did not write on this machine (its signature says so) holds somebody else's command line. It is shown \
and you are asked, or pass --yes. It runs in the current folder, and without options that run code, name files, \
remove runs or open connections: --allow-python, --python, --import, --backend PACKAGE:FUNCTION, --junit, --events, --html, --report, --limit, \
--durations, --engine, --address, --keep. What is left out is named.
"""


def add_run(parser: argparse.ArgumentParser, epilog: str) -> None:
    """Add the run to take up, and the end of the help."""
    set_epilog(parser, f"{epilog}\n\n{_FOREIGN}")
    parser.add_argument(
        "run", nargs="?", default="latest", metavar="RUN", help="a run's folder, its name, its event log, or latest"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask about a log that you did not write here")


def command_line(
    arguments: argparse.Namespace, started: RunStarted, extra_words: Sequence[str], advice: str
) -> argparse.Namespace:
    """Return what a run's command line with ``extra_words`` means; the current folder becomes the run's.

    Raises UsageError, among others when they are somebody else's and nobody agrees to them.
    """
    words = [*started.argv[1:]]
    if words[:1] != ["run"]:
        raise UsageError(
            f"run {one_line(started.run)} was made by {one_line(quote.shell_words(started.argv))}: "
            "only what runner run began can go on"
        )
    parser = run_parser()
    reason = why_foreign(started)
    withheld: list[str] = []
    if reason:
        options = {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}
        words, withheld = taken_words(words, options)
    cut = words.index("--") if "--" in words else len(words)  # what follows -- are paths
    words = [*words[:cut], *extra_words, *words[cut:]]
    parsed = _parsed(parser, words)  # first: a command line that is wrong needs no question
    parsed.shell = os.getcwd()
    if reason:
        agree(reason, words, withheld, arguments.yes, advice)
    else:
        _go_to(started)
    return parsed


def run_parser() -> Parser:
    """Return the parser of ``runner run``."""
    parser = Parser(prog="runner run")
    run.add(parser)
    parser.set_defaults(command="run")
    return parser


def _parsed(parser: Parser, words: list[str]) -> argparse.Namespace:
    """What a command line means. Raises UsageError, also when it only asks for help."""
    text = io.StringIO()
    try:
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
            parsed = parser.parse_args(words[1:])
    except SystemExit as end:
        reason = text.getvalue().partition("error: ")[2] if end.code else "it asks for help, and runs nothing"
        command = one_line(quote.shell_words(["runner", *words]))
        raise UsageError(f"cannot run {command}: {one_line(reason)}") from None
    parsed.words = words
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


HARMLESS = frozenset({
    "--backend", "--budget", "--cached", "--confirm", "--coverage", "--coverage-lines", "--device", "--diagnose", "--exitfirst", "--fail-on-skip", "--failed-first", "--ff", "--isolation",
    "--jobs", "--junit-dialect", "--kernel-cache", "--last-failed", "--lf", "--max-fail", "--maxfail", "--no-confirm", "--no-known", "--numprocesses",
    "--order", "--quiet", "--recompile", "--retries", "--seed", "--shard", "--slow", "--stress", "--verbose",
})  # fmt: skip
"""Long options that are taken from anybody: they run no code, name no file and open no connection. So are all short ones."""

SHOWN = 10_000
"""Characters of a command line that a person can be expected to look at."""


def taken_words(words: Sequence[str], options: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """The words of a ``runner run`` command line that are taken from a stranger, and those that are left out.

    ``options`` says of each option of ``runner run`` whether it takes a value. Raises UsageError for an unknown option.
    """
    accepted: list[str] = []
    withheld: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == "--":  # what follows are paths
            accepted += [word, *remaining]
        elif not word.startswith("--"):
            accepted.append(word)
        else:
            name, equals, value = word.partition("=")
            option = _full_name(name, options)
            group = [word]
            if options[option] and not equals:
                value = next(remaining, "")
                group.append(value)
            # A backend of the form package:function is code to import.
            harmless = option in HARMLESS and not (option == "--backend" and ":" in value)
            (accepted if harmless else withheld).extend(group)
    return accepted, withheld


def _full_name(name: str, options: Mapping[str, bool]) -> str:
    """The option that a name or its beginning means. Raises UsageError."""
    names = [name] if name in options else [option for option in options if option.startswith(name)]
    if len(names) != 1:
        raise UsageError(f"its command line has {quote.shell_word(name)}, which is no option of runner run")
    return names[0]


def agree(reason: str, words: Sequence[str], withheld: Sequence[str], yes: bool, advice: str) -> None:
    """Show what is about to run, and go on only when the person says so. ``advice`` says how to add what is left out.

    Raises UsageError when nobody can be asked, or the answer is no.
    """
    command = quote.shell_words(["runner", *words])
    if len(command) > SHOWN:
        raise UsageError(
            f"nothing was run: the command line of this log has {len(command):,} characters, too many to look at"
        )
    console.message(f"runner: this log was not written by you on this machine: {reason}. Its command line:")
    console.message(f"  {command}")
    if withheld:
        console.message(f"left out: {one_line(quote.shell_words(withheld), SHOWN)}; {advice}")
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "nothing was run: there is no terminal to ask at; look at the command line above and pass --yes"
        )
    console.message(f"run it in {os.getcwd()}? [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was run")
