"""``runner.worker.program.writes``: shared memory shows by a write, in every dtype, and nothing stays written."""

from __future__ import annotations

import pytest
import torch

from runner.cases.model import DTYPES
from runner.worker.program.writes import paths_written
from runner.worker.tensors.elements import as_integers

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
