"""What measurements share: the cost of a command, results of a run, medians and targets."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.record.events import to_json
from tests.report.events_sample import finished, started
from tests.script_modules import script_module

commands = script_module("commands")


def python(text: str, *codes: int, **settings: Any) -> Any:
    return commands.measure_command([sys.executable, "-c", text], codes or (0,), **settings)


def test_a_command_has_its_output_seconds_and_memory(tmp_path: Path) -> None:
    busy = (
        "import sys, time; x = bytearray(80 << 20); sum(range(3_000_000)); time.sleep(0.2); print('out'); sys.exit(3)"
    )
    cost = python(busy, 3, log=tmp_path / "log")
    assert cost.output == "out\n" == (tmp_path / "log").read_text()
    assert cost.seconds > 0.2 and 0 < cost.cpu < cost.seconds and cost.memory > 80


def test_children_of_a_command_count() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'bytearray(150 << 20)'])"
    assert python(child).memory > 150


def test_another_exit_code_breaks_a_measurement_and_shows_the_output() -> None:
    with pytest.raises(commands.Broken, match=r"gave exit code 1(?s:.*)NameError"):
        python("no_name")
    with pytest.raises(commands.Broken, match="gave exit code -9"):
        python("import os; os.kill(os.getpid(), 9)")


def test_results_are_the_verdicts_and_a_line_that_is_no_event_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    text = "".join(json.dumps(to_json(event)) + "\n" for event in (started(), finished("PASS", "a")))
    log.write_text(text + '{"event": "variant-fin')
    assert [(result.case, result.verdict) for result in commands.read_results(log)] == [
        (finished("PASS", "a").case, "PASS")
    ]
    log.write_text(text + "{}\n")
    with pytest.raises(ValueError, match="line 3"):
        commands.read_results(log)


@dataclasses.dataclass(frozen=True)
class Run:
    name: str
    seconds: float | None
    parts: dict[str, float] = dataclasses.field(default_factory=dict)


def test_medians_are_those_of_a_key_and_leave_out_what_is_missing() -> None:
    runs = [Run("a", 3.0, {"x": 1.0, "y": 1.0}), Run("a", None, {"x": 3.0}), Run("a", 1.0, {"x": 2.0}), Run("b", None)]
    assert commands.medians(runs, lambda run: run.name, "seconds", "parts") == {
        "a": Run("a", 2.0, {"x": 2.0}),
        "b": Run("b", None),
    }


@pytest.mark.parametrize(
    ("value", "verdict", "missed"), [(None, "not measured", False), (1.0, "met", False), (1.1, "MISSED", True)]
)
def test_a_target_is_met_missed_or_not_measured(value: float | None, verdict: str, missed: bool) -> None:
    target = commands.Target("seconds", "{:.1f} s", value, low=0.5, high=1.0)
    table, is_missed = commands.target_table([target])
    assert target.verdict == verdict and is_missed is missed and verdict in table


def test_a_mode_is_the_function_with_the_name_of_the_first_word(capsys: pytest.CaptureFixture[str]) -> None:
    def count(options: Any) -> int:
        """Count."""
        return int(options.n)

    modes = {count: (commands.option("-n", type=int, default=1),)}
    assert commands.run_mode("", modes, ["count", "-n", "3"]) == 3
    with pytest.raises(SystemExit):
        commands.run_mode("", modes, ["other"])
    assert "invalid choice: 'other'" in capsys.readouterr().err
