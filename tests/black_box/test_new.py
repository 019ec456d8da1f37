"""``runner new`` writes cases that run and pass, and ``runner fmt`` finds nothing to do in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .driver import Result

pytest.importorskip("torch")

CASES = {
    "gelu": "F.gelu --shape 4,8 --dtype bfloat16 --grad",
    "linear": "nn.Linear F.relu --arg in_features=8 --arg out_features=3 --grad",
    "add": "torch.add --shape 4,8 --shape 8 --arg alpha=2",
    "product": "torch.matmul --shape 4,8 --shape 8,3 --grad",
    "joined": "torch.cat F.softmax --arg dim=1",
    "selected": "torch.where --shape 4,8:bool --shape 8 --shape []",
    "method": "Tensor.t torch.erf --dtype float64 --dtype float32",
    "loss": "nn.MSELoss --shape 4 --shape 4 --grad",
}


@pytest.mark.slow
def test_new_cases_pass(run_runner: Callable[..., Result], tmp_path: Path) -> None:
    for name, words in CASES.items():
        result = run_runner("new", *words.split(), "-o", f"{name}.spec.yaml")
        assert result.code == 0, result.err
    assert run_runner("fmt", ".", "--check").out == f"0 files of {len(CASES)} would change\n"
    assert run_runner("validate", ".", "--build").code == 0
    judged = run_runner("run", ".", "--backend", "aot_eager", "--no-confirm", limit=600)
    assert judged.code == 0, judged.out + judged.err
    assert f"{len(CASES) + 1} passed" in judged.out
