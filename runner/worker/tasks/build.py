"""``validate --build``: does the model exist, and does torch take its operators and arguments?

The meta device answers without computing. It cannot do some things (values read in Python, operators without a meta
kernel, odd layouts). Those are done for real, and only what fails there too is an error.
"""

from __future__ import annotations

from typing import Any

import torch

from runner.contract.job import Job
from runner.worker.program.errors import InvalidCase, describe
from runner.worker.program.load import Source, open_source
from runner.worker.program.observe import Settings, observe
from runner.worker.run.job import Send


def run_build(job: Job, send: Send) -> dict[str, Any]:
    """Return the record of a build: ``built`` is ``meta`` or ``real``, ``error`` as in findings, or null.

    ``expect.raises`` is not looked at: what eager raises is reported, and control decides.
    """
    send({"phase": "load"})
    try:
        with open_source(job) as source:
            send({"phase": "eager"})
            settings = Settings.of(job)
            if _on_meta(source, settings):
                _inputs(source, settings)
                return {"built": "meta", "error": None}
            loaded = source.load(settings.seed)
            error = observe(loaded, loaded.model, settings).error
            return {"built": "real", "error": error.info if error is not None else None}
    except InvalidCase as error:
        return {"built": "real", "error": error.info}


def _inputs(source: Source, settings: Settings) -> None:
    """Make the inputs for real: the meta device takes any dtype for any generator.

    Raises:
        InvalidCase: one cannot be made.
    """
    loaded = source.load(settings.seed)
    for make in loaded.makers:
        try:
            make()
        except Exception as error:
            raised = describe(error, loaded.path, loaded.module.__name__)
            raise InvalidCase(f"making the inputs raised {raised.summary}", raised) from error


def _on_meta(source: Source, settings: Settings) -> bool:
    """Return whether everything worked on the meta device. After any failure there the real device must say."""
    try:
        with torch.device("meta"), torch.no_grad():
            loaded = source.load(settings.seed)
            return observe(loaded, loaded.model, settings).error is None
    except Exception:  # noqa: BLE001  whatever it was, it is tried for real
        return False
