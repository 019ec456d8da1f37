"""``runner.record.store``: what the latest run here planned, and by which suites."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.contract.finding import Finding
from runner.record.events import Event, RunStarted, VariantFinished, VariantPlanned, VariantStarted, to_json
from runner.record.signing import signature_of
from runner.record.store import latest_backends, latest_result, latest_seed, latest_suites

ID, OTHER, LATE = (
    "a.spec.yaml::c[float32,cpu]@mine",
    "a.spec.yaml::d[float32,cpu]@eager",
    "a.spec.yaml::e[float32,cpu]@eager",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def keep(
    folder: Path, sign: bool = True, argv: tuple[str, ...] = ("runner", "run", "s.suite.yaml"), **changes: Any
) -> None:
    values: dict[str, Any] = {
        "cwd": os.getcwd(),
        "host": platform.node(),
        "suites": {"s": "/x/s.suite.yaml", "a": "/x/a.spec.yaml"},
    }
    started = RunStarted("r", "0", argv, "2026-01-02T03:04:05", folder="f", **{**values, **changes})
    started = replace(started, signature=signature_of(started) if sign else "")
    common = ("2.13.0", "python", "cpu", "float32", ID.partition("@")[0], "/x/a.spec.yaml", 1)
    events: list[Event] = [
        started,
        VariantPlanned(ID, "c", "s", ("s",), "mine", *common),
        VariantPlanned(OTHER, "d", "a", ("a",), "eager", *common),
        VariantStarted(ID, "2.13.0"),
        VariantPlanned(LATE, "e", "s", ("s",), "eager", *common),
    ]
    journal = folder / ".runner/latest/events.jsonl"
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_text("".join(json.dumps(to_json(event)) + "\n" for event in events))


def test_only_what_a_suite_planned(folder: Path) -> None:
    keep(folder)
    # OTHER ran by its own file; what stands after the first start was not announced.
    assert latest_suites([ID, OTHER, LATE, "a.spec.yaml::c", "a.spec.yaml"]) == {ID: "/x/s.suite.yaml"}
    assert latest_suites([OTHER]) == latest_suites([]) == {}


def test_a_link_to_another_place_says_nothing(folder: Path) -> None:
    keep(folder)
    (folder / ".runner" / "latest").rename(folder / "away")
    (folder / ".runner" / "latest").symlink_to("../away")
    assert latest_suites([ID]) == {}
    (folder / ".runner" / "runs").mkdir()
    (folder / "away").rename(folder / ".runner" / "runs" / "r")
    (folder / ".runner" / "latest").unlink()
    (folder / ".runner" / "latest").symlink_to("runs/r")
    assert latest_suites([ID]) == {ID: "/x/s.suite.yaml"}
    row = ID.partition("@")[0]
    assert latest_suites([row, ID]) == {row: "/x/s.suite.yaml", ID: "/x/s.suite.yaml"}


@pytest.mark.parametrize("changes", [{"sign": False}, {"host": "elsewhere"}, {"cwd": "/elsewhere"}])
def test_a_run_of_somebody_or_somewhere_else_says_nothing(folder: Path, changes: dict[str, Any]) -> None:
    keep(folder, argv=("runner", "run", "--backend", "my:fn"), **changes)
    assert latest_suites([ID]) == {} and latest_backends() == ()


def test_typed_backends(folder: Path) -> None:
    keep(folder, argv=("runner", "run", "s", "--backend", "my:fn", "--backend=eager"))
    assert latest_backends() == ("my:fn", "eager")


@pytest.mark.parametrize("text", [None, "", "{", "[]\n", '{"event": "notice", "message": "x"}\n', "\0\0"])
def test_no_run_and_a_torn_log(folder: Path, text: str | None) -> None:
    if text is not None:
        (folder / ".runner/latest").mkdir(parents=True)
        (folder / ".runner/latest/events.jsonl").write_text(text)
    assert latest_suites([ID]) == {} and latest_backends() == ()


def finished(torch: str, *findings: Finding) -> str:
    common = (torch, "python", "cpu", "float32", ID.partition("@")[0], "/x/a.spec.yaml", 1)
    event = VariantFinished(ID, "c", "s", ("s",), "mine", *common, verdict="PASS", seconds=1.0, findings=findings)
    return json.dumps(to_json(event)) + "\n"


def test_what_the_latest_run_says_of_a_variant(folder: Path) -> None:
    assert latest_result(ID) is None and latest_seed() == 0
    keep(folder, argv=("runner", "run", "s", "--seed", "1", "--seed=-7"))
    assert latest_result(ID) is None and latest_seed() == -7
    with (folder / ".runner/latest/events.jsonl").open("a") as log:
        log.write(finished("2.13.0") + finished("2.6.0", Finding("value", "it differs")) + finished("2.7.0"))
    result = latest_result(ID)
    assert result is not None and result.torch == "2.6.0"
    assert latest_result(OTHER) is None
    assert latest_result(ID.partition("@")[0]) is None


def test_somebody_elses_result_says_nothing(folder: Path) -> None:
    keep(folder, argv=("runner", "run", "s", "--seed", "1"), sign=False)
    with (folder / ".runner/latest/events.jsonl").open("a") as log:
        log.write(finished("2.13.0"))
    assert latest_result(ID) is None and latest_seed() == 0
