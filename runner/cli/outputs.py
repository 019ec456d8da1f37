"""Files that a command was asked to write: seen to be possible before anything runs, and written whole or not at
all."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from runner import console
from runner.exit_codes import INTERNAL, UsageError
from runner.files import PIPE, is_open_file, is_pipe, link_problem, write_text
from runner.quote import shell_word
from runner.record.events import VariantPlanned
from runner.record.store import Log

if TYPE_CHECKING:
    from runner.report.handlers import Opener

OPTIONS = ("junit", "ctrf", "sarif", "events", "html", "html_folder", "json", "markdown", "plot", "svg", "output")
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable by which GitHub Actions names the file of a step's summary."""

EMPTY = "an empty path; did a shell variable have no value?"
_PRINTED = ("json", "markdown", "sarif")
"""Options for which - is standard output in every command that has them."""
_KINDS = {"events": "events", "junit": "junit", "html": "html_folder", "ctrf": "ctrf", "github": "github"}
"""The runner's own reporters, and the option by whose rules the path of each is looked at."""


def check(arguments: argparse.Namespace, inputs: Iterable[str] = ()) -> None:
    """See that there is a place for every file and folder that the arguments ask for.

    Args:
        arguments: of any command.
        inputs: absolute paths of the files that the command reads.

    Raises:
        UsageError: one cannot be written, is named twice, or is an input.
    """
    if getattr(arguments, "github", False) and arguments.command != "validate":
        _check_summary(os.environ.get(SUMMARY, ""))
    targets: dict[str | tuple[int, int], str] = {}
    read = {_identity(Path(file)) for file in inputs}
    asked = [(f"--{name.removesuffix('_folder')}", name, getattr(arguments, name, None)) for name in OPTIONS]
    asked += [("--report", _KINDS.get(name, ""), path) for name, path in _requests(arguments)]
    for option, name, path in asked:
        # explain's --json is a switch.
        is_printed = name in _PRINTED or (option == "--junit" and arguments.command == "report")
        if not isinstance(path, str) or (path == "-" and is_printed):
            continue
        try:
            target = Path(os.path.realpath(path))
            if path and (problem := link_problem(path)):
                raise UsageError(f"{option} {path}: {problem}")
            if path == "-" and name:
                problem = "this is not standard output here; name a file or folder, such as ./-"
            elif name == "html_folder" or (name == "output" and arguments.command != "issue"):
                problem = _folder_problem(path, target)
                if name == "html_folder" and not problem:
                    from runner.report.site.folder import check_folder

                    check_folder(path)
            else:
                problem = _file_problem(path, target, name)
                file = _identity(target)
                if not target.exists() or target.is_file():
                    problem = problem or (f"{targets[file]} names the same file" if file in targets else "")
                    targets[file] = option
                if file in read:
                    problem = "this command reads that file; name another one"
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        if problem:
            raise UsageError(f"{option} {path}: {problem}" if path else f"{option}: {problem}")


def _check_summary(path: str) -> None:
    """Raise UsageError if GitHub's summary cannot be written."""
    if not path:
        raise UsageError(f"--github: {SUMMARY} names no file; this option is for a job of GitHub Actions")
    if is_pipe(path):
        raise UsageError(f"--github: {SUMMARY} names {path}: {PIPE}")


def _identity(file: Path) -> str | tuple[int, int]:
    """Return what two names of one file have in common, hard links too; the path where there is no file yet."""
    try:
        status = file.stat()
    except (OSError, ValueError):  # a log may name what can be no file
        return str(file)
    return status.st_dev, status.st_ino


def check_of_logs(arguments: argparse.Namespace, *logs: Log) -> None:
    """See as ``check`` does, for a command that reads logs. The files that their runs have read are inputs too."""
    read = {str(log.path) for log in logs}
    for log in logs:
        read.update(log.started.suites.values())
        read.update(event.file for event in log.events if isinstance(event, VariantPlanned))
    check(arguments, read)


def event_logs(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the event logs that a person named, each with its option."""
    named = [("--events", arguments.events)] if arguments.events else []
    return named + [("--report", path) for name, path in _requests(arguments) if name == "events"]


def _requests(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the names and paths that ``--report`` asks for. What is not ``NAME=PATH`` is left to ``reporters_of``."""
    split = (request.partition("=") for request in getattr(arguments, "report", ()))
    return [(name, path) for name, equals, path in split if equals]


def reporters_of(arguments: argparse.Namespace, *first: str) -> list[Opener]:
    """Return the reporters that a command's options ask for, those of ``first`` before any other.

    Args:
        arguments: of a command with the options of ``add_outputs``.
        first: ``events`` and ``junit``, where the command leaves them to reporters.

    Raises:
        UsageError: ``--report`` names none, or one that cannot be imported.
    """
    from runner.report.handlers import built_in, choose  # late: most commands have no reporters

    paths = {
        **{name: getattr(arguments, name) for name in first},
        "ctrf": arguments.ctrf,
        "html": arguments.html_folder,
        "github": os.environ[SUMMARY] if arguments.github else None,
    }
    short = {name: built_in(name, path) for name, path in paths.items() if path}
    early = [short.pop(name) for name in first if name in short]
    return [*early, *map(choose, arguments.report), *short.values()]


def write(option: str, path: str, text: str) -> None:
    """Write a file; a regular one in one step.

    Raises:
        UsageError: it cannot be written; then it is as it was.
    """
    try:
        write_text(path, text)
    except OSError as error:
        raise UsageError(f"{option} {path} could not be written: {error.strerror}", INTERNAL) from None


def show(arguments: argparse.Namespace, text: str, table: str) -> None:
    """Print ``table``, and write the JSON ``text`` where ``--json`` says; as - it is printed, and then nothing else is.

    Raises:
        UsageError: the file cannot be written, after the table is out.
    """
    console.output(text if arguments.json == "-" else table)
    if arguments.json not in (None, "-"):
        write("--json", arguments.json, text + "\n")


def _file_problem(path: str, target: Path, name: str) -> str:
    """Why a file cannot be written; empty if it can."""
    if not path:
        return EMPTY
    if target.is_dir():
        return "this is a folder; name a file"
    if target.is_symlink():  # after all links
        return "this link leads in a circle"
    if target.exists() and not os.access(target, os.W_OK):
        return "no permission to write it"
    if is_pipe(path):
        return PIPE
    if is_open_file(path) or (target.exists() and not target.is_file()):
        return "not a regular file, and this report is replaced again and again" if name == "junit" else ""
    if name == "events" and target.exists():  # it is appended to; all others are replaced
        return ""
    return _parent_problem(target.parent)


def _folder_problem(path: str, target: Path) -> str:
    """Why nothing can be written into a folder; empty if something can, or if it can be made."""
    if not path:
        return EMPTY
    if target.is_dir():
        return "" if os.access(target, os.W_OK | os.X_OK) else "no permission to write there"
    return "this is a file; name a folder" if target.exists() else _parent_problem(target.parent)


def _parent_problem(parent: Path) -> str:
    if not parent.is_dir():  # never made unasked: its name may be a mistake
        return f"there is no folder {parent}; to make it: mkdir -p {shell_word(parent)}"
    return "" if os.access(parent, os.W_OK | os.X_OK) else f"no permission to write in {parent}"
