"""The files of generated cases, and the models in Python that go with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.generate.generator import LONGEST, text_of, with_content, with_python_beside, write_specs
from runner.session.collect import load

MODEL = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"


def case_of(file: Path, name: str = "own") -> dict[str, object]:
    return {"name": name, "inputs": {"x": [4]}, "module": with_content({"file": file.name, "name": "Model"}, file)}


def test_a_model_in_python_lies_beside_the_cases(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("one", "two", "out")]
    for place in places:
        place.mkdir()
    for place, text in zip(places, (MODEL, MODEL.replace("+ 1", "+ 2")), strict=False):
        (place / "model.py").write_text(text)
    cases = [case_of(place / "model.py", place.name) for place in places[:2]]
    [spec] = write_specs(places[2], "mutant", cases)
    loaded = load([str(places[2] / spec)], everything=True, allow_python=True)
    assert loaded.diagnostics == ()
    texts = [Path(v.case.module.file).read_text() for v in loaded.variants if v.case.module is not None]
    assert texts == [MODEL, MODEL.replace("+ 1", "+ 2")], "two models that are called alike"


def test_a_copy_of_a_copy_has_the_same_name(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    [first] = with_python_beside([case_of(file)], tmp_path)
    name = first["module"]["file"]
    [second] = with_python_beside([case_of(tmp_path / name)], tmp_path)
    assert second == first
    assert name.startswith("model_") and name.endswith(".py")
    assert text_of([first])


def test_a_model_that_is_edited_or_gone_is_still_the_one_that_was_read(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    case = case_of(file)
    file.unlink()
    [written] = with_python_beside([case], tmp_path)
    assert (tmp_path / written["module"]["file"]).read_text() == MODEL
    with pytest.raises(FileNotFoundError):
        case_of(file)


def test_the_copy_of_a_file_with_a_long_name_has_a_shorter_one(tmp_path: Path) -> None:
    file = tmp_path / ("m" * 250 + ".py")
    file.write_text(MODEL)
    [written] = with_python_beside([case_of(file)], tmp_path)
    assert written["module"]["file"].startswith("m" * LONGEST + "_")
