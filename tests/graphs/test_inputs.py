"""How each tensor of a graph is made again."""

from __future__ import annotations

from typing import Any

import pytest

from runner.contract.graphs import GraphInput, Statistics, Tensor
from runner.graphs.inputs import init_of, made_as, main_dtype, plain_input, shared_inputs

WIDE = Statistics(-2.0, 3.0, 0.123456, 0.98765)


def test_strides_become_a_layout() -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(240.0).reshape(2, 3, 5, 8)
    for tensor in (
        base, base.transpose(-1, -2), base.permute(0, 2, 3, 1), base.to(memory_format=torch.channels_last), base[:, 1:, ::2],
        base[0, :, None].expand(3, 4, 5, 8), base[:, :, :1], base[:0], base[1, 2, 3, 4], base.flatten()[3:].as_strided((2, 2), (1, 1)),
    ):  # fmt: skip
        shape, layout = made_as(Tensor(tuple(tensor.shape), "float32", tuple(tensor.stride()), tensor.storage_offset()))
        made = torch.empty(shape)
        for step in layout:
            ((name, (_, *arguments)),) = step.items()
            made = getattr(made, name.removeprefix("Tensor."))(*arguments)
        assert made.shape == tensor.shape
        significant = [place for place, size in enumerate(tensor.shape) if size > 1 and tensor.numel()]
        assert [made.stride(place) for place in significant] == [tensor.stride(place) for place in significant]


@pytest.mark.parametrize(
    ("dtype", "statistics", "init"),
    [
        ("float32", WIDE, {"normal": [0.1235, 0.9877]}),
        ("float32", Statistics(0.25, 3.0, 1.0, 1.0), {"uniform": [0.25, 3.0]}),
        ("float32", Statistics(-3.0, -0.25, -1.0, 1.0), {"uniform": [-3.0, -0.25]}),
        ("float32", Statistics(1.0, 1.0, 1.0, 0.0), "ones"),
        ("bfloat16", Statistics(0.0, 0.0, 0.0, 0.0, 1.0), "zeros"),
        ("float32", Statistics(0.5, 0.5, 0.5, 0.0), {"full": 0.5}),
        ("float32", Statistics(-3.4e38, 0.0, -1e38, 1e38), "zeros"),
        ("int64", Statistics(2, 7, 4.0, 1.0), {"randint": [2, 8]}),
        ("int64", Statistics(0, 5, 2.5, 1.7, 0.1, True, True), "randperm"),
        ("int64", Statistics(1, 6, 2.5, 1.7, 0.0, True, True), {"randint": [1, 7]}),
        ("int64", Statistics(0, 5, 2.5, 1.7, 0.1, True, True, True), {"linspace": [0, 5]}),
        ("int32", Statistics(0, 40, 20, 10, ascending=True), {"linspace": [0, 40]}),
        ("uint16", Statistics(0, 40, 20, 10, ascending=True), {"randint": [0, 41]}),
        ("float32", Statistics(-2.0, 2.0, 0.0, 1.0, ascending=True), {"linspace": [-2.0, 2.0]}),
        ("float32", Statistics(-3.4e38, 0.0, -1e38, 1e38, ascending=True), "zeros"),
        ("bool", Statistics(0, 1, 0.5, 0.5, 0.5), None),
        ("bool", Statistics(1, 1, 1.0, 0.0), "ones"),
        ("complex64", WIDE, None),
        ("float32", None, None),
    ],
)
def test_statistics_become_an_init(dtype: str, statistics: Statistics | None, init: Any) -> None:
    assert init_of(Tensor((2, 3), dtype), statistics) == init


@pytest.mark.parametrize(
    ("item", "data"),
    [
        (GraphInput("x", Tensor((2, 3), "float32")), [2, 3]),
        (GraphInput("x", Tensor((2, 3), "bfloat16")), {"shape": [2, 3], "dtype": "bfloat16"}),
        (GraphInput("x", python=2.5), {"python": 2.5}),
        (GraphInput("x", Tensor((2,), "int64"), values=[3, 1], statistics=Statistics(1, 3, 2, 1)), {"values": [3, 1], "dtype": "int64"}),
        (GraphInput("x", Tensor((2,), "float32"), values=[0.0, 0.0], statistics=Statistics(0, 0, 0, 0)), {"shape": [2], "init": "zeros"}),
        (GraphInput("x", Tensor((2, 3), "int64", (1, 2), 7), values=[[1, 2, 3], [4, 5, 6]], statistics=Statistics(1, 6, 3, 1)),
         {"values": [[1, 4], [2, 5], [3, 6]], "dtype": "int64", "layout": [{"Tensor.transpose": ["$_", -2, -1]}]}),
        (GraphInput("x", Tensor((2, 2), "bool", (0, 1)), values=[[True, False], [True, False]], statistics=Statistics(0, 1, 0.5, 1)),
         {"values": [[True, False], [True, False]], "dtype": "bool"}),
        (GraphInput("x", Tensor((2, 3), "float32", (1, 2), 7, requires_grad=True), file="a.safetensors", key="x"),
         {"file": {"path": "a.safetensors", "tensor": "x"}, "requires_grad": "after_layout",
          "layout": [{"Tensor.transpose": ["$_", -2, -1]}]}),
        (GraphInput("x", Tensor((2,), "float32", requires_grad=True)), {"shape": [2], "requires_grad": True}),
        (GraphInput("x", Tensor((2,), "float32", requires_grad=True, leaf=False)),
         {"shape": [2], "requires_grad": True, "layout": ["Tensor.clone"]}),
        (GraphInput("x", Tensor((2, 3), "float32", (1, 2), requires_grad=True)),
         {"shape": [3, 2], "requires_grad": "after_layout", "layout": [{"Tensor.transpose": ["$_", -2, -1]}]}),
    ],
)  # fmt: skip
def test_an_input_says_what_is_not_usual_alone(item: GraphInput, data: Any) -> None:
    assert plain_input(item, "float32") == data


def test_what_shares_memory_is_a_view_of_it() -> None:
    items = [
        GraphInput("a", Tensor((4,), "float32", offset=64)),
        GraphInput("b", Tensor((2, 2), "float32", (4, 1), 66)),
    ]
    inputs = shared_inputs(items, "float32", {"a", "b", "storage_0"})
    assert inputs["storage_1"] == {"shape": [8], "hidden": True}
    assert inputs["a"] == {"view_of": "storage_1", "layout": [{"Tensor.as_strided": ["$_", [4], [1], 0]}]}
    assert inputs["b"] == {"view_of": "storage_1", "layout": [{"Tensor.as_strided": ["$_", [2, 2], [4, 1], 2]}]}


def test_the_dtype_of_most_tensors_is_that_of_the_case() -> None:
    assert main_dtype([Tensor((1,), dtype) for dtype in ("int64", "float32", "bfloat16", "bfloat16")]) == "bfloat16"
    assert main_dtype([Tensor((1,), "int64")]) == "float32"
