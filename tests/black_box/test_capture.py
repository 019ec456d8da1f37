"""``runner capture``: models of one's own become cases that pass as the models do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from .driver import Result, run_in

pytest.importorskip("torch")

MODELS = '''
"""Models of a user, and a script that compiles them."""
import sys

import torch
import torch.nn.functional as F


class Perceptron(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(F.gelu(self.first(x)))


def make():
    return Perceptron(), (torch.randn(2, 8),)


if __name__ == "__main__":
    assert sys.argv[1:] == ["--size", "2"], sys.argv
    torch.compile(Perceptron())(torch.randn(2, 8)).sum().backward()
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a user's models, which ``capture`` has turned into cases."""
    here = tmp_path_factory.mktemp("capture")
    (here / "models.py").write_text(MODELS, encoding="utf-8")
    result = run_in(here, "capture", "models.py", "--", "--size", "2")
    assert result.code == 0, result.out + result.err
    return here


def case_of(folder: Path, name: str) -> dict[str, Any]:
    """Return a captured case as plain data."""
    data = yaml.safe_load((folder / "captured" / f"{name}.spec.yaml").read_text(encoding="utf-8"))
    return data["cases"][0]


@pytest.mark.slow
def test_a_graph_becomes_a_readable_case(folder: Path) -> None:
    case = case_of(folder, "perceptron")
    assert [step if isinstance(step, str) else next(iter(step)) for step in case["chain"]] == [
        "F.linear", "F.gelu", "F.layer_norm",
    ]  # fmt: skip
    assert case["grad"] == "backward"
    assert case["state"]["first_weight"]["shape"] == [16, 8] and case["state"]["first_weight"]["requires_grad"]
    assert case["state"]["norm_weight"]["init"] == "ones"


@pytest.mark.slow
def test_captured_cases_are_valid_and_pass(folder: Path) -> None:
    assert "0 errors, 0 warnings" in run_in(folder, "validate", "captured", "--build").out
    judged = run_in(folder, "run", "captured", "--backend", "aot_eager", limit=600)
    assert judged.code == 0, judged.out


@pytest.mark.slow
def test_a_model_that_a_function_makes_is_the_same_case(folder: Path) -> None:
    result: Result = run_in(folder, "capture", "models:make")
    assert result.code == 0, result.out + result.err
    inventory = json.loads((folder / "captured" / "inventory.json").read_text(encoding="utf-8"))
    assert [case["count"] for case in inventory["cases"].values()] == [2]
    assert [path.name for path in (folder / "captured").glob("*.spec.yaml")] == ["perceptron.spec.yaml"]


def test_code_that_raises_and_a_missing_script_are_said(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise ValueError('of the user')\n", encoding="utf-8")
    result = run_in(tmp_path, "capture", "broken.py")
    assert result.code == 1 and "ValueError: of the user" in result.err
    result = run_in(tmp_path, "capture", "missing.py")
    assert result.code == 4 and "missing.py: no such script" in result.err
    (tmp_path / "captured" / "note.txt").write_text("mine", encoding="utf-8")
    result = run_in(tmp_path, "capture", "broken.py")
    assert result.code == 4 and "there is something in it" in result.err
