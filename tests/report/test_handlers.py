"""Handlers together: who gets which event, what is named at the end, and what another package's reporter may break."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner.record.events import Event
from runner.report import handlers
from runner.report.handlers import Handler, LogFile, Opener, Options, PluginFile, Reports, built_in
from runner.report.terminal import Reporter
from tests.report.events_sample import every_verdict

EVENTS = every_verdict()


class Names(Handler):
    """Remembers the names of events, and breaks where it is told to."""

    instances: list[Names] = []

    def __init__(self, path: Path, breaks: str = "") -> None:
        self.calls: list[str] = []
        self.breaks = breaks
        Names.instances.append(self)
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
    Names.instances.clear()
    yield
    Names.instances.clear()


def opened(folder: Path, *openers: Opener, **options: Any) -> Reports:
    """The reports of a run in ``folder``, and more of them."""
    own = (built_in("events", folder / "events.jsonl"), built_in("junit", folder / "junit.xml"))
    return Reports(Reporter(), [*own, *openers], Options(stamp={"plan": "p"}, **options))


def breaking(step: str = "") -> Opener:
    return partial(PluginFile, "names", lambda path: Names(path, step), Path("names.txt"))


# --- all together ------------------------------------------------------------------------------


def test_a_run_has_its_own_files_and_those_that_were_asked_for(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "run").mkdir()
    openers = [built_in("junit", tmp_path / "j.xml"), built_in("events", tmp_path / "e.jsonl")]
    reports = opened(tmp_path / "run", *openers)
    assert [type(file).__name__ for file in reports.files] == ["LogFile", "LogFile", "JUnitFile", "JUnitFile"]
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
    opened(tmp_path, built_in("events", log), again=True).close()
    assert log.read_text() == "an earlier run\n"
    opened(tmp_path, built_in("events", log)).close()
    assert log.read_text() == ""


def test_events_of_before_go_to_all_but_the_logs(tmp_path: Path, capsys: Any) -> None:
    reports = opened(tmp_path, breaking())
    reports.replay(EVENTS[:3])
    reports.close()
    assert (tmp_path / "events.jsonl").read_text() == "" and not capsys.readouterr().out
    assert Names.instances[0].calls == ["make", *(type(event).__name__ for event in EVENTS[:3]), "close"]


# --- another package's -------------------------------------------------------------------------


def test_a_reporter_gets_every_event_every_tick_and_its_end(tmp_path: Path) -> None:
    reports = opened(tmp_path, breaking())
    reports.handle(EVENTS[0])
    reports.tick([])
    for event in EVENTS[1:]:
        reports.handle(event)
    assert not reports.close()
    names = [type(event).__name__ for event in EVENTS]
    assert Names.instances[0].calls == ["make", names[0], "tick", *names[1:], "close"]
    assert "names.txt" in reports.reporter.reports


@pytest.mark.parametrize("step", ["make", "RunStarted", "tick", "RunFinished", "close"])
def test_a_reporter_that_raises_spoils_its_own_file_alone(tmp_path: Path, capsys: Any, step: str) -> None:
    reports = opened(tmp_path, breaking(step))
    for event in EVENTS:
        reports.tick([])
        reports.handle(event)
    assert reports.close()
    output = capsys.readouterr().out
    assert output.count("--report names=names.txt: RuntimeError: no " + step) == 1
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == len(EVENTS)
    assert Names.instances[0].calls[-1] == step, "nothing more is asked of it"
    assert ("names.txt" in reports.reporter.reports) is (step == "close")


def test_a_played_run_says_whether_its_files_are_whole() -> None:
    assert not Reports(Reporter(), [breaking()]).play(EVENTS)
    assert Reports(Reporter(), [breaking("close")]).play(EVENTS)


def test_a_log_for_an_open_file_is_added_to_what_is_there(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        file.write("printed\n")
        file.flush()
        log = LogFile(Path(f"/dev/fd/{file.fileno()}"), Options())
        for event in EVENTS:
            log.handle(event)
        log.close()
        file.write("printed")
    first, *lines, last = (tmp_path / "file").read_text().split("\n")
    assert (first, last, len(lines), log.problem) == ("printed", "printed", len(EVENTS), "")
