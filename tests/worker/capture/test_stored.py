"""Tensors that a recorder keeps in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from runner.cases.tensor_files import find_tensor  # noqa: E402
from runner.worker.capture.stored import DTYPES, TensorFile  # noqa: E402


@pytest.mark.parametrize("dtype", [*DTYPES])
def test_each_dtype_is_written_as_it_is_read(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "a.safetensors"
    file = TensorFile(str(path), ["input"])
    values = torch.arange(6).reshape(2, 3).to(dtype)
    assert file("x", values, "input") == ("a.safetensors", "x")
    file.write()
    stored = find_tensor(str(path), "x")
    data = bytearray(path.read_bytes()[stored.start : stored.start + stored.size])
    assert stored.dtype == str(dtype).removeprefix("torch.")
    assert torch.frombuffer(data, dtype=dtype).reshape(stored.shape).equal(values)


def test_what_is_asked_for_is_kept_once_and_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    file = TensorFile(str(path), ["parameter"])
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
    assert file("w", weight, "parameter") == file("w", weight, "parameter") == ("a.safetensors", "w")
    with torch.no_grad():
        weight.add_(1)
    assert file("w", weight, "parameter") == ("a.safetensors", "w_")
    assert file("x", torch.ones(2), "input") == file("e", torch.ones(2, 1).expand(2, 2), "parameter") == ("", "")
    file.write()
    first = find_tensor(str(path), "w")
    assert first.shape == (2, 3), "in the order in which it lies in memory"
    data = path.read_bytes()[first.start : first.start + first.size]
    assert torch.frombuffer(bytearray(data), dtype=torch.float32).tolist() == [0, 1, 2, 3, 4, 5]


def test_nothing_kept_is_no_file(tmp_path: Path) -> None:
    TensorFile(str(tmp_path / "a.safetensors"), []).write()
    assert not (tmp_path / "a.safetensors").exists()
