"""A stand-in for torch, for tests of what control keeps and does: a worker starts in 0.1 s, and a job computes nothing.

Servers, forks, signals and limits are the real ones. What a job finds follows from its source, its backend and its seed.
A backend of a person's own code is found as torch finds it, and gets a graph that returns its inputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from . import driver

TORCH = """
    import sys
    import types

    worker = sys.modules.get("runner.worker.server.warm_up")
    if worker is not None:  # no variable of that kind reaches a worker from control
        worker.ENTRY = "stand_in_entry:run_job"
    __version__ = "2.13.0+cpu"
    version = types.SimpleNamespace(git_version="abc")
    cuda = types.SimpleNamespace(is_available=lambda: False)


    def get_num_threads():
        return 2


    def set_num_threads(count):
        pass
    """
DYNAMO = """
    BACKENDS = {}


    def register_backend(function):
        BACKENDS[function.__name__] = function
        return function
    """
ENTRY = """
    import importlib
    import sys
    import time

    from torch._dynamo import BACKENDS

    FAIL = "relu_accuracy_error_TESTING_ONLY"
    FINDING = {"oracle": "value", "message": "4 of 4 elements differ", "path": "call 0, output",
               "numbers": {"mismatched": 4, "elements": 4, "eager": 1.5, "compiled": 2.5, "abs_error": 1.0}}

    RECORD = {"findings": [], "trust": None, "comparisons": 1}
    ERROR = {"type": "RuntimeError", "message": "shape '[3]' is invalid", "chain": ["RuntimeError"], "trace": ""}


    def graph(*inputs):
        return inputs


    def own_backend(job):
        sys.path[:0] = job["paths"]
        for module in job["imports"]:
            importlib.import_module(module)
        module, _, name = job["backend"]["backend"].rpartition(":")
        if module:
            return None if module.startswith("runner.") else getattr(importlib.import_module(module), name)
        return BACKENDS.get(name)


    def run_job(job, send):
        if job["task"] == "code":  # asked before the first case: can all of it be imported
            return {"error": None, "faults": {}, "settings": {}}
        time.sleep(0.1)
        name, backend = job["backend"]["backend"], own_backend(job)
        if ".view(" in job["source"] or "a::b" in job["source"]:
            return RECORD | {"trust": {"verdict": "INVALID", "reason": "eager itself fails", "error": ERROR}}
        wrong = name.endswith(":wrong_element") or (name == FAIL and "torch.relu(" in job["source"])
        if wrong or (backend is not None and backend(graph, [])(1) != graph(1)):
            seed = f" with the seed {job['seed']}" if job["seed"] else ""
            return RECORD | {"findings": [FINDING | {"message": FINDING["message"] + seed}]}
        return RECORD
    """
FILES = {
    # The version that control reads without an import. With an installed CUDA build, `--device cuda` would start a worker.
    "torch-2.13.0+cpu.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n",
    "torch/__init__.py": TORCH,
    "torch/_dynamo/__init__.py": DYNAMO,
    "torch/_dynamo/guards.py": "",
    "torch/_dynamo/backends/__init__.py": "",
    "torch/_dynamo/backends/registry.py": "def list_backends(**tags):\n    return []\n",
    "torch/_inductor/__init__.py": "",
    "torch/_inductor/compile_fx.py": "",
    "stand_in_entry.py": ENTRY,
}


@contextlib.contextmanager
def no_torch(folder: Path) -> Iterator[None]:
    """Let the commands of this process's tests have the stand-in, which is written to ``folder``."""
    driver.write(folder, FILES)
    driver.STAND_IN["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        driver.STAND_IN.clear()
