"""Whether the settings of a project file that ask may hold: trusted once here, or by their digest on the command line.

What is trusted is a file's path and the digest of these settings, signed with the user's key, beside that key.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from runner import console
from runner.cli.arguments import Parser, settable
from runner.cli.project import Project, read_project
from runner.exit_codes import UsageError
from runner.record.signing import NoKey, key_path, read_signed, write_signed
from runner.text import in_line

_PURPOSE = "project"
SHOWN = 10_000
"""Characters of settings that a person can be expected to look at."""


def with_project(words: list[str], parser: Parser) -> list[str]:
    """Return a command's words with those that the project file adds, where the command has such options.

    Args:
        words: the command's name, and what was typed.
        parser: of the command, which is used up, and does not know ``--help``.

    Raises:
        UsageError: a setting asks, and nobody has trusted it; or the file cannot be read.
        InputError: something is wrong in the file.
    """
    actions = settable(parser)
    if not actions:
        return words
    typed, unknown = _typed(parser, words[1:])
    if unknown or hasattr(typed, "no_project"):
        return words
    project, digest = read_project(), getattr(typed, "trust_project", None)
    if project is None:
        if digest is not None:
            raise UsageError("--trust-project: there is no project file in this folder or above")
        return words
    chosen = [
        setting
        for setting in project.settings
        if setting.key in actions and not hasattr(typed, actions[setting.key].dest)
    ]
    if digest is not None or any(each in project.asking for each in chosen):
        demand(project, digest)
    names = _named(getattr(typed, "paths", None) or [getattr(typed, "case", "")])
    added = [word for each in chosen for word in project.words(each, actions[each.key], names)]
    return [words[0], "--no-project", *added, *words[1:]]


def _typed(parser: Parser, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the attributes that were typed and no others, and what the parser does not know."""
    for action in parser._actions:
        action.default, action.required = argparse.SUPPRESS, False
        action.nargs = "*" if action.nargs == "+" else action.nargs
    parser._defaults.clear()
    return parser.parse_known_args([*words])


def _named(paths: Sequence[str]) -> dict[str, set[str]]:
    """Return the backends and devices that ids name."""
    if not any("::" in path for path in paths):
        return {}
    from runner.session.nodes import named_axes  # late: most commands are about whole files

    return named_axes(paths)


def demand(project: Project, digest: str | None = None) -> None:
    """Raise UsageError unless the settings that ask are trusted; where there is a terminal ask, once.

    ``digest`` is what was typed: it must be the file's.
    """
    if digest is not None:
        if digest != project.digest:
            raise UsageError(f"--trust-project: the digest of {project.file} is {project.digest}")
        return
    if not project.asking or is_trusted(project):
        return
    why = "another user owns it" if project.is_foreign else "they run code, name files or change limits"
    lines = "".join(f"\n  {setting.written()}" for setting in project.asking)
    if len(lines) > SHOWN:
        raise UsageError(f"{project.file} asks for {len(lines):,} characters of settings, too many to look at")
    console.message(f"runner: {in_line(project.file)} has settings that hold only when trusted: {why}{lines}")
    console.message(f"digest {project.digest}")
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "nothing was run: there is no terminal to ask at. Look at the settings above, then type "
            f"runner config --trust. In CI add --trust-project {project.digest}. --no-project goes on without the file"
        )
    console.message("trust them in this folder until they change? [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was run; --no-project goes on without the file")
    trust(project)


def is_trusted(project: Project) -> bool:
    """Return whether this user has trusted this file with these settings."""
    try:
        return read_signed(_place(project), 4096, _PURPOSE, project.file) == project.digest
    except (OSError, ValueError, NoKey):
        return False


def trust(project: Project) -> None:
    """Remember that this file with these settings is trusted. Raises UsageError where that cannot be kept."""
    try:
        write_signed(_place(project), project.digest, _PURPOSE, project.file)
    except (OSError, NoKey) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"what is trusted cannot be kept in {_place(project).parent}: {reason}") from None


def _place(project: Project) -> Path:
    name = hashlib.sha256(project.file.encode(errors="surrogateescape")).hexdigest()
    return key_path().parent / "trusted" / name
