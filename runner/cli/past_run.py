"""What ``resume`` and ``rerun`` share: the run that they take up, and the command line that began it.

That command line stands in the run's event log. One that this user did not write on this machine is a stranger's: what is
left of its command line is shown and asked about, and the folder is the current one (``foreign.py``).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Sequence

from runner import console, quote
from runner.cli import run
from runner.cli.arguments import Parser, set_epilog
from runner.cli.foreign import agree, taken_words
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
