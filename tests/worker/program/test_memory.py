"""Memory of tensors and objects: what is shared, kept from call to call, and shown by a write."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from runner.cases.model import DTYPES
from runner.worker.program import memory
from runner.worker.program.memory import (
    KeptTensors,
    element_bytes,
    find_common,
    find_relations,
    have_common_elements,
    paths_written,
    reach,
)
from runner.worker.program.snapshot import snapshot_leaf
from runner.worker.tensors import as_integers

BASE = torch.zeros(4, 6)


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (BASE, BASE[1, 2], True),
        (BASE[0], BASE[1], False),
        (BASE[:, 0], BASE[:, 1], False),
        (BASE[:, ::2], BASE[:, 1::2], False),
        (BASE[:, ::2], BASE.t()[2:4], True),
        (BASE[:, 0].expand(5, 4), BASE[3], True),
        (BASE[:0], BASE, False),
        (torch.from_numpy(BASE.numpy()[1:]), BASE[1, 2], True),
        (BASE.view(torch.uint8)[0, 3:4], BASE[0, 0], True),
        (BASE.view(torch.uint8)[0, 4:5], BASE[0, 0], False),
    ],
)
def test_common_elements(first, second, common):
    assert have_common_elements(first, second) == have_common_elements(second, first) == common


def test_bytes_of_elements():
    storage = torch.zeros(BASE.numel() * 4, dtype=torch.bool)
    column = BASE[1:, 2]
    element_bytes(storage, BASE.data_ptr(), column).fill_(True)
    assert storage.nonzero().flatten().tolist() == [4 * (6 * row + 2) + byte for row in (1, 2, 3) for byte in range(4)]
    assert reach(column) == range(BASE.data_ptr() + 32, BASE.data_ptr() + 84)


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


THERE = [name for name in DTYPES if hasattr(torch, name)]


def tensor(dtype):
    """Three elements: 0, 1 and 2, as far as the dtype has them."""
    return torch.tensor([0.0, 1.0, 2.0]).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", THERE)
def test_a_write_shows_what_shares_memory_and_is_undone(dtype):
    shared, separate = tensor(dtype), tensor(dtype)
    integers = as_integers(shared.clone())
    assert paths_written([shared.view(3, 1), tensor(dtype)], [("x", shared), ("y", separate)]) == [{"x"}, frozenset()]
    assert torch.equal(as_integers(shared), integers)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float8_e5m2", "complex64"])
def test_a_nan_is_no_change(dtype):
    nans = torch.full((3,), float("nan")).to(getattr(torch, dtype))
    assert paths_written([tensor(dtype)], [("x", nans)]) == [frozenset()]
    assert paths_written([nans], [("x", nans)]) == [{"x"}]


def test_lazy_conjugates_and_negatives_are_taken():
    values = torch.tensor([1 + 2j, 3 + 4j])
    assert paths_written([values], [("conj", values.conj()), ("neg", values.conj().imag)]) == [{"conj", "neg"}]


def test_relations_are_those_of_all_pairs(monkeypatch):
    """Objects that lie far apart are not compared."""
    whole = [
        torch.zeros(64),
        torch.zeros(8, 8),
        np.zeros(64),
        torch.empty(4, 4, device="meta"),
        torch.zeros(4).to_sparse(),
    ]
    parts = [*whole, whole[0].numpy(), torch.from_numpy(whole[2]), whole[3].t(), None, 3, torch.zeros(0)]
    for start in range(0, 56, 8):
        parts += [whole[0][start : start + 12], whole[1][start // 8, ::2], whole[2][start : start + 12]]
    draw = random.Random(0)
    for _ in range(10):
        draw.shuffle(parts)
        values = [(f"value {n}", part) for n, part in enumerate(parts[:20])]
        sources = [(f"source {n}", part) for n, part in enumerate(parts[15:])]
        near = find_common(values, sources), find_relations(values, sources)
        with monkeypatch.context() as patch:
            patch.setattr(memory, "_groups", lambda memories, addresses: [0] * len(memories))
            assert near == (find_common(values, sources), find_relations(values, sources))
        assert all(any(relations.values()) for relations in near)


def test_a_thousand_objects_are_not_all_compared(monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "_common", lambda one, another: asked.append(one) or "")
    find_common([(str(n), torch.zeros(2)) for n in range(1000)], [])
    assert not asked
