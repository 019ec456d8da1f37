"""Tensors of safetensors files: what a header says, and files that lie."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from spec_files import Files

from runner.builder.source import build
from runner.cases.limits import Limits
from runner.cases.serialize import case_text
from runner.cases.tensor_files import digest_of, find_tensor
from runner.session.collect import load

FLOATS = struct.pack("<6f", *range(6))


def write(path: Path, tensors: dict[str, Any] | str, data: bytes = FLOATS, length: int | None = None) -> Path:
    """Write a file with this header, which may be wrong."""
    header = tensors.encode() if isinstance(tensors, str) else json.dumps(tensors).encode()
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)
    return path


def entry(**more: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **more}


def test_a_header_says_where_a_tensor_lies(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.safetensors",
        {"__metadata__": {"a": "b"}, "w": entry(), "i": entry(dtype="U8", shape=[4], data_offsets=[4, 8])},
    )
    tensor = find_tensor(str(file), "i")
    assert (tensor.dtype, tensor.shape, tensor.size) == ("uint8", (4,), 4)
    assert file.read_bytes()[tensor.start : tensor.start + 4] == FLOATS[4:8]
    before = digest_of(find_tensor(str(file), "w"))
    write(file, {"w": entry()}, FLOATS[::-1])
    assert digest_of(find_tensor(str(file), "w")) != before


@pytest.mark.parametrize(
    ("tensors", "data", "length", "message"),
    [
        ({"w": entry()}, FLOATS[:-1], None, "does not fit its shape, or the file"),
        ({"w": entry(shape=[2, 4])}, FLOATS, None, "does not fit its shape, or the file"),
        ({"w": entry(data_offsets=[4, 28])}, FLOATS, None, "does not fit its shape, or the file"),
        ({"w": entry(data_offsets=[24, 0])}, FLOATS, None, "does not fit its shape, or the file"),
        ({"w": entry(dtype="F4")}, FLOATS, None, "no dtype, shape and place"),
        ({"w": entry(shape=[-2, -3])}, FLOATS, None, "no dtype, shape and place"),
        ({"w": entry(shape=[1 << 70])}, FLOATS, None, "no dtype, shape and place"),
        ({"w": entry(shape=[True, 6])}, FLOATS, None, "no dtype, shape and place"),
        ({"w": entry(shape=[1] * 65)}, FLOATS, None, "no dtype, shape and place"),
        ({"w": entry(data_offsets=[0])}, FLOATS, None, "no dtype, shape and place"),
        ({"w": []}, FLOATS, None, "no dtype, shape and place"),
        ({"v": entry()}, FLOATS, None, "it has no tensor 'w'"),
        ("[1]", FLOATS, None, "its header is no mapping"),
        ("[" * 100_000, FLOATS, None, "its header is no JSON"),
        ("{", FLOATS, None, "its header is no JSON"),
        ({"w": entry()}, FLOATS, 1 << 62, "its header is longer than the file"),
        ("", b"", None, "its header is no JSON"),
    ],
)  # fmt: skip
def test_a_file_that_lies_is_refused(
    tmp_path: Path, tensors: Any, data: bytes, length: int | None, message: str
) -> None:
    file = write(tmp_path / "a.safetensors", tensors, data, length)
    with pytest.raises(ValueError, match=message):
        find_tensor(str(file), "w")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234")
    with pytest.raises(ValueError, match="no safetensors file"):
        find_tensor(str(tmp_path / "a"), "w")


INPUT = "inputs: {x: {file: {path: a.safetensors, tensor: w}}}"


def test_a_case_takes_a_tensor_of_a_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", {"w": entry()})
    files = Files(tmp_path)
    case = files.case(INPUT)
    assert case.inputs[0].stored is not None and case.inputs[0].stored.shape == (2, 3)
    text = case_text(case)
    assert "x: {file: {path: a.safetensors, tensor: w}}" in text
    (tmp_path / "b.spec.yaml").write_text(text)
    (variant,) = load([str(tmp_path / "b.spec.yaml")], everything=True).variants
    first = build(variant).text
    write(tmp_path / "a.safetensors", {"w": entry()}, FLOATS[::-1])
    (variant,) = load([str(tmp_path / "b.spec.yaml")], everything=True).variants
    assert build(variant).text != first, "a result of another file would be taken for one of this"


def test_the_source_reads_the_tensor_and_no_other(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    file = write(tmp_path / "a.safetensors", {"w": entry(), "e": entry(shape=[0, 3], data_offsets=[0, 0])})
    keys = INPUT.replace("}}}", "}, requires_grad: true}, e: {file: {path: a.safetensors, tensor: e}}}")
    Files(tmp_path).write("a.spec.yaml", Files(tmp_path).case_text(keys + "\nchain: [{torch.cat: [[$x, $e]]}]"))
    loaded = load([str(tmp_path / "a.spec.yaml")], everything=True)
    source = build(loaded.variants[0])
    names: dict[str, Any] = {}
    exec(source.text, names)
    x, empty = names["make_inputs"]()
    assert torch.equal(x, torch.arange(6.0).reshape(2, 3)) and x.requires_grad and x.is_leaf
    assert empty.shape == (0, 3) and names["make_model"]()(x, empty).shape == (2, 3)
    write(file, {"w": entry(), "e": entry(shape=[0, 3], data_offsets=[0, 0])}, FLOATS[::-1])
    with pytest.raises(ValueError, match="has changed since this was written"):
        names["make_inputs"]()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("inputs: {x: {file: {path: b.safetensors, tensor: w}}}", "3:31: no file 'b.safetensors' beside this one"),
        ("inputs: {x: {file: {path: ../a.safetensors, tensor: w}}}", "3:31: '../a.safetensors' lies outside this file's folder"),
        ("inputs: {x: {file: {path: a.safetensors, tensor: v}}}", "3:24: 'a.safetensors' gives no tensor: it has no tensor 'v'"),
        ("inputs: {x: {file: {path: a.spec.yaml, tensor: v}}}", "3:24: 'a.spec.yaml' gives no tensor: it is no safetensors file"),
        ("inputs: {x: {file: {path: a.safetensors, tensor: w}, dtype: int8}}", "3:65: a tensor of a file has its own dtype"),
        ("inputs: {x: {file: {path: a.safetensors, tensor: w}, shape: [2]}}", "3:65: a tensor of a file has its own shape"),
        ("inputs: {x: {file: {path: a.safetensors}}}", "3:24: "),
        ("inputs: {x: {file: a.safetensors}}", "3:24: "),
    ],
)  # fmt: skip
def test_problems_of_a_file_are_at_their_place(tmp_path: Path, keys: str, message: str) -> None:
    (tmp_path / "own").mkdir()
    for folder in (tmp_path, tmp_path / "own"):
        write(folder / "a.safetensors", {"w": entry()})
    problems = Files(tmp_path / "own").errors(keys)
    assert [problem[: len(message)] for problem in problems] == [message]


def test_a_tensor_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", {"w": entry()})
    Files(tmp_path).case(INPUT)
    loaded = load([str(tmp_path / "a.spec.yaml")], everything=True, limits=Limits(tensor_bytes=16))
    assert "takes 24 bytes, more than 16 bytes" in loaded.diagnostics[0].message
