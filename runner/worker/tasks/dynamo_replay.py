"""Dynamo's record and replay: an internal error of Dynamo with the frame that it was in, into a file and out again.

Torch pickles the frame with dill, which writes a class of ``__main__`` by value and any other by its module's name. A
case's module exists only while it runs. So it takes the place of ``__main__`` here, and the file needs nothing but
torch and dill.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

from runner.contract.job import Job
from runner.worker.processes import temporary_folder
from runner.worker.program import backends
from runner.worker.program.eager import settings_of_judged_run
from runner.worker.program.errors import InvalidCase, describe
from runner.worker.program.load import LoadedCase, Source, configured, environment
from runner.worker.program.observe import Settings, observe
from runner.worker.run.job import Send
from runner.worker.torch_private import dynamo
from runner.worker.torch_private.counters import start_counting

LIMIT = 100_000
"""Compilations of a frame that a replay may claim: ``torch._dynamo.replay`` calls its own the 999th, far above the
default."""


def run_dynamo_record(job: Job, send: Send) -> dict[str, Any]:
    """Run the case with recording on. Return ``files``, absolute, and ``raised``, the facts of the error, or None.

    ``job.arguments["folder"]`` is where torch makes its folder for them.
    """
    missing = _missing()
    if missing is not None:
        return {"error": missing}
    send({"phase": "backend"})
    root = Path(job.arguments["folder"])
    flags = {"torch._dynamo.config.replay_record_enabled": True, "torch._dynamo.config.debug_dir_root": str(root)}
    try:
        with temporary_folder() as folder, environment(job), configured(flags.items()):
            settings = Settings.of(job)
            source = Source(job.source, job.name, folder)
            with settings_of_judged_run(job, source):
                loaded = source.load(settings.seed)
                _as_main(loaded)
                start_counting()
                error = observe(loaded, backends.build(job.backend)(loaded.model), settings).error
    except InvalidCase as wrong:
        return {"error": {"type": type(wrong).__name__, "message": wrong.reason}}
    files = sorted(str(path) for path in root.glob("run_*/error_recordings/*.rec") if path.stat().st_size)
    return {"files": files, "raised": error.info if error is not None else None}


def run_dynamo_replay(job: Job, send: Send) -> dict[str, Any]:
    """Run Dynamo over the frame of ``job.arguments["file"]``. Return ``raised``, the facts of the error, or None.

    The file is a pickle, and reading one runs what it says.
    """
    missing = _missing()
    if missing is not None:
        return {"error": missing}
    send({"phase": "backend"})
    file, recording_class, replay = job.arguments["file"], dynamo.RECORDING.need(), dynamo.REPLAY.need()
    try:
        with environment(job), configured((name, LIMIT) for name in dynamo.compilation_limits()):
            unreadable = _unreadable(file, recording_class)
            if unreadable is not None:
                return {"error": unreadable}
            replay(file)
    except InvalidCase as wrong:  # a module of --import
        return {"error": {"type": type(wrong).__name__, "message": wrong.reason}}
    except Exception as error:  # noqa: BLE001  whatever Dynamo raises is what is asked for
        return {"raised": describe(error).info}
    return {"raised": None}


def _missing() -> dict[str, str] | None:
    """Return the error of a Python without dill; None if it has one."""
    if importlib.util.find_spec("dill") is not None:
        return None
    return {"type": "ModuleNotFoundError", "message": f"torch records with dill: {sys.executable} -m pip install dill"}


def _unreadable(file: str, recording_class: Any) -> dict[str, str] | None:
    """Return the error of a file that is no recording, or one that another torch or Python made; None if it is
    readable."""
    try:
        with open(file, "rb") as stream:
            recording = recording_class.load(stream)
    except Exception as error:  # noqa: BLE001  a pickle may raise anything
        return {
            "type": type(error).__name__,
            "message": f"{file} is no recording that torch {torch.__version__} reads: {error}",
        }
    if not isinstance(recording, recording_class):
        return {"type": type(recording).__name__, "message": f"{file} is no recording of Dynamo's"}
    return None


def _as_main(loaded: LoadedCase) -> None:
    """Make the case's module ``__main__``. This process runs nothing else."""
    for value in vars(loaded.module).values():
        if getattr(value, "__module__", None) == loaded.module.__name__:
            value.__module__ = "__main__"
    loaded.module.__name__ = "__main__"
    sys.modules["__main__"] = loaded.module
