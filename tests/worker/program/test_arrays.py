"""NumPy's arrays and scalars."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from runner.worker.program.snapshot import snapshot

NUMBERS = (
    np.arange(4, dtype=">f4"), np.arange(4, dtype=np.uint16), np.float32(3), np.ones(3)[::-1], np.array(True),
    np.matrix([[1.0]]), np.ones(2, dtype=np.complex64),
)  # fmt: skip


@pytest.mark.parametrize("array", NUMBERS, ids=repr)
def test_numbers_are_a_tensor(array):
    (leaf,) = snapshot(array, "output").leaves
    assert leaf.kind == "tensor" and leaf.value.tolist() == array.tolist()
    assert leaf.type.startswith("numpy.") and tuple(leaf.metadata.shape) == array.shape


OTHERS = (
    np.array(["a", "b"]), np.array([b"\xff"]), np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"), np.longdouble("0.1"),
    np.timedelta64(3, "s"), np.array([b"ab"], dtype="V2"),
)  # fmt: skip


@pytest.mark.parametrize("array", OTHERS, ids=repr)
def test_other_values_are_compared_as_text(array):
    first, second = (snapshot(value, "output").leaves[0] for value in (array, array.copy()))
    assert first.kind == "python" and first.value == second.value and first.problem is None


def test_what_holds_values_of_several_kinds_is_opened():
    records = np.zeros(3, dtype=[("a", ">f4"), ("b", "U2")])
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    objects = np.array([None, torch.ones(1)], dtype=object)
    paths = [leaf.path for leaf in snapshot([records, masked, objects], "o").leaves]
    assert paths == ["o[0]['a']", "o[0]['b']", "o[1].data", "o[1].mask", "o[2].flat[0]", "o[2].flat[1]"]
