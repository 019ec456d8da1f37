"""The fuzzer's modules stand in bench/, beside one another and in no package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

BENCH = str(Path(__file__).resolve().parents[2] / "bench")
if BENCH not in sys.path:
    sys.path.append(BENCH)  # for good: a process that is spawned later needs it too


@pytest.fixture(scope="module")
def trials() -> Iterator[ProcessPoolExecutor]:
    """A process that forks for each trial. This one may have imported torch and started threads."""
    from tests.fuzz import trials as module

    with ProcessPoolExecutor(1, get_context("spawn"), module.start) as pool:
        yield pool
