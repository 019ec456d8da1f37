"""What a caller keeps from call to call."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from runner.worker.program.kept import KeptTensors
from runner.worker.program.snapshot import snapshot_leaf


def kept(tensor: torch.Tensor) -> KeptTensors:
    return KeptTensors.of([("output", tensor)], [snapshot_leaf(tensor, "output")])


@pytest.mark.parametrize(
    ("size", "stride"), [((1,), (14,)), ((1, 1), (0, 0)), ((2, 3), (1, 2)), ((), ()), ((0, 3), (3, 1)), ((3,), (0,))]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_a_write_is_seen_in_tensors_of_any_strides(size, stride, dtype):
    memory = torch.ones(40, dtype=dtype)
    tensor = torch.as_strided(memory, size, stride, 3)
    results = kept(tensor)
    assert not results.overwritten()
    memory.zero_()
    assert list(results.overwritten()) == (["output"] if tensor.numel() else [])


@pytest.mark.parametrize(
    "value_of",
    [
        lambda memory: torch.sparse_coo_tensor(torch.tensor([[0, 2, 3]]), memory, (4,)),
        lambda memory: torch.sparse_csr_tensor([0, 1, 3], [0, 1, 2], memory, (2, 3)),
        lambda memory: torch.nested.nested_tensor_from_jagged(memory, torch.tensor([0, 1, 3])),
        lambda memory: TwoTensor(torch.zeros(3), memory),
        lambda memory: memory.numpy(),
    ],
)
def test_a_write_is_seen_in_sparse_and_nested_tensors_subclasses_and_arrays(value_of):
    memory = torch.ones(3)
    results = kept(value_of(memory))
    assert results.overwritten() == {} and list(results.shared_with(results)) == []
    memory.zero_()
    assert [*results.overwritten()] == ["output"]


def test_a_nan_equals_itself():
    assert kept(torch.full((3,), torch.nan)).overwritten() == {}


def test_the_same_memory_is_seen_below_another_storage():
    memory = torch.ones(4)
    view = torch.from_numpy(memory.numpy()[1:])
    assert list(kept(view).shared_with(kept(memory))) == [("output", "output")]
    assert list(kept(memory.clone()).shared_with(kept(memory))) == []
    assert list(kept(torch.empty(0)).shared_with(kept(torch.empty(0)))) == []


def test_a_nested_tensor_has_no_strides():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert list(kept(nested).shared_with(kept(nested))) == []
