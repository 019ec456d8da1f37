"""The folder of files that the tests of writing read from; the helpers of ``tests/cases`` are used here too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "cases"))

from built import Built


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return Built(tmp_path)
