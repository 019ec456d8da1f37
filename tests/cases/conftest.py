"""The folder of files that the tests of reading write into."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from spec_files import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)
