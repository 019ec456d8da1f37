"""Handlers together: who gets which event, what is named at the end, and what another package's reporter may break."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from runner.cli.main import main
from runner.exit_codes import UsageError
from runner.record.events import Event
from runner.record.journal import Journal
from runner.report import handlers
from runner.report.handlers import Chosen, Handler, Reports, choose
from runner.report.terminal import Reporter
from tests.report.events_sample import every_verdict

EVENTS = every_verdict()


class Names(Handler):
    """Remembers the names of events, and breaks where it is told to."""

    made: list[Names] = []

    def __init__(self, path: Path, breaks: str = "") -> None:
        self.calls: list[str] = []
        self.breaks = breaks
        Names.made.append(self)
        self._note("make")

    def _note(self, name: str) -> None:
        self.calls.append(name)
        if name == self.breaks:
            raise RuntimeError(f"no {name}\nand more")

    def handle(self, event: Event) -> None:
        self._note(type(event).__name__)

    def tick(self, running: handlers.Running) -> None:
        self._note("tick")

    def close(self) -> None:
        self._note("close")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    Names.made.clear()
    yield
    Names.made.clear()


def opened(folder: Path, *chosen: Chosen, **options: Any) -> Reports:
    return Reports.open(folder, {"plan": "p"}, slow=60.0, chosen=chosen, **options)


def breaking(step: str = "") -> Chosen:
    return Chosen("names", lambda path: Names(path, step), Path("names.txt"))


# --- all together ------------------------------------------------------------------------------


def test_a_run_has_its_own_files_and_those_that_were_asked_for(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "run").mkdir()
    reports = opened(tmp_path / "run", junit=str(tmp_path / "j.xml"), events=str(tmp_path / "e.jsonl"))
    for event in EVENTS:
        reports.handle(event)
    assert not reports.close()
    paths = [
        tmp_path / "run" / "junit.xml",
        tmp_path / "j.xml",
        tmp_path / "run" / "events.jsonl",
        tmp_path / "e.jsonl",
    ]
    assert all(path.stat().st_size for path in paths)
    assert [*reports.reporter.reports] == [*map(str, paths)]
    assert capsys.readouterr().out


def test_a_log_that_goes_on_keeps_its_lines_and_another_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "e.jsonl"
    log.write_text("an earlier run\n")
    opened(tmp_path, events=str(log), again=True).close()
    assert log.read_text() == "an earlier run\n"
    opened(tmp_path, events=str(log)).close()
    assert log.read_text() == ""


def test_events_of_before_go_to_all_but_the_logs(tmp_path: Path, capsys: Any) -> None:
    reports = opened(tmp_path, breaking())
    reports.replay(EVENTS[:3])
    reports.close()
    assert (tmp_path / "events.jsonl").read_text() == "" and not capsys.readouterr().out
    assert Names.made[0].calls == ["make", *(type(event).__name__ for event in EVENTS[:3]), "close"]


# --- another package's -------------------------------------------------------------------------


def test_a_reporter_gets_every_event_every_tick_and_its_end(tmp_path: Path) -> None:
    reports = opened(tmp_path, breaking())
    reports.handle(EVENTS[0])
    reports.tick([])
    for event in EVENTS[1:]:
        reports.handle(event)
    assert not reports.close()
    names = [type(event).__name__ for event in EVENTS]
    assert Names.made[0].calls == ["make", names[0], "tick", *names[1:], "close"]
    assert "names.txt" in reports.reporter.reports


@pytest.mark.parametrize("step", ["make", "RunStarted", "tick", "RunFinished", "close"])
def test_a_reporter_that_raises_spoils_its_own_file_alone(tmp_path: Path, capsys: Any, step: str) -> None:
    reports = opened(tmp_path, breaking(step))
    for event in EVENTS:
        reports.tick([])
        reports.handle(event)
    assert reports.close()
    said = capsys.readouterr().out
    assert said.count("--report names=names.txt: RuntimeError: no " + step) == 1
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == len(EVENTS)
    assert Names.made[0].calls[-1] == step, "nothing more is asked of it"
    assert ("names.txt" in reports.reporter.reports) is (step == "close")


# --- who is chosen -----------------------------------------------------------------------------


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    registered: list[EntryPoint] = []
    monkeypatch.setattr(handlers, "entry_points", lambda group: [p for p in registered if p.group == group])
    return registered


def test_a_name_chooses_an_entry_point_and_imports_no_other(points: list[EntryPoint]) -> None:
    points += [
        EntryPoint("paths", "pathlib:Path", handlers.GROUP),
        EntryPoint("bad", "no_such_module:x", handlers.GROUP),
    ]
    (chosen,) = choose(["paths=a=b"])
    assert (chosen.name, chosen.make, chosen.path) == ("paths", Path, Path("a=b"))


def test_a_module_of_this_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reporter_of_this_folder.py").write_text("class Deep:\n    make = list\n")
    monkeypatch.chdir(tmp_path)
    (chosen,) = choose(["reporter_of_this_folder:Deep.make=a"])
    assert chosen.make is list  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("request_", ["", "names", "=a", "names=", "a:b="])
def test_another_form_is_refused(points: list[EntryPoint], request_: str) -> None:
    with pytest.raises(UsageError, match="write NAME=PATH; no package installs one"):
        choose([request_])


def test_an_unknown_name_is_answered_with_those_that_are_installed(points: list[EntryPoint]) -> None:
    points += [EntryPoint(name, "pathlib:Path", handlers.GROUP) for name in ("tap", "csv")]
    with pytest.raises(UsageError, match="no reporter 'xml'; installed are csv, tap; package:function"):
        choose(["xml=a"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("no_such_module:x", "ModuleNotFoundError"), ("pathlib:x", "AttributeError"), ("os:sep", "cannot be called"), (":", "--report :=a")],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused(points: list[EntryPoint], name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        choose([f"{name}=a"])


# --- commands ----------------------------------------------------------------------------------


def test_report_hands_a_log_to_a_reporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counting_reporter.py").write_text(
        "from runner.report.handlers import Handler\n"
        "class Count(Handler):\n"
        "    def __init__(self, path):\n        self.path, self.count = path, 0\n"
        "    def handle(self, event):\n        self.count += 1\n"
        "    def close(self):\n        self.path.write_text(str(self.count))\n"
    )
    with Journal(tmp_path / "log.jsonl") as journal:
        for event in EVENTS:
            journal.write(event)
    assert main(["report", "log.jsonl", "--report", "counting_reporter:Count=n.txt"]) == 0
    assert (tmp_path / "n.txt").read_text() == str(len(EVENTS))
    assert main(["report", "log.jsonl", "--report", "counting_reporter:Count=no/n.txt"]) == 4
    assert "--report no/n.txt: there is no folder" in capsys.readouterr().err


def test_a_played_run_says_whether_its_files_are_whole() -> None:
    assert not Reports(Reporter(), [breaking()]).play(EVENTS)
    assert Reports(Reporter(), [breaking("close")]).play(EVENTS)
