"""A device that an assertion has spoilt ends the process, and control asks again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runner.worker.program import devices

ROOT = Path(devices.__file__).parents[3]

PROGRAM = """
import sys, types
import torch
from runner.worker.program import devices
from runner.worker.program.observe import Settings, observe
from runner.worker.rerun import legal_runs, reference
from worker_jobs import run, source

lost = False
class Device:
    synchronize = staticmethod(lambda: None)
def synchronize(device):
    if lost:
        raise RuntimeError("CUDA error: device-side assert triggered")
devices.synchronize = synchronize
original = reference.observe
def observe(*args, **more):
    global lost
    lost = True
    return original(*args, **more)
setattr({"reference": reference, "legal_runs": legal_runs}[sys.argv[1]], "observe", observe)
run(source("return x.sum(0)", "torch.randn(4000, 5)"), "planted:off_by_one", {}, grad={"mode": "off"})
print("a result")
"""


@pytest.mark.parametrize("runs", ["reference", "legal_runs"])
def test_a_run_of_our_own_that_loses_the_device_ends_the_process(runs: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, runs],
        capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'worker'}", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert (process.returncode, process.stdout) == (devices.LOST, ""), process.stderr
    assert "the device cpu is lost: CUDA error: device-side assert triggered" in process.stderr


def test_a_processor_is_never_lost() -> None:
    devices.end_if_lost("cpu")
    devices.end_if_lost("meta")


def test_a_device_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    devices.synchronize("cuda")
    devices.synchronize("cpu")
    assert waits == [1]
