"""Completion in bash, zsh and fish by argcomplete: a shell starts ``runner`` with the line that is being typed.

Words are commands, options, their choices, files, cases of a file, backends and operators. No file is run.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Iterable

import argcomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter, SuppressCompleter

from runner.builder.catalog import find_operators
from runner.cases.limits import Limits
from runner.cases.suites import Reader
from runner.cases.torch_names import own_names

_Completer = Callable[..., Iterable[str]]
_ParserOf = Callable[[list[str]], tuple[argparse.ArgumentParser, argparse.ArgumentParser | None]]


def complete(parser_of: _ParserOf, hidden: Collection[str]) -> None:
    """Write the words that may stand where the cursor is to where argcomplete has them read, and end the process.

    ``parser_of`` takes the words before the cursor. It returns the parser of the whole line, and that of the command
    with its arguments, which is None where no command is typed. ``hidden`` are commands that nobody types.
    """
    parser, command = parser_of(_typed_words())
    for action in command._actions if command else ():
        completer = _completer_of(action)
        if completer is not None:
            setattr(action, "completer", completer)  # noqa: B010  argcomplete asks for this attribute
    argcomplete.autocomplete(parser, exclude=hidden, default_completer=SuppressCompleter())


def _typed_words() -> list[str]:
    """Return the words between ``runner`` and the cursor, without the one that is being typed."""
    line = os.environ.get("COMP_LINE", "")
    words: list[str] = argcomplete.split_line(line, int(os.environ.get("COMP_POINT", len(line))))[3]
    return words[int(os.environ["_ARGCOMPLETE"]) :]


def _completer_of(action: argparse.Action) -> _Completer | None:
    """Return what completes the value of an argument; None where it has choices, or nothing is known of it."""
    if action.choices is not None:
        return None
    match action.metavar:
        case "PATH" | "CASE":
            return complete_cases
        case "FILE":
            return FilesCompleter()  # type: ignore[no-any-return]
        case "FOLDER":
            return DirectoriesCompleter()  # type: ignore[no-any-return]
        case "RUN":
            return lambda prefix, **_: ["latest", *FilesCompleter()(prefix)]
        case "OPERATOR" | "PATTERN" if not action.option_strings:
            return lambda prefix, **_: find_operators(f"{prefix}*").callable
        case "NAME" if "--backend" in action.option_strings:
            return lambda **_: (name for name in own_names() if not name.endswith("_TESTING_ONLY"))
    return None


def complete_cases(prefix: str, **_: object) -> Iterable[str]:
    """Return the cases of the file that a word names before its ``::``, or files that may hold some."""
    file, colons, _start = prefix.partition("::")
    if not colons:
        return FilesCompleter(("yaml",))(prefix)  # type: ignore[no-any-return]
    if not os.path.isfile(file):
        return []
    cases = (case.name for suite in Reader(Limits()).suites([file]) for case in suite.cases)
    return [f"{file}::{name}" for name in dict.fromkeys(cases)]
