"""Worker servers, and the engine itself, that die, hang, or never come up; zygotes, and what happens when one dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from engine_jobs import Make, finish, gone, job, one, texts

from runner.contract.job import Job
from runner.engine import process_tree, servers, workers
from runner.engine.local import LocalEngine
from runner.engine.messages import Channel

SLOW_TORCH = "import subprocess, time\nprint(subprocess.Popen(['sleep', '100']).pid, flush=True)\ntime.sleep(100)"


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


GUILTY = "import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(9)"


@pytest.mark.parametrize("isolation", ["fork", "living"])
def test_jobs_that_kill_their_server_cost_no_other_job(make: Make, isolation: str) -> None:
    count = servers.RESTARTS // 2 + 1  # each ends two servers
    guilty = [job(GUILTY, str(number), isolation=isolation) for number in range(count)]
    outcomes = finish(make(1), *guilty, job("result['ok'] = 1", "innocent", isolation=isolation))
    assert outcomes.pop("innocent").result == {"ok": 1}
    assert all(outcome.ended == "no-result" and "twice" in outcome.detail for outcome in outcomes.values())


def test_restarts_have_an_end(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "RESTARTS", 0)
    outcomes = finish(make(1), job(GUILTY, "guilty"), job("", "next"))
    assert [outcomes[key].ended for key in ("guilty", "next")] == ["broken", "broken"]
    assert "died 1 times" in outcomes["next"].detail


def test_a_server_stopped_by_somebody_is_replaced(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "UNREAPED", 0.5)
    engine = make(1)
    one(engine, "")
    os.kill(engine.hello("here")["pid"], signal.SIGSTOP)
    assert one(engine, "result['ok'] = 1", timeout=0.5).result == {"ok": 1}


STOP = "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)"


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("isolation", ["fork", "living"])
def test_jobs_that_stop_their_server_cost_no_other_job(make: Make, isolation: str, slots: int) -> None:
    """It is replaced at once, before a limit of its jobs passes."""
    sources = [STOP, "result['ok'] = 1", STOP, "result['ok'] = 1", "result['ok'] = 1", STOP, "result['ok'] = 1"]
    jobs = [job(source, str(n), timeout=60, isolation=isolation) for n, source in enumerate(sources)]
    outcomes = finish(make(slots), *jobs)
    assert [outcomes[request.key].result for request in jobs if request.source != STOP] == [{"ok": 1}] * 4


def test_a_job_that_stops_its_server_and_goes_on_is_tried_once_more(make: Make) -> None:
    outcomes = finish(make(2), job(f"{STOP}\nimport time; time.sleep(60)", "guilty", 90), *map(innocent, "abc"))
    assert outcomes["guilty"].ended == "no-result" and "twice" in outcomes["guilty"].detail
    assert [outcomes[key].result for key in "abc"] == [{"ok": 1}] * 3


def innocent(key: str) -> Job:
    return job("import time; time.sleep(0.3); result['ok'] = 1", key)


def test_a_job_that_stops_its_zygote_costs_no_other_job(make: Make) -> None:
    stop = (
        "import os, signal\nzygote = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])\n"
        "os.kill(zygote, signal.SIGSTOP)\nos.kill(os.getppid(), signal.SIGSTOP)"
    )
    outcomes = finish(make(1), job(stop, "guilty"), innocent("a"), innocent("b"))
    assert [outcomes[key].result for key in "ab"] == [{"ok": 1}] * 2


def test_a_server_that_hangs_is_no_fault_of_what_waits_for_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "UNREAPED", 0.3)
    monkeypatch.setattr(
        servers.Server, "_is_stopped", lambda server: False
    )  # a stopped one is as good as one that hangs
    greet, pids = servers.Server.greet, []

    def hang(server: servers.Server, channel: Channel, hello: Mapping[str, Any]) -> None:
        pids.append(hello["pid"])
        if len(pids) <= 2:
            os.kill(pids[-1], signal.SIGSTOP)
        greet(server, channel, hello)

    monkeypatch.setattr(servers.Server, "greet", hang)
    assert one(make(1), "result['ok'] = 1", timeout=0.3).result == {"ok": 1}
    assert len(pids) == 3


def test_a_server_that_dies_before_it_is_up(make: Make, fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text(
        "import os, sys\nprint('oh no')\nsys.stdout.flush()\nos.abort()"
    )
    outcome = one(make(), "")
    assert outcome.ended == "broken" and "SIGABRT" in outcome.detail and "oh no" in outcome.detail


@pytest.mark.parametrize(("name", "starts"), [("SIGKILL", 4), ("SIGABRT", 2)])
def test_how_often_one_that_was_never_up_is_tried(make: Make, fake: dict[str, str], name: str, starts: int) -> None:
    torch = Path(fake["PYTHONPATH"], "torch", "__init__.py")
    sound, tries = torch.read_text(), torch.parent.parent / "tries"
    ends = (
        f"import os, signal\ntries = open({str(tries)!r}, 'a+')\ntries.write('.')\ntries.flush()\ntries.seek(0)\n"
        f"if len(tries.read()) < {starts}:\n    os.kill(os.getpid(), signal.{name})\n"
    )
    torch.write_text(ends + sound)
    assert one(make(), "result['ok'] = 1").result == {"ok": 1}
    tries.unlink()
    torch.write_text(
        ends.replace(f"< {starts}", "< 999") + sound
    )  # another length: compiled files are known by it and the second
    outcome = one(make(), "")
    assert outcome.ended == "broken" and f"died {starts} times before it was up (last: {name})" in outcome.detail


def test_a_python_without_torch(make: Make, fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text("raise ImportError('libfoo.so: no such file')")
    outcomes = finish(make(), job("", "a"), job("", "b"))
    assert all(end.ended == "broken" and "libfoo.so: no such file" in end.detail for end in outcomes.values())


def test_a_python_that_does_not_exist(fake: dict[str, str]) -> None:
    with LocalEngine({"here": "/no/such/python"}, environ=fake) as engine:
        outcome = one(engine, "")
    assert outcome.ended == "broken" and "/no/such/python" in outcome.detail


def test_a_killed_control_leaves_nothing_behind(fake: dict[str, str], tmp_path: Path) -> None:
    source = (
        "import os, subprocess, time\nsubprocess.Popen(['sleep', '100'], start_new_session=True)\n"
        "if os.fork() == 0:\n    os.setsid()\n    os.fork() or os.execvp('sleep', ['sleep', '101'])\n    os._exit(0)\n"
        "time.sleep(100)"
    )
    script = f"""
import os, sys
from runner.engine.local import LocalEngine
from runner.contract.job import Job
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
        table = process_tree.processes()
        below = [pid for pid in table if _descends(pid, control.pid, table) and not table[pid].zombie]
        assert len(below) == 8  # the zygote, the server, two jobs, two sleeps of each in sessions of their own
        control.kill()
    assert all(gone(pid) for pid in below)


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
from runner.contract.job import Job
engine = LocalEngine({{"here": sys.executable}}, environ={fake!r})
engine.submit(Job("a", "a", "here", "a", "", {{}}))
engine.wait()
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2]) as control:
        end = time.monotonic() + 10
        below: list[int] = []
        while len(below) < 2 and time.monotonic() < end:
            table = process_tree.processes()
            below = [pid for pid in table if _descends(pid, control.pid, table)]
            time.sleep(0.05)
        time.sleep(0.2)
        control.kill()
    assert len(below) == 2 and all(gone(pid) for pid in below)


def _descends(pid: int, ancestor: int, table: dict[int, process_tree.Process]) -> bool:
    while pid in table and pid != ancestor:
        pid = table[pid].parent
        if pid == ancestor:
            return True
    return False


def test_a_warm_up_that_crashes_leaves_the_verdicts_to_the_jobs(make: Make, fake: dict[str, str]) -> None:
    """A compiler whose first code ends the process is to be reported variant by variant, and not as a harness that failed."""
    folder = Path(fake["PYTHONPATH"], "torch")
    for module in (
        "_dynamo",
        "_dynamo.backends",
        "_dynamo.backends.registry",
        "_dynamo.guards",
        "_inductor",
        "_inductor.compile_fx",
    ):
        path = folder.joinpath(*module.split("."))
        path.mkdir()
        (path / "__init__.py").write_text("def list_backends(**tags): return []\n")
    with (folder / "__init__.py").open("a") as file:
        file.write("def get_rng_state(): import os; os.abort()\n")  # asked for right before something is compiled
    engine = make(warm="aot")
    outcomes = finish(engine, job("result['ok'] = 1", "sound"), job("import os; os.abort()", "crashes"))
    assert outcomes["sound"].result == {"ok": 1}
    assert outcomes["crashes"].ended == "signal"
    assert texts(engine) == [
        f"{sys.executable}: every job is slow, since no warm-up was possible: it was ended by SIGABRT"
    ]


PARENT = "import os; result['server'] = os.getppid()"


def test_servers_that_differ_in_what_an_import_reads_have_zygotes_of_their_own(make: Make) -> None:
    source = "import os; result['zygote'] = open(f'/proc/{os.getppid()}/stat').read().split()[3]"
    variables = {"plain": {}, "late": {"RUNNER_AS_USER": "1"}, "early": {"TRITON_INTERPRET": "1"}}
    outcomes = finish(make(), *(job(source, key, variables=values) for key, values in variables.items()))
    parents = {key: outcome.result["zygote"] for key, outcome in outcomes.items()}
    assert parents["plain"] == parents["late"] != parents["early"]


def test_a_server_has_its_own_variables(make: Make) -> None:
    source = "import os; result.update({name: os.environ.get(name) for name in ('A', 'RUNNER_AS_USER', 'TORCHINDUCTOR_FX_GRAPH_CACHE')})"
    engine = make(environ={"A": "\udcff"})
    outcomes = finish(engine, job(source, "plain"), job(source, "user", variables={"RUNNER_AS_USER": "1"}))
    assert outcomes["plain"].result == {"A": "\udcff", "RUNNER_AS_USER": None, "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}
    assert outcomes["user"].result == {"A": "\udcff", "RUNNER_AS_USER": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": None}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_zygote_that_dies_loses_nothing(make: Make, number: int, children: Callable[[], list[int]]) -> None:
    engine = make(1)
    first = one(engine, PARENT).result["server"]
    pids = children()
    for pid in pids:
        os.kill(pid, number)
    while {*pids} & {*children()}:  # one that writes a core file still has its server
        time.sleep(0.01)
    second = one(engine, PARENT)
    assert second.ended == "result" and second.result["server"] != first


def test_a_job_whose_zygote_dies_runs_again(make: Make, tmp_path: Path, children: Callable[[], list[int]]) -> None:
    mark = tmp_path / "mark"
    source = f"import os, time\nif not os.path.exists({str(mark)!r}):\n    open({str(mark)!r}, 'w').close(); time.sleep(100)\nresult['again'] = 1"
    engine = make(1)
    engine.submit(job(source))
    while not mark.exists():
        engine.wait(0.05)
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    (outcome,) = engine.wait(30)
    assert outcome.result == {"again": 1}


def test_a_zygote_that_cannot_come_up(make: Make, fake: dict[str, str]) -> None:
    Path(fake["PYTHONPATH"], "torch", "__init__.py").write_text("import os; os.abort()")
    outcome = one(make(1), "")
    assert outcome.ended == "broken" and "SIGABRT" in outcome.detail
