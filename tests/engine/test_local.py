"""The local engine against every way in which a job, a server or the engine itself can die.

The jobs are snippets of Python run by a small entry function. Where torch itself does not matter, a folder with an
empty ``torch`` stands in for it, so that a server starts in 0.1 s.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.engine import local, process
from runner.engine.local import LocalEngine
from runner.engine.messages import Job, Outcome

ENTRY = """
def run_job(job, send):
    names = {"job": job, "send": send, "result": {}}
    exec(compile(job["source"], "<job>", "exec"), names)
    return names["result"]
"""
TORCH = """
import types
__version__ = "9.9.9+fake"
version = types.SimpleNamespace(git_version="abc")
cuda = types.SimpleNamespace(is_available=lambda: False)
def set_num_threads(count): pass
"""


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    """Environment variables that give a worker the entry function above and a torch that imports at once."""
    folder = tmp_path / "fake"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(TORCH)
    (folder / "entry.py").write_text(ENTRY)
    return {"PYTHONPATH": str(folder), "RUNNER_WORKER_ENTRY": "entry:run_job", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}


Make = Callable[..., LocalEngine]


@pytest.fixture
def make(fake: dict[str, str]) -> Iterator[Make]:
    """Makes engines whose server loads only the stand-in for torch; closes them, and checks that all is gone."""
    engines: list[LocalEngine] = []

    def build(slots: int = 2, environ: dict[str, str] | None = None, log_folder: Path | None = None) -> LocalEngine:
        environments = {"here": sys.executable}
        engines.append(
            LocalEngine(
                environments, slots, warm={"here": "none"}, environ={**fake, **(environ or {})}, log_folder=log_folder
            )
        )
        return engines[-1]

    yield build
    for engine in engines:
        engine.close()
    assert [one for one in process.processes().values() if one.parent == os.getpid() and not one.zombie] == []


def job(source: str, key: str = "k", timeout: float = 20.0, memory: int | None = None, **more: object) -> Job:
    text = textwrap.dedent(source)
    options = {"environment": "here", **more}
    return Job(key, f"id-{key}", name=f"m {key}", source=text, backend={}, timeout=timeout, memory=memory, **options)  # type: ignore[arg-type]


def finish(engine: LocalEngine, *jobs: Job, limit: float = 40.0) -> dict[str, Outcome]:
    for one in jobs:
        engine.submit(one)
    outcomes: dict[str, Outcome] = {}
    end = time.monotonic() + limit
    while engine.pending() and time.monotonic() < end:
        for outcome in engine.wait(1.0):
            assert outcome.job.key not in outcomes
            outcomes[outcome.job.key] = outcome
    assert engine.pending() == 0
    return outcomes


def one(engine: LocalEngine, source: str, **more: object) -> Outcome:
    return finish(engine, job(source, **more))["k"]  # type: ignore[arg-type]


def gone(pid: int, within: float = 3.0) -> bool:
    """Whether a process has ended, or will in time."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        found = process.processes().get(pid)
        if found is None or found.zombie:
            return True
        time.sleep(0.02)
    return False


def test_a_result_comes_back_with_its_phase(make: Make) -> None:
    outcome = one(make(), "send({'phase': 'eager'}); result['sum'] = job['seed'] + 1; print('hello')", seed=41)
    assert (outcome.ended, outcome.result, outcome.phase) == ("result", {"sum": 42}, "eager")
    assert outcome.output == "hello\n" and outcome.exit_status == 0 and outcome.signal is None
    assert 0 < outcome.seconds < 10


def test_what_json_lacks_comes_as_text(make: Make) -> None:
    outcome = one(make(), "result.update(a=float('nan'), b=[float('inf'), 1.5], c={1, 1}, d={2: None}, e='\\udc80')")
    assert outcome.result == {"a": "nan", "b": ["inf", 1.5], "c": "{1}", "d": {"2": None}, "e": "\udc80"}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import ctypes; print('before'); ctypes.string_at(0)", "SIGSEGV"),
        ("import os; print('before'); os.abort()", "SIGABRT"),
        ("import os, signal; print('before'); os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
def test_death_by_a_signal(make: Make, source: str, name: str) -> None:
    outcome = one(make(), "send({'phase': 'backend'})\n" + source)
    assert (outcome.ended, outcome.signal, outcome.phase) == ("signal", name, "backend")
    assert outcome.output == "before\n"
    assert ("<job>" in outcome.stack) == (name != "SIGKILL")
    assert ("memory" in outcome.detail) == (name == "SIGKILL")


@pytest.mark.parametrize("status", [0, 3])
def test_an_exit_without_a_result(make: Make, status: int) -> None:
    outcome = one(make(), f"import os; os._exit({status})")
    assert (outcome.ended, outcome.exit_status, outcome.signal) == ("no-result", status, None)
    assert f"status {status}" in outcome.detail


@pytest.mark.parametrize("source", ["import sys; sys.exit(0)", "raise KeyboardInterrupt", "1 / 0"])
def test_an_exception_out_of_the_harness_is_broken(make: Make, source: str) -> None:
    outcome = one(make(), source)
    assert outcome.ended == "broken" and "Traceback" in outcome.detail and "<job>" in outcome.detail


def test_a_record_that_cannot_be_written_is_broken(make: Make) -> None:
    outcome = one(make(), "result['self'] = result")
    assert outcome.ended == "broken" and "Traceback" in outcome.detail


@pytest.mark.parametrize(
    "source",
    [
        "def spin():\n    while True: pass\nspin()",
        "import ctypes\ndef spin(): ctypes.CDLL(None).sleep(100)\nspin()",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\nwhile True: pass",
    ],
    ids=["python", "native", "deaf"],
)
def test_a_hang_ends_with_a_stack(make: Make, source: str) -> None:
    outcome = one(make(), source, timeout=0.5)
    assert outcome.ended == "timeout" and outcome.signal is None and outcome.result == {}
    assert "0.5 s" in outcome.detail and 0.5 < outcome.seconds < 5
    assert ("in spin" in outcome.stack) == ("SIG_BLOCK" not in source)


def test_a_grandchild_does_not_outlive_its_job(make: Make) -> None:
    source = """
        import os, time
        pid = os.fork()
        if pid == 0:
            time.sleep(100)
        result["pid"] = pid
    """
    outcome = one(make(), source)
    assert outcome.ended == "result" and gone(outcome.result["pid"])


def test_a_hang_takes_grandchildren_along_even_from_another_session(make: Make) -> None:
    source = """
        import subprocess, time
        print(subprocess.Popen(["sleep", "100"], start_new_session=True).pid)
        print(subprocess.Popen(["sleep", "100"]).pid)
        time.sleep(100)
    """
    outcome = one(make(), source, timeout=0.5)
    assert outcome.ended == "timeout"
    assert all(gone(int(pid)) for pid in outcome.output.split())


def test_a_daemon_ends_with_the_engine(make: Make) -> None:
    source = """
        import subprocess
        result["pid"] = subprocess.Popen(["sleep", "100"], start_new_session=True).pid
    """
    engine = make()
    outcome = one(engine, source)
    engine.close()
    assert gone(outcome.result["pid"])


def test_a_forked_copy_of_a_job_cannot_answer_for_it(make: Make) -> None:
    outcome = one(make(), "import os, time\nresult['child'] = os.fork() == 0\nif not result['child']: time.sleep(0.3)")
    assert (outcome.ended, outcome.result) == ("result", {"child": False})


def test_a_compiler_killed_on_the_way_leaves_no_torn_file(make: Make, tmp_path: Path) -> None:
    compiler = tmp_path / "g++"
    compiler.symlink_to(sys.executable)
    torn = tmp_path / "kernel.so"
    script = "import sys, time; open(sys.argv[2], 'w').write('half'); time.sleep(100)"
    outcome = one(
        make(),
        f"import subprocess; subprocess.run([{str(compiler)!r}, '-c', {script!r}, '-o', {str(torn)!r}])",
        timeout=1,
    )
    assert outcome.ended == "timeout" and not torn.exists()


def test_memory_beyond_the_limit(make: Make) -> None:
    source = "import time\nheld = []\nwhile True:\n    held.append(bytearray(b'x' * (1 << 24)))\n    time.sleep(0.02)"
    outcome = one(make(), source, memory=150 << 20)
    assert outcome.ended == "memory" and outcome.signal is None
    assert outcome.detail.startswith("resident set 0.") and outcome.detail.endswith("passed the limit of 0.1 GiB")


def test_one_huge_allocation_is_refused(make: Make) -> None:
    outcome = one(make(), "bytearray(1 << 40)", memory=150 << 20)
    assert outcome.ended == "broken" and "MemoryError" in outcome.detail


def test_much_output_is_cut_and_its_end_kept(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "MAX_LOG", 1 << 20)
    source = """
        import sys, time
        for number in range(1000):
            print((str(number) * 1000)[:1000] + "\\n" + "\\n".join("x" * 8 for _ in range(1000)))
        time.sleep(0.5)
        print("the end")
    """
    outcome = one(make(log_folder=tmp_path / "logs"), source)
    assert outcome.ended == "result" and outcome.output.endswith("the end\n") and len(outcome.output) <= 4096
    (log,) = (tmp_path / "logs").iterdir()
    assert log.stat().st_size < 9 << 20


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


def test_a_job_that_kills_its_server_is_tried_once_more_and_others_are_unharmed(make: Make) -> None:
    engine = make()
    innocent = job("import time; time.sleep(1); result['ok'] = 1", "innocent")
    outcomes = finish(
        engine,
        innocent,
        job("import os, signal, time; time.sleep(0.2); os.kill(os.getppid(), signal.SIGKILL); time.sleep(9)", "guilty"),
    )
    assert outcomes["innocent"].result == {"ok": 1}
    assert outcomes["guilty"].ended == "no-result" and "twice" in outcomes["guilty"].detail
    assert "SIGKILL" in outcomes["guilty"].detail
    assert one(engine, "result['ok'] = 1").result == {"ok": 1}


def test_restarts_have_an_end(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "RESTARTS", 2)
    guilty = "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(9)"
    outcomes = finish(make(1), *(job(guilty, str(number)) for number in range(3)))
    assert [outcomes[str(number)].ended for number in range(3)] == ["no-result", "broken", "broken"]
    assert "died 3 times" in outcomes["2"].detail


def test_a_server_stopped_by_somebody_is_replaced(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "UNREAPED", 0.5)
    engine = make(1)
    one(engine, "")
    os.kill(engine.hello("here")["pid"], signal.SIGSTOP)
    assert one(engine, "result['ok'] = 1", timeout=0.5).result == {"ok": 1}


def test_a_server_that_dies_before_it_is_up(make: Make, fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text(
        "import os, sys\nprint('oh no')\nsys.stdout.flush()\nos.abort()"
    )
    outcome = one(make(), "")
    assert outcome.ended == "broken" and "SIGABRT" in outcome.detail and "oh no" in outcome.detail


def test_a_python_without_torch(make: Make, fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text("raise ImportError('libfoo.so: no such file')")
    outcomes = finish(make(), job("", "a"), job("", "b"))
    assert all(one.ended == "broken" and "libfoo.so: no such file" in one.detail for one in outcomes.values())


def test_a_python_that_does_not_exist(fake: dict[str, str]) -> None:
    with LocalEngine({"here": "/no/such/python"}, environ=fake) as engine:
        outcome = one(engine, "")
    assert outcome.ended == "broken" and "/no/such/python" in outcome.detail


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


def test_a_killed_control_leaves_nothing_behind(fake: dict[str, str], tmp_path: Path) -> None:
    source = "import os, subprocess, time\nsubprocess.Popen(['sleep', '100'])\nprint(os.getpid()); time.sleep(100)"
    script = f"""
import os, sys
from runner.engine.local import LocalEngine
from runner.engine.messages import Job
engine = LocalEngine({{"here": sys.executable}}, 2, warm={{"here": "none"}}, environ={fake!r})
for key in "ab":
    engine.submit(Job(key, key, "here", key, {source!r}, {{}}))
while len(engine.running()) < 2:
    engine.wait(0.05)
print("up", flush=True)
engine.wait()
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True) as control:
        assert control.stdout is not None and control.stdout.readline() == "up\n"
        time.sleep(0.3)
        table = process.processes()
        below = [pid for pid in table if _descends(pid, control.pid, table)]
        assert len(below) == 5  # the server, two jobs, two sleeps
        control.kill()
    assert all(gone(pid) for pid in below)


SLOW_TORCH = "import subprocess, time\nprint(subprocess.Popen(['sleep', '100']).pid, flush=True)\ntime.sleep(100)"


def test_closing_does_not_wait_for_a_server_that_starts(make: Make, fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text(SLOW_TORCH)
    engine = make()
    engine.submit(job(""))
    assert engine.wait(0.5) == [] and engine.pending() == 1
    start = time.monotonic()
    engine.close()
    assert time.monotonic() - start < 2  # and make() checks that the server is gone


def test_a_control_killed_while_a_server_starts_leaves_nothing_behind(fake: dict[str, str], tmp_path: Path) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text(SLOW_TORCH)
    script = f"""
import sys
from runner.engine.local import LocalEngine
from runner.engine.messages import Job
engine = LocalEngine({{"here": sys.executable}}, environ={fake!r})
engine.submit(Job("a", "a", "here", "a", "", {{}}))
engine.wait()
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2]) as control:
        end = time.monotonic() + 10
        below: list[int] = []
        while len(below) < 2 and time.monotonic() < end:
            table = process.processes()
            below = [pid for pid in table if _descends(pid, control.pid, table)]
            time.sleep(0.05)
        time.sleep(0.2)
        control.kill()
    assert len(below) == 2 and all(gone(pid) for pid in below)


def _descends(pid: int, ancestor: int, table: dict[int, process.Process]) -> bool:
    while pid in table and pid != ancestor:
        pid = table[pid].parent
        if pid == ancestor:
            return True
    return False


def test_only_our_interpreter_is_asked(tmp_path: Path) -> None:
    answer = LocalEngine.probe(sys.executable)
    assert answer["python"] == ".".join(map(str, sys.version_info[:3])) and "error" not in answer
    assert LocalEngine.probe("/no/such/python")["error"] == "/no/such/python: no such Python interpreter"
    (tmp_path / "text").write_text("")
    assert "not an executable" in LocalEngine.probe(str(tmp_path / "text"))["error"]
    assert "does not work as a Python" in LocalEngine.probe("true")["error"]


def test_a_probe_of_a_python_without_torch(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    assert "has no torch" in LocalEngine.probe(str(bare))["error"]


def test_a_worker_environment_keeps_what_the_user_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    environment = process.worker_environment("python3", {"TORCHINDUCTOR_FX_GRAPH_CACHE": "1"})
    assert environment["TORCHINDUCTOR_FX_GRAPH_CACHE"] == "1" and environment["TORCHINDUCTOR_COMPILE_THREADS"] == "1"
    assert Path(environment["TORCHINDUCTOR_CACHE_DIR"]).parent == tmp_path / "torch-spec-runner"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    assert process.worker_environment("python3")["TORCHINDUCTOR_CACHE_DIR"] == "/mine"


def test_the_engine_imports_no_torch() -> None:
    code = "import sys, json, runner.engine.local; print(json.dumps('torch' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, check=True)
    assert json.loads(done.stdout) is False
