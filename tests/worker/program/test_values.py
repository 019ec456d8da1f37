"""The values by which leaves that are no tensors are compared."""

from __future__ import annotations

import enum
from decimal import Decimal

import pytest
import torch

from runner.worker.program.snapshot import snapshot
from runner.worker.program.values import NOTHING, python_value

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
