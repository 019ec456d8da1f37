"""The command line: arguments in, exit code out. Each command is a module of ``runner.cli``."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from runner import __version__, console, exit_codes, interrupts
from runner.cli.arguments import EXAMPLES, Parser
from runner.diagnostics import InputError

COMMANDS = {
    "run": "run cases and judge them",
    "resume": "finish a run that was interrupted or killed",
    "rerun": "repeat a run, or what failed in it",
    "merge": "join the runs of all shards into one",
    "list": "list the variants that a run would run",
    "validate": "check files without running them",
    "schema": "print a JSON Schema of the YAML format, or of event logs",
    "show": "print a case resolved, with its source",
    "repro": "print a case as a script that needs torch alone",
    "sanitize": "run a case on CUDA under compute-sanitizer",
    "diagnose": "say what is to blame for a failure",
    "reduce": "shrink a failing case while it fails alike",
    "minify": "run torch's own minifier",
    "explain": "graphs, graph breaks, guards and recompiles of a case",
    "debug": "a folder with everything the compiler did",
    "replay": "replay what runner debug --record recorded",
    "issue": "a bug report in upstream's form",
    "bench": "time cases in eager and compiled",
    "report": "make reports again from a run's event log",
    "ledger": "list known failures by what a run made of them, or rewrite them from it",
    "selftest": "plant known bugs and see them found",
}
"""The commands in the order of ``runner --help``. The module of that name has ``add(parser)`` and ``run(arguments)``."""

_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""What the machine may refuse at any time: no bug, and no traceback."""


class _CommandParser(Parser):
    """The parser of one command. It imports the command when it has something to parse: the others cost nothing."""

    complete = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, with the command's own arguments."""
        if not self.complete:
            _module(self.prog.rpartition(" ")[2]).add(self)
            self.complete = True
        return super().parse_known_args(args, namespace)


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"runner.cli.{command}")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="runner",
        description="Does a torch.compile backend compute what eager PyTorch computes? Cases are YAML; verdicts come with their numbers.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"runner {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_CommandParser)
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The command line, and what follows ``--`` in a ``rerun``: argparse would take that for its own options."""
    if words[:1] != ["rerun"] or "--" not in words:
        return words, []
    cut = words.index("--")
    return words[:cut], words[cut + 1 :]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Without ``argv`` it is the process's own, whose end no signal may disturb."""
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
    words, more = _split(words)
    try:
        arguments = build_parser().parse_args(words)
        arguments.words, arguments.more = words, more
        if not _has_folder():
            raise exit_codes.UsageError("the current folder is gone")
        return int(_module(arguments.command).run(arguments))
    except SystemExit as end:  # argparse exits with 2, which is pytest's "interrupted"
        return exit_codes.USAGE if end.code == 2 else int(end.code or 0)
    except InputError as error:
        from runner.cli.variants import refuse

        return refuse(error.diagnostics)
    except exit_codes.UsageError as error:
        console.message(f"runner: {error}")
        return error.code


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True
