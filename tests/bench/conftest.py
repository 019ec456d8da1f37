"""The bench's modules, which stand beside one another and in no package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture(scope="module")
def bench_module() -> Iterator[Callable[[str], ModuleType]]:
    """Import a module of the bench; it is forgotten afterwards with all that it imported there, unless it was there before."""
    present = {*sys.modules}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield importlib.import_module
        for path in BENCH.glob("*.py"):
            if path.stem not in present:
                sys.modules.pop(path.stem, None)
