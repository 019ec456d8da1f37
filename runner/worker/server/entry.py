"""The function that a worker's processes call to run a job."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable
from typing import Any

ENTRY = "runner.worker.tasks.registry:run_job"
"""``module:function`` that runs a job; RUNNER_WORKER_ENTRY names another (for tests: control passes on no other)."""


def load_entry() -> Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], dict[str, Any]]:
    """Import and return the function that runs a job.

    Raises:
        Exception: its module cannot be imported; whatever that raises.
    """
    return pkgutil.resolve_name(os.environ.get("RUNNER_WORKER_ENTRY", ENTRY))  # type: ignore[no-any-return]
