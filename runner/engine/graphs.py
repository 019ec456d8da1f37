"""Compiled graphs of earlier runs: which jobs may load them, under which key, and how many of them are kept.

torch loads a graph instead of compiling it where nothing has changed that its key or ours names. What fails with a loaded graph
is compiled again before it counts (``runner/session/variant_run.py``), so that only a pass can rest on one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from runner.engine.cached import evict, make_cache_key, refusal
from runner.engine.fingerprint import Fingerprint
from runner.engine.interpreters import cache_folder
from runner.engine.messages import Job
from runner.worker.settings import CACHE_FOLDER, PASSED

FOLDERS = ("fxgraph", "aotautograd")
"""Where torch keeps them, below its cache folder: Inductor's, and those of AOTAutograd that refer to them."""

SIZE = 1 << 30
"""Bytes that each of the folders may take. A variant of three operators takes a quarter of a megabyte."""

_REFUSED = ("cache", "autotune")
"""Words in names of settings: a case that sets a cache means it, and what is chosen by time may be chosen otherwise."""


def graphs_digest(job: Job, fingerprint: Fingerprint | None) -> str:
    """Return the key of the graphs that a job may load, beside what torch's own key holds; empty if it is to compile all.

    Loaded are graphs of Inductor in its usual mode, on the CPU, in a process of the job's own. A job whose result ``--cached``
    would not keep loads none either. Nor does one that measures the compiler: its time, or what of it is reached.

    The key is that of a result, but for the seed. The program and its settings are part of it: torch's own key of a backward lacks
    which of its inputs Inductor may overwrite (``donated_buffer``), so that in 2.13 a program could load what another compiled.
    """
    if fingerprint is None or refusal(job, fingerprint):
        return ""
    is_usual = job.backend.get("backend") == "inductor" and job.backend.get("mode") in (None, "default")
    is_measured = job.compile_timeout is not None or bool(job.coverage)
    names = [*job.config, *(job.backend.get("options") or ())]
    if not is_usual or is_measured or job.device != "cpu" or job.isolation != "fork" or job.variables:
        return ""
    if any(word in name for name in names for word in _REFUSED):
        return ""
    return make_cache_key(replace(job, seed=0), fingerprint)


def trim(pythons: Iterable[str], size: int = SIZE) -> None:
    """Remove the oldest graphs of these Pythons beyond ``size`` bytes a folder. A folder that a person chose is left alone."""
    if os.environ.get(CACHE_FOLDER):
        return
    for python in pythons:
        for name in FOLDERS:
            with contextlib.suppress(OSError):
                evict(Path(cache_folder(python), name), size)
        with contextlib.suppress(OSError):
            evict(Path(cache_folder(python), PASSED), size >> 10)
