"""The tree of pytest: file, case, variant. A suite holds the files of its cases."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

import pytest

from runner.pytest_plugin.door import shown_line
from runner.pytest_plugin.results import NoVerdict, ResultLog
from runner.pytest_plugin.table import Entry
from runner.record.events import VariantFinished
from runner.report.failure import headline, render_failure


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
