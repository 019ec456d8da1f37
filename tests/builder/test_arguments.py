"""``runner.builder.arguments``: what is said of a call that lacks a ``$``, a ``torch.`` or its tensor."""

from __future__ import annotations

import pytest
from built import Built

WRONG = {
    "torch.add: [x, 1]": ["21: 'x' is text | write $x, as in torch.add: [$x, 1]"],
    "F.relu: x": ["17: 'x' is text | write $x, as in F.relu: $x"],
    "torch.cat: [[x, $x], 0]": ["22: 'x' is text | write $x, as in torch.cat: [[$x, $x], 0]"],
    "torch.where: {condition: x, input: 1, other: 0}": [
        "34: 'x' is text | write $x, as in torch.where: {condition: $x, input: 1, other: 0}"
    ],
    "operator.mul: [x, 2]": ["24: 'x' is text | write $x, as in operator.mul: [$x, 2]"],
    "torch.einsum: ['ij->ji', x]": ["34: 'x' is text | write $x, as in torch.einsum: [ij->ji, $x]"],
    "Tensor.sum: [x, n]": [
        "22: 'x' is text | write $x, as in Tensor.sum: [$x, $n]",
        "25: 'n' is text | write $n, as in Tensor.sum: [$x, $n]",
    ],
    "F.softmax: -1": ["9: F.softmax gets no tensor here | write F.softmax: [$_, -1]"],
    "torch.softmax: {dim: $n}": ['9: torch.softmax gets no tensor here | write torch.softmax: {"*": [$_], dim: $n}'],
    "torch.add: {other: x}": ["28: 'x' is text | write $x, as in torch.add: {other: $x}"],
    "Tensor.sum: [1]": ["9: Tensor.sum gets no tensor here | write Tensor.sum: [$_, 1]"],
    "torch.special.erf: 1.5": ["9: torch.special.erf gets no tensor here | write torch.special.erf: [$_, 1.5]"],
    'torch.narrow: [0, 0, "${x.shape[0]}"]': [
        '9: torch.narrow gets no tensor here | write torch.narrow: [$_, 0, 0, "${x.shape[0]}"]'
    ],
    "torch.mul: [$n, 2]": ["9: torch.mul gets no tensor here | write torch.mul: [$_, $n, 2]"],
    "F.relu: xx": ["9: F.relu gets no tensor here | did you mean '$x'?"],
    "F.relu: other": ["9: F.relu gets no tensor here | the values here: $_, $x"],
    "torch.add: x, 1": ["9: torch.add gets no tensor here | write torch.add: [$x, 1]"],
    "nn.Linear: [x, 3, 3]": ["21: 'x' is text | the arguments of the call stand beside it: call: [$x]"],
    "nn.Linear: [n, 3]": ["21: 'n' is text | write $n, as in nn.Linear: [$n, 3]"],
    "operator.mul: 2": ["9: operator.mul takes 2 operands, not 1 | write operator.mul: [$_, 2]"],
    "Tensor.sum: {dim: $n}": ['9: the first positional of Tensor.sum is the tensor | such as {"*": [$_], dim: $n}'],
    "Tensor.to: [$_, float64]": ["25: 'float64' is text | write torch.float64, as in Tensor.to: [$_, torch.float64]"],
    'torch.sum: {"*": [$_], dtype: float}': [
        "39: 'float' is text | write torch.float, as in torch.sum: {dtype: torch.float}"
    ],
    'torch.sum: {"*": [$_], dtype: fp32}': ["39: 'fp32' is text, not a dtype | did you mean 'torch.float32'?"],
    "torch.add: [$_, {$tensor: [1], dtype: float32}]": [
        "47: 'float32' is text | write torch.float32, as in torch.add: [$_, {$tensor: [1], dtype: torch.float32}]"
    ],
    'Tensor.clone: {"*": [$_], memory_format: channels_last}': [
        "50: 'channels_last' is text | write torch.channels_last, as in Tensor.clone: {memory_format: torch.channels_last}"
    ],
    "torch.full_like: [$_, -inf]": ["31: '-inf' is text | write -.inf, as in torch.full_like: [$_, -.inf]"],
    "Tensor.sum: [$_, None]": ["26: 'None' is text | write null, as in Tensor.sum: [$_, null]"],
    "torch.softmax: [$_, dim: -1]": [
        "warning: {dim: -1} is a positional argument of torch.softmax | write torch.softmax: {dim: -1}"
    ],
}


@pytest.mark.parametrize("step", WRONG)
def test_what_was_meant_is_told(built: Built, step: str) -> None:
    problems = built.problems(f"params: {{n: [3]}}\ninputs: {{x: [3, 3]}}\nchain:\n  - {step}\n  - builtin.print: $n")
    places = [line.removeprefix("6:").replace("9: warning", "warning") for line in problems]
    assert places == WRONG[step]


def test_the_call_of_a_module(built: Built) -> None:
    head = "inputs: {x: [3]}\nchain:\n"
    assert built.problems(head + "- {nn.Linear: [3, 3], call: [x]}") == ["5:34: 'x' is text | write $x, as in call: $x"]
    assert built.problems(head + "- {nn.Linear: [3, 3], call: [2]}\n- F.relu") == [
        "5:8: nn.Linear gets no tensor here | write call: [$_, 2]"
    ]
    assert built.problems(head + "- {nn.Linear: [3, 3], id: l}\n- self.l: 2") == [
        "6:7: self.l gets no tensor here | write self.l: [$_, 2]"
    ]


def test_a_later_step_is_told_too(built: Built) -> None:
    """The input is used by then, so that no other message would come."""
    assert built.problems("chain: [F.relu, {F.softmax: -1}]") == [
        "3:22: F.softmax gets no tensor here | write F.softmax: [$_, -1]"
    ]


def test_without_a_value_before(built: Built) -> None:
    assert built.problems("inputs: {}\nchain: [{F.softmax: -1}]") == [
        "4:14: F.softmax gets no tensor here | an input or a step before it makes one"
    ]


def test_text_in_the_result_and_in_keywords(built: Built) -> None:
    """Where the name is used elsewhere, the text is one: ``reduction: mean`` is no input called ``mean``."""
    keys = "inputs: {x: [2], y: [2]}\nchain:\n- torch.abs: $x\n- builtin.print: [$_, y]\nreturn: $x"
    assert built.problems(keys) == ["6:27: 'y' is text | write $y"]
    keys = "inputs: {x: [2], mean: [2]}\nchain:\n- F.mse_loss: {'*': [$x, $mean], reduction: mean}"
    assert built.part(keys) == ['return F.mse_loss(x, mean, reduction="mean")']


def test_a_marked_text_is_text(built: Built) -> None:
    keys = "inputs: {x: [2], y: [2]}\nchain:\n- torch.norm: [$x, {$text: y}]\n- torch.add: [$_, $y]"
    assert built.part(keys)[0] == 'h = torch.norm(x, "y")'
    assert built.problems(keys.replace("{$text: y}", "y")) == [
        "5:24: 'y' is text | write $y, as in torch.norm: [$x, $y]"
    ]


@pytest.mark.parametrize(
    "step",
    [
        "torch.zeros: [3]",
        "torch.arange: {'*': [0, 9], dtype: torch.int64}",
        "torch.tensor: {data: 7}",
        "torch.full: [[], 1.0]",
        "builtin.print: x",
        "torch.polygamma: [1, $x]",
        "torch.pow: [2, $x]",
        "torch.einsum: ['i->', $x]",
        "torch.cat: [[$x, $x]]",
        "torch.add: [{$tensor: 1}, $x]",
        "torch.func.vmap: {$fn: {args: [t], chain: [torch.sin]}}",
        "torch.norm: {'*': [$_], p: fro}",
        "torch.scatter_reduce: [$x, 0, $i, $x, mean]",
    ],
)
def test_calls_that_are_right(built: Built, step: str) -> None:
    keys = f"inputs: {{x: [3], i: {{values: [0, 1, 2]}}, mean: [3]}}\nchain:\n- {step}\nreturn: [$_, $x, $i, $mean]"
    assert built.problems(keys) == []


@pytest.mark.parametrize(
    ("step", "written"),
    [
        ("{F.softmax: {dim: -1}}", "F.softmax(a, dim=-1)"),
        ("{torch.sum: {dim: [0, 1], keepdim: true}}", "torch.sum(a, dim=[0, 1], keepdim=True)"),
        ("{Tensor.sum: {dtype: torch.float64}}", "a.sum(dtype=torch.float64)"),
        ("{nn.LSTM: [3, 4], call: {hx: null}}", "self.lstm(a, hx=None)"),
        ("{F.mse_loss: {input: $x, target: $x}}", "F.mse_loss(input=x, target=x)"),
        ("{torch.ones: {size: [2]}}", "torch.ones(size=[2])"),
    ],
)
def test_keywords_that_name_no_value_follow_the_value_of_the_step_before(built: Built, step: str, written: str) -> None:
    lines = built.part(f"inputs: {{x: [3, 3]}}\nchain: [{{torch.abs: $x, out: a}}, {step}]\nreturn: [$_, $a]")
    assert any(line.endswith(f" = {written}") for line in lines), lines
