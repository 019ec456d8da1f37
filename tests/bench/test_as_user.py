"""The count of verdicts that a run as a user agrees with."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from runner.record.events import to_json
from runner.session.collect import load
from runner.session.plan import find_environments
from tests.report.events_sample import finished, started
from tests.script_modules import script_module


@pytest.mark.parametrize(
    ("oracles", "outcome", "word"),
    [
        (("value",), "value", "agree"),
        (("value",), "nonfinite", "agree"),
        (("value", "rng"), "rng stride", "agree"),
        (("value",), "stride", "disagree"),
        (("value",), "ok", "disagree"),
        ((), "ok", "agree"),
        ((), "value", "disagree"),
        ((), "", "no answer"),
    ],
)
def test_a_row_agrees_by_the_kind_of_its_failure(oracles: tuple[str, ...], outcome: str, word: str) -> None:
    event = dataclasses.replace(finished("FAIL" if oracles else "PASS", "a"), oracles=oracles)
    assert script_module("as_user").word_of(event, outcome) == word


@pytest.mark.parametrize(("outcome", "code", "line"), [("value", 0, "1 agree"), ("ok", 1, "1 disagree")])
def test_the_rows_of_a_log_are_counted(
    outcome: str, code: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = dataclasses.replace(
        finished("FAIL", "a"), oracles=("value",), stages={"inductor": "value", "as-user": outcome}
    )
    plain = finished("PASS", "b")
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(to_json(entry)) + "\n" for entry in (started(), event, plain)))
    assert script_module("as_user").main([str(log)]) == code
    assert line in capsys.readouterr().out


@pytest.mark.nightly
@pytest.mark.slow
def test_what_has_no_row_runs_as_a_user_runs_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.spec.yaml"
    file.write_text("cases:\n- {name: a, inputs: {x: [2, 3]}, chain: [torch.neg]}\n")
    suite = tmp_path / "a.suite.yaml"
    suite.write_text("suite: a\nspecs: ['*.spec.yaml']\nbackends: [eager]\n")
    (variant,) = load([str(suite)]).variants
    (environment,) = find_environments([])
    event = dataclasses.replace(
        finished("PASS", "a", "eager"), id=variant.id, torch=environment.torch, python=environment.python
    )
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(to_json(entry)) + "\n" for entry in (started(), event)))
    assert script_module("as_user").main([str(log), "--suite", str(suite)]) == 0
    assert f"torch {environment.torch}: 1 agree\n" == capsys.readouterr().out
