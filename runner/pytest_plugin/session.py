"""The hooks of a session that collects cases: one object in the process that runs them, one in each worker of
pytest-xdist."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from runner import __version__
from runner.cases.suites import PathError
from runner.diagnostics import InputError
from runner.engine import scratch
from runner.exit_codes import UsageError
from runner.pytest_plugin.nodes import (
    CaseNode,
    Entry,
    ErrorNode,
    FileNode,
    Table,
    VariantItem,
    file_node,
    load,
    pass_report,
    shown,
    shown_line,
    with_cases,
    with_own_options,
)
from runner.pytest_plugin.results import LOG, ResultLog, RunProcess
from runner.record.events import GREEN, RED, Notice, RunStarted, VariantFinished
from runner.record.journal import read_journal
from runner.report.failure import groups_of, next_lines
from runner.session.plan import checked_environments
from runner.session.settings import RunSettings
from runner.text import in_line, one_line


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
        super().__init__(config, Table.from_json(data["table"]), Path(data["folder"]) if data["folder"] else None)


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
        return f"runner: {__version__}" + (f", torch {shown_line(self.torch)}" if self.torch else "")

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Start the run of what was collected here; under pytest-xdist nothing is."""
        broken = session.testsfailed and not self.config.option.continue_on_collection_errors
        if not broken and not self.config.option.collectonly:
            self._start([item.entry.id for item in session.items if isinstance(item, VariantItem)], None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand the table to a worker."""
        folder = str(self.log.folder) if self.log is not None else ""
        node.workerinput["runner"] = json.dumps({"table": self.table.to_json(), "folder": folder})

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
        flags = dataclasses.replace(self.settings, jobs=jobs).flags(
            "backend", "device", "python", "seed", "allow_python", "jobs"
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
        lines = [
            f"{in_line(event.severity)}: {one_line(event.message, 2000)}"
            for event in events
            if isinstance(event, Notice)
        ]
        lines += [f"run folder: {in_line(event.folder)}" for event in events if isinstance(event, RunStarted)]
        red = [event for event in events if isinstance(event, VariantFinished) and event.verdict not in GREEN]
        lines += next_lines(groups_of(red), terminalreporter._tw.fullwidth)
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
    if dataclasses.is_dataclass(parts) and not isinstance(parts, type) and not report.nodeid.endswith("]"):
        name = report.nodeid.partition("::")[2]
        if name and getattr(parts, "params", None) is not None:
            report._id = dataclasses.replace(parts, names=(name,), params=None)
