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
        ("torch.embedding", (X, index(3)), 4),
        ("aten.one_hot.default", (index(3), 12), 11),
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


@pytest.mark.parametrize(
    ("operator", "positional", "place", "largest"),
    [
        ("F.embedding_bag", (index(40), X, index(6)), 2, 40),
        ("torch.embedding_bag", (X, index(40), index(6)), 2, 40),
        ("aten.embedding_bag.padding_idx", (X, index(40), index(6), False, 0, False, None, True, None), 2, 40),
        ("torch.sparse_csr_tensor", (index(6), index(4), Tensor((4,), "float32"), [5, 9]), 0, 4),
        ("torch.sparse_csr_tensor", (index(6), index(4), Tensor((4,), "float32"), [5, 9]), 1, 8),
        ("torch.sparse_csc_tensor", (index(10), index(4), Tensor((4,), "float32"), [5, 9]), 1, 4),
        ("aten._grouped_mm.default", (X, Tensor((3, 7, 2), "float32"), index(3)), 2, 5),
        ("F.grouped_mm", (X, Tensor((7, 2), "float32"), index(3)), 2, 7),
        ("F.grouped_mm", (Tensor((3, 7, 5), "float32"), Tensor((5, 11), "float32"), index(3)), 2, 11),
        ("torch.nested.nested_tensor_from_jagged", (X, index(4)), 1, 5),
        ("torch.searchsorted", (index(8), index(3)), 0, 9),
        ("torch.bucketize", (X, Tensor((9,), "float32")), 1, 2.0),
        ("aten.histogram.bins_tensor", (X, Tensor((9,), "float32")), 1, 2.0),
    ],
)
def test_offsets_and_boundaries_ascend_to_the_end_of_what_they_divide(
    operator: str, positional: tuple[Any, ...], place: int, largest: float
) -> None:
    bounds = {id(tensor): statistics for tensor, statistics in ranges_of(operator, positional, {})}
    statistics = bounds[id(positional[place])]
    assert (statistics.ascending, statistics.largest) == (True, largest)
    assert statistics.least == (0 if type(largest) is int else -largest)


def test_offsets_by_name_ascend_too() -> None:
    assert [s.ascending for s in ranges("F.embedding_bag", index(40), X, offsets=index(6))] == [False, True]


def test_the_plain_indices_of_more_values_than_a_row_has_may_repeat() -> None:
    statistics = ranges("torch.sparse_csr_tensor", index(6), index(20), Tensor((20,), "float32"), [5, 9])
    assert [(s.ascending, s.largest) for s in statistics] == [(True, 20), (False, 8)]


def test_lengths_and_labels_of_a_ctc_loss_fit_its_sizes() -> None:
    scores = Tensor((20, 3, 7), "float32")
    labels, whole, lengths = ranges("aten.ctc_loss.Tensor", scores, index(3, 6), index(3), index(3))
    assert (labels.least, labels.largest, lengths.least, lengths.largest) == (1, 6, 1, 6)
    assert whole.least == whole.largest == 20


@pytest.mark.parametrize(
    ("operator", "positional"),
    [("aten.bernoulli.default", (X,)), ("torch.quantile", (X, Tensor((2,), "float32"))),
     ("F.binary_cross_entropy", (X,)), ("torch.multinomial", (X, 2))],
)  # fmt: skip
def test_probabilities_lie_from_0_to_1(operator: str, positional: tuple[Any, ...]) -> None:
    assert [(s.least, s.largest) for s in ranges(operator, *positional)] == [(0.0, 1.0)]


@pytest.mark.parametrize(
    ("operator", "positional", "init"),
    [("aten.eq.Scalar", (X, 0), "integer"), ("aten.ne.Scalar", (X, -3.0), "integer"), ("torch.eq", (X, X), "integer"),
     ("aten.isnan.default", (X,), "special"), ("torch.isfinite", (X,), "special")],
)  # fmt: skip
def test_floats_that_are_tested_have_some_that_pass(operator: str, positional: tuple[Any, ...], init: str) -> None:
    assert {s.init for s in ranges(operator, *positional)} == {init}


@pytest.mark.parametrize(
    ("operator", "number", "least", "largest"),
    [("aten.eq.Scalar", -100, -102, -98), ("aten.eq.Scalar", 0, -2, 2), ("aten.lt.Scalar", 400, 395, 405)],
)
def test_integers_that_are_compared_lie_around_the_number(operator: str, number: int, least: int, largest: int) -> None:
    assert [(s.least, s.largest) for s in ranges(operator, index(3), number)] == [(least, largest)]
    unsigned = ranges(operator, Tensor((3,), "uint8"), number)[0]
    assert unsigned.least == max(least, 0) and unsigned.largest >= largest


def test_floats_that_are_compared_with_a_large_number_lie_around_it() -> None:
    assert [(s.least, s.largest) for s in ranges("aten.gt.Scalar", X, 20.0)] == [(19.0, 21.0)]


def test_divisors_are_no_zeros() -> None:
    assert ranges("aten.floor_divide.default", index(3), index(3))[0].least == 1
    assert ranges("aten.floor_divide.default", index(3), 2) == []


def test_a_variance_is_positive() -> None:
    assert ranges("F.batch_norm", X, Tensor((7,), "float32"), Tensor((7,), "float32"))[0].least > 0


@pytest.mark.parametrize(
    ("operator", "positional"),
    [("aten.add.Tensor", (index(3), index(3))), ("aten.gather.default", (X, 5, index(3))), ("aten.index.Tensor", (X,)),
     ("F.embedding", (X, X)), ("aten.gather.default", (X, "1", index(3))), ("F.embedding_bag", (X, X, None)),
     ("F.grouped_mm", (X, index(3), index(3))), ("torch.sparse_csr_tensor", (None, index(3), X, [5, "9"])),
     ("aten.one_hot.default", (index(3), -1)),
     ("aten.eq.Scalar", (X, 0.3)), ("aten.lt.Scalar", (X, 0.5)), ("aten.lt.Scalar", (X, -1e30)),
     ("aten.lt.Tensor", (X, X)), ("aten.isnan.default", (index(3),)), ("aten.eq.Scalar", (Tensor((2,), "bool"), 1)), ("aten.ctc_loss.Tensor", (index(3), index(3), index(3), index(3)))],
)  # fmt: skip
def test_nothing_else_is_bounded(operator: str, positional: tuple[Any, ...]) -> None:
    assert ranges(operator, *positional) == []
