"""The project file: what ``runner.toml``, or ``[tool.runner]`` of ``pyproject.toml``, gives options of commands.

Its settings become words of the command line, with ``--no-project`` before them. So the log of a run and each command
that is printed say all that holds, and mean the same in another folder.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.cases.yaml.schema import validate
from runner.cases.yaml.values import YamlMapping, YamlNode, YamlScalar, YamlSequence, split_lines
from runner.cli.arguments import HARMLESS
from runner.diagnostics import Diagnostic, InputError, Span, nth_line, shown_path
from runner.exit_codes import UsageError
from runner.files import open_regular
from runner.quote import literal, operand

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN, SHARED = "runner.toml", "pyproject.toml"
LEAVE = "--no-project leaves it out"
MOST = 256 * 1024
"""Bytes of a project file."""
_DOTS = 1000
"""Dots in a line of it: the time to read a key grows with their square."""

_PATHS = frozenset({"paths", "python", "junit", "events", "ctrf", "html", "report", "ledger"})
"""Keys whose values are paths; of a reporter its ``NAME=`` is cut off first."""
_HUGE = 1 << 64
_KEY = re.compile(r"\s*(?:tool\s*\.\s*runner\s*\.\s*)?([\"']?)(?P<key>[\w-]+)\1\s*=\s*", re.ASCII)
_HEADER = re.compile(r"\s*\[\s*tool\s*\.\s*runner\s*\]", re.ASCII)
_AT = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, and the line of the file that holds it."""

    key: str
    value: Any
    span: Span
    text: str

    @property
    def asks(self) -> bool:
        """Whether it may run code, name a file, remove runs or open a connection."""
        is_code = self.key == "backend" and any(":" in name for name in self.value)
        return is_code or (self.key != "paths" and f"--{self.key}" not in HARMLESS)

    def written(self) -> str:
        """Return it as a line of TOML."""
        return f"{self.key} = {toml(self.value)}"

    def wrong(self, message: str) -> InputError:
        """Return the error that says what is wrong with its value."""
        return InputError([Diagnostic(self.span, message, text=self.text)])


@dataclass(frozen=True, slots=True)
class Project:
    """A project file, which was read once. ``is_foreign`` says that another user owns it."""

    file: str
    settings: tuple[Setting, ...]
    is_foreign: bool

    @property
    def asking(self) -> tuple[Setting, ...]:
        """The settings that hold only when trusted: all of a file of another user."""
        return tuple(setting for setting in self.settings if setting.asks or self.is_foreign)

    @property
    def digest(self) -> str:
        """The SHA-256 of the settings that ask."""
        content = sorted((setting.key, setting.value) for setting in self.asking)
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def words(self, setting: Setting, action: argparse.Action, names: Mapping[str, set[str]]) -> list[str]:
        """Return a setting as words of a command line.

        Args:
            setting: one of the file.
            action: the command's option, or its paths.
            names: backends and devices that ids of the command line name: of several values these alone count.

        Raises:
            InputError: the option does not take the value.
        """
        key, value = setting.key, setting.value
        if isinstance(value, bool):
            word = f"--{key}" if value else f"--no-{key}"
            return [word] if word in action.option_strings else []
        values = list(map(str, value if isinstance(value, list) else [value]))
        _refuse(setting, action, values)
        named = names.get(key)
        values = [self._from_here(key, text) for text in values if not named or text in named]
        return [f"--{key}={text}" if action.option_strings else operand(text) for text in values]

    def _from_here(self, key: str, text: str) -> str:
        """Return a path of the file as seen from the current folder; a program's bare name stays."""
        if key not in _PATHS:
            return text
        name, equals, path = text.partition("=") if key == "report" else ("", "", text)
        folder = os.path.relpath(os.path.dirname(self.file))
        if folder == "." or path.startswith("~") or (key == "python" and os.sep not in path):
            return text
        return f"{name}{equals}{os.path.join(folder, path)}"


def _refuse(setting: Setting, action: argparse.Action, values: Sequence[str]) -> None:
    """Raise InputError for a value that an option does not take."""
    for text in values:
        try:
            if callable(action.type):
                action.type(text)
        except argparse.ArgumentTypeError as error:
            raise setting.wrong(f"{setting.key}: {error}") from None
        if action.choices and text not in action.choices:
            raise setting.wrong(f"{setting.key}: {text!r} is not one of {', '.join(action.choices)}")


def toml(value: Any) -> str:
    """Return a value of a setting as TOML writes it."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else literal(value)


def read_project() -> Project | None:
    """Return the project of the current folder, or of the nearest folder above that has one; None without one.

    Raises:
        UsageError: its file cannot be read.
        InputError: something is wrong in it.
    """
    for folder in _folders(Path(os.getcwd())):
        for name in (OWN, SHARED):
            if (project := _read(folder / name)) is not None:
                return project
    return None


def has_project() -> bool:
    """Return whether commands that are typed here read a project file, even a wrong one."""
    try:
        return read_project() is not None
    except (UsageError, InputError):
        return True


def _folders(start: Path) -> Iterator[Path]:
    """Yield a folder and those above, up to a repository's root.

    A folder that belongs to another user or that everybody can write to, such as ``/tmp``, ends it too.
    """
    yield start
    for folder, parent in itertools.pairwise([start, *start.parents]):
        if os.path.lexists(folder / ".git") or not os.access(parent, os.X_OK):
            return
        status = os.stat(parent)
        if status.st_uid not in (0, os.getuid()) or status.st_mode & 0o002:
            return
        yield parent


def _read(path: Path) -> Project | None:
    """Return what a file says; None where there is no file, or no table of the runner in it."""
    try:
        with open_regular(path, links=False) as file:
            owner, content = os.fstat(file.fileno()).st_uid, file.read(MOST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        if path.name == SHARED or error.errno == errno.ENAMETOOLONG:  # about other tools; deeper than paths reach
            return None
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise UsageError(f"{shown_path(str(path))} cannot be the project file: {reason}; {LEAVE}") from None
    if path.name == SHARED and not (b"tool" in content and b"runner" in content):
        return None
    if len(content) > MOST or any(line.count(b".") > _DOTS for line in content.split(b"\n")):
        limits = f"{MOST:,} bytes, or a line of more than {_DOTS:,} dots"
        raise UsageError(f"{shown_path(str(path))} has more than {limits}; {LEAVE}")
    table, lines = _table(str(path), content)
    if table is None:
        return None
    start = next((number for number, line in enumerate(lines) if _HEADER.match(line)), 0) if path.name == SHARED else 0
    node = _mapping(table, str(path), lines, start)
    if errors := validate(node, "project", lines)[0]:
        raise InputError(errors)
    settings = tuple(
        Setting(str(key.value), value.plain(), value.span, nth_line(lines, value.span.line))
        for key, value in node.entries
    )
    return Project(os.path.realpath(path), settings, owner not in (0, os.getuid()))


def _table(file: str, content: bytes) -> tuple[Any, list[str]]:
    """Return the table of the runner, None without one, and the lines. Raises InputError for what is no TOML."""
    try:
        text = content.decode()
        table: Any = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError([Diagnostic(Span(file, line, 1), "this is not UTF-8", LEAVE)]) from None
    except (ValueError, RecursionError) as error:  # ValueError: a number of too many digits, too
        lines, match = split_lines(text.rstrip()), _AT.search(str(error))
        end = len(lines), len(lines[-1]) + 1
        line, column = (
            (int(match["line"]), int(match["column"])) if match and match["line"] else end if match else (1, 1)
        )
        reason = _AT.sub("", str(error)) if isinstance(error, ValueError) else "lists lie too deep in each other"
        span = Span(file, line, column)
        raise InputError([Diagnostic(span, f"no TOML: {reason}", LEAVE, text=nth_line(lines, line))]) from None
    for name in ("tool", "runner") if os.path.basename(file) == SHARED else ():
        table = table.get(name) if isinstance(table, dict) else None
    return table, split_lines(text)


def _mapping(table: Any, file: str, lines: Sequence[str], start: int) -> YamlMapping:
    """Return a table with the place of each key: TOML's reader tells none."""
    whole = Span(file, start + 1, 1)
    if not isinstance(table, dict):
        raise InputError([Diagnostic(whole, "expected a table of options", text=nth_line(lines, start + 1))])
    places: dict[str, tuple[Span, Span]] = {}
    for number, line in enumerate(lines[start:], start + 1):
        if match := _KEY.match(line):
            value = Span(file, number, match.end() + 1, len(line[match.end() :].rstrip()))
            places.setdefault(match["key"], (Span(file, number, match.start("key") + 1, len(match["key"])), value))
    entries = ((name, item, *places.get(name, (whole, whole))) for name, item in table.items())
    return YamlMapping(tuple((YamlScalar(name, key, name), _node(item, at)) for name, item, key, at in entries), whole)


def _node(value: Any, span: Span, is_inner: bool = False) -> YamlNode:
    """Return a value for the schema, which takes no more than a list of texts: what lies deeper is left out."""
    inner = YamlScalar("", span, "")
    if isinstance(value, list):
        return YamlSequence(tuple(_node(item, span, True) for item in value) if not is_inner else (inner,), span)
    if isinstance(value, dict):
        return YamlMapping(((inner, inner),), span)
    if isinstance(value, int) and not isinstance(value, bool):
        value = max(-_HUGE, min(value, _HUGE))  # longer ones are not shown, and refused by the schema
    elif not isinstance(value, bool | float | str):
        value = str(value)  # a date
    return YamlScalar(value, span, str(value))
