"""Compiled graphs of earlier runs: which jobs may load them, and under which key.

torch loads a graph instead of compiling it where nothing has changed that its key or ours names. What fails with a
loaded graph is compiled again before it counts (``runner/session/variant_run.py``), so that only a pass can rest on
one.
"""

from __future__ import annotations

from dataclasses import replace

from runner.contract.job import Job
from runner.engine.cached import make_cache_key, refusal
from runner.engine.fingerprint import Fingerprint

_REFUSED = ("cache", "autotune")
"""Words in names of settings: a case that sets a cache means it, and what is chosen by time may be chosen otherwise."""


def graphs_digest(job: Job, fingerprint: Fingerprint | None) -> str:
    """Return the key of the graphs that a job may load, beside what torch's own key holds; empty if it is to compile
    all.

    Loaded are graphs of Inductor in its usual mode, on the CPU, in a process of the job's own. A job whose result
    ``--cached`` would not keep loads none either. Nor does one that measures the compiler: its time, or what of it is
    reached.

    The key is that of a result, but for the seed. The program and its settings are part of it: torch's own key of a
    backward lacks which of its inputs Inductor may overwrite (``donated_buffer``), so that in 2.13 a program could load
    what another compiled.
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
