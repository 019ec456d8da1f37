"""Ranges of values by what an operator does with a tensor."""

from __future__ import annotations

from typing import Any

import pytest

from runner.contract.graphs import Statistics, Tensor
from runner.importers.ranges import ranges_of

X = Tensor((5, 7), "float32")


def index(*shape: int) -> Tensor:
    return Tensor(shape, "int64")


def ranges(operator: str, *positional: Any, **keywords: Any) -> list[Statistics]:
    return [statistics for _, statistics in ranges_of(operator, positional, keywords)]


@pytest.mark.parametrize(
    ("operator", "positional", "largest"),
    [
        ("aten.embedding.default", (X, index(3)), 4),
        ("F.embedding", (index(3), X), 4),
        ("aten.gather.default", (X, 1, index(5, 2)), 6),
        ("torch.gather", (X, -2, index(5, 2)), 4),
        ("Tensor.index_select", (X, 1, index(9)), 6),
        ("aten.scatter_add_.default", (X, 0, index(9, 7), X), 4),
        ("aten.take.default", (X, index(3)), 34),
        ("aten.nll_loss_forward.default", (X, index(5), None, 1, -100), 6),
        ("F.cross_entropy", (X, index(5)), 6),
        ("aten.index.Tensor", (X, [None, index(9)]), 6),
        ("operator.getitem", (X, (index(9), slice(None))), 4),
        ("operator.getitem", (X, index(9)), 4),
    ],
)
def test_indices_lie_below_the_size_that_they_index(operator: str, positional: tuple[Any, ...], largest: int) -> None:
    (statistics,) = ranges(operator, *positional)
    assert (statistics.least, statistics.largest, statistics.distinct) == (0, largest, False)


def test_an_index_by_name_is_one_too() -> None:
    assert ranges("torch.gather", X, dim=1, index=index(5, 2))[0].largest == 6
    assert ranges("F.embedding", input=index(3), weight=X)[0].largest == 4


def test_a_mask_takes_as_many_dimensions_as_it_has() -> None:
    cube = Tensor((2, 3, 4), "float32")
    assert [s.largest for s in ranges("aten.index.Tensor", cube, [Tensor((2, 3), "bool"), index(2)])] == [3]


@pytest.mark.parametrize(
    ("operator", "positional"),
    [("aten.index_copy_.default", (X, 0, index(3), X)), ("aten.index_put.default", (X, [index(3)], X))],
)
def test_indices_of_writes_are_all_different(operator: str, positional: tuple[Any, ...]) -> None:
    (statistics,) = ranges(operator, *positional)
    assert statistics.distinct and (statistics.least, statistics.largest) == (0, 2)


def test_more_indices_than_places_may_repeat() -> None:
    assert not ranges("aten.index_copy_.default", X, 0, index(9), X)[0].distinct


def test_divisors_are_no_zeros() -> None:
    assert ranges("aten.floor_divide.default", index(3), index(3))[0].least == 1
    assert ranges("aten.floor_divide.default", index(3), 2) == []


def test_a_variance_is_positive() -> None:
    assert ranges("F.batch_norm", X, Tensor((7,), "float32"), Tensor((7,), "float32"))[0].least > 0


@pytest.mark.parametrize(
    ("operator", "positional"),
    [("aten.add.Tensor", (index(3), index(3))), ("aten.gather.default", (X, 5, index(3))), ("aten.index.Tensor", (X,)),
     ("F.embedding", (X, X)), ("aten.gather.default", (X, "1", index(3)))],
)  # fmt: skip
def test_nothing_else_is_bounded(operator: str, positional: tuple[Any, ...]) -> None:
    assert ranges(operator, *positional) == []
