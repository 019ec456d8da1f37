"""The values by which leaves that are no tensors are compared, NumPy's arrays among them."""

from __future__ import annotations

import enum
from decimal import Decimal

import numpy as np
import pytest
import torch

from runner.worker.program.snapshot import NOTHING, python_value, snapshot

NAN = float("nan")


class Mode(enum.Enum):
    A = 1
    B = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Word(str):
    def replace(self, *args):
        raise RuntimeError

    __contains__ = __eq__ = replace
    __hash__ = str.__hash__


@pytest.mark.parametrize(
    ("leaf", "value"),
    [
        (Mode.B, "B"), (Access.READ, "READ"), (bytearray(b"ab"), b"ab"), ({1, 2}, frozenset({1, 2})), (Mode, "source.Mode"),
        (Word(f"in {__name__}."), "in source."), ("plain", "plain"), (Decimal("0.1"), Decimal("0.1")), (3, 3),
        ({Mode, (Mode.A, NAN)}, frozenset({"source.Mode", ("A", "nan")})), ({object()}, NOTHING), (object(), NOTHING),
        ({(torch.ones(1),)}, NOTHING), (torch.float32, torch.float32),
    ],
)  # fmt: skip
def test_a_leaf_has_a_value_that_is_the_same_in_every_run(leaf, value):
    assert python_value(leaf, __name__) == value


def test_a_later_change_is_not_seen_in_a_snapshot():
    numbers, octets = {1}, bytearray(b"a")
    leaves = snapshot([numbers, octets], "output").leaves
    numbers.add(2)
    octets[0] = 0
    assert [leaf.value for leaf in leaves] == [{1}, b"a"]


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
