"""The graphs that Dynamo makes of a case, recorded: what the case is op by op, also where its model is Python."""

from __future__ import annotations

from typing import Any

import torch

from runner.contract.job import Job
from runner.worker.capture.recorder import Recorder
from runner.worker.program.eager import settings_of_judged_run
from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import open_source
from runner.worker.program.observe import Settings, observe
from runner.worker.run.job import Send


def run_capture(job: Job, send: Send) -> dict[str, Any]:
    """Return ``capture``, the graphs of the case's calls as a ``Capture``, and ``error``, null.

    ``raised`` has the facts of what a call raised, or null; the graphs before it are kept.
    ``job.arguments`` may hold ``model``, what people call it.
    """
    recorder = Recorder(str(job.arguments.get("model") or job.id))
    try:
        with open_source(job) as source:
            send({"phase": "backend"})
            settings = Settings.of(job)
            with settings_of_judged_run(job, source):
                loaded = source.load(settings.seed)
                compiled = torch.compile(loaded.model, backend=recorder, dynamic=job.backend.get("dynamic"))
                raised = observe(loaded, compiled, settings).error
    except InvalidCase as error:
        return {"capture": None, "raised": None, "error": {"type": type(error).__name__, "message": error.reason}}
    capture = recorder.capture().to_json()
    return {"capture": capture, "raised": raised.info if raised is not None else None, "error": None}
