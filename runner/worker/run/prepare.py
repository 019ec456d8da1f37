"""Preparation of a task about a case: the job's settings, its packages, its source as a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from runner.contract.job import Job
from runner.worker.processes import temporary_folder
from runner.worker.program.errors import InvalidCase
from runner.worker.program.load import Source, open_source
from runner.worker.run.job import Unavailable, require


def with_source(job: Job, work: Callable[[Source], dict[str, Any]], folder: str | None = None) -> dict[str, Any]:
    """Return the record of ``work``, which is given the case's source. A case that is wrong gives its ``error``.

    The source lies in ``folder``, to stay there, or else in a temporary one.
    """
    try:
        with open_source(job, folder) as source:
            require(job)
            return work(source)
    except InvalidCase as error:
        return {"error": {"type": "InvalidCase", "message": error.reason}}
    except Unavailable as error:
        return {"error": {"type": "Unavailable", "message": str(error)}}


@contextlib.contextmanager
def variable(name: str, value: str | None) -> Iterator[None]:
    """Set an environment variable for as long as the block lasts; None leaves it as it is."""
    original = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if value is not None:
            os.environ.pop(name, None)  # the case may have
            if original is not None:
                os.environ[name] = original


@contextlib.contextmanager
def own_cache() -> Iterator[None]:
    """Give this process a cache of compiled code of its own while the block lasts."""
    with temporary_folder() as folder, variable("TORCHINDUCTOR_CACHE_DIR", folder):
        yield
