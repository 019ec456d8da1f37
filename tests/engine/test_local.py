"""The local engine when nothing dies: results, slots, cancelling, which server runs a job, logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_jobs import Make, finish, job, one

from runner.engine import process_tree
from runner.engine.messages import Outcome


def test_a_result_comes_back_with_its_phase(make: Make) -> None:
    outcome = one(make(), "send({'phase': 'eager'}); result['sum'] = job['seed'] + 1; print('hello')", seed=41)
    assert (outcome.ended, outcome.result, outcome.phase) == ("result", {"sum": 42}, "eager")
    assert outcome.output == "hello\n" and outcome.exit_status == 0 and outcome.signal is None
    assert 0 < outcome.seconds < 10


def test_what_json_lacks_comes_as_text(make: Make) -> None:
    outcome = one(make(), "result.update(a=float('nan'), b=[float('inf'), 1.5], c={1, 1}, d={2: None}, e='\\udc80')")
    assert outcome.result == {"a": "nan", "b": ["inf", 1.5], "c": "{1}", "d": {"2": None}, "e": "\udc80"}


def test_twenty_quick_jobs_over_two_slots(make: Make) -> None:
    engine = make(2)
    most = 0
    for number in range(20):
        engine.submit(job(f"result['number'] = {number}", str(number)))
    outcomes: list[Outcome] = []
    while engine.pending():
        outcomes += engine.wait(1.0)
        most = max(most, len(engine.running()))
    assert sorted(outcome.result["number"] for outcome in outcomes) == list(range(20))
    assert most <= 2


def test_what_runs_can_be_shown_and_cancelled(make: Make) -> None:
    engine = make(1)
    engine.submit(job("import os, time\nsend({'phase': 'eager'}); print(os.getpid()); time.sleep(100)", "first"))
    engine.submit(job("", "second"))
    end = time.monotonic() + 10
    while [phase for _, _, phase in engine.running()] != ["eager"] and time.monotonic() < end:
        assert engine.wait(0.05) == []
    ((running, seconds, _),) = engine.running()
    assert running.key == "first" and seconds < 10
    assert [dropped.key for dropped in engine.cancel_all()] == ["first", "second"]
    assert (engine.pending(), engine.wait()) == (0, [])
    assert one(engine, "result['ok'] = 1").result == {"ok": 1}


def test_accelerator_jobs_have_a_server_of_their_own(make: Make) -> None:
    source = "import os; result['parent'] = os.getppid()"
    outcomes = finish(
        make(), job(source, "cpu"), job(source, "cuda", device="cuda"), job(source, "cuda1", device="cuda:1")
    )
    parents = {key: outcome.result["parent"] for key, outcome in outcomes.items()}
    assert parents["cpu"] != parents["cuda"] == parents["cuda1"]


def test_closed_streams_do_no_harm(make: Make) -> None:
    outcome = one(make(), "import os, sys\nsys.stdout.close(); os.close(1); os.close(2); os.close(0)\nresult['ok'] = 1")
    assert outcome.result == {"ok": 1}


def test_a_log_folder_that_cannot_be_made(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = one(make(log_folder=tmp_path / "file" / "logs"), "print('x' * 100_000); result['ok'] = 1")
    assert (outcome.result, outcome.output) == ({"ok": 1}, "")


def test_logs_are_kept_where_something_was_printed(make: Make, tmp_path: Path) -> None:
    finish(make(log_folder=tmp_path), job("print('a')", "loud"), job("", "quiet"))
    assert [path.name for path in tmp_path.glob("*.log")] == ["00001-m_loud.log"]


def test_the_engine_imports_no_torch() -> None:
    code = "import sys, json, runner.engine.local; print(json.dumps('torch' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, check=True)
    assert json.loads(done.stdout) is False


def test_a_fresh_job_comes_from_a_cold_server(make: Make) -> None:
    source = """
        import os
        result.update(parent=os.getppid(), pid=os.getpid())
    """
    engine = make(1, warm="aot")
    jobs = [job(source, "fork"), *(job(source, key, isolation="fresh") for key in ("fresh", "again"))]
    jobs += [job(source, "cuda", device="cuda"), job(source, "fresh cuda", device="cuda", isolation="fresh")]
    found = {key: outcome.result for key, outcome in finish(engine, *jobs).items()}
    warm = {server.hello["pid"]: server.warm for server in engine._servers.values()}
    assert {key: warm[result["parent"]] for key, result in found.items()} == {
        "fork": "aot",
        "fresh": "capture",
        "again": "capture",
        "cuda": "import",
        "fresh cuda": "capture",
    }
    assert found["fresh"]["parent"] == found["again"]["parent"] and found["fresh"]["pid"] != found["again"]["pid"]


@pytest.mark.parametrize(("warm", "words"), [("aot", "every job is slow, since no warm-up was possible"), ("none", "")])
def test_a_warm_up_that_failed_is_said(make: Make, warm: str, words: str) -> None:
    """The fake torch has no compiler, so that nothing can be warmed up."""
    engine = make(1, warm=warm)
    assert one(engine, "").ended == "result"
    assert len(engine.notices()) == bool(words) and all(words in notice for notice in engine.notices())


def test_the_cold_server_starts_when_it_is_needed(make: Make) -> None:
    engine = make(1, warm="aot")
    zygotes, servers = [], []
    for isolation in ("fork", "living", "fresh", "fresh"):
        one(engine, "", isolation=isolation)
        table = process_tree.processes()
        zygotes.append([process.pid for process in table.values() if process.parent == os.getpid()])
        servers.append(sum(process.parent in zygotes[0] for process in table.values()))
    assert servers == [1, 1, 2, 2]
    assert zygotes == [zygotes[0]] * 4 and len(zygotes[0]) == 1, "torch is imported once"


def test_a_private_kernel_cache_goes_with_the_engine(make: Make, fake: dict[str, str]) -> None:
    source = """
        import os, pathlib
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            result[name] = os.environ.get(name)
        folder = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.so").write_text("")
    """
    engine = make(1, kernel_cache="private", environments=("here", "there"))
    outcomes = finish(engine, job(source, "a"), job(source, "b"), job(source, "c", environment="there"))
    folders = {key: outcome.result["TORCHINDUCTOR_CACHE_DIR"] for key, outcome in outcomes.items()}
    assert folders["a"] == folders["b"] != folders["c"] and fake["TORCHINDUCTOR_CACHE_DIR"] not in folders.values()
    assert outcomes["a"].result["TRITON_CACHE_DIR"].startswith(folders["a"])
    assert all(Path(folder, "kernel.so").exists() for folder in folders.values())
    engine.close()
    assert not any(Path(folder).exists() for folder in folders.values())


def test_a_shared_kernel_cache_is_left_alone(make: Make, fake: dict[str, str]) -> None:
    outcome = one(make(1), "import os; result['folder'] = os.environ['TORCHINDUCTOR_CACHE_DIR']")
    assert outcome.result["folder"] == fake["TORCHINDUCTOR_CACHE_DIR"]


@pytest.mark.parametrize("isolation", ["fork", "fresh", "living"])
def test_a_slot_is_busy_longer_than_its_job_runs(make: Make, isolation: str) -> None:
    engine = make(1)
    one(engine, "", isolation=isolation)  # the server starts
    source = "import time; begin = time.monotonic(); time.sleep(0.1); result['inside'] = time.monotonic() - begin"
    outcome = one(engine, source, isolation=isolation)
    assert 0 < outcome.seconds <= outcome.busy and outcome.result["inside"] <= outcome.busy


def test_variables_reach_the_jobs_that_ask_for_them_and_no_others(make: Make) -> None:
    engine = make(2, warm="none")
    asks = "import os; result['outcome'] = os.environ.get('TRITON_INTERPRET', 'none')"
    jobs = [
        job(asks, "plain"),
        job(asks, "with", variables={"TRITON_INTERPRET": "1"}),
        job(asks, "fresh", variables={"TRITON_INTERPRET": "1"}, isolation="fresh"),
        job(asks, "after"),
    ]
    outcomes = finish(engine, *jobs)
    assert {key: one.result["outcome"] for key, one in outcomes.items()} == {
        "plain": "none",
        "with": "1",
        "fresh": "1",
        "after": "none",
    }
    assert len(engine._servers) == 2


def test_a_server_that_was_prepared_is_the_one_of_later_jobs(make: Make) -> None:
    engine = make(2, warm="aot")
    engine.prepare("here", "fresh", {"RUNNER_X": "1"})
    (prepared,) = engine._servers.values()
    assert (prepared.warm, prepared.environ["RUNNER_X"], engine.pending()) == ("capture", "1", 0)
    asks = "import os; result['parent'] = os.getppid()"
    outcome = one(engine, asks, isolation="fresh", variables={"RUNNER_X": "1"})
    assert len(engine._servers) == 1 and outcome.result["parent"] == prepared.hello["pid"]
