"""CTRF: the rules of its published schema, and what it says of each verdict."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from runner.cli.main import main
from runner.record.events import Event
from runner.record.journal import Journal
from runner.report import ctrf
from tests.report.events_sample import NASTY, every_verdict, failure, finished, planned, started

SCHEMA = os.environ.get("CTRF_SCHEMA")
TEST = {"name": str, "status": str, "duration": int, "suite": list, "message": str, "trace": str, "line": int, "rawStatus": str, "tags": list,
        "filePath": str, "retries": int, "flaky": bool, "stdout": list, "extra": dict}  # fmt: skip
"""Keys of a test that the schema has, and their types; it allows no others."""


def report(events: list[Event]) -> dict[str, Any]:
    """The report, held against the schema's rules, and against the schema itself where CTRF_SCHEMA names it."""
    data: dict[str, Any] = json.loads(ctrf.render(events))
    if SCHEMA:
        schema = json.loads(Path(SCHEMA).read_text(encoding="utf-8"))
        jsonschema.validate(data, schema, format_checker=jsonschema.FormatChecker())
    assert data.keys() == {"reportFormat", "specVersion", "generatedBy", "results"}
    assert (data["reportFormat"], data["specVersion"].count(".")) == ("CTRF", 2)
    results = data["results"]
    assert results.keys() <= {"tool", "summary", "tests", "environment"} and results["tool"]["name"]
    summary, tests = results["summary"], results["tests"]
    statuses = ("passed", "failed", "skipped", "pending", "other")
    assert summary.keys() == {"tests", *statuses, "flaky", "suites", "start", "stop"}
    assert all(type(value) is int and value >= 0 for value in summary.values()) and summary["start"] <= summary["stop"]
    assert [summary[status] for status in statuses] == [
        sum(t["status"] == status for t in tests) for status in statuses
    ]
    assert summary["tests"] == len(tests)
    for test in tests:
        assert {"name", "status", "duration"} <= test.keys() <= TEST.keys()
        assert all(type(value) is TEST[key] for key, value in test.items())
        assert all(isinstance(item, str) for key in ("suite", "tags", "stdout") for item in test.get(key, ()))
    return data


def test_every_verdict() -> None:
    data = report(every_verdict())
    statuses = {test["rawStatus"]: test["status"] for test in data["results"]["tests"]}
    red = dict.fromkeys(("FAIL", "ERROR", "INVALID", "XPASS", "VACUOUS", "FLAKY"), "failed")
    assert statuses == {"PASS": "passed", "XFAIL": "skipped", "SKIP": "skipped", "NOT-RUN": "pending", **red}
    assert data["results"]["summary"]["flaky"] == 1
    assert data["results"]["summary"]["start"] == 1767323045000
    assert data["results"]["summary"]["stop"] == 1767323045000 + 12340


def test_a_failure_says_what_the_terminal_says() -> None:
    (test,) = report([started(), failure(attempts=3)])["results"]["tests"]
    assert (test["message"], test["duration"], test["retries"]) == ("value: output 1 differs", 1234, 2)
    assert test["trace"].startswith("value: output 1 differs\n --> ") and test["stdout"][:2] == [
        "first line",
        "last words",
    ]
    assert test["extra"]["backend"] == "inductor" and test["extra"]["oracles"] == ["value"]


def test_hostile_text_is_plain_json() -> None:
    text = ctrf.render([started(NASTY, run=NASTY), failure(name=NASTY, output=NASTY, labels=(NASTY,), torch=NASTY)])
    assert text.encode("utf-8").decode() == text and "\x1b" not in text and "\\u001b" not in text
    report(
        [
            started(NASTY, started="yesterday", run=NASTY),
            failure(name=NASTY, output=NASTY, labels=(NASTY,), seconds=float("nan")),
        ]
    )


def test_texts_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctrf, "TEXTS", 200_000)
    events = [failure(name=f"c{n}", output="line of text\n" * 5000) for n in range(50)]
    text = ctrf.render(events)
    assert len(text) < 300_000 and "bytes cut" in text
    report(events)


def test_names_tell_versions_of_torch_apart() -> None:
    data = report([started("2.6.0", "2.13.0"), planned(torch="2.6.0"), finished(torch="2.13.0")])
    assert [test["name"].rpartition(" (")[2] for test in data["results"]["tests"]] == ["torch 2.6.0)", "torch 2.13.0)"]


def test_report_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with Journal(tmp_path / "log.jsonl") as journal:
        for event in every_verdict():
            journal.write(event)
    assert main(["report", "log.jsonl", "--ctrf", "ctrf.json"]) == 0
    assert json.loads(Path("ctrf.json").read_text()) == report(every_verdict())
    assert "ctrf.json" in capsys.readouterr().out
    assert main(["report", "log.jsonl", "--ctrf", "no/ctrf.json"]) == 4
