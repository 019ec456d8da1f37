"""Temporary folders of a job. They lie in the engine's, which removes what a process that was killed could not."""

from __future__ import annotations

import os
import tempfile


def folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder, which goes when its ``with`` ends. What cannot be removed then goes with the engine."""
    return tempfile.TemporaryDirectory(
        prefix="runner-", dir=os.environ.get("RUNNER_SCRATCH"), ignore_cleanup_errors=True
    )
