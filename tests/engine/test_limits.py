"""Limits of time, memory and output."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from engine_jobs import Make, job, one

from runner.engine import process_tree, workers

HOLD = "import sys, time; held = b'x' * (400 << 20); time.sleep(float(sys.argv[1]))"
"""A program that holds 400 MiB for as many seconds as it is told."""


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


def test_an_answer_in_time_counts_also_when_it_is_read_late(make: Make) -> None:
    """As after a stop of this process, by Ctrl-Z for example."""
    engine = make(1)
    engine.submit(job("import time; time.sleep(0.3); result['ok'] = 1", timeout=1.0))
    while not engine.running():
        assert engine.wait(0.01) == []
    time.sleep(1.5)
    (outcome,) = engine.wait()
    assert outcome.result == {"ok": 1}


def test_compiling_has_a_limit_of_its_own(make: Make) -> None:
    hang = "import time\nsend({'compiling': None})\ndef spin():\n    time.sleep(100)\nspin()"
    outcome = one(make(), hang, compile_timeout=0.3)
    assert (outcome.ended, outcome.detail) == (
        "timeout",
        "compiling took more than 0.3 s, the case's limit for compiling",
    )
    assert "in spin" in outcome.stack


@pytest.mark.parametrize(("seconds", "ended"), [(29.0, "result"), (31.0, "timeout")])
def test_compilations_that_have_ended_count_too(make: Make, seconds: float, ended: str) -> None:
    source = f"send({{'compiling': None}})\nsend({{'compiling': {seconds}}})\nresult['sum'] = 1"
    assert one(make(), source, compile_timeout=30.0).ended == ended


def test_running_is_no_compiling(make: Make) -> None:
    source = "import time\nsend({'compiling': None})\nsend({'compiling': 0.001})\ntime.sleep(0.6)\nresult['sum'] = 1"
    assert one(make(), source, compile_timeout=0.3).ended == "result"
    assert one(make(), source.replace("0.6", "30"), timeout=0.5, compile_timeout=0.3).detail == "no answer after 0.5 s"


def test_memory_beyond_the_limit(make: Make) -> None:
    source = "import time\nheld = []\nwhile True:\n    held.append(bytearray(b'x' * (1 << 24)))\n    time.sleep(0.02)"
    outcome = one(make(), source, memory=150 << 20)
    assert outcome.ended == "memory" and outcome.signal is None
    assert re.fullmatch(r"resident set \d+ MiB passed the limit of 150 MiB", outcome.detail)


def test_one_huge_allocation_is_refused(make: Make) -> None:
    outcome = one(make(), "bytearray(1 << 40)", memory=150 << 20)
    assert outcome.ended == "worker-error" and "MemoryError" in outcome.detail


def called(name: str, folder: Path, seconds: float = 30) -> list[str]:
    """A command that runs ``HOLD`` in a process of that name; by default until it is killed."""
    program = folder / name
    program.symlink_to(sys.executable)
    return [str(program), "-S", "-c", HOLD, str(seconds)]


@pytest.mark.parametrize("name", ["cc1plus", "g++-12", "x86_64-conda-linux-gnu-ld"])
def test_a_compiler_does_not_count(make: Make, tmp_path: Path, name: str) -> None:
    command = called(name, tmp_path, 1)
    outcome = one(make(), f"import subprocess; result['status'] = subprocess.call({command})", memory=64 << 20)
    assert (outcome.ended, outcome.result) == ("result", {"status": 0})


def test_compilers_have_an_allowance(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "ALLOWANCE", 200 << 20)
    outcome = one(make(), f"import subprocess; subprocess.call({called('cc1plus', tmp_path)})", memory=64 << 20)
    assert outcome.ended == "memory" and re.search(r"compilers \d+ MiB beyond their \d+ MiB", outcome.detail)


@pytest.mark.parametrize("name", ["python", "sort"])
def test_every_other_process_of_a_job_counts(make: Make, tmp_path: Path, name: str) -> None:
    outcome = one(make(), f"import subprocess; subprocess.call({called(name, tmp_path)})", memory=64 << 20)
    assert outcome.ended == "memory" and re.match(r"resident set \d+ MiB", outcome.detail)


def test_a_forked_copy_counts_for_what_it_adds(make: Make) -> None:
    source = """
        import os, time
        held = b"x" * (200 << 20)
        pid = os.fork()
        if pid == 0:
            time.sleep(0.5)
            more = b"x" * (job["seed"] << 20)
            time.sleep(job["seed"] / 10)
            os._exit(0)
        result["status"] = os.waitpid(pid, 0)[1]
    """
    assert one(make(), source, memory=300 << 20, seed=10).result == {"status": 0}
    assert one(make(), source, memory=300 << 20, seed=200).ended == "memory"


def test_much_output_is_cut_and_its_end_kept(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workers, "MAX_LOG", 1 << 20)
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
