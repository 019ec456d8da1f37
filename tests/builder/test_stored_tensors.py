"""A script finds the tensors of files beside itself, and from the working folder."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from runner.builder.source import build
from runner.builder.stored_tensors import movable, tensor_files
from runner.cases.model import Variant
from runner.session.collect import load

torch = pytest.importorskip("torch")

SPEC = """\
cases:
  - name: stored
    inputs:
      x: {file: {path: "it's.safetensors", tensor: w}}
      y: {list: [{file: {path: "it's.safetensors", tensor: w}}, [2, 3]]}
    chain: [{torch.add: [$x, "$y[0]"]}, {torch.add: [$_, "$y[1]"]}]
"""


@pytest.fixture
def variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Variant:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    data = struct.pack("<6f", *range(6))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "it's.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    (tmp_path / "kept" / "a.spec.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return load(["kept/a.spec.yaml"]).variants[0]


def inputs(text: str, script: Path) -> list[float]:
    names = {"__file__": str(script)}
    exec(text, names)
    return names["make_inputs"]()[0].flatten().tolist()  # type: ignore[operator]


def test_a_script_names_a_file_from_the_working_folder(variant: Variant, tmp_path: Path) -> None:
    assert tensor_files(variant.case) == [tmp_path / "kept" / "it's.safetensors"]
    source = build(variant).text
    text = movable(source, variant.case)
    assert str(tmp_path) in source and str(tmp_path) not in text
    assert text.count("kept/it's.safetensors") == 2
    assert inputs(text, tmp_path / "elsewhere" / "repro.py") == [0, 1, 2, 3, 4, 5]


def test_a_file_beside_the_script_comes_first_unless_it_is_another_one(
    variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = movable(build(variant).text, variant.case)
    script = tmp_path / "moved" / "repro.py"
    script.parent.mkdir()
    (script.parent / "it's.safetensors").write_bytes(b"\0" * 200)
    assert inputs(text, script) == [0, 1, 2, 3, 4, 5]
    shutil.copy(tmp_path / "kept" / "it's.safetensors", script.parent)
    monkeypatch.chdir(script.parent)
    assert inputs(text, script) == [0, 1, 2, 3, 4, 5]
    (script.parent / "it's.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"kept/it's\.safetensors is neither beside this script nor there"):
        inputs(text, script)


def test_a_source_without_files_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.spec.yaml").write_text("cases: [{name: a, inputs: {x: [2]}, chain: [torch.neg]}]")
    variant = load([str(tmp_path / "a.spec.yaml")]).variants[0]
    text = build(variant).text
    assert tensor_files(variant.case) == [] and movable(text, variant.case) == text
