"""The command, for tests that only look at what a person sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from .driver import LIMIT, Result, run_in


@pytest.fixture
def run_runner(tmp_path: Path) -> Callable[..., Result]:
    """``run_runner(*args, env=..., cwd=...)`` runs the command, in ``tmp_path`` unless told otherwise."""

    def run(
        *args: object, env: Mapping[str, str] | None = None, cwd: Path | None = None, limit: float = LIMIT
    ) -> Result:
        return run_in(cwd or tmp_path, *args, env=env, limit=limit)

    return run
