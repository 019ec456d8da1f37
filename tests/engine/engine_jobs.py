"""What the engine's tests share: jobs that are snippets of Python, and a stand-in for torch."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Mapping

from runner.contract.job import Job
from runner.engine import process_tree
from runner.engine.fingerprint import Fingerprint, take_fingerprints
from runner.engine.local import LocalEngine
from runner.engine.messages import ClosableEngine, Outcome

Make = Callable[..., LocalEngine]
"""The type of the fixture ``make``."""

ENTRY = """
def run_job(job, send):
    names = {"job": job, "send": send, "result": {}}
    exec(compile(job["source"], "<job>", "exec"), names)
    return names["result"]
"""
TORCH = """
import types
__version__ = "9.9.9+fake"
version = types.SimpleNamespace(git_version="abc")
cuda = types.SimpleNamespace(is_available=lambda: False)
def get_num_threads(): return 2
def set_num_threads(count): pass
"""


def job(source: str, key: str = "k", timeout: float = 20.0, memory: int | None = None, **fields: object) -> Job:
    text = textwrap.dedent(source)
    options = {"environment": "here", "task": "snippet", **fields}  # records of the task "judge" are checked
    return Job(key, f"id-{key}", name=f"m {key}", source=text, backend={}, timeout=timeout, memory=memory, **options)  # type: ignore[arg-type]


def finish(engine: LocalEngine, *jobs: Job, limit: float = 40.0) -> dict[str, Outcome]:
    for job in jobs:
        engine.submit(job)
    outcomes: dict[str, Outcome] = {}
    end = time.monotonic() + limit
    while engine.pending() and time.monotonic() < end:
        for outcome in engine.wait(1.0):
            assert outcome.job.key not in outcomes
            outcomes[outcome.job.key] = outcome
    assert engine.pending() == 0
    return outcomes


def one(engine: LocalEngine, source: str, **fields: object) -> Outcome:
    return finish(engine, job(source, **fields))["k"]  # type: ignore[arg-type]


def texts(engine: ClosableEngine) -> list[str]:
    """What a person is told of an engine."""
    return [notice.message for notice in engine.notices()]


def gone(pid: int, within: float = 3.0) -> bool:
    """Whether a process has ended, or will in time."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        process = process_tree.processes().get(pid)
        if process is None or process.zombie:
            return True
        time.sleep(0.02)
    return False


def take_fingerprint(python: str, environ: Mapping[str, str] | None = None) -> Fingerprint:
    return take_fingerprints([python], environ)[python]
