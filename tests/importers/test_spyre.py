"""YAML of torch-spyre: calls with shapes, strides, offsets, dtypes and how values are made."""

from __future__ import annotations

from typing import Any

import pytest

from runner.contract.graphs import Call, Capture, Tensor
from runner.diagnostics import InputError
from runner.graphs.cases import fault_of
from runner.importers.foreign_file import ForeignFile
from runner.importers.spyre import is_spyre, read_spyre

HEAD = "test_suite_config:\n  files:\n    - tests:\n        - edits:\n            ops:\n              include:\n"
X = "{tensor: {shape: [2, 3], stride: [1, 2], storage_offset: 1, dtype: torch.float16, device: cuda, init: rand}}"


def read(*calls: str) -> Capture:
    text = HEAD + "".join(f"                - {call}\n" for call in calls)
    assert is_spyre(text)
    return read_spyre(ForeignFile("a.yaml", text.encode()))


def only(name: str, args: str, more: str = "") -> Call:
    capture = read(
        f"{{name: {name}, sample_inputs_func: {{args: [{args}]{more}}}, description: 'https://h/b/model.py#L84 in f, code: y = g(x)'}}"
    )
    assert capture.notes == ()
    (graph,) = capture.graphs
    (call,) = graph.calls
    return call


def test_a_tensor_has_its_metadata_and_its_values_a_range() -> None:
    call = only("torch.neg", X)
    (operand,) = call.operands
    assert operand.tensor == Tensor((2, 3), "float16", (1, 2), 1)
    assert operand.statistics is not None and (operand.statistics.least, operand.statistics.largest) == (0, 1)
    assert call.source.endswith("a.yaml:7: model.py:84: y = g(x)")


def test_keywords_beside_the_inputs_are_those_of_the_call() -> None:
    capture = read(
        f"{{name: torch.softmax, sample_inputs_func: {{args: [{X}], kwargs: {{dtype: torch.float32}}}}, kwargs: {{dim: 1}}}}"
    )
    assert capture.graphs[0].calls[0].keywords == {"dim": 1, "dtype": "torch.float32"}
    assert read(f"{{name: torch.neg, sample_inputs_func: {{args: [{X}]}}, kwargs: [1]}}").notes


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("torch.nn.functional.linear", "F.linear"), ("torch.getitem", "operator.getitem"), ("torch.to", "Tensor.to"),
        ("torch.Tensor.expand", "Tensor.expand"), ("torch.and_", "operator.and_"), ("torch.__eq__", "Tensor.eq"),
        ("torch.functional.split", "torch.split"), ("torch.truediv", "operator.truediv"),
        ("torch.new_ones", "Tensor.new_ones"),
    ],
)  # fmt: skip
def test_operators_have_the_names_of_the_format(name: str, operator: str) -> None:
    call = only(name, f"{X}, {{value: 1}}")
    assert (call.operator, fault_of(call)) == (operator, "")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("{value: 2.0}", 2.0), ("{value: null}", None), ("{value: torch.bfloat16}", "torch.bfloat16"),
        ("{value: 'cuda:0'}", "$device"), ("{value: '(1, -1)'}", [1, -1]), ("{py: '(768,)'}", [768]),
        ("{value: [1, [2]]}", [1, [2]]), ("{value: constant}", "constant"),
        ("{tensor_list: [{shape: [2], dtype: float32}]}", ["$x1"]),
    ],
)  # fmt: skip
def test_arguments_are_plain_data(argument: str, value: Any) -> None:
    assert only("torch.add", f"{X}, {argument}").positional[1] == value


@pytest.mark.parametrize(
    ("text", "index"),
    [("(slice(None, None, None), None)", "[:, None]"), ("(Ellipsis, slice(None, -1, 2))", "[..., :-1:2]"),
     ("(-1,)", "[-1]"), ("()", "[...]")],
)  # fmt: skip
def test_an_index_is_text_of_the_format(text: str, index: str) -> None:
    assert only("torch.getitem", f"{X}, {{py: '{text}'}}").positional == ("$x", index)


def test_indices_that_are_tensors_are_one_index() -> None:
    index = "{tensor_list: [{shape: [1], dtype: int64}, {shape: [1], dtype: int64}]}"
    call = only("torch.getitem", f"{X}, {index}")
    assert call.positional == ("$x0", "[$x1, $x2]")
    assert [operand.statistics.largest for operand in call.operands if operand.statistics] == [1, 1, 2]


def test_keywords_and_ranges_of_integers() -> None:
    index = "{tensor: {shape: [4], dtype: int64, init: randint, init_args: {high: 9}}}"
    call = only("torch.nn.functional.embedding", f"{index}, {X}", ", kwargs: {padding_idx: 0}")
    assert call.keywords == {"padding_idx": 0}
    assert call.operands[0].statistics is not None and call.operands[0].statistics.largest == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("{tensor: {shape: [2], dtype: complex}}", "a tensor has a shape"),
        ("{tensor: {shape: [-2], dtype: float32}}", "a tensor has a shape"),
        ("{tensor: {shape: [2], stride: [1, 1], dtype: float32}}", "a tensor has a shape"),
        ("{file: x.pt}", "an argument is one of"),
        ("3", "an argument is one of"),
        ("{py: '__import__(\"os\")'}", "is called"),
        ("{py: '('}", "no Python"),
    ],
)
def test_what_cannot_be_read_is_noted_with_its_place(args: str, words: str) -> None:
    capture = read(f"{{name: torch.neg, sample_inputs_func: {{args: [{args}]}}}}")
    (note,) = capture.notes
    assert note.startswith("a.yaml:7: torch.neg: ") or "a.yaml:7: torch.neg: " in note
    assert words in note


@pytest.mark.parametrize(
    "text", ["sample_inputs_func: [", "sample_inputs_func:\n\tx", "x:\n  sample_inputs_func: &a {b: *a}"]
)
def test_a_broken_file_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_spyre(ForeignFile("a.yaml", text.encode()))
    assert str(caught.value).partition(": error: ")[0].rpartition("/")[2].startswith("a.yaml:")
