"""What a job may ask for, by name: to be judged, or a task of its own. Every job of a worker enters here.

The module of a task is imported when the first job asks for it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Any

from runner.contract.job import Job, Record, Trust
from runner.contract.mutant import NOT_PLANTED, Mutant
from runner.worker.program.load import importable
from runner.worker.program.mutant import NotPlanted, own_kernels, plant
from runner.worker.run.job import Send, judge_job

TASKS = {
    "bench": "runner.worker.tasks.benchmark:run_bench",
    "build": "runner.worker.tasks.eager:run_build",
    "capture": "runner.worker.tasks.capture:run_capture",
    "code": "runner.worker.tasks.describe:run_code",
    "bisect": "runner.worker.tasks.bisect:run_bisect",
    "cut": "runner.worker.tasks.cut:run_cut",
    "database": "runner.worker.tasks.describe:run_database",
    "debug": "runner.worker.tasks.debug:run_debug",
    "draw": "runner.worker.tasks.generate:run_draw",
    "eager": "runner.worker.tasks.eager:run_eager",
    "environment": "runner.worker.tasks.describe:run_environment",
    "explain": "runner.worker.tasks.debug:run_explain",
    "minify": "runner.worker.tasks.minify:run_minify",
    "operators": "runner.worker.tasks.generate:run_operators",
    "picture": "runner.worker.tasks.heatmap:run_picture",
    "record": "runner.worker.tasks.debug:run_dynamo_record",
    "replay": "runner.worker.tasks.debug:run_dynamo_replay",
    "shapes": "runner.worker.tasks.eager:run_shapes",
    "try": "runner.worker.tasks.generate:run_try",
}
"""What a job may ask for besides being judged: each a function of ``job`` and ``send`` that returns a record of its
own."""


def run_job(data: Mapping[str, Any], send: Send) -> dict[str, Any]:
    """Run the job of a plain dict, and return its answer as one: a ``Record`` of a job that compares, or what its task
    answers.

    ``send`` is given ``{"phase": name}`` whenever a part begins. Only a defect of the harness raises.
    """
    job = Job.from_json(data)
    if not job.mutant:
        return _answer(job, send)
    mutant = Mutant.from_json(job.mutant)
    try:
        with importable(job.paths):
            plant(mutant)
    except NotPlanted as error:
        return Record(trust=Trust("INVALID", f"{NOT_PLANTED}{error}")).to_json()
    with own_kernels(mutant):
        return _answer(job, send)


def _answer(job: Job, send: Send) -> dict[str, Any]:
    if job.task != "judge":
        return pkgutil.resolve_name(TASKS[job.task])(job, send)  # type: ignore[no-any-return]
    return judge_job(job, send).to_json()
