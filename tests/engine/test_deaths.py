"""Every way in which the process of a job can die, and what it may leave behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from engine_jobs import Make, gone, one


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
def test_an_exception_out_of_the_worker_is_told(make: Make, source: str) -> None:
    outcome = one(make(), source)
    assert outcome.ended == "worker-error" and "Traceback" in outcome.detail and "<job>" in outcome.detail


def test_a_record_that_cannot_be_written_is_told(make: Make) -> None:
    outcome = one(make(), "result['self'] = result")
    assert outcome.ended == "worker-error" and "Traceback" in outcome.detail


def test_an_exception_without_a_name_is_told(make: Make) -> None:
    source = """
        class Nameless(type):
            def __getattribute__(cls, name):
                raise RuntimeError(name)
        raise type.__call__(Nameless, "Odd", (Exception,), {})
    """
    outcome = one(make(), source)
    assert outcome.ended == "worker-error" and "a class that raises" in outcome.detail, outcome


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


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.Popen(['sleep', '100'], start_new_session=True).pid",
        "int(subprocess.check_output('setsid sleep 100 >/dev/null & echo $!', shell=True))",
    ],
    ids=["daemon", "orphan"],
)
def test_a_daemon_ends_with_its_job(make: Make, start: str) -> None:
    outcome = one(make(), f"import subprocess; result['pid'] = {start}")
    assert (outcome.ended, outcome.exit_status, outcome.signal) == ("result", 0, None)
    assert gone(outcome.result["pid"])


def test_what_a_crashed_job_left_in_its_session_ends(make: Make) -> None:
    source = "import os, subprocess; print(subprocess.Popen(['sleep', '100']).pid, flush=True); os.abort()"
    outcome = one(make(), source)
    assert outcome.signal == "SIGABRT" and gone(int(outcome.output))


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
