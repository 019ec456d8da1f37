"""Smaller sizes: equalities, products, sums and orders of strides are kept; arguments follow."""

from __future__ import annotations

from typing import Any

import pytest

from runner.contract.graphs import Call, Graph, GraphInput, Operand, Statistics, Tensor
from runner.graphs.shrink import candidates


def graph(*tensors: Tensor, arguments: tuple[Any, ...] = (), **options: Any) -> Graph:
    inputs = tuple(GraphInput(f"x{n}", tensor, **options) for n, tensor in enumerate(tensors))
    operands = tuple(Operand(item.name, tensor) for item, tensor in zip(inputs, tensors, strict=True))
    call = Call("y", "torch.f", (*(f"$x{n}" for n in range(len(tensors))), *arguments), operands=operands)
    return Graph("g", "a.txt:1", inputs, (call,), "$y")


def smallest(*tensors: Tensor, **options: Any) -> Graph:
    return next(candidates(graph(*tensors, **options)))


def shapes(result: Graph) -> list[tuple[int, ...]]:
    return [item.tensor.shape for item in result.inputs if item.tensor is not None]


def floats(*shape: int, stride: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(shape, "float32", stride)


def test_equal_sizes_stay_equal_and_small_ones_as_they_are() -> None:
    (a, b), (c, d) = shapes(smallest(floats(300, 5), floats(300, 700)))
    assert a == c < 300 and b == 5 and d < 700 and d != c


def test_products_stay_products_among_arguments_too() -> None:
    result = smallest(floats(64, 128, 768), arguments=([8192, 768], [64, 128, 12, 64]))
    ((batch, length, width),) = shapes(result)
    flat, split = result.calls[0].positional[1:]
    assert flat == [batch * length, width]
    assert split == [batch, length, 12, batch] and width == 12 * batch


@pytest.mark.parametrize(
    ("sizes", "holds"),
    [
        ((768, 3072), lambda a, b: b == 4 * a),
        ((196, 197), lambda a, b: b == a + 1),
        ((149, 299), lambda a, b: b == 2 * a + 1),
        ((56, 112), lambda a, b: b == 2 * a),
    ],
)
def test_multiples_and_neighbours_stay_so(sizes: tuple[int, int], holds: Any) -> None:
    ((a, b),) = shapes(smallest(floats(*sizes)))
    assert a < sizes[0] and holds(a, b)


def test_parts_add_up() -> None:
    result = smallest(floats(2, 6448), arguments=([3072, 3328, 48],))
    assert sum(result.calls[0].positional[1]) == shapes(result)[0][1] < 6448


def test_a_size_stays_a_multiple_of_a_small_number_that_divides_it() -> None:
    result = smallest(floats(2, 720, 7), floats(12))
    assert shapes(result)[0][1] % 12 == 0 and shapes(result)[0][1] < 720


@pytest.mark.parametrize(
    ("shape", "stride", "new"),
    [
        ((300, 700), (1, 300), lambda s, t: t == (1, s[0])),
        ((300, 700), (0, 1), lambda s, t: t == (0, 1)),
        ((40, 50, 60), (60, 2400, 1), lambda s, t: t == (s[2], s[0] * s[2], 1)),
        ((40, 50), (100, 1), lambda s, t: t[1] == 1 and t[0] == 2 * s[1]),
        ((40, 50), (50 * 9, 1), lambda s, t: t[1] == 1 and t[0] > s[1]),
        ((40, 50), (1, 1), lambda s, t: t == (1, 1)),
        ((40, 50), (120, 2), lambda s, t: t[1] == 2 and t[0] >= 2 * s[1]),
    ],
)
def test_strides_keep_their_order_and_gaps(shape: tuple[int, ...], stride: tuple[int, ...], new: Any) -> None:
    (item,) = smallest(floats(*shape, stride=stride)).inputs
    assert item.tensor is not None and item.tensor.stride is not None
    assert new(item.tensor.shape, item.tensor.stride)


def test_indices_stay_below_what_they_index() -> None:
    index = Tensor((3,), "int64")
    small = next(candidates(Graph(
        "g", "", (GraphInput("t", floats(30522, 4)), GraphInput("i", index, statistics=Statistics(0, 30521, 1, 1))),
        (Call("y", "aten.embedding", ("$t", "$i")),), "$y",
    )))  # fmt: skip
    statistics = small.inputs[1].statistics
    assert statistics is not None and statistics.largest == shapes(small)[0][0] - 1


def test_offsets_end_where_what_they_divide_ends() -> None:
    offsets, index = Tensor((5,), "int64"), Tensor((54824,), "int64")
    small = next(candidates(Graph(
        "g", "", (GraphInput("t", floats(30, 4)), GraphInput("i", index),
                  GraphInput("o", offsets, statistics=Statistics(0, 54824, 1, 1, ascending=True))),
        (Call("y", "F.embedding_bag", ("$i", "$t", "$o")),), "$y",
    )))  # fmt: skip
    statistics = small.inputs[2].statistics
    assert statistics is not None and (statistics.largest, statistics.ascending) == (shapes(small)[1][0], True)
    assert statistics.largest < 54824


def test_texts_of_indices_and_sizes_follow() -> None:
    result = smallest(floats(300, 5), arguments=("[:300, 2]", "${x0.shape[0] - 300}", {"$text": "[300]"}))
    size = shapes(result)[0][0]
    assert result.calls[0].positional[1:] == (f"[:{size}, 2]", f"${{x0.shape[0] - {size}}}", {"$text": "[300]"})


def test_milder_candidates_keep_images_then_all_but_the_first_dimension() -> None:
    first, second, third = map(shapes, candidates(graph(floats(128, 256, 35, 35))))
    assert first[0][3] < 35
    assert second[0][2:] == (35, 35) and second[0][1] < 256
    assert third[0][1:] == (256, 35, 35) and third[0][0] < 128


def test_the_case_says_what_became_smaller() -> None:
    result = smallest(floats(300))
    assert result.origin == f"a.txt:1 (sizes made smaller: 300 to {shapes(result)[0][0]})"


@pytest.mark.parametrize(
    "large",
    [
        graph(floats(16, 3)),
        graph(floats(300), values=[1.0] * 300),
        graph(Tensor((300,), "float32", storage=1), Tensor((300,), "float32", storage=1)),
        graph(floats(1 << 40)),
        Graph("g", ""),
    ],
)
def test_what_cannot_be_smaller_has_no_candidate(large: Graph) -> None:
    assert list(candidates(large)) == []
