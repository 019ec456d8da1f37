"""The bounds that values are held against."""

from __future__ import annotations

import pytest
import torch
from worker_jobs import oracles, run, source


def test_tolerances_are_torchs_whatever_a_case_does_to_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.testing._comparison._DTYPE_PRECISIONS
    monkeypatch.setitem(table, torch.float32, table[torch.float32])  # to put it back
    definitions = "import torch.testing._comparison as c\nc._DTYPE_PRECISIONS[torch.float32] = (9.0, 9.0)"
    assert oracles(run(source("return x * 2", definitions=definitions), "planted:off_by_one")) == ["value"]
