"""``runner.cases.operator_names``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from runner.cases.model import Case, PythonModule
from runner.cases.operator_names import (
    TENSOR_NOT_FIRST,
    names_of,
    operators_like,
    operators_of,
    pattern_hint,
    takes_tensor,
    without_overload,
)
from runner.cases.torch_names import inventory
from runner.diagnostics import Span
from tests.handmade import loaded, written

SPAN = Span("a.spec.yaml", 1, 1)


@pytest.mark.parametrize(
    ("operator", "names", "others"),
    [
        ("F.gelu", "nn.GELU aten.gelu", "aten.gelu_backward"),
        ("nn.Conv2d", "F.conv2d torch.conv2d aten.conv2d nn.LazyConv2d", "F.conv1d"),
        ("nn.BatchNorm2d", "F.batch_norm aten.batch_norm nn.BatchNorm1d", "aten.native_batch_norm"),
        ("F.cross_entropy", "nn.CrossEntropyLoss aten.cross_entropy_loss", "F.nll_loss"),
        ("nn.ZeroPad2d", "F.pad aten.pad", ""),
        ("nn.LSTM", "torch.lstm aten.lstm", "nn.LSTMCell"),
        ("Tensor.add_", "Tensor.add torch.add aten.add_ operator.add", "aten.addmm"),
        ("torch.add", "Tensor.add aten.add operator.add", "Tensor.add_ aten.add_ operator.iadd numpy.add"),
        ("operator.iand", "operator.and_ aten.bitwise_and Tensor.bitwise_and_", "operator.add"),
        ("operator.itruediv", "operator.truediv torch.div Tensor.div_", "torch.floor_divide"),
        ("aten.add.Tensor", "aten.add torch.add", "aten.add.Scalar"),
        ("torch.linalg.det", "aten.linalg_det", "torch.det"),
        ("F.unfold", "nn.Unfold aten.im2col", "Tensor.unfold aten.unfold"),
        ("prims.add.default", "prims.add", "aten.add"),
        ("torch.special.exp2", "aten.special_exp2", "torch.exp2"),
        ("custom.mine.gelu", "", "F.gelu"),
        ("torch.distributions.Normal", "", "torch.normal"),
        ("builtin.abs", "", "torch.abs"),
    ],
)
def test_names_of_one_operator(operator: str, names: str, others: str) -> None:
    known = names_of(operator)
    assert known[0] == operator and {*names.split()} <= {*known} and not {*others.split()} & {*known}


def test_every_function_has_one_operator_of_aten() -> None:
    """No name is joined with two operators of ATen, but for one in place with its plain form."""
    for space in ("F", "torch", "Tensor", "nn"):
        for name in inventory()[space]:
            packets = {n.removesuffix("_") for n in names_of(f"{space}.{name}") if n.startswith("aten.")}
            assert len(packets) <= 1, name


def test_names_without_overloads() -> None:
    names = ("aten.add.Tensor", "prims.add.default", "aten.add", "custom.a.b", "torch.linalg.det")
    assert [*map(without_overload, names)] == ["aten.add", "prims.add", "aten.add", "custom.a.b", "torch.linalg.det"]


def test_each_case_has_the_operators_of_its_own_chain(tmp_path: Path) -> None:
    text = """
cases:
  - {name: a, inputs: {x: {shape: [2], layout: [Tensor.contiguous]}}, chain: [F.gelu]}
  - {name: b, inputs: {x: [2]}, chain: [torch.exp]}
"""
    first, second = (variant.case for variant in loaded(written(tmp_path, text)).variants)
    assert operators_of(first) == operators_of(first) == ("F.gelu", "nn.GELU", "aten.gelu")
    assert operators_of(second)[0] == "torch.exp" and "F.gelu" not in operators_of(second)
    assert operators_of(first) == ("F.gelu", "nn.GELU", "aten.gelu")


MODEL = """\
import operator
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import relu as clip

def used(x):
    nn.utils.rnn.pad_sequence([x])
    return clip(torch.ops.aten.addmm.default(x, x, x))

def unused(x):
    return torch.exp(x)

class Other(nn.Module):
    def forward(self, x):
        return F.silu(x)

class Part(nn.Module):
    pass

class M(Part):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 1)

    def forward(self, x: torch.Tensor):
        y = torch.ops.mine.op(torch.nn.functional.gelu(self.conv(x)))
        return used(operator.add(y, 1)).sin().to(torch.float64)
"""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            MODEL,
            "nn.Conv1d aten.addmm.default custom.mine.op F.gelu operator.add F.relu torch.nn.utils.rnn.pad_sequence",
        ),
        ("class M(:", ""),
        ("\0", ""),
        ("x = " + "(" * 5000, ""),
        ("class N: pass", ""),
    ],
)
def test_what_a_model_in_python_calls_as_far_as_its_text_says_so(tmp_path: Path, text: str, names: str) -> None:
    file = tmp_path / "m.py"
    file.write_text(text)
    module = PythonModule(str(file), "M", (), SPAN)
    case = Case("a", "a.spec.yaml", SPAN, module=module)
    assert {*operators_like(case, ("*",))} == {*names.split()}
    assert ("F.conv1d" in operators_of(case)) is bool(names)
    file.unlink()
    assert operators_of(dataclasses.replace(case)) == ()


@pytest.mark.parametrize("pattern", ["*", "*.conv*", "aten.add.Tensor", "nn.Conv?d", "custom.mine.*", "triton.add",
                                     "operator.iadd", "builtin.len", "torch.no_grad", "torch.autograd.grad"])  # fmt: skip
def test_patterns_of_operators(pattern: str) -> None:
    assert pattern_hint(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("aten.convolutoin", "did you mean 'aten.convolution'?"),
        ("aten.upsample_bilinaer2d", "did you mean 'aten.upsample_bilinear2d'?"),
        ("torhc.addmm", "did you mean 'torch.addmm'?"),
        ("aten.add.Tensr", "did you mean 'aten.add.Tensor'?"),
        ("torch.linalg.dett", "did you mean 'torch.linalg.det'?"),
        (".", "such as F.conv* or aten.addmm"),
        ("x" * 100, "such as F.conv* or aten.addmm"),
    ],
)
def test_patterns_of_none(pattern: str, hint: str) -> None:
    assert pattern_hint(pattern) == hint


def test_the_names_of_functions_without_a_tensor_are_those_of_torch() -> None:
    """torch's own schemas say which functions have no tensor first, as far as they have schemas."""
    names = inventory()
    for name in names["torch"]:
        packet = getattr(torch.ops.aten, name, None)
        if packet is None:
            continue
        first = [getattr(packet, overload)._schema.arguments[:1] for overload in packet.overloads()]
        has_tensor = any("Tensor" in str(arguments[0].type) for arguments in first if arguments)
        assert has_tensor or not takes_tensor(f"torch.{name}"), name
    assert {*names["torch"], *(f"{space}.{name}" for space in ("special", "fft") for name in names[space])} >= (
        TENSOR_NOT_FIRST
    )


@pytest.mark.parametrize("name", ["F.relu", "torch.add", "torch.linalg.norm", "Tensor.T", "self.linear"])
def test_operators_that_take_a_tensor_first(name: str) -> None:
    assert takes_tensor(name)


@pytest.mark.parametrize(
    "name",
    [
        "torch.zeros", "torch.fft.fftfreq", "torch.distributions.Normal", "torch.autocast", "operator.add", "numpy.add",
        "nn.ReLU", "custom.mine.scale",
    ],
)  # fmt: skip
def test_operators_whose_first_argument_may_be_anything(name: str) -> None:
    assert not takes_tensor(name)
