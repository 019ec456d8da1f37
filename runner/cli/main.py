"""The command line: arguments in, exit code out. The modules of ``runner.cli`` hold the commands."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, cast

from runner import __version__, console, exit_codes, interrupts
from runner.cli.arguments import EXAMPLES, Command, Parser
from runner.diagnostics import InputError, nearest

GROUPS = {
    "run": {
        "run": "run cases and judge them",
        "watch": "run cases, and on each save what has changed",
        "resume": "finish a run that was interrupted or killed",
        "rerun": "repeat a run, or what failed in it",
        "merge": "join the runs of all shards into one",
        "report": "make reports again from a run's event log",
        "diff": "what an upgrade broke: two runs, versions or backends",
        "score": "the conformance of each backend of a run, or of two",
        "history": "a case's verdicts over the runs kept here",
        "hunt": "draw cases, run them, and reduce one of each new failure",
    },
    "write": {
        "new": "a case from flags: runner new F.gelu --shape 4,8 --grad",
        "capture": "write your own model as cases",
        "import": "write logs of operators, printed graphs and exported programs as cases",
        "generate": "draw valid cases by a seed",
        "list": "list variants, their tags, or their backends",
        "operators": "what a step may call: signature, dtypes, cases; what is refused",
        "coverage": "operators, dtypes, shapes and kinds of difference that a suite exercises",
        "validate": "check files without running them",
        "fmt": "lay files out in the one canonical way, comments kept",
        "show": "print a case resolved, with its source",
        "schema": "print a JSON Schema of the YAML format, or of event logs",
    },
    "investigate": {
        "why": "from a failure to its script: stage, operator, smallest case",
        "diagnose": "say what is to blame for a failure",
        "reduce": "shrink a failing case; --minifier: by torch's own minifier",
        "explain": "graphs, graph breaks, guards and recompiles of a case",
        "debug": "all that the compiler did; --sanitizer, --record, --replay",
        "ops": "each operator call of a model alone: which are right, by use",
        "repro": "print a case as a script that needs torch alone",
        "issue": "a bug report, for PyTorch or for a vendor's package",
    },
    "maintain": {
        "board": "a site over many runs: conformance over time, what broke when",
        "known": "list known failures by state, or rewrite them from a run",
        "bench": "time cases in eager and compiled",
        "selftest": "plant known bugs and see them found",
        "mutate": "change the compiler, and count the changes that a suite finds",
        "warm": "processes that --keep-warm has left; --stop ends them",
        "config": "what the project file sets, and whether it is trusted",
    },
}
"""The commands in the order of ``runner --help``."""

COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}

FORMS = {"reduce --minifier": "minify", "debug --sanitizer": "sanitize", "debug --replay": "replay"}
"""Options that make another command of one, with other options: the module behind each, whose name is the option's old
word."""

_HOMES = {
    **dict.fromkeys(("resume", "rerun"), "run"),
    **dict.fromkeys(("merge", "report", "history", "diff", "score"), "logs"),
    **dict.fromkeys(("list", "validate", "show", "schema"), "cases"),
    **dict.fromkeys(("generate", "hunt"), "draw"),
    **dict.fromkeys(("sanitize", "replay"), "debug"),
    **dict.fromkeys(("repro", "issue"), "diagnose"),
    "minify": "reduce",
    "import": "foreign",
}
"""The module of each command that is not called like it."""

_OLD_WORDS = {"ledger": "known"}

_LONGEST = 80

_PLACES = ("FILE", "FOLDER", "PATH", "RUN")
"""What options that take a path call it. An empty one would mean the current folder, or the default."""

_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""What the machine may refuse at any time: no bug, and no traceback."""


class _CommandParser(Parser):
    """The parser of one command. It imports the command when it has something to parse: the others cost nothing."""

    command = ""
    complete = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, with the command's own arguments."""
        if not self.complete:
            entrance(self.command).add(self)
            self.complete = True
        parsed, extra = super().parse_known_args(args, namespace)
        if extra:  # here, where the options are known that somebody may have meant
            behind = "\narguments of your script stand behind --" if self.command == "capture" else ""
            self.error(f"unrecognized arguments: {' '.join(extra)}{behind}")
        for action in self._actions:
            values = getattr(parsed, action.dest, None)
            if action.option_strings and action.metavar in _PLACES and "" in (values, *(values or ())):
                from runner.cli.outputs import EMPTY

                raise exit_codes.UsageError(f"{action.option_strings[-1]}: {EMPTY}")
        return parsed, extra


def entrance(name: str) -> Command:
    """Return a command, which its module calls ``run``, or ``run_rerun`` beside others."""
    home = _HOMES.get(name, name)
    return cast(
        Command, getattr(importlib.import_module(f"runner.cli.{home}"), "run" if name == home else f"run_{name}")
    )


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    groups = (
        f"{group}:\n" + "".join(f"  {name:<10} {summary}\n" for name, summary in commands.items())
        for group, commands in GROUPS.items()
    )
    parser = Parser(
        prog="runner",
        description="Does a torch.compile backend compute what eager PyTorch computes? Cases are YAML; verdicts come "
        "with their numbers.\n\n" + "\n".join(groups),
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="runner COMMAND [OPTION ...]",
    )
    parser.add_argument("--version", action="version", version=f"runner {__version__}")
    commands = parser.add_subparsers(
        dest="command",
        prog="runner",
        metavar="COMMAND",
        required=True,
        parser_class=_CommandParser,
        help=argparse.SUPPRESS,
    )
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary).command = name
    for form, name in FORMS.items():
        commands.add_parser(name, prog=f"runner {form}").command = name
    return parser


def resolved_words(words: list[str]) -> list[str]:
    """Return the words with the name of the command that they mean. Raises UsageError for an unknown one."""
    command = words[0] if words else ""
    if not command or command.startswith("-"):
        return words
    command = _OLD_WORDS.get(command, command)
    ends = words.index("--") if "--" in words else len(words)
    for form, name in FORMS.items():
        owner, option = form.split()
        if command == owner and option in words[1:ends]:
            place = words.index(option)
            return [name, *words[1:place], *words[place + 1 :]]
    if command not in COMMANDS and command not in FORMS.values():
        hint = nearest(command, COMMANDS) or "runner --help lists them"
        raise exit_codes.UsageError(f"no command {command[:_LONGEST]!r}: {hint}")
    return [command, *words[1:]]


def _parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser | None]:
    """Return the parser of a line that is being typed, and that of its command, which has the arguments."""
    parser = build_parser()
    try:
        name, *_ = resolved_words(words) or [""]
    except exit_codes.UsageError:
        return parser, None
    form = next((form for form, command in FORMS.items() if command == name), name)
    subparsers = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    command = subparsers.choices.get(form.split()[0]) if form else None
    if command is not None:
        entrance(name).add(command)
        command.complete = True
        for option in form.split()[1:]:
            command.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    return parser, command


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Without ``argv`` it is the process's own, whose end no signal may disturb."""
    if argv is None and "_ARGCOMPLETE" in os.environ:  # a shell completes a line
        from runner.cli.completion import complete

        complete(_parser_of, FORMS.values())
    interrupts.install()
    console.ready()
    try:
        code = _end_of(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        console.message("runner: interrupted")
        code = exit_codes.INTERRUPTED
    except Exception as error:  # noqa: BLE001  (else Python's own exit code, 1, would say that cases failed)
        code = exit_codes.INTERNAL
        if isinstance(error, OSError) and error.errno in _MACHINE:
            console.message(f"runner: {f'{error.filename}: ' if error.filename else ''}{error.strerror}")
        elif isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            console.message(f"runner: {error.filename}: {error.strerror}")
            code = exit_codes.USAGE  # only what was typed can be so
        else:
            import traceback

            console.message(f"{traceback.format_exc()}runner: internal error, a bug in runner itself")
    if argv is None:
        interrupts.ignore()
    try:
        console.flush()  # here, where a reader that went away is no error; at Python's own exit it would be
    except exit_codes.UsageError as error:
        if code in (exit_codes.OK, exit_codes.FAILED):
            console.message(f"runner: {error}")
            code = exit_codes.INTERNAL
    return code


def _end_of(words: list[str]) -> int:
    """The exit code of a command, the usual errors included."""
    # What follows -- in a rerun or a capture argparse would take for its own options.
    cut = words.index("--") if words[:1] in (["rerun"], ["capture"]) and "--" in words else len(words)
    try:
        typed = _with_project(resolved_words(words[:cut]))
        arguments = build_parser().parse_args(typed)
        arguments.words, arguments.more = typed, words[cut + 1 :]
        _check_folder()
        return entrance(arguments.command)(arguments)
    except SystemExit as end:  # argparse exits with 2, which is pytest's "interrupted"
        return exit_codes.USAGE if end.code == 2 else int(end.code or 0)
    except InputError as error:
        from runner.cli.variants import refuse

        return refuse(error.diagnostics)
    except exit_codes.UsageError as error:
        console.message(f"runner: {error}")
        return error.code


def _with_project(words: list[str]) -> list[str]:
    """The words with those of the project file."""
    if not words or words[0].startswith("-") or {"-h", "--help"} & {*words}:
        return words
    from runner.cli.trust import with_project  # late: help needs none of it

    _check_folder()
    parser = Parser(prog=f"runner {next((form for form, name in FORMS.items() if name == words[0]), words[0])}")
    entrance(words[0]).add(parser)
    return with_project(words, parser)


def _check_folder() -> None:
    try:
        os.getcwd()
    except OSError:
        raise exit_codes.UsageError("the current folder is gone") from None
