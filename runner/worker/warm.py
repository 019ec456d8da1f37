"""What a worker server does before its first fork, so that no job has to: imports, and one tiny job from end to end.

A rehearsal loads what torch and this project load lazily, and fills the pages that every child would else fill again.
It leaves no trace that a job could see: what torch compiled and counted is forgotten, and no thread stays behind (a
child forked from a process with OpenMP threads hangs).
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

LEVELS = ("none", "import", "aot", "inductor")
"""Each does what the one before does and more: torch alone, its compilers imported, a graph compiled under
``aot_eager``, and one under Inductor. Only the first two keep CUDA fit for forked children."""

_SOURCE = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
    def forward(self, x):
        return torch.relu(self.linear(x)) + 1
def make_model():
    return Model().eval()
def make_inputs():
    return [torch.randn(2, 4)]
"""


def warm_up(level: str) -> None:
    """Load what ``level`` (one of LEVELS, and torch is imported) says.

    Raises:
        Exception: whatever torch raises, or RuntimeError if a rehearsal fails or leaves threads.
    """
    if level == "none":
        return
    from runner.worker.child import load_entry  # it imports this module

    importlib.import_module("torch._dynamo")
    importlib.import_module("torch._inductor.compile_fx")
    run_job = load_entry()
    skip_guard_timing()
    if level == "import":
        return
    torch = importlib.import_module("torch")
    alone = not _has_accelerator(torch)
    threads, random = _threads(), torch.get_rng_state()
    # With an accelerator the first backward of a process starts threads for the devices, and torch refuses to
    # differentiate in any child forked after that. Under Inductor a backward gains nothing more, and costs seconds.
    parts = [("aot_eager", "off"), *([("aot_eager", "backward")] if alone else []), ("inductor", "off")]
    try:
        for backend, mode in parts if level == "inductor" else parts[:-1]:
            record = run_job(_rehearsal(backend, mode), lambda message: None)
            if record.get("findings") or record.get("trust"):
                raise RuntimeError(f"the rehearsal of {backend}: {record['findings']} {record['trust']}")
    finally:
        forget(torch)
        torch.set_rng_state(random)
    if alone and _threads() > threads:
        raise RuntimeError(f"the rehearsal left {_threads() - threads} threads")


def forget(torch: Any) -> None:
    """Forget what this process has compiled and counted, as far as torch can."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.clear_compilation_metrics()
    torch._subclasses.fake_tensor.FakeTensorMode.cache_clear()
    metrics = sys.modules.get("torch._inductor.metrics")
    if metrics is not None:
        metrics.reset()


def skip_guard_timing() -> None:
    """Keep torch from flushing the CPU's caches after each compilation to time its guards: 20 ms for a log line.

    The guards are still evaluated as often as before, all but the one time that is measured.
    """
    guards = importlib.import_module("torch._dynamo.guards")
    original = getattr(guards, "profile_guard_manager", None)
    if original is None or getattr(original, "quick", False):
        return

    def quick(root: Any, scope: Any, *iterations: int) -> float:
        if not iterations:  # torch 2.8 and older ask only when debugging, and then want the number
            return float(original(root, scope))
        original(root, scope, 0)
        return 0.0

    quick.quick = True  # type: ignore[attr-defined]
    guards.profile_guard_manager = quick  # type: ignore[attr-defined]


def _rehearsal(backend: str, mode: str) -> dict[str, Any]:
    return {
        "key": "rehearsal",
        "id": "rehearsal",
        "name": "rehearsal",
        "source": _SOURCE,
        "backend": {"backend": backend},
        "grad": {"mode": mode},
        "threads": 1,
    }


def _has_accelerator(torch: Any) -> bool:
    accelerator = getattr(torch, "accelerator", None)
    return bool(torch.cuda.is_available() or (accelerator is not None and accelerator.is_available()))


def _threads() -> int:
    """Threads of this process, native ones included."""
    return len(os.listdir("/proc/self/task"))
