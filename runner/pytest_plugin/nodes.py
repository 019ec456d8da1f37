"""The tree of pytest: file, case, variant, with errors of files. A suite holds the files of its cases.

The controller of pytest-xdist makes its table once. All text that the plugin hands to pytest passes here: what pytest
prints controls no terminal and no system of jobs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

import pytest

from runner.cases.model import Variant
from runner.cases.suites import PathError, discover
from runner.console import without_commands
from runner.pytest_plugin.arguments import ENDINGS, FILE
from runner.pytest_plugin.results import NoVerdict, ResultLog
from runner.record.events import VariantFinished
from runner.report.failure import headline, render_failure
from runner.session.collect import Loaded, collect
from runner.session.settings import RunSettings
from runner.text import in_line, visible


def shown(text: str) -> str:
    """Return ``text`` as pytest may print it."""
    return without_commands(visible(text))


def shown_line(text: str) -> str:
    """Return ``text`` on one line, as pytest may print it: ids, names and paths of files."""
    return without_commands(in_line(text))


def shown_reason(text: str) -> str:
    """Return the reason of a skip or an expected failure: ``pytest -vv`` breaks it into lines, words included."""
    return without_commands(visible(text), wrapped=True)


def pass_report(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make each text of a report one that pytest may print. A traceback becomes its text."""
    place = report.longrepr
    if isinstance(place, tuple):
        report.longrepr = (shown_line(place[0]), place[1], shown_reason(place[2]))
    elif place is not None:
        report.longrepr = shown(str(place))
    report.sections = [(shown_line(title), shown(text)) for title, text in report.sections]
    if isinstance(report, pytest.TestReport):
        report.user_properties = [(name, shown_line(str(value))) for name, value in report.user_properties]
    if (reason := getattr(report, "wasxfail", None)) is not None:
        report.wasxfail = shown_reason(reason)  # type: ignore[union-attr]  # what pytest itself sets


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


class RedVariant(Exception):
    """A variant whose verdict makes pytest fail. The text is what ``runner run`` prints of it."""


class FileNode(pytest.Collector):
    """A suite or a spec file, with those of its variants that were asked for.

    It is no ``pytest.File``: ``--lf`` would leave out a suite, because the ids of its variants name other files.
    """

    def __init__(
        self, *, entries: Sequence[Entry], errors: Sequence[str], log: ResultLog | None, **keywords: Any
    ) -> None:
        super().__init__(**keywords)
        self.entries, self.errors, self.log = entries, errors, log

    def collect(self) -> Iterator[pytest.Collector]:
        """Yield its own cases, the files of others, and what is wrong with it."""
        own = os.path.realpath(self.path)
        for file, entries in groupby(self.entries, lambda entry: entry.file):
            if file == own:
                yield from _cases(self, entries, self.log)
            else:
                yield file_node(self, Path(file), [*entries], (), self.log)
        if self.errors:
            yield ErrorNode.from_parent(self, name=self.name, nodeid=self.nodeid, text="\n".join(self.errors))


class ErrorNode(pytest.Collector):
    """What is wrong with a file, beside the cases that can run."""

    def __init__(self, *, text: str, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.text = text

    def collect(self) -> Iterable[pytest.Item]:
        """Raise it."""
        raise self.CollectError(self.text)


class CaseNode(pytest.Collector):
    """A case."""

    def __init__(self, *, entries: Sequence[Entry], log: ResultLog | None, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.entries, self.log = entries, log

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its variants."""
        for entry in self.entries:
            yield VariantItem.from_parent(self, name=entry.name, nodeid=entry.nodeid, entry=entry, log=self.log)


class VariantItem(pytest.Item):
    """A variant. Its verdict comes from the event log of the run."""

    def __init__(self, *, entry: Entry, log: ResultLog | None, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.entry, self.log = entry, log
        self.event: VariantFinished | None = None
        self._tags = [pytest.Mark(tag, (), {}, _ispytest=True) for tag in entry.tags]

    def iter_markers(self, name: str | None = None) -> Iterator[pytest.Mark]:
        """Yield the markers. Tags count for ``-m`` alone, which asks for no name: one called ``skip`` must not skip
        anything."""
        yield from super().iter_markers(name)
        if name is None:
            yield from self._tags

    def runtest(self) -> None:
        """Wait for the verdict, and say it as pytest does."""
        assert self.log is not None
        event = self.event = self.log.wait(self.entry.id)
        properties = {
            "id": event.id, "verdict": event.verdict, "stage": event.stage, "oracle": ", ".join(event.oracles),
            "signature": event.signature_id,
            "severity": event.severity, "known": event.known,
        }  # fmt: skip
        self.user_properties += [(name, value) for name, value in properties.items() if value]
        is_failure = event.verdict not in ("PASS", "SKIP")
        if event.verdict == "SKIP":
            pytest.skip(headline(event))
        if event.verdict == "XFAIL":
            pytest.xfail(headline(event))  # which returns under --runxfail
        if is_failure:
            raise RedVariant(render_failure(event))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the text of the failure, without a traceback through this file."""
        if isinstance(excinfo.value, RedVariant | NoVerdict | pytest.xfail.Exception):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Return the line of the case."""
        return shown_line(self.entry.file), self.entry.line - 1, self.name


def file_node(
    parent: pytest.Collector, path: Path, entries: Sequence[Entry], errors: Sequence[str], log: ResultLog | None
) -> FileNode:
    """Return the node of a file, with its path from pytest's root folder as its id."""
    root = parent.config.rootpath
    shown = PurePath(path).relative_to(root) if path.is_relative_to(root) else path
    name, short = shown_line(shown.as_posix()), shown_line(path.name)
    return FileNode.from_parent(parent, name=short, nodeid=name, path=path, entries=entries, errors=errors, log=log)


def _cases(parent: FileNode, entries: Iterable[Entry], log: ResultLog | None) -> Iterator[CaseNode]:
    for name, variants in groupby(entries, lambda entry: entry.case):
        yield CaseNode.from_parent(parent, name=name, nodeid=f"{parent.nodeid}::{name}", entries=[*variants], log=log)
