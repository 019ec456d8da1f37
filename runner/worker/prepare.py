"""What a task about a case needs before it begins: the job's settings, its packages, its source as a file."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from runner.worker.errors import InvalidCase
from runner.worker.job import Unavailable, require
from runner.worker.load import Source, environment


def with_source(
    job: Mapping[str, Any], work: Callable[[Source], dict[str, Any]], folder: str | None = None
) -> dict[str, Any]:
    """The record of ``work``, which is given the case's source; of a case that is wrong, its ``error``.

    The source lies in ``folder``, to stay there, or else in a temporary one.
    """
    with contextlib.ExitStack() as stack:
        here = folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="runner-"))
        try:
            stack.enter_context(environment(job))
            require(job)
            source = Source(job["source"], job["name"], here)
            stack.callback(source.close)
            return work(source)
        except InvalidCase as error:
            return {"error": {"type": "InvalidCase", "message": error.reason}}
        except Unavailable as error:
            return {"error": {"type": "Unavailable", "message": str(error)}}
