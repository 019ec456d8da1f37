"""``validate --build``: does the model exist, and does torch take its operators and arguments?

The meta device answers without computing. It cannot do some things (values read in Python, operators without a meta
kernel, odd layouts). Those are done for real, and only what fails there too is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from runner.worker.case import folders
from runner.worker.case.errors import InvalidCase, describe
from runner.worker.case.load import Source, environment
from runner.worker.case.observe import Settings, observe


def run_build(job: Mapping[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return the record of a build: ``built`` is ``meta`` or ``real``, ``error`` as in findings, or null.

    ``expect.raises`` is not looked at: what eager raises is reported, and control decides.
    """
    send({"phase": "load"})
    with folders.folder() as folder:
        try:
            with environment(job):
                source = Source(job["source"], job["name"], folder)
                try:
                    send({"phase": "eager"})
                    settings = Settings.of(job)
                    if _on_meta(job, source):
                        _inputs(source, settings)
                        return {"built": "meta", "error": None}
                    loaded = source.load(settings.seed)
                    error = observe(loaded, loaded.model, settings).error
                    return {"built": "real", "error": error.info if error is not None else None}
                finally:
                    source.close()
        except InvalidCase as error:
            info = (
                error.error.info
                if error.error is not None
                else {"type": "InvalidCase", "message": error.reason, "line": None}
            )
            return {"built": "real", "error": info}


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


def _on_meta(job: Mapping[str, Any], source: Source) -> bool:
    """Return whether everything worked on the meta device. After any failure there the real device must say."""
    settings = Settings.of(job)
    try:
        with torch.device("meta"), torch.no_grad():
            loaded = source.load(settings.seed)
            return observe(loaded, loaded.model, settings).error is None
    except Exception:  # noqa: BLE001  whatever it was, it is tried for real
        return False
