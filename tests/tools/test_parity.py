"""Two records of verdicts are compared field by field, without times; the number of model runs may fall and not grow."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("parity", ROOT / "tools" / "parity.py")
assert SPEC is not None and SPEC.loader is not None
parity = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(parity)

EVENT = {
    "event": "variant-finished", "id": "a.spec.yaml::x@inductor", "case": "x", "suite": "s", "suites": ["s"], "backend": "inductor",
    "torch": "2.13.0", "python": "python", "device": "cpu", "dtype": "float32", "label": "a.spec.yaml::x", "file": "a.spec.yaml",
    "line": 1, "verdict": "PASS", "seconds": 1.0, "model_runs": 3,
}  # fmt: skip


def write(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    (folder / "smoke.jsonl").write_text(json.dumps({**EVENT, **changes}) + "\n")
    return folder


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"seconds": 2.0, "output": "other", "model_runs": 2}, 0),
        ({"verdict": "FAIL"}, 1),
        ({"labels": ["nearer-to-float64"]}, 1),
        ({"model_runs": 4}, 1),
        ({"id": "a.spec.yaml::y@inductor"}, 1),
    ],
)
def test_a_record_is_held_against_another(tmp_path: Path, changes: dict[str, Any], code: int) -> None:
    assert parity.main(["compare", str(write(tmp_path / "old")), str(write(tmp_path / "new", **changes))]) == code


def test_two_records_without_a_common_variant_prove_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert parity.main(["compare", str(tmp_path / "empty"), str(tmp_path / "empty")]) == 1


def test_each_suite_that_is_recorded_exists() -> None:
    assert [words[0] for words in parity.RUNS.values() if not (ROOT / words[0]).exists()] == []
