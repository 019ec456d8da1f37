"""A session of pytest that collects cases: its tree, its hooks, and the run whose event log has the verdicts.

The tree is file, case, variant, with errors of files. A suite holds the files of its cases. The hooks are one object in
the process that runs them, and one in each worker of pytest-xdist. The controller of pytest-xdist makes its table once.
The run is another process. All text that the plugin hands to pytest passes here: what pytest prints controls no
terminal and no system of jobs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from itertools import groupby
from pathlib import Path, PurePath
from typing import IO, Any

import pytest

import runner
from runner.cases.model import Variant
from runner.cases.suites import SPEC, SUITE, PathError, discover
from runner.cli.project import has_project
from runner.console import without_commands
from runner.diagnostics import InputError
from runner.engine import scratch
from runner.engine.interpreters import tail, without_current_folder
from runner.exit_codes import UsageError
from runner.files import open_regular, read_text, write_anew
from runner.record.events import GREEN, RED, Notice, RunStarted, VariantFinished, from_json
from runner.record.journal import parse_line, read_journal
from runner.report.failure import groups_of, headline, next_lines, render_failure
from runner.session.collect import Loaded, collect
from runner.session.nodes import cut_path
from runner.session.plan import checked_environments
from runner.session.settings import RunSettings
from runner.text import clean, in_line, one_line, visible

LOG, OUTPUT, END = "events.jsonl", "output.txt", "end"
"""Files of the folder: the event log, what the run has printed, and its exit code once it has ended."""

_FINISHED = b'"event": "variant-finished"'
"""Part of each line that holds a verdict. No text inside a line reads so: its quotes would be escaped."""
_PAUSE = 0.02
_START = """
import sys
sys.path[:] = [sys.argv[1], *filter(None, sys.path)]
from runner.pytest_plugin.host import main
sys.exit(main())
"""
"""Not ``-m``: a module of that name in the current folder would be run instead."""
_GRACE = 30.0
"""Seconds in which a run that was told to end has to end its processes."""


class NoVerdict(Exception):
    """The run has ended without a word about a variant."""


class ResultLog:
    """The event log of a run, read while it grows."""

    def __init__(self, folder: Path) -> None:
        """Open nothing yet: the log comes with the run's first event."""
        self.folder = folder
        self._file: IO[bytes] | None = None
        self._rest = b""
        self._events: dict[str, VariantFinished] = {}

    def wait(self, id: str) -> VariantFinished:
        """Return the verdict of a variant as soon as it is there. Raises NoVerdict."""
        while True:
            end = self._end()  # asked first: what was written before the end is read below
            self._read()
            if id in self._events:
                return self._events[id]
            if end is not None:
                printed = clean(tail(self.folder / OUTPUT)).strip()
                raise NoVerdict(f"no verdict: the run has ended{end}" + (f"\n{printed}" if printed else ""))
            time.sleep(_PAUSE)

    def has_all(self, ids: Collection[str]) -> bool:
        """Return whether each of these variants has a verdict."""
        self._read()
        return all(id in self._events for id in ids)

    def _end(self) -> str | None:
        """Return how the run has ended, in words; None as long as it goes on.

        Without its folder nobody will ever say.
        """
        try:
            return f" with exit code {read_text(self.folder / END)}"
        except OSError:
            return None if self.folder.is_dir() else ""

    def _read(self) -> None:
        try:
            self._file = self._file or open_regular(self.folder / LOG)
        except OSError:
            return
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):  # a full disk has cut it: there is no verdict
                event = from_json(parse_line(line)) if _FINISHED in line else None
                if isinstance(event, VariantFinished):
                    self._events[event.id] = event


class RunProcess:
    """``runner run`` in a process of its own: neither the folder nor the variables that tests change are its own.

    It ends when its standard input does, so also when pytest is killed.
    """

    def __init__(self, folder: Path, here: Path, words: Sequence[str], ids: Sequence[str] | None) -> None:
        """Start it.

        Args:
            folder: for its log.
            here: the folder in which it runs.
            words: its command line.
            ids: the variants to run; all if None.
        """
        with open(folder / OUTPUT, "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(Path(runner.__file__).parents[1])],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=here,
                env=without_current_folder(os.environ),
                start_new_session=True,  # a Ctrl-C at the terminal is pytest's to handle
            )
        assert self._process.stdin is not None
        request = {"words": [*words], "ids": ids if ids is None else [*ids], "log": str(folder / LOG)}
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which each variant will say
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        self._watch = threading.Thread(target=self._note_end, args=(folder,), daemon=True)
        self._watch.start()

    def _note_end(self, folder: Path) -> None:
        code, beside = self._process.wait(), folder / f"{END}.tmp"
        with contextlib.suppress(OSError):  # pytest has removed the folder
            write_anew(beside, str(code))
            beside.replace(folder / END)

    def stop(self, now: bool) -> None:
        """Wait for its end; with ``now`` ask for it. One that does not come is killed, and its workers notice."""
        assert self._process.stdin is not None
        if now:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._watch.join(_GRACE if now else None)
        if self._process.poll() is None:
            self._process.kill()
            self._watch.join(_GRACE)


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
    return re.sub(r"(?<![\w-])--(?=(?:allow-python|backend|device|import|keep-warm|python|seed)\b)", "--runner-", text)


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
    whole = {os.path.realpath(path) for path in paths if path.endswith((SPEC, SUITE))}
    files = frozenset({*whole, *(entry.home for entry in entries), *(file for file, _ in errors)})
    return Table(entries, errors, files, tuple(_arguments(arguments, paths, files))), loaded


def _entry(variant: Variant, home: str, root: Path) -> Entry:
    case, name = variant.case, in_line(variant.id[len(variant.where) + 2 :])
    place = PurePath(case.file).relative_to(root).as_posix() if Path(case.file).is_relative_to(root) else variant.where
    nodeid = shown_line(f"{place}::{name}")
    return Entry(variant.id, nodeid, home, case.file, case.span.line, case.name, name, case.tags)


def _arguments(arguments: Sequence[str], paths: Sequence[str], files: frozenset[str]) -> list[str]:
    """Return the arguments with a file for each id, and the files that are needed beside them.

    Such are the suite by which the latest run planned an id, and a broken spec file of a suite.
    """
    chosen: dict[str, None] = {}
    for argument in arguments:
        is_file = argument in paths and not os.path.isdir(argument)
        file = cut_path(argument)[0] if is_file else argument
        if not is_file or os.path.realpath(file) in files:
            chosen[file] = None
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
            if file != own:
                yield file_node(self, Path(file), [*entries], (), self.log)
                continue
            for name, variants in groupby(entries, lambda entry: entry.case):
                nodeid = f"{self.nodeid}::{name}"
                yield CaseNode.from_parent(self, name=name, nodeid=nodeid, entries=[*variants], log=self.log)
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
        if event.verdict == "SKIP":
            pytest.skip(headline(event))
        if event.verdict == "XFAIL":
            pytest.xfail(headline(event))  # which returns under --runxfail
        if event.verdict != "PASS":
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


class _Session:
    """What both have in common: the tree, and the reports of its leaves."""

    def __init__(self, config: pytest.Config, table: Table, folder: Path | None) -> None:
        self.config, self.table = config, table
        self.log = ResultLog(folder) if folder is not None else None
        self._entries: dict[str, list[Entry]] = defaultdict(list)
        self._errors: dict[str, list[str]] = defaultdict(list)
        for entry in table.entries:
            self._entries[entry.home].append(entry)
        for file, text in table.errors:
            self._errors[file].append(text)
        config.args = [*table.arguments]
        for tag in sorted({tag for entry in table.entries for tag in entry.tags}):
            config.addinivalue_line("markers", f"{shown_line(tag)}: a tag of cases")

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> FileNode | None:
        """Return the node of a file that has something to run or to say."""
        file = os.path.realpath(file_path)
        if file not in self.table.files:
            return None
        return file_node(parent, file_path, self._entries.get(file, ()), self._errors.get(file, ()), self.log)

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_directory(self) -> Generator[None, pytest.Collector | None, pytest.Collector | None]:
        """Give a folder a name that ``--collect-only`` may print."""
        node = yield
        if node is not None:
            node.name = shown_line(node.name)
        return node

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # the outermost: nothing is added to a report after it
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Let no text of a file through as it is."""
        report = yield
        if isinstance(collector, FileNode | CaseNode | ErrorNode):
            pass_report(report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Give a report the seconds of its variant instead of those of the wait, and a skip its place in the YAML
        file."""
        report = yield
        if not isinstance(item, VariantItem):
            return report
        if item.event is not None and report.when == "call":
            report.duration = item.event.seconds
            if report.skipped and isinstance(report.longrepr, tuple):
                report.longrepr = (item.entry.file, item.entry.line, report.longrepr[2])
        pass_report(report)
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Return the verdict as the word of a variant that failed in another way than by a wrong answer."""
        verdict = dict(getattr(report, "user_properties", ())).get("verdict")
        is_red = report.when == "call" and report.failed and verdict in RED
        return ("failed", "F", str(verdict)) if is_red and verdict != "FAIL" else None


class WorkerSession(_Session):
    """A worker of pytest-xdist: it collects what the controller has read, and reads the log of the controller's run."""

    def __init__(self, config: pytest.Config, state: str) -> None:
        data = json.loads(state)
        entries = tuple(Entry(**{**entry, "tags": tuple(entry["tags"])}) for entry in data["entries"])
        errors = tuple((file, message) for file, message in data["errors"])
        table = Table(entries, errors, frozenset(data["files"]), tuple(data["arguments"]))
        super().__init__(config, table, Path(data["folder"]) if data["folder"] else None)


class MainSession(_Session):
    """The process that a person starts: it reads the files, runs the variants, and reports where the run is kept."""

    def __init__(self, config: pytest.Config, paths: Sequence[str]) -> None:
        """Read the files. Raises pytest.UsageError."""
        option = config.option
        self._run: RunProcess | None = None
        self._ids: list[str] = []
        try:
            self.settings = RunSettings(
                backend=tuple(option.runner_backend), device=tuple(option.runner_device), seed=option.runner_seed,
                python=(option.runner_python,) if option.runner_python else (), allow_python=option.runner_allow_python,
                imports=tuple(option.runner_import), keep_warm=option.runner_keep_warm, no_project=has_project(),
            )  # fmt: skip
            self.paths = with_cases(paths)
            table, loaded = load(self.paths, config.args, self.settings, config.rootpath)
            self.torch = checked_environments(self.settings, loaded.variants)[0].torch if loaded.variants else ""
            folder = None if option.collectonly else scratch.make()
        except (InputError, PathError, UsageError) as error:
            raise pytest.UsageError(shown(with_own_options(str(error)))) from None
        super().__init__(config, table, folder)
        for remark in loaded.remarks:
            config.issue_config_time_warning(pytest.PytestConfigWarning(shown_line(remark)), stacklevel=2)

    def pytest_report_header(self) -> str:
        """Return the versions."""
        return f"runner: {runner.__version__}" + (f", torch {shown_line(self.torch)}" if self.torch else "")

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Start the run of what was collected here; under pytest-xdist nothing is."""
        option = self.config.option
        if not option.collectonly and (option.continue_on_collection_errors or not session.testsfailed):
            self._start([item.entry.id for item in session.items if isinstance(item, VariantItem)], None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand the table to a worker."""
        folder = str(self.log.folder) if self.log is not None else ""
        node.workerinput["runner"] = json.dumps({**asdict(self.table), "folder": folder}, default=sorted)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """Start the run of what the first worker has collected; all collect the same."""
        if self._run is None:
            names = {*ids}
            chosen = [entry.id for entry in self.table.entries if entry.nodeid in names]
            self._start(chosen, int(node.workerinput["workercount"]))

    def _start(self, ids: Sequence[str], jobs: int | None) -> None:
        if not ids or self.log is None:
            return
        self._ids = [*ids]
        flags = replace(self.settings, jobs=jobs).flags(
            "backend", "device", "python", "seed", "allow_python", "imports", "jobs", "keep_warm", "no_project"
        )
        whole = {*ids} == {entry.id for entry in self.table.entries}
        here = self.config.invocation_params.dir
        self._run = RunProcess(self.log.folder, here, ["run", *flags, *self.paths], None if whole else ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End the run. One that has all verdicts ends by itself."""
        if self._run is not None and self.log is not None:
            self._run.stop(now=not self.log.has_all(self._ids))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print where the run is kept, what was noticed about it, and what to type about its worst failure."""
        for report in (report for reports in terminalreporter.stats.values() for report in reports):
            _show_whole_id(report)
        if self._run is None or self.log is None:
            return
        try:
            events, _ = read_journal(self.log.folder / LOG)
        except OSError:  # it has never begun, which each variant says
            return
        red = [event for event in events if isinstance(event, VariantFinished) and event.verdict not in GREEN]
        lines = [
            *(f"{in_line(e.severity)}: {one_line(e.message, 2000)}" for e in events if isinstance(e, Notice)),
            *(f"run folder: {in_line(event.folder)}" for event in events if isinstance(event, RunStarted)),
            *next_lines(groups_of(red), terminalreporter._tw.fullwidth),
        ]
        terminalreporter.section("runner", "-")
        for line in lines:
            terminalreporter.write_line(shown(line))

    def pytest_unconfigure(self) -> None:
        """Remove the folder of the log; workers have ended."""
        if self._run is not None:
            self._run.stop(now=True)
        if self.log is not None:
            scratch.remove(self.log.folder)


def _show_whole_id(report: Any) -> None:
    """Let pytest's summary show an id as it is.

    pytest 9.2 takes ids apart and adds a ``]`` to one that ends otherwise.
    """
    parts = getattr(report, "id", None)
    if is_dataclass(parts) and not isinstance(parts, type) and not report.nodeid.endswith("]"):
        name = report.nodeid.partition("::")[2]
        if name and getattr(parts, "params", None) is not None:
            report._id = replace(parts, names=(name,), params=None)
