"""Files that a command was asked to write: seen to be possible before anything runs, and written whole or not at all."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner import console
from runner.exit_codes import INTERNAL, UsageError
from runner.files import foreign_link, replace_file
from runner.quote import shell_word
from runner.record.signing import why_foreign
from runner.record.store import started_of

if TYPE_CHECKING:
    from runner.record.events import Event
    from runner.report.end_file import EndFile
    from runner.report.handlers import Reports
    from runner.report.site.declared import Declared

OPTIONS = ("junit", "ctrf", "sarif", "events", "html", "html_folder", "json", "markdown", "plot", "svg", "output")
SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable by which GitHub Actions names the file of a step's summary."""

EMPTY = "an empty path; did a shell variable have no value?"


def check(arguments: argparse.Namespace, inputs: Collection[str] = ()) -> None:
    """See that there is a place for every file and folder that the arguments ask for.

    Args:
        arguments: of any command.
        inputs: absolute paths, without links, of the files that the command reads.

    Raises:
        UsageError: one cannot be written, is named twice, or is an input.
    """
    if getattr(arguments, "github", False) and arguments.command != "validate" and not os.environ.get(SUMMARY):
        raise UsageError(f"--github: {SUMMARY} names no file; this option is for a job of GitHub Actions")
    targets: dict[str, str] = {}
    requests = [("report", request.partition("=")[2]) for request in getattr(arguments, "report", ()) if "=" in request]
    for name, path in [*((name, getattr(arguments, name, None)) for name in OPTIONS), *requests]:
        # explain's --json is a switch, and - is standard output where nothing is written bit by bit.
        if not isinstance(path, str) or (
            path == "-" and name in ("junit", "json", "markdown", "sarif") and arguments.command != "run"
        ):
            continue
        option = f"--{name.removesuffix('_folder')}"
        try:
            target = Path(os.path.realpath(path))
            if path and (link := foreign_link(path)):
                problem = f"{link} is a link to {os.readlink(link)}; name the file that is meant, or remove the link"
            elif name == "html_folder" or (name == "output" and arguments.command != "issue"):
                problem = _folder_problem(path, target)
                if name == "html_folder" and not problem:
                    from runner.report.site.folder import check_folder

                    check_folder(path)
            else:
                problem = _file_problem(path, target, name)
                if not target.exists() or target.is_file():
                    problem = problem or (
                        f"{targets[str(target)]} names the same file" if str(target) in targets else ""
                    )
                    targets[str(target)] = option
                if str(target) in inputs:
                    problem = "this command reads that file; name another one"
        except (OSError, ValueError) as error:
            problem = getattr(error, "strerror", None) or str(error)
        if problem:
            raise UsageError(f"{option} {path}: {problem}" if path else f"{option}: {problem}")


def add_reports(
    reports: Reports, arguments: argparse.Namespace, declared: Callable[[], Declared], run_folder: Path | None
) -> EndFile | None:
    """Add to a run's reports what ``--ctrf``, ``--html`` and ``--github`` ask for.

    Args:
        reports: of the run.
        arguments: of a command with the options of ``add_outputs``.
        declared: returns what the files of the cases say. It is called when the run has ended.
        run_folder: the run's own, which may hold diagnoses.

    Returns:
        The pages, if they are wanted.
    """
    from runner.report.end_file import EndFile

    if path := arguments.ctrf:
        from runner.report.ctrf import render

        reports.add(lambda tell: EndFile("--ctrf", Path(path), lambda events: _replace(path, render(events)), tell))
    pages = None
    if folder := arguments.html_folder:
        from runner.report.site.folder import INDEX, write_folder

        def write(events: Sequence[Event]) -> None:
            write_folder(Path(folder), events, declared(), run_folder)

        pages = reports.add(lambda tell: EndFile("--html", Path(folder, INDEX), write, tell))
    if arguments.github:
        from runner.report.github import report_run

        summary = Path(os.environ[SUMMARY])
        reports.add(lambda tell: EndFile("--github", summary, lambda events: report_run(events, summary), tell))
    return pages


def declared_of(events: list[Event]) -> Declared:
    """Return what the files that a log names say now; of a log of somebody else only those below the current folder."""
    from runner.report.site.declared import read_declared

    return read_declared(events, bool(why_foreign(started_of(events))))


def write(option: str, path: str, text: str) -> None:
    """Write a file; a regular one in one step.

    Raises:
        UsageError: it cannot be written; then it is as it was.
    """
    try:
        _replace(path, text)
    except OSError as error:
        raise UsageError(f"{option} {path} could not be written: {error.strerror}", INTERNAL) from None


def _replace(path: str, text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    if os.path.exists(path) and not os.path.isfile(path):
        Path(path).write_bytes(data)
    else:
        replace_file(path, [data])


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
    if target.exists() and not target.is_file():
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
