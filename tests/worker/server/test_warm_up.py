"""What a server does before its first fork leaves nothing that a job could see."""

from __future__ import annotations

import functools
import json
import logging
import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from runner.worker.server import warm_up
from runner.worker.torch_private import preparation

ROOT = Path(warm_up.__file__).parents[3]
COLD = ("none", "capture", "compilers")
SCRIPT = """
import gc, json, os, random, sys, threading
import torch
torch.set_num_threads(1)
from runner.worker.server import warm_up
torch.manual_seed(5)
numbers, threads = torch.get_rng_state(), len(os.listdir("/proc/self/task"))
traces = {}
for level in sys.argv[1:]:
    cold = "torch._dynamo" not in sys.modules
    warm_up.warm_up(level)
    traces[level] = found = {
        "cold": cold,
        "loaded": sum(name in sys.modules for name in ("torch._dynamo", "torch._inductor.compile_fx", "runner.worker.run.job")),
        "threads": len(os.listdir("/proc/self/task")) - threads, "python": threading.active_count(),
        "intra-op": torch.get_num_threads(), "random": bool(torch.equal(numbers, torch.get_rng_state())),
        "cases": [name for name in sys.modules if name.startswith("runner_case")],
        "folders": [path for path in sys.path if "runner-" in path], "grad": torch.is_grad_enabled(),
    }
    if level not in ("none", "capture", "compilers"):
        from torch._dynamo.utils import counters, get_compilation_metrics
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch._inductor import metrics
        found["counters"] = {name: dict(values) for name, values in counters.items() if values}
        found["metrics"], found["kernels"] = len(get_compilation_metrics()), metrics.generated_kernel_count
        found["fake"] = len(FakeTensorMode.cache)
        found["fallback_random"] = torch._inductor.config.fallback_random
print(json.dumps(traces))
"""


@pytest.fixture(scope="module")
def traces() -> dict[str, dict[str, Any]]:
    """What a process finds in itself after each warm-up, from the least to the most: one process for the cold levels."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    records: dict[str, dict[str, Any]] = {}
    for levels in (COLD, [level for level in warm_up.LEVELS if level not in COLD]):
        process = subprocess.run(
            [sys.executable, "-c", SCRIPT, *levels], env=environment, capture_output=True, text=True
        )
        assert process.returncode == 0, process.stderr
        records |= json.loads(process.stdout.splitlines()[-1])
    return records


@pytest.mark.parametrize("level", [level for level in warm_up.LEVELS if level not in COLD])
def test_a_warm_server_has_no_trace_of_its_warm_up(level: str, traces: dict[str, dict[str, Any]]) -> None:
    assert traces[level] == {
        "cold": level == "dynamo",
        "loaded": 3 if level in ("import", "inductor") else 2,  # Inductor takes a second
        "threads": 0,
        "python": 1,
        "intra-op": 1,
        "random": True,
        "cases": [],
        "folders": [],
        "grad": True,
        "counters": {},
        "metrics": 0,
        "kernels": 0,
        "fake": 0,
        "fallback_random": False,
    }


DEVICES = """
import json, os, sys
import torch
from runner.worker.server import warm_up
from runner.worker.torch_private.preparation import LAZY_FOR_DEVICES
warm_up.warm_up("import")
threads = len(os.listdir("/proc/self/task"))
warm_up.load_for_devices()
from triton.runtime.cache import triton_key
print(json.dumps({
    "missing": [name for name in LAZY_FOR_DEVICES if name not in sys.modules],
    "hashed": triton_key.cache_info().currsize,
    "open": torch.cuda.is_initialized(),
    "threads": len(os.listdir("/proc/self/task")) - threads,
}))
"""


def test_what_accelerators_need_is_loaded_and_none_is_opened() -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run([sys.executable, "-c", DEVICES], env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == {"missing": [], "hashed": 1, "open": False, "threads": 0}


@pytest.mark.parametrize("level", ["aot", "backward", "import", "inductor"])
def test_nothing_is_compiled_where_an_accelerator_is_in_sight(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    monkeypatch.setattr(warm_up, "_has_accelerator", lambda torch: True)
    monkeypatch.setattr(warm_up, "load_for_devices", lambda: did.append("loaded"))
    monkeypatch.setattr("runner.worker.tasks.registry.run_job", lambda job, send: did.append("compiled") or {})
    warm_up.warm_up(level)
    assert did == ["loaded"]


@pytest.mark.parametrize(("level", "loaded"), [("none", 0), ("capture", 1), ("compilers", 2)])
def test_a_cold_server_has_imported_compilers_at_most(
    level: str, loaded: int, traces: dict[str, dict[str, Any]]
) -> None:
    trace = traces[level]
    assert (trace["loaded"], trace["threads"], trace["python"], trace["random"]) == (loaded, 0, 1, True)


def test_a_server_of_fresh_processes_probes_the_vectors_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[str] = []
    monkeypatch.setattr(warm_up, "probe", lambda: probed.append("vectors"))
    warm_up.warm_up("capture")
    monkeypatch.setattr(warm_up, "_has_accelerator", lambda torch: True)
    warm_up.warm_up("compilers")
    assert probed == []
    monkeypatch.setattr(warm_up, "_has_accelerator", lambda torch: False)
    warm_up.warm_up("compilers")
    assert probed == ["vectors"]


def test_a_warm_up_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {"findings": [{"oracle": "value"}], "trust": None}
    monkeypatch.setattr("runner.worker.tasks.registry.run_job", lambda job, send: record)
    with pytest.raises(RuntimeError, match="warm-up under aot_eager"):
        warm_up.warm_up("aot")


def test_progress_bars_start_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = types.SimpleNamespace(monitor_interval=10)
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=bars))
    warm_up.stop_progress_bars()
    assert bars.monitor_interval == 0


@pytest.mark.parametrize(("built", "modes"), [(None, ["backward"]), ("13.0", ["off"])])
def test_no_backward_before_a_fork_where_autograd_keeps_threads(
    built: str | None, modes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    ran: list[str] = []
    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setattr("runner.worker.tasks.registry.run_job", lambda job, send: ran.append(job["grad"]["mode"]) or {})
    warm_up.warm_up("backward")
    assert ran == modes
    ran.clear()
    warm_up.warm_up("aot")
    assert ran == ["off"]


BACKWARD = """
import sys
import torch
torch.version.cuda = "13.0"
from runner.worker.tasks.registry import run_job
from runner.worker.server import warm_up
warm_up.warm_up("backward")
names = {*sys.modules}
record = run_job(warm_up._warm_up_job("aot_eager", "backward"), lambda message: None)
assert not record["findings"], record
print(*sorted(name for name in {*sys.modules} - names if name.startswith("torch._inductor")))
"""


def test_the_first_backward_of_a_child_loads_no_compiler() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run([sys.executable, "-c", BACKWARD], env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "\n"


def test_only_threads_of_the_cuda_driver_do_no_harm() -> None:
    """A thread that has the name of the driver's does not count; any other does."""
    program = """
import ctypes, sys, threading, time
from runner.worker.server import warm_up
before, named = warm_up._threads(), threading.Semaphore(0)
def sleep():
    ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)  # PR_SET_NAME
    named.release()
    time.sleep(60)
threading.Thread(target=sleep, daemon=True).start()
named.acquire()
print(warm_up._threads() - before)
"""
    counts = [
        subprocess.run(
            [sys.executable, "-c", program, name], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        for name in ("cuda0000280000b", "python")
    ]
    assert counts == ["0\n", "1\n"]


def test_a_server_with_threads_starts_again_without_them(tmp_path: Path) -> None:
    """The first start leaves a thread; what serves in the end was only imported, and answers."""
    program = tmp_path / "server.py"
    program.write_text(
        "import sys, threading, time\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from runner.worker.tasks import registry\nfrom runner.worker.server import server\n"
        "def leave(job, send):\n"
        "    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "    return {}\n"
        "registry.run_job = leave\n"
        "sys.exit(server.main())\n"
    )
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(120)
        process = subprocess.Popen(
            [sys.executable, program, "--socket", tmp_path / "s", "--token", "t", "--warm", "aot"]
        )
        lines = []
        for _ in range(2):
            connection, _ = listener.accept()
            connection.settimeout(120)
            with connection:
                lines.append(connection.makefile().readline())
        process.wait(30)
    assert lines[0] == ""
    hello = json.loads(lines[1])["hello"]
    assert hello["torch"] and hello["warm_error"] == "threads that the warm-up left: 1" and hello["pid"] == process.pid


class Isa:
    def __init__(self, works: bool) -> None:
        self.works, self.probed = works, 0

    def __bool__(self) -> bool:
        self.probed += 1
        if not self.works:
            raise OSError("no compiler")
        return True


def test_candidates_are_torchs_in_torchs_order() -> None:
    vectors = pytest.importorskip("torch._inductor.cpu_vec_isa")
    candidates = warm_up.candidates()
    assert candidates == [isa for isa in vectors.supported_vec_isa_list if isa in candidates]
    if vectors.valid_vec_isa_list.cache_info().currsize:  # else asking would compile
        assert [str(isa) for isa in vectors.valid_vec_isa_list()] == [str(isa) for isa in candidates if isa]


def test_probes_and_header_at_the_same_time_and_no_thread_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = threading.Barrier(2, timeout=20)  # passes only if two of them run at once
    isas = [Isa(True), Isa(True)]
    compiled: list[object] = []

    def compile_a_kernel(isa: object) -> None:
        barrier.wait()
        compiled.append(isa)

    class Slow(Isa):
        def __bool__(self) -> bool:
            barrier.wait()
            return super().__bool__()

    isas[1] = Slow(True)
    monkeypatch.setattr(warm_up, "candidates", lambda: isas)
    monkeypatch.setattr(warm_up, "compile_a_kernel", compile_a_kernel)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    count = threading.active_count()
    beside = threading.Event()
    with warm_up.preparing(beside.set):
        assert beside.wait(20), "it goes on while the block runs"
    assert [isa.probed for isa in isas] == [1, 1] and compiled == [isas[0]]
    assert threading.active_count() == count


def test_what_fails_is_said_and_left_to_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warm_up, "candidates", lambda: [Isa(False)])
    monkeypatch.setattr(warm_up, "compile_a_kernel", lambda isa: None)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with caplog.at_level(logging.WARNING), warm_up.preparing():
        pass
    assert "no compiler" in caplog.text


def test_a_probe_that_failed_beside_the_block_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Torch 2.6 raises in a probe if the block resets Dynamo, and takes it for the processor's answer."""
    vectors = pytest.importorskip("torch._inductor.cpu_vec_isa")
    isa = next(isa for isa in vectors.supported_vec_isa_list if str(isa) == "avx2")
    probed: list[str] = []

    def check_build(isa: object, code: str) -> bool:
        probed.append(str(isa))
        return len(probed) > 1 and works

    monkeypatch.setattr(vectors.VecISA, "check_build", check_build)
    monkeypatch.setattr(warm_up, "candidates", lambda: [isa])
    monkeypatch.setattr(warm_up, "compile_a_kernel", lambda isa: None)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    try:
        for works in (True, False):
            preparation.forget_answers()
            probed.clear()
            with caplog.at_level(logging.WARNING), warm_up.preparing():
                pass
            assert bool(isa) is works and probed == [str(isa)] * 2
        assert "probed again: yes" in caplog.text and "probed again: no" in caplog.text
    finally:
        preparation.forget_answers()


def test_missing_vectors_are_named_once_torch_has_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = pytest.importorskip("torch._inductor.cpu_vec_isa")
    picked = functools.cache(list)
    monkeypatch.setattr(vectors, "valid_vec_isa_list", picked)
    monkeypatch.setattr(warm_up, "candidates", lambda: ["avx2"])
    assert warm_up.missing_vectors() == ""
    picked()
    assert warm_up.missing_vectors().endswith("cannot build for avx2")
    monkeypatch.setattr(warm_up, "candidates", list)
    assert warm_up.missing_vectors() == ""


def test_on_one_processor_nothing_is_done_beside_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    isa = Isa(True)
    monkeypatch.setattr(warm_up, "candidates", lambda: [isa])
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with warm_up.preparing(pytest.fail):
        pass
    assert isa.probed == 0
