"""Engines whose workers run snippets of Python, and load a folder with an empty ``torch`` where torch does not matter.

So a server starts in 0.1 s.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from engine_jobs import ENTRY, TORCH, Make

from runner.engine import process_tree
from runner.engine.local import LocalEngine


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    """Environment variables that give a worker the entry function above and a torch that imports at once."""
    folder = tmp_path / "fake"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(TORCH)
    (folder / "entry.py").write_text(ENTRY)
    return {"PYTHONPATH": str(folder), "RUNNER_WORKER_ENTRY": "entry:run_job", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}


@pytest.fixture
def children() -> Callable[[], list[int]]:
    """``children()`` returns the living children of this process that it did not have before the test."""

    def living() -> list[int]:
        table = process_tree.processes()
        return [pid for pid, process in table.items() if process.parent == os.getpid() and not process.zombie]

    before = {*living()}
    return lambda: [pid for pid in living() if pid not in before]


@pytest.fixture
def make(fake: dict[str, str], children: Callable[[], list[int]]) -> Iterator[Make]:
    """Makes engines whose server loads only the stand-in for torch; closes them, and checks that all is gone."""
    engines: list[LocalEngine] = []

    def build(
        slots: int = 2,
        environ: dict[str, str] | None = None,
        log_folder: Path | None = None,
        *,
        warm: str = "none",
        environments: tuple[str, ...] = ("here",),
        **fields: Any,
    ) -> LocalEngine:
        engines.append(
            LocalEngine(
                dict.fromkeys(environments, sys.executable),
                slots,
                warm=dict.fromkeys(environments, warm),
                environ={**fake, **(environ or {})},
                log_folder=log_folder,
                **fields,
            )
        )
        return engines[-1]

    yield build
    for engine in engines:
        engine.close()
    assert children() == []
