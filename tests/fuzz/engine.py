"""Runs without torch: the engine ends every job at once, as the job's name decides. No file and no log is executed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from typing import Any

from runner.contract.job import Job
from runner.engine.fingerprint import Fingerprint
from runner.engine.messages import Outcome
from runner.record.events import Notice
from runner.session import plan as planning
from runner.session import run
from runner.session.plan import Environment
from tests.scripted import FakeEngine

SPEC_NAME = "a.spec.yaml"
SPEC = """\
defaults: {tags: [fuzz]}
cases:
  - name: relu
    inputs: {x: [4]}
    chain: [F.relu]
    dtypes: [float32, float64]
    known: [{stage: inductor, oracle: [value, stride], reason: known here}]
  - name: add
    params: {n: [1, 2, 3]}
    inputs: {x: ["${n}"]}
    chain: [{torch.add: [$_, "${n}"]}]
    known:
      - {stage: inductor, oracle: [compile-error], error: "Cpp.*Error", torch: "<2.0", issue: "https://example.org/1"}
      - {backend: [aot_eager], reason: never}
  - name: linear
    inputs: {x: [2, 3]}
    grad: backward
    chain: [{nn.Linear: [3, 4]}]
"""
_RUN = ("run", SPEC_NAME, "--backend", "aot_eager", "--backend", "inductor", "-j", "1")
RUNS: tuple[tuple[tuple[str, ...], int | None], ...] = (
    (_RUN, None),
    ((*_RUN, "--no-known"), None),
    (_RUN, 5),
    ((*_RUN, "--stress", "2", "--retries", "1"), None),
    ((*_RUN, "--shard", "1/2"), None),
    ((*_RUN, "--shard", "2/2"), None),
)
"""The words of a run and the number of jobs after which Ctrl-C is pressed. The last two are the shards of one run."""

_ERROR = {
    "type": "InductorError",
    "message": "CppCompileError: no",
    "chain": ["InductorError", "CppCompileError"],
    "trace": "Traceback: ...",
}
_NUMBERS = {
    "mismatched": 3, "elements": 1000, "worst_index": [1, 2], "eager": 1.5, "compiled": 1.25, "reference": 1.5,
    "abs_error": 0.25, "rel_error": 0.16,
    "rtol": 1.3e-6, "atol": 1e-5, "eager_error_max": 1e-7, "eager_error_rmse": 1e-8, "compiled_error_max": 0.25,
    "compiled_error_rmse": 0.01, "multiplier": 12.5,
}  # fmt: skip
_ANSWERS: tuple[dict[str, Any], ...] = (
    {}, {}, {},
    {"findings": [{"oracle": "value", "message": "3 of 1000 differ", "path": "call 0, output", "numbers": _NUMBERS}]},
    {"findings": [{"oracle": "compile-error", "message": "InductorError: no", "path": "call 0", "error": _ERROR}]},
    {"findings": [{"oracle": "stride", "message": "(1, 2) and (2, 1)", "path": "call 0, output"}]},
    {"ended": "signal", "signal": "SIGSEGV", "phase": "backend", "stack": "Fatal Python error: Segmentation fault\n",
        "output": "last words\n"},
    {"ended": "timeout", "phase": "backend"},
    {"trust": {"verdict": "INVALID", "reason": "eager itself fails", "error": _ERROR}},
)  # fmt: skip


class Engine(FakeEngine):
    """Ends jobs in the order in which they came. After ``most`` of them Ctrl-C is pressed."""

    slots = 1

    def __init__(self, most: int | None = None) -> None:
        super().__init__(lambda job, _: dict(Random(job.id).choice(_ANSWERS)))
        self.most = most

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        if self.most is not None:
            self.most -= 1
            if self.most < 0:
                raise KeyboardInterrupt
        return super().wait(timeout) if self.queue else []

    def cancel_all(self) -> list[Job]:
        jobs, self.queue = self.queue, []
        return jobs

    def notices(self) -> list[Notice]:
        return []

    def close(self) -> None:
        pass


def install(report: Callable[[str], None], most: int | None = None) -> None:
    """Let this process's runs use the scripted engine, and say to ``report`` which Python and modules they ask for."""

    def find(pythons: Any, *_: Any, **__: Any) -> list[Environment]:
        if pythons:
            report(f"run-python {[*pythons]!r}")
        return [Environment("2.13.0", "/venvs/2.13.0/bin/python", "2.13.0", "2.13.0+cpu", "3.11.2")]

    def engine(settings: Any, *_: Any, **__: Any) -> Engine:
        if settings.allow_python:
            report("run-allow-python")
        if settings.imports:
            report(f"run-import {settings.imports!r}")
        return Engine(most)

    def packages(*_: Any, **__: Any) -> tuple[list[str], dict[str, str]]:
        return [], {}

    def fingerprints(pythons: Any, *_: Any) -> dict[str, Fingerprint]:
        return {python: Fingerprint("0", "nobody asked it") for python in pythons}

    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "runner"]
    for name, replacement, own in (
        ("find_environments", find, modules),
        ("inspect_packages", packages, [planning]),
        ("open_engine", engine, [run]),
        ("take_fingerprints", fingerprints, [run]),
    ):
        places = [module for module in own if hasattr(module, name)]
        if not places:
            raise AttributeError(f"runner has no {name}: the fuzzer would start real processes")
        for module in places:
            setattr(module, name, replacement)
