"""Which reporter a name chooses: the runner's own, an installed package's, or one that a person names."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from runner.cli.main import main
from runner.exit_codes import UsageError
from runner.record.journal import Journal
from runner.report import handlers
from runner.report.handlers import Options, PluginFile, Reports, built_in, choose
from runner.report.junit import render
from runner.report.terminal import Reporter
from tests.report.events_sample import every_verdict

EVENTS = every_verdict()


def plugin_of(request_: str) -> tuple[Any, ...]:
    """The name, the function and the path of another package's reporter."""
    opener: Any = choose(request_)
    assert opener.func is PluginFile
    return tuple(opener.args)


# --- who is chosen -----------------------------------------------------------------------------


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    registered: list[EntryPoint] = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [p for p in registered if p.group == group])
    return registered


def test_a_name_chooses_an_entry_point_and_imports_no_other(points: list[EntryPoint]) -> None:
    points += [
        EntryPoint("paths", "pathlib:Path", handlers.GROUP),
        EntryPoint("bad", "no_such_module:x", handlers.GROUP),
    ]
    assert plugin_of("paths=a=b") == ("paths", Path, Path("a=b"))


def test_a_module_of_this_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reporter_of_this_folder.py").write_text("class Deep:\n    make = list\n")
    monkeypatch.chdir(tmp_path)
    assert plugin_of("reporter_of_this_folder:Deep.make=a")[1] is list


@pytest.mark.parametrize("request_", ["", "names", "=a", "names=", "a:b="])
def test_another_form_is_refused(points: list[EntryPoint], request_: str) -> None:
    with pytest.raises(UsageError, match="write NAME=PATH; no package installs one"):
        choose(request_)


def test_an_unknown_name_is_answered_with_those_that_are_installed(points: list[EntryPoint]) -> None:
    points += [EntryPoint(name, "pathlib:Path", handlers.GROUP) for name in ("tap", "csv")]
    with pytest.raises(
        UsageError,
        match=r"no reporter 'xml'; installed are csv, tap; package:function .*; the runner has events, junit,",
    ):
        choose("xml=a")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:x", "ModuleNotFoundError"), ("pathlib:x", "AttributeError"),
        ("os:sep", "cannot be called"), (":", "--report :=a"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused(points: list[EntryPoint], name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        choose(f"{name}=a")


# --- the runner's own --------------------------------------------------------------------------


def test_no_package_takes_the_name_of_one_of_the_runner_s(points: list[EntryPoint]) -> None:
    points += [EntryPoint(name, "no_such_module:x", handlers.GROUP) for name in handlers.BUILT_IN]
    for name in handlers.BUILT_IN:
        opener: Any = choose(f"{name}=a")
        assert (opener.func, opener.args) == (built_in(name, "a").func, (Path("a"),))  # type: ignore[attr-defined]


def test_each_writes_its_file_from_the_same_events(tmp_path: Path, capsys: Any) -> None:
    names = {"events": "e.jsonl", "junit": "j.xml", "ctrf": "c.json", "html": "site", "github": "s.md"}
    assert names.keys() == handlers.BUILT_IN.keys()
    openers = [choose(f"{name}={tmp_path / file}") for name, file in names.items()]
    reports = Reports(Reporter(), openers, Options(dialect="strict"))
    assert not reports.play(EVENTS)
    assert (tmp_path / "j.xml").read_text() == render(EVENTS, "strict")
    assert json.loads((tmp_path / "c.json").read_text())["results"]["summary"]["tests"] == 11
    assert len((tmp_path / "e.jsonl").read_text().splitlines()) == len(EVENTS)
    assert "11" in (tmp_path / "s.md").read_text() and (tmp_path / "site" / "index.html").is_file()
    assert [Path(path).name for path in reports.reporter.reports] == [
        "j.xml",
        "c.json",
        "index.html",
        "s.md",
        "e.jsonl",
    ]


def test_a_file_that_cannot_be_written_is_told_by_its_option(tmp_path: Path, capsys: Any) -> None:
    reports = Reports(Reporter(), [built_in("ctrf", tmp_path)])
    assert reports.play(EVENTS) is True
    assert f"--ctrf {tmp_path} could not be written: " in capsys.readouterr().out


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


def test_report_makes_what_an_option_is_short_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with Journal(tmp_path / "log.jsonl") as journal:
        for event in EVENTS:
            journal.write(event)
    assert main(["report", "log.jsonl", "--ctrf", "a.json", "--report", "ctrf=b.json", "--report", "junit=j.xml"]) == 0
    assert Path("a.json").read_text() == Path("b.json").read_text()
    assert ElementTree.parse("j.xml").getroot().get("tests") == "11"
