"""What pytest collects: every variant with its place in the tree, and errors of files.

The controller of pytest-xdist makes it once.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from runner.cases.model import Variant
from runner.cases.suites import PathError, discover
from runner.pytest_plugin.arguments import ENDINGS, FILE
from runner.pytest_plugin.door import shown_line
from runner.session.collect import Loaded, collect
from runner.session.settings import RunSettings
from runner.text import in_line


@dataclass(frozen=True, slots=True)
class Entry:
    """A variant as a leaf of the tree. ``home`` is the file that brings it: its suite, or its spec file without one.

    ``nodeid`` is the id with its file as seen from pytest's root folder. ``file`` and ``line`` are those of the case.
    """

    id: str
    nodeid: str
    home: str
    file: str
    line: int
    case: str
    name: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """What the arguments of pytest hold. All files are absolute, and no links.

    Attributes:
        entries: the variants, in the order of ``runner list``.
        errors: the file below which each is shown, and its text.
        files: those with a place in the tree, variants or not.
        arguments: what pytest is to look through: files instead of ids.
    """

    entries: tuple[Entry, ...]
    errors: tuple[tuple[str, str], ...]
    files: frozenset[str]
    arguments: tuple[str, ...]

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps({**dataclasses.asdict(self), "files": sorted(self.files)})

    @staticmethod
    def from_json(text: str) -> Table:
        """Return what ``to_json`` has written."""
        data = json.loads(text)
        entries = tuple(Entry(**{**entry, "tags": tuple(entry["tags"])}) for entry in data["entries"])
        errors = tuple((file, message) for file, message in data["errors"])
        return Table(entries, errors, frozenset(data["files"]), tuple(data["arguments"]))


def with_cases(paths: Iterable[str]) -> list[str]:
    """Return the paths without folders whose suites all want to be named (``manual: true``). Raises PathError."""
    kept = []
    for path in paths:
        try:
            if os.path.isdir(path):
                discover([path])
            kept.append(path)
        except PathError as error:
            if not error.empty:
                raise
    return kept


def with_own_options(text: str) -> str:
    """Return a text about options of ``runner run`` with their names under pytest."""
    return re.sub(r"(?<![\w-])--(?=(?:allow-python|backend|device|python|seed)\b)", "--runner-", text)


def load(paths: Sequence[str], arguments: Sequence[str], settings: RunSettings, root: Path) -> tuple[Table, Loaded]:
    """Read what ``paths`` hold.

    Args:
        paths: the arguments that hold cases: files, ids and folders.
        arguments: all of pytest's.
        settings: as for ``collect``.
        root: pytest's root folder.

    Raises:
        PathError, InputError, UsageError: as ``collect``.
    """
    loaded = collect(paths, settings)
    homes = {suite.name: suite.file for suite in loaded.suites}
    folder = Path(os.path.realpath(root))
    entries = tuple(  # a suite that was not read itself has only said what a backend is
        _entry(variant, homes.get(variant.suites[0], variant.case.file), folder) for variant in loaded.variants
    )
    errors = tuple((os.path.realpath(error.span.file), with_own_options(error.render())) for error in loaded.errors)
    whole = {os.path.realpath(path) for path in paths if path.endswith(ENDINGS)}
    files = frozenset({*whole, *(entry.home for entry in entries), *(file for file, _ in errors)})
    return Table(entries, errors, files, tuple(_arguments(arguments, paths, files))), loaded


def _entry(variant: Variant, home: str, root: Path) -> Entry:
    file, name = variant.case.file, in_line(variant.id[len(variant.where) + 2 :])
    shown = PurePath(file).relative_to(root).as_posix() if Path(file).is_relative_to(root) else variant.where
    case = variant.case
    return Entry(variant.id, shown_line(f"{shown}::{name}"), home, file, case.span.line, case.name, name, case.tags)


def _arguments(arguments: Sequence[str], paths: Sequence[str], files: frozenset[str]) -> list[str]:
    """Return the arguments with a file for each id, and the files that are needed beside them.

    Such are the suite by which the latest run planned an id, and a broken spec file of a suite.
    """
    chosen: dict[str, None] = {}
    for argument in arguments:
        match = None if argument not in paths or os.path.isdir(argument) else FILE.fullmatch(argument)
        if match is None:
            chosen[argument] = None
        elif os.path.realpath(match["file"]) in files:
            chosen[match["file"]] = None
    reached = [Path(os.path.realpath(path)) for path in chosen]
    return [*chosen, *(file for file in sorted(files) if not any(Path(file).is_relative_to(path) for path in reached))]
