"""bench/gpu.py: what it generates, which verdicts it takes, and what it makes of the numbers. Nothing is timed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.script_modules import script_module


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    return script_module("gpu")


def test_cases_that_assert_stand_among_the_others(gpu: ModuleType, tmp_path: Path) -> None:
    file, plain = gpu.write_cases(tmp_path, 30, 5, 20)
    names = [line.split()[-1] for line in file.read_text().splitlines() if "name: " in line and line.startswith("- ")]
    places = [place for place, name in enumerate(names) if name.startswith("asserting_")]
    assert len(names) == 30 and len(places) == 5 and places == sorted(places) and min(places) > 0 and max(places) < 29
    assert len(plain) == 25 and {variant.device for variant in plain} == {"cuda"}
    assert not any(variant.case.name.startswith("asserting") for variant in plain)


def test_what_asserts_only_where_it_is_compiled(gpu: ModuleType, tmp_path: Path) -> None:
    import torch

    gpu.write_cases(tmp_path, 2, 1, 20)
    space: dict[str, Any] = {}
    exec((tmp_path / "asserting.py").read_text(), space)
    model = space["Asserting"](1.5)
    x, index = torch.ones(8, 8), torch.tensor([0, 7])
    assert model(x, index).shape == (2, 8)
    with pytest.raises((IndexError, RuntimeError)):
        torch.compile(model, backend="eager")(x, index)


@pytest.mark.parametrize(
    ("key", "verdict", "right"),
    [
        ("gpu.spec.yaml::asserting_1[float32,cuda]@inductor", "ERROR", True),
        ("gpu.spec.yaml::asserting_1[float32,cuda]@inductor", "PASS", False),
        ("gpu.spec.yaml::view_005[float32,cuda]@inductor", "PASS", True),
        ("gpu.spec.yaml::view_005[float32,cuda]@inductor", "ERROR", False),
        ("gpu.spec.yaml::view_005[float32,cuda]@inductor", "FLAKY", False),
    ],
)
def test_only_the_right_verdict_counts(gpu: ModuleType, key: str, verdict: str, right: bool) -> None:
    assert gpu.is_right(key, verdict) is right


def test_steady_leaves_out_the_first_and_the_last_of_each_process(gpu: ModuleType) -> None:
    slow_start = [10.0, 10.0, *(20.0 + 0.5 * number for number in range(11)), 60.0, 90.0]
    assert gpu.steady(slow_start, 2) == pytest.approx(0.5)
    assert gpu.steady(list(reversed(slow_start)), 2) == pytest.approx(0.5)
    assert gpu.steady([1.0, 2.0, 3.0, 4.0, 5.0], 2) is None


def one(gpu: ModuleType, way: str = "runner", gpus: int = 1, **fields: Any) -> Any:
    values = {"caches": "cold", "slots": 16, "count": 256, "asserting": 5, "ran": 256, "whole": 40.0, **fields}
    return gpu.Measurement(way, gpus, **values)


def test_targets_met_missed_and_not_measured(gpu: ModuleType) -> None:
    alone = gpu.targets(gpu.medians([one(gpu, steady=0.05)]))
    assert [(target.value, target.verdict) for target in alone] == [(0.05, "met"), *[(None, "not measured")] * 2]
    scripts, two = one(gpu, "scripts", whole=300.0, ran=8), one(gpu, gpus=2, steady=0.03)
    every = gpu.targets(gpu.medians([one(gpu, steady=0.07), scripts, two]))
    assert [target.verdict for target in every] == ["MISSED", "MISSED", "met"]
    assert [target.text.format(target.value) for target in every] == ["0.0700 s", "7.5 times", "2.33 times"]


def test_warm_runs_are_no_target_and_rounds_are_medians(gpu: ModuleType) -> None:
    measurements = [one(gpu, steady=value) for value in (0.05, 0.09, 0.06)] + [one(gpu, caches="warm", steady=0.01)]
    target = gpu.targets(gpu.medians(measurements))[0]
    assert (target.value, target.verdict) == (0.06, "met")
    text, missed = gpu.render(measurements)
    assert not missed and "0.0600" in text and "256 variants, of which 5 assert" in text


def test_a_wrong_verdict_is_told(gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = gpu.make_folders(tmp_path / "place")
    journal = place / "run" / ".runner" / "latest" / "events.jsonl"
    ways = script_module("throughput_ways")
    state: dict[str, Any] = {}

    def end_with(verdict: str) -> None:
        def run(words: list[str], codes: Any, cwd: Path, environ: dict[str, str], log: Path) -> Any:
            state["gpus"] = environ["CUDA_VISIBLE_DEVICES"]
            real = place / "run" / ".runner" / "one"
            real.mkdir(parents=True, exist_ok=True)
            event = {
                "event": "variant-finished",
                "id": "gpu.spec.yaml::a[cuda]@inductor",
                "verdict": verdict,
                "reason": "r",
            }
            event |= {"seconds": 1.0, "spent": {"busy": state.get("busy", 1.0)}, "notes": ["a note"]}
            (real / "events.jsonl").write_text(json.dumps(event) + "\n")
            journal.parent.symlink_to(real)
            return gpu.Cost("", 2.0, 1.0, 0.5, 100.0)

        monkeypatch.setattr(ways, "measure_command", run)

    end_with("PASS")
    _, ends, wrong = gpu.run_runner(tmp_path / "x", place, 2, 4, 0)
    assert (len(ends), wrong, state["gpus"]) == (1, [], "0,1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,3,1")
    end_with("FLAKY")
    _, _, wrong = gpu.run_runner(tmp_path / "x", place, 2, 4, 0)
    assert wrong == ["FLAKY gpu.spec.yaml::a[cuda]@inductor: r"]
    assert "not as they should be:\n1 GPUs, cold: FLAKY" in gpu.render([one(gpu, wrong=wrong)])[0]
    assert state["gpus"] == "5,3" and os.environ["CUDA_VISIBLE_DEVICES"] == "5,3,1"
    state["busy"] = 122.4
    _, _, slow = gpu.run_runner(tmp_path / "x", place, 2, 4, 0)
    assert slow == ["FLAKY gpu.spec.yaml::a[cuda]@inductor: r"], "named once"
    end_with("PASS")
    _, _, slow = gpu.run_runner(tmp_path / "x", place, 2, 4, 0)
    assert slow == ["122 s gpu.spec.yaml::a[cuda]@inductor: r; a note"]


def test_scripts_run_at_once_and_must_pass(gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, plain = gpu.write_cases(tmp_path, 4, 1, 20)
    monkeypatch.setattr(gpu, "write_by_hand", lambda place, variants, backend: None)
    scripts = tmp_path / "inductor" / "by-hand" / "scripts"
    scripts.mkdir(parents=True)
    for variant in plain:
        (scripts / f"{variant.case.name}.py").write_text("print(1)")
    seconds, costs = gpu.run_by_hand(tmp_path, plain, 2)
    assert seconds > 0 and len(costs) == len(plain)
    (scripts / f"{plain[1].case.name}.py").write_text("raise SystemExit('wrong here')")
    with pytest.raises(script_module("commands").Broken, match=r"gave exit code 1(?s:.*)wrong here"):
        gpu.run_by_hand(tmp_path, plain, 2)


def test_cores_are_given_back(gpu: ModuleType) -> None:
    every = os.sched_getaffinity(0)
    with gpu.cores(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == every
    with gpu.cores(0):
        assert os.sched_getaffinity(0) == every


def test_the_command_line(gpu: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    parsed: SimpleNamespace = gpu.parser().parse_args(["--gpus", "1,2"])
    assert parsed.gpus == [1, 2] and parsed.count == 256 and parsed.asserting == 5
    with pytest.raises(SystemExit):
        gpu.parser().parse_args(["--gpus", "0"])
    assert "at least 1" in capsys.readouterr().err
