"""Drawing cases and trying them out: many in one job, so that a process imports and starts once for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from runner.contract.job import Job
from runner.worker.generate.cases import VERSION, Wish, draw_case
from runner.worker.generate.check import fault_of
from runner.worker.generate.database import operators
from runner.worker.run.job import Send


def run_operators(job: Job, send: Send) -> dict[str, Any]:
    """Return ``operators``, the names of torch's operator database, and ``missing``: why it is missing, or nothing."""
    try:
        return {"operators": [*operators()], "missing": "", "error": None}
    except ImportError as error:
        return {"operators": [], "missing": str(error), "error": None}


def run_draw(job: Job, send: Send) -> dict[str, Any]:
    """Return ``cases``: a case as JSON text for each of ``numbers``, empty where none came about.

    Each has a ``doc``, one of the job's ``docs``: where it comes from.
    """
    arguments = job.arguments
    torch.set_num_threads(1)
    cases = [_text(arguments, number, doc) for number, doc in zip(arguments["numbers"], arguments["docs"], strict=True)]
    return {"cases": cases, "error": None}


def _text(arguments: Mapping[str, Any], number: int, doc: str) -> str:
    case = draw_case(arguments["seed"], number, Wish.of(arguments))
    if case is None:
        return ""
    return json.dumps({"name": case["name"], "doc": f"{doc} (generator {VERSION}, torch {torch.__version__})", **case})


def run_try(job: Job, send: Send) -> dict[str, Any]:
    """Return ``faults``: for each of ``jobs``, judging jobs as plain dicts, why its case is not written, or nothing."""
    send({"phase": "eager"})
    return {"faults": [fault_of(Job.from_json(case)) for case in job.arguments["jobs"]], "error": None}
