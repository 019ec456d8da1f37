"""A small tier under OpenVINO, where it is installed: a backend of another package from the command to its score.

``requirements/openvino.txt`` installs it; GitHub's nightly workflow runs this file, ``.ci/run`` skips it.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from .driver import REPOSITORY, Result, run_in, spec, write

try:
    VERSION = importlib.metadata.version("openvino")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("openvino is not installed: pip install -r requirements/openvino.txt", allow_module_level=True)

PINNED = "2026.4.1"
"""The version whose defects are known; ``requirements/openvino.txt`` has it too."""

CASES = spec(
    """
    name: right
    inputs: {x: [4, 8], y: [4, 8]}
    chain:
      - torch.add: [$x, $y]
      - torch.relu
      - operator.mul: [$_, 2]
    """,
    """
    name: wide
    inputs: {x: [4, 8]}
    dtypes: [float64]
    chain: [torch.exp, torch.neg]
    """,
    """
    name: trained
    inputs: {x: [4, 8]}
    grad: backward
    chain:
      - nn.Linear: [8, 8]
      - torch.relu
    """,
    """
    name: viewed
    inputs: {x: [3, 4]}
    chain:
      - Tensor.view: [$x, 4, 3]
      - operator.add: [$_, 1]
    """,
    """
    name: nan
    inputs: {x: {values: [.nan, 0.0, 1.0]}, y: {values: [0.5, .nan, 1.0]}}
    chain:
      - torch.maximum: [$x, $y]
      - operator.add: [$_, 1]
    """,
)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run under OpenVINO as its profile has it, and under eager."""
    folder = tmp_path_factory.mktemp("openvino")
    write(folder, {"small.spec.yaml": CASES})
    profile = REPOSITORY / "profiles" / "openvino.suite.yaml"
    return run_in(folder, "run", "small.spec.yaml", profile, "--backend", "openvino", "--backend", "eager", "-j", 1)


def test_the_pinned_version_is_the_one_of_the_requirements() -> None:
    assert f"openvino=={PINNED}\n" in (REPOSITORY / "requirements" / "openvino.txt").read_text(encoding="utf-8")


def test_what_it_claims_is_judged_and_the_others_are_skipped(result: Result) -> None:
    assert result.verdicts["right@openvino"] == "PASS", result.text
    assert {name: result.of(f"{name}@openvino")["unclaimed"] for name in ("wide", "trained")} == {
        "wide": "float64",
        "trained": "gradients",
    }
    assert {verdict for name, verdict in result.verdicts.items() if name.endswith("@eager")} == {"PASS"}


@pytest.mark.skipif(VERSION != PINNED, reason=f"the defects are those of OpenVINO {PINNED}")
def test_its_defects_are_seen_and_put_down_to_whom_they_belong(result: Result) -> None:
    assert result.verdicts["nan@openvino"] == "FAIL" and result.of("nan@openvino")["oracles"] == ["nonfinite"]
    viewed = result.of("viewed@openvino")
    origin = viewed["findings"][0]["error"]["origin"]
    assert viewed["verdict"] == "ERROR" and origin["raised_by"] == "torch" and "called_by" not in origin
    assert "raised by torch, outside the backend" in result.text


def test_its_score_counts_what_it_does_not_claim(result: Result) -> None:
    assert result.folder is not None
    score = Path(result.cwd, "score.json")
    score_result = run_in(result.cwd, "score", result.folder, "--json", score)
    assert score_result.code == 0, score_result.text
    assert "openvino" in score_result.out and "claim" in score_result.out and json.loads(score.read_text())
