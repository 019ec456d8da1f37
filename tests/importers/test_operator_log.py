"""Logs of operators: each line is a call, with its tensors as inputs; what cannot be read has its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.contract.graphs import Call, Capture, Statistics, Tensor
from runner.graphs.cases import fault_of
from runner.importers.foreign_file import ForeignFile
from runner.importers.operator_log import is_log, read_log

LOG = """\
Operator: aten.add.Tensor
cnt: 3, ((T([2, 3], f16), T([2, 3], f16, stride=(1, 2))), {})
cnt: 1, ((T([2, 3], f16), 1.5), {'alpha': 2})
Operator: aten.cat.default
cnt: 1, (([T([2], f32), T([3], f32)],), {})
"""


def read(text: str) -> Capture:
    return read_log(ForeignFile("a.txt", text.encode()))


def calls(text: str) -> list[Call]:
    return [call for graph in read(text).graphs for call in graph.calls]


def only(text: str) -> Call:
    (call,) = calls(text)
    return call


def test_each_line_is_a_call_with_its_tensors() -> None:
    first, second, third = calls(LOG)
    assert (first.operator, first.positional, first.count) == ("aten.add.Tensor", ("$x0", "$x1"), 3)
    assert [operand.tensor for operand in first.operands] == [
        Tensor((2, 3), "float16"),
        Tensor((2, 3), "float16", (1, 2)),
    ]
    assert (second.positional, second.keywords) == (("$x", 1.5), {"alpha": 2})
    assert third.positional == (["$x0", "$x1"],)
    assert first.source.endswith("a.txt:2") and third.source.endswith("a.txt:5")


def test_a_log_is_recognised_by_its_first_line() -> None:
    assert is_log(f"\n{LOG}") and not is_log("import torch\n# Operator: aten.add.Tensor")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True), ("None", None), ("inf", float("inf")), ("-2", -2), ("f16", "torch.float16"),
        ("torch.strided", "torch.strided"), ("[1, (2, 3)]", [1, [2, 3]]), ("'mean'", "mean"), ("'nan'", {"$text": "nan"}),
    ],
)  # fmt: skip
def test_arguments_are_plain_data(text: str, value: object) -> None:
    assert only(f"Operator: aten.add.Tensor\ncnt: 1, ((T([2], f32), {text}), {{}})").positional[1] == value


@pytest.mark.parametrize(
    ("device", "value"), [("'cuda'", "$device"), ('"torch.device(\'cpu\')"', "cpu"), ("device(type='cuda', index=0)", "$device")]
)  # fmt: skip
def test_a_device_of_the_log_is_that_of_the_case(device: str, value: str) -> None:
    call = only(
        f"Operator: aten._to_copy.default\n((T([2], f32),), {{'dtype': f16, 'device': {device}, 'pin_memory': False}})"
    )
    assert call.keywords == {"dtype": "torch.float16", "device": value}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cnt: 1, ((T([2], f32),), {}", "this is no Python"),
        ("cnt: 1, ((T([2, -1], f32),), {})", "a tensor is T("),
        ("cnt: 1, ((T([2], f32, stride=(1, 2)),), {})", "one number for each size"),
        ("cnt: 1, ((T([2], zzz),), {})", "zzz is no known name"),
        ("cnt: 1, ((open('x'),), {})", "open is called"),
        ("cnt: 1, ((T(*[2]),), {})", "spread"),
        ("cnt: 1, ((__import__('os').system('x'),), {})", "is called, which is no value"),
        ("cnt: 1, ((1 + 2,), {})", "BinOp is no value"),
        ("cnt: 1, ((" + "-" * 500 + "1,), {})", "a sign stands before"),
        ("cnt: 1, (" + "(" * 500 + ")" * 500 + ", {})", "deep"),
        ("cnt: 1, ((ST([2], f32, torch.sparse_coo, True, nnz=1),), {})", "sparse"),
        ("cnt: 1, (T([2], f32), {})", "inputs are a tuple"),
        ("something", "neither an operator nor the inputs"),
        ("cnt: 1, ((" + "9" * 5000 + ",), {})", "this is no Python"),
    ],
)
def test_a_line_that_cannot_be_read_is_noted_with_its_place(line: str, words: str) -> None:
    capture = read(f"{LOG}Operator: aten.neg.default\n{line}\n")
    (note,) = capture.notes
    assert "a.txt:7: " in note and words in note
    assert sum(len(graph.calls) for graph in capture.graphs) == 3


def test_an_integer_of_more_than_64_bits_is_the_fault_of_its_call() -> None:
    assert "64 bits" in only(f"Operator: aten.add.Tensor\ncnt: 1, ((T([2], i64), {1 << 64}), {{}})").fault


def test_an_overload_of_old_torch_has_its_new_name() -> None:
    assert (
        only("Operator: aten.sum.SymInt\ncnt: 1, ((T([2, 3], f16), [0], True), {})").operator == "aten.sum.dim_IntList"
    )


def test_a_derivative_is_its_function_and_differentiated() -> None:
    text = "Operator: aten.native_layer_norm_backward.default\ncnt: 2, ((T([4, 8], f16), T([4, 8], f16), [8], T([4, 1], f32), T([4, 1], f32), T([8], f16), T([8], f16), [True, True, True]), {})"
    (graph,) = read(text).graphs
    (call,) = graph.calls
    assert graph.grad and call.operator == "F.layer_norm" and call.positional == ("$x0", [8], "$x1", "$x2")
    assert all(operand.tensor.requires_grad for operand in call.operands)
    assert fault_of(call) == ""


def test_indices_lie_below_what_they_index() -> None:
    call = only("Operator: aten.embedding.default\ncnt: 1, ((T([10, 4], f16), T([2, 3], i64)), {})")
    table, index = call.operands
    assert table.statistics is None
    assert index.statistics == Statistics(0, 9, 4.5, 2.5)


def test_an_empty_log_has_no_calls(tmp_path: Path) -> None:
    assert read("Operator: aten.add.Tensor\n").graphs == ()
