"""Living workers: what carries over from job to job, what does not, and when one is replaced.

What control reads and cuts of a running job: files that the job may have replaced.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from engine_jobs import Make, finish, gone, job, one, texts

from runner.contract.job import Job
from runner.engine import local, workers
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome

PID = "import os; result['pid'] = os.getpid()\n"


def living(source: str, key: str, **fields: object) -> Job:
    return job(PID + source, key, isolation="living", **fields)  # type: ignore[arg-type]


def in_turn(engine: LocalEngine, *jobs: Job) -> list[Outcome]:
    return [finish(engine, job)[job.key] for job in jobs]


def pids(outcomes: list[Outcome]) -> list[int]:
    return [outcome.result["pid"] for outcome in outcomes]


def test_one_process_runs_one_job_after_another(make: Make) -> None:
    outcomes = in_turn(make(), *(living("", key) for key in "abc"))
    assert len(set(pids(outcomes))) == 1
    assert [outcome.earlier_jobs for outcome in outcomes] == [(), ("id-a",), ("id-a", "id-b")]
    assert all(outcome.ended == "result" and 0 < outcome.seconds <= outcome.busy for outcome in outcomes)


def test_each_foreign_backend_has_processes_of_its_own(make: Make) -> None:
    """What one backend leaves behind must not decide about another one."""
    names = {"a": "mine:one", "b": "mine:two", "c": "mine:two", "d": "eager", "e": "inductor"}
    jobs = [replace(living("", key), backend={"backend": name}, foreign=":" in name) for key, name in names.items()]
    outcomes = in_turn(make(1), *jobs)
    assert [outcome.earlier_jobs for outcome in outcomes] == [(), (), ("id-b",), (), ("id-d",)]


def test_what_a_job_leaves_behind_shows_and_its_order_is_told(make: Make) -> None:
    plant = "import builtins; builtins.planted = True"
    look = "import builtins; result['findings'] = ['planted'] if hasattr(builtins, 'planted') else []"
    engine = make(1)
    lived = in_turn(engine, living(plant, "plant"), living("", "idle"), living(look, "look"))[-1]
    assert (lived.result["findings"], lived.earlier_jobs) == (["planted"], ("id-plant", "id-idle"))
    again = finish(engine, job(look, "look"))["look"]
    assert (again.result["findings"], again.earlier_jobs) == ([], ())


@pytest.mark.parametrize(
    "failure",
    [
        "result['findings'] = ['wrong']",
        "result['trust'] = {'verdict': 'FLAKY'}",
        "result['error'] = {'type': 'ValueError'}",
        "1 / 0",
    ],
    ids=["finding", "doubt", "error", "broken"],
)
def test_a_failure_ends_its_process(make: Make, failure: str) -> None:
    engine = make(1)
    first = finish(engine, living(failure, "first"))["first"]
    (second,) = in_turn(engine, living("", "second"))
    assert second.earlier_jobs == () and second.result["pid"] != first.result.get("pid")


def test_an_empty_error_is_none(make: Make) -> None:
    first, second = in_turn(make(1), living("result.update(error=None, findings=[], trust=None)", "a"), living("", "b"))
    assert first.result["pid"] == second.result["pid"]


def test_a_process_is_replaced_after_so_many_jobs(make: Make) -> None:
    outcomes = in_turn(make(1, living_jobs=2), *(living("", key) for key in "abcde"))
    assert [len(outcome.earlier_jobs) for outcome in outcomes] == [0, 1, 0, 1, 0]
    assert len(set(pids(outcomes))) == 3


def test_a_process_that_has_grown_is_replaced(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "GROWTH_PART", (1 << 50))
    grown = "import builtins; builtins.held = b'x' * (20 << 20)"
    outcomes = in_turn(make(1), living("", "a"), living(grown, "b"), living("", "c"))
    assert [outcome.earlier_jobs for outcome in outcomes] == [(), ("id-a",), ()]


@pytest.mark.parametrize("early", [local.FREQUENT - 1, local.FREQUENT])
def test_a_reason_that_ends_many_processes_early_is_said(make: Make, early: int) -> None:
    leave = "import threading, time; threading.Thread(target=time.sleep, args=[99], name='left').start()"
    engine = make(1)
    outcomes = in_turn(engine, living("", "first"), *(living(leave, str(number)) for number in range(early)))
    assert all(outcome.ended == "result" for outcome in outcomes)
    start = f"{early} living processes ended early, and others had to start: threads are left: left"
    assert [notice.partition(": ")[2] for notice in texts(engine)] == [start] * (early == local.FREQUENT)


def test_a_death_harms_no_other(make: Make) -> None:
    engine = make(2)
    beside = "import time; time.sleep(1)"
    in_turn(engine, living("", "before"))
    outcomes = finish(
        engine, living("import ctypes; ctypes.string_at(0)", "dies"), living(beside, "beside"), living("", "after")
    )
    assert (outcomes["dies"].ended, outcomes["dies"].signal) == ("signal", "SIGSEGV")
    assert outcomes["dies"].earlier_jobs == ("id-before",) and "<job>" in outcomes["dies"].stack
    assert outcomes["beside"].ended == outcomes["after"].ended == "result"
    assert outcomes["after"].earlier_jobs == ()


def test_limits_are_those_of_each_job(make: Make) -> None:
    hang = "def spin():\n    while True: pass\nsend({'phase': 'backend'}); spin()"
    engine = make(1)
    first, second, third = in_turn(engine, living("", "a"), living(hang, "b", timeout=0.5), living("", "c"))
    assert (second.ended, second.phase, second.earlier_jobs) == ("timeout", "backend", ("id-a",))
    assert "in spin" in second.stack and second.signal is None
    assert third.ended == "result" and third.result["pid"] != first.result["pid"]


def test_memory_counts_from_where_the_job_began(make: Make) -> None:
    hold = "import builtins; builtins.held = b'x' * (300 << 20)"
    source = "import time; held = b'x' * (job['seed'] << 20); time.sleep(job['seed'] / 200)"
    engine = make(1)
    outcomes = in_turn(
        engine,
        living(hold, "hold"),
        living(source, "little", seed=60, memory=150 << 20),
        living(source, "much", seed=400, memory=150 << 20),
    )
    assert [outcome.ended for outcome in outcomes] == ["result", "result", "memory"]
    assert outcomes[2].earlier_jobs == ("id-hold", "id-little")


def test_a_small_limit_does_not_outlast_its_job(make: Make) -> None:
    wide = "import mmap; result['size'] = len(mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE))"
    engine = make(1)
    small, large = in_turn(engine, living("", "a", memory=64 << 20), living(wide, "b", memory=8 << 30))
    assert small.result["pid"] == large.result["pid"] and large.result["size"] == 3 << 30
    assert in_turn(engine, living(wide, "c", memory=64 << 20))[0].ended == "worker-error"


def test_words_of_an_older_job_do_not_count(make: Make) -> None:
    keep = "import builtins; builtins.say = send"
    late = """
import builtins, time
builtins.say({'phase': 'judge'})
builtins.say({'outcome': {'wrong': 1}, 'kin': False})
builtins.say({'broken': 'wrong'})
builtins.say({'rest': 1})
time.sleep(0.3)
"""
    first, second, third = in_turn(make(1), living(keep, "a"), living(late, "b"), living("", "c"))
    assert (second.ended, second.phase, second.result) == ("result", "load", {"pid": first.result["pid"]})
    assert third.earlier_jobs == ("id-a", "id-b")


@pytest.mark.parametrize(
    "leave",
    [
        "import subprocess; print(subprocess.Popen(['sleep', '100'], start_new_session=True).pid)",
        "import os, time\npid = os.fork()\nif pid == 0: time.sleep(100)\nprint(pid)",
        "import subprocess; subprocess.run('sleep 100 & echo $!', shell=True)",
    ],
    ids=["session", "fork", "orphan"],
)
def test_a_process_with_others_left_is_replaced_and_they_end(make: Make, leave: str) -> None:
    first, second = in_turn(make(1), living(leave, "a"), living("", "b"))
    assert first.result["pid"] != second.result["pid"] and second.earlier_jobs == ()
    assert gone(int(first.output))


def test_a_process_with_threads_left_is_replaced(make: Make) -> None:
    leave = "import threading, time; threading.Thread(target=time.sleep, args=(100,), daemon=True).start()"
    first, second = in_turn(make(1), living(leave, "a"), living("", "b"))
    assert first.ended == "result" and first.result["pid"] != second.result["pid"]


def test_each_job_has_its_own_log(make: Make, tmp_path: Path) -> None:
    engine = make(1, log_folder=tmp_path / "logs")
    close = "import sys; print('two'); sys.stdout.close(); os.close(1); os.close(2)"
    outcomes = in_turn(engine, living("print('one')", "a"), living(close, "b"), living("print('three')", "c"))
    assert [outcome.output for outcome in outcomes] == ["one\n", "two\n", "three\n"] and len(set(pids(outcomes))) == 1
    assert sorted(path.read_text() for path in (tmp_path / "logs").iterdir()) == ["one\n", "three\n", "two\n"]


def test_the_state_of_the_process_is_put_back(make: Make) -> None:
    change = """
import os, signal, sys, warnings
os.environ['LEFT'] = '1'; del os.environ['HOME']; os.chdir('/tmp'); sys.path.append('/left')
sys.setrecursionlimit(77_777); signal.alarm(1); warnings.simplefilter('error')
"""
    state = """
import os, sys, time, warnings
result.update(env=sorted(os.environ), folder=os.getcwd(), path=sys.path, limit=sys.getrecursionlimit())
result.update(filters=len(warnings.filters), slot=os.environ['RUNNER_SLOT'])
time.sleep(1.2 if job['seed'] else 0)
"""
    engine = make(1, {"HOME": "/"})
    outcomes = in_turn(engine, living(state, "a"), living(change, "b"), living(state, "c", seed=1))
    assert outcomes[0].result == outcomes[2].result and len(set(pids(outcomes))) == 1


def test_one_that_dies_while_it_rests_costs_no_job(make: Make) -> None:
    engine = make(1)
    first, second = in_turn(engine, living("", "a"), living("", "b"))
    engine.submit(living("", "c"))
    os.kill(first.result["pid"], signal.SIGKILL)
    (third,) = [outcome for _ in range(50) for outcome in engine.wait(0.2)][:1]
    assert (third.ended, third.earlier_jobs) == ("result", ()) and second.result["pid"] == first.result["pid"]


def test_one_that_was_stopped_while_it_rests_is_replaced(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.engine.workers.LINGER", 0.2)
    monkeypatch.setattr("runner.engine.workers.UNREAPED", 0.2)
    engine = make(1)
    first = finish(engine, living("", "a"))["a"]
    os.kill(first.result["pid"], signal.SIGSTOP)
    again = finish(engine, living("", "b"))["b"]
    assert (again.ended, again.earlier_jobs) == ("result", ()) and again.result["pid"] != first.result["pid"]


def test_a_worker_that_rests_gives_its_slot_to_others(make: Make) -> None:
    engine = make(1)
    first, second, last = in_turn(engine, living("", "a"), job(PID, "fork"), living("", "b"))
    assert first.result["pid"] != last.result["pid"] and (second.earlier_jobs, last.earlier_jobs) == ((), ())
    assert gone(first.result["pid"])


def test_a_worker_that_rests_stays_where_there_is_room(make: Make) -> None:
    engine = make(2)
    first, _, last = in_turn(engine, living("", "a"), job(PID, "fork"), living("", "b"))
    assert first.result["pid"] == last.result["pid"]


def test_its_own_kind_goes_first_and_the_others_get_their_turn(make: Make) -> None:
    engine = make(1, living_jobs=3)
    jobs = [living("", f"a{number}") for number in range(5)] + [job(PID, "fork")]
    jobs.insert(1, jobs.pop())
    for one_job in jobs:
        engine.submit(one_job)
    order = []
    end = time.monotonic() + 30
    while engine.pending() and time.monotonic() < end:
        order += [outcome.job.key for outcome in engine.wait(1.0)]
    assert order == ["a0", "a1", "a2", "fork", "a3", "a4"]


def test_devices_and_environments_have_their_own(make: Make) -> None:
    engine = make(4, environments=("here", "there"))
    kinds = [("here", "cpu"), ("here", "cuda"), ("here", "cuda:1"), ("there", "cpu")]
    jobs = [
        living("", f"{place}-{device}-{n}", environment=place, device=device) for n in "12" for place, device in kinds
    ]
    outcomes = in_turn(engine, *jobs)
    assert len(set(pids(outcomes))) == 4 and pids(outcomes)[:4] == pids(outcomes)[4:]


def test_cancelling_ends_the_ones_that_run_only(make: Make) -> None:
    engine = make(2)
    outcomes = finish(engine, living("import time; time.sleep(0.3)", "a"), living("import time; time.sleep(0.3)", "b"))
    assert len({outcome.result["pid"] for outcome in outcomes.values()}) == 2
    engine.submit(living("import time; time.sleep(100)", "hang"))
    while not engine.running():
        engine.wait(0.05)
    assert [dropped.key for dropped in engine.cancel_all()] == ["hang"]
    assert len(one(engine, PID, isolation="living").earlier_jobs) == 1


PIPES = """
    import glob, os
    folder = os.path.dirname(os.path.dirname(os.environ["RUNNER_SCRATCH"]))
    os.write(1, b"before")
    for path in {paths}:
        if os.path.lexists(path):
            os.unlink(path)
        os.mkfifo(path)
"""


@pytest.mark.parametrize("end", ["", "time.sleep(9)", "os.kill(os.getppid(), 9); time.sleep(9)"])
def test_pipes_in_the_place_of_logs_hold_up_nothing(make: Make, end: str, tmp_path: Path) -> None:
    """The log of the job, its stacks, the logs of servers, and the logs of jobs that are yet to come."""
    every = (
        'glob.glob(f"{folder}/*.log") + glob.glob(f"{folder}/*.stack") + [os.readlink("/proc/self/fd/1")]'
        ' + [f"{folder}/0000{n}-m_next{end}" for n in range(1, 9) for end in (".log", ".stack")]'
    )
    engine = make(slots=1, log_folder=tmp_path / "logs")
    guilty = PIPES.format(paths=f"dict.fromkeys({every})") + f"    import time; {end}\n"
    outcomes = finish(engine, job(guilty, "guilty", timeout=1), job("result['ok'] = 1", "next"))
    assert outcomes["guilty"].output == "" and outcomes["next"].result == {"ok": 1}
    engine.close()


def test_a_link_in_the_place_of_a_log_is_not_followed(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MAX_LOG", 3)
    precious = tmp_path / "precious"
    precious.write_text("kept")
    source = f"""
        import os, time
        path = os.readlink("/proc/self/fd/1")
        os.unlink(path)
        os.symlink({str(precious)!r}, path)
        time.sleep(0.5)
    """
    outcome = one(make(), source)
    assert (outcome.ended, outcome.output, precious.read_text()) == ("result", "", "kept")
