"""``runner.cases.texts``: calls in Python's syntax, as YAML has them."""

from __future__ import annotations

import pytest
from spec_files import Files

from runner.cases.texts import has_keyword, yaml_call

CALLS = {
    "torch.add(x, 1)": "torch.add: [$x, 1]",
    "torch.add($x, 1)": "torch.add: [$x, 1]",
    "F.softmax(x, dim=-1)": 'F.softmax: {"*": [$x], dim: -1}',
    "F.softmax(dim = -1)": "F.softmax: {dim: -1}",
    "F.relu()": "F.relu",
    "torch.cat([a, b], 1)": "torch.cat: [[$a, $b], 1]",
    "torch.full((2, 3), 1.5)": "torch.full: [[2, 3], 1.5]",
    "F.mse_loss(x, y, reduction='sum')": 'F.mse_loss: {"*": [$x, $y], reduction: sum}',
    "torch.sum(x, None, True)": "torch.sum: [$x, null, true]",
    "Tensor.to(x, torch.float64,)": "Tensor.to: [$x, torch.float64]",
    "torch.add(x.T, y[0])": 'torch.add: [$x.T, "$y[0]"]',
    "relu": "",
    "torch.add x, 1": "",
    "f(" + "x, " * 100 + ")": "",
}


@pytest.mark.parametrize("text", CALLS)
def test_calls(text: str) -> None:
    assert yaml_call(text) == CALLS[text]


@pytest.mark.parametrize(
    ("text", "answer"),
    [("dim=-1", True), ("dim = -1", True), ("$_, dim=-1", True), ("x == y", False), ("dim", False), ("a->b=c", False), ("=1", False)],
)  # fmt: skip
def test_keywords(text: str, answer: bool) -> None:
    assert has_keyword(text) is answer


@pytest.mark.parametrize(
    ("step", "messages"),
    [
        ("torch.softmax: [$_, dim=-1]", ["4:29: 'dim=-1' is one text, not arguments | write torch.softmax: {\"*\": [$_], dim: -1}"]),
        ("torch.sum: {'*': [$_, dim=-1]}", ["4:31: 'dim=-1' is one text, not arguments | write torch.sum: {\"*\": [$_], dim: -1}"]),
        ("torch.sum: {'*': [$_, dim=1], keepdim: true}", ["4:31: 'dim=1' is one text, not arguments | write torch.sum: {\"*\": [$_], keepdim: true, dim: 1}"]),
        ("torch.softmax: $_, dim=-1", ["4:24: '$_, dim=-1' is one text, not arguments | write torch.softmax: {\"*\": [$_], dim: -1}"]),
        ("torch.add: $_, 1", ["4:20: '$_, 1' is one text, not arguments | write torch.add: [$_, 1]"]),
        ("torch.add: [$_, 1]", []),
        ("torch.add: ['$_, 1']", ["4:21: '$_, 1' is no reference | write $name, $name.attr, $name[0], $name[key] or ${...}; plain text is {$text: ...}"]),
    ],
)  # fmt: skip
def test_arguments_as_in_python(files: Files, step: str, messages: list[str]) -> None:
    assert files.errors(f"chain:\n  - {step}") == messages
