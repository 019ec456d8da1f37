"""What a living worker puts back between jobs, and that isolation changes no verdict."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from worker_jobs import HERE, job, source

from runner.contract.job import Job
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome
from runner.worker.server import child
from runner.worker.server.child import Base

MUCH = 1 << 40
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def nothing_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no child count, nor a thread that is there: those of this process belong to other tests."""
    names, there = child._threads, {thread.name for thread in threading.enumerate()}
    monkeypatch.setattr(child, "has_children", lambda: False)
    monkeypatch.setattr(child, "_threads", lambda: [name for name in names() if name not in there])


@pytest.fixture
def base() -> Iterator[Base]:
    instance = Base(job())
    yield instance
    assert instance.restore(MUCH) == ""


def compiled_graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


CHANGES: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "compiled graphs": (
        compiled_graphs,
        lambda: torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)),
    ),
    "random numbers": (lambda: torch.get_rng_state().tolist(), lambda: torch.rand(3)),
    "dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float64)),
    "gradients": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    "precision": (torch.get_float32_matmul_precision, lambda: torch.set_float32_matmul_precision("medium")),
    "determinism": (torch.are_deterministic_algorithms_enabled, lambda: torch.use_deterministic_algorithms(True)),
    "mkldnn": (lambda: torch.backends.mkldnn.enabled, lambda: setattr(torch.backends.mkldnn, "enabled", False)),
    "inductor": (
        lambda: torch._inductor.config.cpp.simdlen,
        lambda: setattr(torch._inductor.config.cpp, "simdlen", 1),
    ),
    "dynamo": (
        lambda: torch._dynamo.config.suppress_errors,
        lambda: setattr(torch._dynamo.config, "suppress_errors", True),
    ),
    "functorch": (
        lambda: torch._functorch.config.functionalize_rng_ops,
        lambda: setattr(torch._functorch.config, "functionalize_rng_ops", True),
    ),
    "stance": (lambda: torch._dynamo.eval_frame._stance, lambda: torch.compiler.set_stance("force_eager")),
    "environment": (lambda: dict(os.environ), lambda: os.environ.update(LEFT_BEHIND="1")),
    "device": (torch.get_default_device, lambda: torch.set_default_device("meta")),
}
"""How each setting is read, and how a job may change it."""


def test_settings_are_put_back(base: Base) -> None:
    assert base.restore(MUCH) == ""
    values = {name: read() for name, (read, _) in CHANGES.items()}
    for name, (read, change) in CHANGES.items():
        change()
        assert read() != values[name], name
    assert base.restore(MUCH) == ""
    assert {name: read() for name, (read, _) in CHANGES.items()} == values


def test_a_mode_that_was_not_left_ends_the_process() -> None:
    base = Base(job())
    with torch.inference_mode():
        assert "mode" in base.restore(MUCH)
    assert base.restore(MUCH) == ""


def test_an_autocast_that_was_not_left_is_put_back() -> None:
    base = Base(job())
    torch.autocast("cpu").__enter__()
    assert base.restore(MUCH) == "" and not torch.is_autocast_enabled("cpu")


class Loop:
    """Refers to itself, so that only the collector can end it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_a_job_left_is_collected_and_what_its_imports_made_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    base = Base(job())
    gc.unfreeze()
    frozen = []
    try:
        for added in (child._MANY_MODULES + 1, 0, child._MANY_MODULES):
            reference = weakref.ref(Loop())
            names = [f"imported_by_a_job_{len(frozen)}_{number}" for number in range(added)]
            monkeypatch.setattr(sys, "modules", {**sys.modules, **dict.fromkeys(names)})
            assert base.restore(MUCH) == "" and reference() is None
            frozen.append(gc.get_freeze_count())
            gc.unfreeze()
    finally:
        gc.unfreeze()
    assert frozen[0] > 1000 and frozen[1:] == [0, 0]


PROCESSES = f"""
import subprocess
from runner.worker.server.child import Base
base = Base(None)
print(base.restore({MUCH}))
child = subprocess.Popen(["sleep", "100"])
print(base.restore({MUCH}))
child.kill()
child.wait()
print(base.restore({MUCH}))
"""


def test_a_process_that_is_left_ends_the_process() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run([sys.executable, "-c", PROCESSES], env=environment, capture_output=True, text=True)
    assert (process.stdout, process.stderr) == ("\nprocesses are left\n\n", "")


def test_a_thread_that_is_left_ends_the_process(base: Base) -> None:
    wait = threading.Event()
    thread = threading.Thread(target=wait.wait)
    thread.start()
    assert "threads" in base.restore(MUCH)
    wait.set()
    thread.join()


def test_growth_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = [100 << 20]
    monkeypatch.setattr(child, "resident", lambda: memory[0])
    base = Base(job())
    assert base.restore(0) == ""
    memory[0] = 130 << 20
    assert base.restore(30 << 20) == ""
    assert base.restore(29 << 20) == "30 MiB more than at first"


def test_whatever_goes_wrong_ends_the_process(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned() -> None:
        raise RuntimeError("device-side assert")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "clear_autocast_cache", poisoned)
        assert base.restore(MUCH) == "RuntimeError: device-side assert"


PATCHES = {
    "torch.nn.functional.relu": "torch.nn.functional.relu = torch.sigmoid",
    "torch.equal": "torch.equal = lambda a, b: True",
    "builtins.pow": "import builtins; builtins.pow = lambda a, b: 1",
}


def test_a_job_that_replaces_a_function_is_the_last_of_its_process() -> None:
    """Else a wrong result of the next job could pass."""
    engine = LocalEngine({"here": sys.executable}, 1, warm={"here": "aot"})
    with engine:
        for name, patch in PATCHES.items():
            engine.submit(variant(name, source("return x + 1", definitions=patch), "aot_eager", "living"))
        for key in ("next", "last"):
            engine.submit(variant(key, source("return x + 1"), "aot_eager", "living"))
        outcomes = {}
        while engine.pending():
            outcomes.update({outcome.job.id: outcome for outcome in engine.wait(1.0)})
    for name in PATCHES:
        assert outcomes[name].result["findings"] == [] and outcomes[name].earlier_jobs == ()
        assert f"this process takes no other job: {name} was replaced" in outcomes[name].output
    assert (outcomes["next"].earlier_jobs, outcomes["last"].earlier_jobs) == ((), ("next",))


def variant(key: str, text: str, backend: str, isolation: str) -> Job:
    fields = {"environment": "here", "name": "case", "paths": (HERE,), "isolation": isolation, "timeout": 120.0}
    return Job(f"{key} {isolation}", key, source=text, backend={"backend": backend}, **fields)  # type: ignore[arg-type]


def judged(outcome: Outcome) -> tuple[object, ...]:
    record = outcome.result
    findings = [(finding["oracle"], finding["path"], finding["numbers"]) for finding in record["findings"]]
    return outcome.ended, findings, record["trust"], record["graphs"], record["recompiles"], record["comparisons"]


def test_isolation_changes_no_verdict() -> None:
    texts = {
        "plain": source("return torch.relu(x) + 0.5"),
        "loop": source("for i in range(3):\n    x = x + i\nreturn x"),
        "random": source("return torch.nn.functional.dropout(x, 0.5, training=True)"),
        "calls": source(
            "return x * 2", definitions="def other():\n    return [torch.randn(7, 5)]\nCALLS = [make_inputs, other]"
        ),
        "invalid": source("return torch.relu(x, 1, 2, 3)"),
        "wrong": source("return torch.relu(x) + 0.5"),
    }
    backends = {"wrong": "planted:off_by_one"}
    order = {"fork": list(texts), "living": [*texts, *reversed(texts)], "fresh": ["calls", "wrong"]}
    results: dict[str, list[tuple[object, ...]]] = {key: [] for key in texts}
    most = 0
    with LocalEngine({"here": sys.executable}, 1, warm={"here": "aot"}) as engine:
        for isolation, keys in order.items():
            for key in keys:
                engine.submit(variant(key, texts[key], backends.get(key, "aot_eager"), isolation))
        while engine.pending():
            for outcome in engine.wait(1.0):
                results[outcome.job.id].append(judged(outcome))
                most = max(most, len(outcome.earlier_jobs))
    assert most == 4
    for key, verdicts in results.items():
        assert len(verdicts) == 3 + (key in order["fresh"]) and all(verdict == verdicts[0] for verdict in verdicts)
    assert [key for key, verdicts in results.items() if verdicts[0][1]] == ["wrong"]
    assert [key for key, verdicts in results.items() if verdicts[0][2]] == ["invalid"]
