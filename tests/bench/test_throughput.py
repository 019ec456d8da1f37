"""bench/throughput.py: what it generates, what it takes for a result, and what it makes of the numbers. Nothing is timed."""

from __future__ import annotations

import ast
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.script_modules import script_module

NAMES = ("throughput", "throughput_cases", "throughput_ways")


@pytest.fixture(scope="module")
def bench() -> SimpleNamespace:
    """The bench's modules as ``main``, ``cases`` and ``ways``."""
    main, cases, ways = (script_module(name) for name in NAMES)
    return SimpleNamespace(main=main, cases=cases, ways=ways)


def test_cases_are_valid_and_all_different(bench: SimpleNamespace, tmp_path: Path) -> None:
    file, variants = bench.cases.write_cases(tmp_path, 60)
    assert len({variant.id for variant in variants}) == 60
    cases = bench.cases.make_cases(60)
    assert len({json.dumps({**case, "name": ""}) for case in cases}) == 60
    assert {len(case["chain"]) for case in cases} <= set(range(3, 9))
    assert {case["name"].split("_")[0] for case in cases} == set(bench.cases._TEMPLATES)
    assert any(variant.grad.mode == "backward" for variant in variants)
    assert any(variant.grad.mode == "forward" for variant in variants)
    assert file.read_text() == bench.cases.write_cases(tmp_path, 60)[0].read_text()


def test_fewer_cases_are_the_first_of_more_and_another_seed_gives_others(bench: SimpleNamespace) -> None:
    assert bench.cases.make_cases(30)[:12] == bench.cases.make_cases(12)
    assert bench.cases.make_cases(12, seed=1) != bench.cases.make_cases(12, seed=2)


def test_a_case_that_the_runner_refuses_is_no_case(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"name": "wrong", "inputs": {"x": [2]}, "chain": ["torch.no_such_operator"]}
    monkeypatch.setattr(bench.cases, "make_cases", lambda count, seed: [wrong])
    with pytest.raises(ValueError, match="no_such_operator"):
        bench.cases.write_cases(tmp_path, 1)


def test_scripts_and_tests_hold_the_builders_source(bench: SimpleNamespace, tmp_path: Path) -> None:
    from runner.builder.source import build
    from runner.cases.model import THREADS

    _, variants = bench.cases.write_cases(tmp_path, 10)
    bench.ways.write_by_hand(tmp_path, variants, "aot_eager")
    for variant in variants:
        script = (tmp_path / "scripts" / f"{variant.case.name}.py").read_text()
        module = (tmp_path / "tests" / f"{variant.case.name}.py").read_text()
        compile(script, "script", "exec")
        assert script.startswith(build(variant).text)
        assert module.startswith(build(variant).text)
        assert f"BACKWARD = {variant.grad.mode == 'backward'}\n" in module
    tests = (tmp_path / "tests" / "test_throughput.py").read_text()
    names = [d.args[1] for d in ast.walk(ast.parse(tests)) if isinstance(d, ast.Call) and len(d.args) == 2]
    assert [variant.case.name for variant in variants] in [
        ast.literal_eval(n) for n in names if isinstance(n, ast.List)
    ]
    for text in (tests, script):
        assert "backend='aot_eager'" in text
        assert f"torch.set_num_threads({THREADS})" in text
        assert "$" not in text


def measurement(bench: SimpleNamespace, backend: str, way: str, seconds: float, **fields: Any) -> Any:
    fixed = {"temperature": "cold", "cpu": 1.0, "count": 200, "ran": 200, "slots": 2, "seed": 20, "torch": "2.13.0",
             "cpus": 2, "load": 0.0}  # fmt: skip
    return bench.main.Measurement(backend=backend, way=way, seconds=seconds, **{**fixed, **fields})


def verdicts(bench: SimpleNamespace, *measurements: Any) -> dict[str, str]:
    return {t.subject: t.verdict for t in bench.main.targets(bench.main.medians(measurements)) if t.value is not None}


@pytest.mark.parametrize(
    ("scripts", "pytest_", "runner", "expected"),
    [(1500.0, 130.0, 100.0, ["met", "met"]), (1499.0, 129.0, 100.0, ["MISSED", "MISSED"])],
)
def test_targets_are_ratios_of_the_cold_passes(
    bench: SimpleNamespace, scripts: float, pytest_: float, runner: float, expected: list[str]
) -> None:
    passes = [("scripts", scripts), ("pytest", pytest_), ("runner", runner)]
    cold = [measurement(bench, "aot_eager", way, seconds) for way, seconds in passes]
    warm = [measurement(bench, "aot_eager", way, 1.0, temperature="warm") for way, _ in passes]
    assert [*verdicts(bench, *cold, *warm).values()] == expected
    assert verdicts(bench, *warm) == {}


@pytest.mark.parametrize(("seconds", "expected"), [(100.0, "met"), (101.0, "MISSED")])
def test_second_runs_are_held_against_the_second_run_of_xdist(
    bench: SimpleNamespace, seconds: float, expected: str
) -> None:
    passes = [("xdist", 130.0), ("runner", seconds), ("runner-cached", seconds)]
    warm = [measurement(bench, "inductor", way, duration, temperature="warm") for way, duration in passes]
    assert [*verdicts(bench, *warm).values()] == [expected, expected]


@pytest.mark.parametrize(("torch", "inductor", "aot_eager"), [(181.0, "met", "met"), (179.0, "MISSED", "MISSED")])
def test_what_torch_does_not_spend_is_held_against_its_target(
    bench: SimpleNamespace, torch: float, inductor: str, aot_eager: str
) -> None:
    first_measurement = measurement(bench, "inductor", "runner", 100.0, parts={"busy": 200.0, "torch": torch})
    assert [*verdicts(bench, first_measurement).values()] == [inductor]
    second_measurement = measurement(bench, "aot_eager", "runner", 100.0, parts={"busy": 200.0, "torch": torch})
    assert [*verdicts(bench, second_measurement).values()] == [aot_eager]
    without = measurement(bench, "aot_eager", "runner", 100.0, parts={"busy": 200.0})
    assert verdicts(bench, without) == {}


def test_several_rounds_count_by_their_median_and_a_sample_is_said(bench: SimpleNamespace) -> None:
    rounds = [measurement(bench, "inductor", "scripts", seconds, ran=5) for seconds in (300.0, 100.0, 140.0)]
    medians = bench.main.medians([*rounds, measurement(bench, "inductor", "runner", 20.0)])
    assert medians["inductor", "cold", "scripts"].seconds == 140.0
    text, missed = bench.main.render(medians)
    assert "scripts (from 5)" in text
    assert "only the first N scripts ran" in text
    assert "7.00 times" in text
    assert not missed


def test_measurements_of_different_settings_are_not_put_into_one_table(bench: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match="not alike"):
        bench.main.medians(
            [measurement(bench, "inductor", way, 1.0, count=n) for way, n in (("pytest", 8), ("xdist", 9))]
        )


def test_merge_prints_the_table_of_several_files(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, way, seconds in zip(files, ("pytest", "runner"), (30.0, 20.0), strict=True):
        bench.main.write(file, [measurement(bench, "inductor", way, seconds)])
    monkeypatch.setattr(sys, "argv", ["throughput.py", "--merge", *map(str, files)])
    assert bench.main.main() == 0
    assert "1.50 times" in capsys.readouterr().out
    files[1].write_text('{"schema": 1, "measurements": [{"backend": "inductor"}]}')
    with pytest.raises(SystemExit):
        bench.main.main()
    assert "b.json holds no measurements" in capsys.readouterr().err


def fake_command(bench: SimpleNamespace, code: int, events: list[dict[str, Any]]) -> Any:
    """In place of a process: leaves a journal, the last of it without its newline until it was looked at again."""

    def run(words: list[str], codes: tuple[int, ...], cwd: Path, environ: dict[str, str], log: Path) -> Any:
        folder = cwd / ".runner" / "latest"
        folder.mkdir(parents=True)
        text = "".join(json.dumps(event) + "\n" for event in events)
        (folder / "events.jsonl").write_text(text[:-9])
        time.sleep(0.25)
        (folder / "events.jsonl").write_text(text)
        if code not in codes:
            raise bench.ways.Broken(f"runner gave exit code {code}")
        return bench.ways.Cost("said", 2.0, 1.0, 0.5, 100.0)

    return run


def finished(verdict: str = "PASS", **fields: Any) -> dict[str, Any]:
    spent = {"busy": 2.0, "torch": 1.5, "load": 0.1, "judge": 0.2}
    return {"event": "variant-finished", "id": "a", "verdict": verdict, "seconds": 2.0, "spent": spent, **fields}


def work(ways: ModuleType, folder: Path) -> Any:
    return ways.Work(folder, folder / "x.spec.yaml", [None, None], 0, 2, 0)


def test_a_journal_read_while_it_is_written_gives_every_part(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    events = [{"event": "run-started"}, finished(), finished()]
    monkeypatch.setattr(bench.ways, "measure_command", fake_command(bench, 0, events))
    result = bench.ways._run_runner(work(bench.ways, tmp_path), "aot_eager", tmp_path, "runner", False)
    *figures, parts = result
    assert figures == [2.0, 1.5, 2]
    assert {name: parts[name] for name in ("busy", "torch", "load", "judge")} == pytest.approx(
        {"busy": 4.0, "torch": 3.0, "load": 0.2, "judge": 0.4}
    )
    assert parts["start"] + parts["jobs"] + parts["end"] < 60


@pytest.mark.parametrize(
    ("code", "lines", "message"),
    [
        (1, [finished(), finished("FAIL")], "FAIL a"),
        (0, [finished()], "1 verdicts of 2"),
        (2, [finished(), finished()], "exit code 2"),
        (0, [finished(), finished(cached="before")], "took 1 of 2 results from an earlier run"),
    ],
)
def test_a_run_that_is_not_all_green_is_no_measurement(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, lines: list[Any], message: str
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(bench.ways, "measure_command", fake_command(bench, code, lines))
    with pytest.raises(bench.ways.Broken, match=message):
        bench.ways._run_runner(work(bench.ways, tmp_path), "aot_eager", tmp_path, "runner", False)


@pytest.mark.parametrize(
    ("cached", "warm", "measured"), [(2, True, True), (1, True, False), (0, False, True), (1, False, False)]
)
def test_a_second_run_with_cached_takes_all_its_results_from_the_first(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: int, warm: bool, measured: bool
) -> None:
    (tmp_path / "run").mkdir()
    events = [finished(**({"cached": "before"} if number < cached else {})) for number in range(2)]
    monkeypatch.setattr(bench.ways, "measure_command", fake_command(bench, 0, events))
    with nullcontext() if measured else pytest.raises(bench.ways.Broken, match=f"took {cached} of 2"):
        result = bench.ways._run_runner(work(bench.ways, tmp_path), "aot_eager", tmp_path, "runner-cached", warm)
        assert bool(result[-1]) is not warm


def test_settings_of_torch_in_the_shell_reach_no_way(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    variables = bench.ways.environment(tmp_path)
    assert "TORCHINDUCTOR_FORCE_DISABLE_CACHES" not in variables
    assert {variables[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR")} == {
        str(tmp_path / name) for name in ("inductor", "xdg", "tmp")
    }
