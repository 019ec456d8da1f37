"""Which steps a reduction tries to keep first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.diagnose.diagnosis import Culprit
from runner.exit_codes import UsageError
from runner.reduce.reducer import _copy, suspects
from tests.handmade import finding, loaded, written

CASE = """\
cases:
  - name: a
    inputs: {x: [4, 8]}
    chain:
      - torch.sin
      - torch.relu
      - torch.cos
      - F.relu
"""


@pytest.mark.parametrize(
    ("step", "place", "numbers"),
    [
        ("relu, the second of two", "a.spec.yaml:8", (3,)),
        ("relu, the first of two", "a.spec.yaml:6", (1,)),
        ("cos", "a.spec.yaml:7", (2,)),
        ("cos", "a.spec.yaml:6", ()),
        (None, "model.py:7", ()),
        (None, None, ()),
    ],
)
def test_the_step_that_a_diagnosis_blames(
    step: str | None, place: str | None, numbers: tuple[int, ...], tmp_path: Path
) -> None:
    case = loaded(written(tmp_path, CASE)).variants[0].case
    culprit = Culprit("inductor", "lowerings", 1, "relu", step=step, place=place)
    assert suspects(case, finding(), culprit) == numbers


def test_the_step_on_the_line_of_an_error(tmp_path: Path) -> None:
    case = loaded(written(tmp_path, CASE)).variants[0].case
    sin = case.chain[0].span
    shown = finding(place=f"{sin.file}:{sin.line}:{sin.column}")
    assert suspects(case, shown) == (0,)
    assert suspects(case, shown, Culprit("inductor", step="cos", place="a.spec.yaml:7")) == (2, 0)


def test_a_copy_of_python_replaces_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    file, target = tmp_path / "model.py", tmp_path / "out" / "model.py"
    file.write_text("a = 1\n")
    assert _copy(str(file), target) == _copy(str(file), target) == target and target.read_text() == "a = 1\n"
    target.write_text("mine\n")
    with pytest.raises(UsageError, match="is not a copy of"):
        _copy(str(file), target)
    target.unlink()
    os.mkfifo(target)
    with pytest.raises(UsageError, match="is not a copy of"):
        _copy(str(file), target)
