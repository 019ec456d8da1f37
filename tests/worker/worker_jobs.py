"""Jobs for the tests: a source from the body of ``forward``, and the record that comes back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch

from runner.contract.job import Job
from runner.engine.messages import check_record
from runner.worker.tasks.registry import run_job  # after the environment

# torch counts devices at a process's first backward, and if it finds any, forked copies of the process may run none. Built
# for CUDA it finds one, GPU or not, once Inductor has compiled something. So this comes before.
torch.ones(1, requires_grad=True).sum().backward()

HERE = str(Path(__file__).parent)


def source(
    body: str, inputs: str = "torch.randn(4, 5)", signature: str = "x", init: str = "", definitions: str = ""
) -> str:
    """A case's text: the body of ``forward`` (lines joined by ``;`` or newlines), its inputs, extra module text."""
    lines = "\n        ".join(line for line in body.split("\n"))
    setup = f"\n    def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    return f"""import torch
class Model(torch.nn.Module):{setup}
    def forward(self, {signature}):
        {lines}
def make_model():
    return Model().eval()
def make_inputs():
    return [{inputs}]
{definitions}
"""


def job(**fields: Any) -> Job:
    """A job with these fields; the others are of no matter."""
    names = {name: name for name in ("key", "id", "environment", "name", "source")}
    return Job.from_json({**names, "backend": {"backend": "planted:clean"}, **fields})


def run(
    text: str, backend: str = "planted:clean", compile: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """The record of a job, proved to be plain JSON that control takes; ``phases`` is added to it."""
    request = job(
        name="case-1", source=text, backend={"backend": backend, **(compile or {})}, **{"paths": [HERE], **fields}
    )
    phases: list[str] = []
    record = run_job(json.loads(json.dumps(request.to_json())), lambda message: phases.append(message["phase"]))
    text = json.dumps(record, allow_nan=False)
    if request.task == "judge":
        check_record(json.loads(text))
    return {**record, "phases": phases}


def oracles(record: dict[str, Any]) -> list[str]:
    """The oracles that fired, in order."""
    return [finding["oracle"] for finding in record["findings"]]


def passes(record: dict[str, Any]) -> bool:
    """No finding, and the comparison is to be trusted."""
    return not record["findings"] and record["trust"] is None
