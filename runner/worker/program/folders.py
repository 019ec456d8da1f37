"""Temporary folders of a job. They lie in the engine's folder, which the engine removes after a process was killed."""

from __future__ import annotations

import os
import tempfile


def folder() -> tempfile.TemporaryDirectory[str]:
    """Return a new folder, which is removed when its ``with`` ends. What cannot be removed goes with the engine's."""
    return tempfile.TemporaryDirectory(
        prefix="runner-", dir=os.environ.get("RUNNER_SCRATCH"), ignore_cleanup_errors=True
    )
