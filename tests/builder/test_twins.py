"""Twins as Python: where rewrites stand, and where none does."""

from __future__ import annotations

import re

import pytest
from built import Built

from runner.builder.chain import are_independent
from runner.builder.source import has_twin
from runner.cases.twins import REWRITES

X = "inputs: {x: [4, 3], y: [4, 3]}\n"


def twin(built: Built, chain: str, rewrites: str, more: str = "") -> list[str]:
    """The lines of the twin's forward; empty without a twin."""
    text = built.sources(f"{X}chain: {chain}\ntwin: [{rewrites}]{more}")[0].text
    match = re.search(r"class Twin\(Model\):\n    def forward\(.*\n((?:        .*\n)+)", text)
    assert has_twin(built.sources(f"{X}chain: {chain}\ntwin: [{rewrites}]{more}")[0]) == bool(match)
    return [line.strip() for line in match[1].splitlines()] if match else []


def test_rewrites_stand_at_fresh_values(built: Built) -> None:
    chain = "[{torch.add: [$x, $y], out: a}, {Tensor.t: [$a], out: b}, {torch.mul: [$b, 2]}]"
    assert twin(built, chain, "mask, double") == [
        "a = _twin_mask(torch.add(x, y))",
        "b = a.t()",
        "return _twin_mask(_twin_double(b))",
    ]


@pytest.mark.parametrize(
    "chain",
    [
        "[{Tensor.view: [$x, [-1]], out: a}, {Tensor.add_: [$y, 1]}, {Tensor.t: $a}]",
        "[{torch.add: {'*': [$x, 1], out: $y}}]",
        "[{F.relu: [$x, true]}, {Tensor.t: $y}]",
        "[{F.relu: {'*': [$x], inplace: true}}, {Tensor.t: $y}]",
        "[{F.dropout: [$x, 0.5]}, {Tensor.t: $y}]",
        "[{operator.pos: [$x]}, {Tensor.t: $y}]",
        "[{torch.vmap: [{$fn: {args: [a], chain: [{torch.sin: [$a]}]}}], out: f}, {operator.call: [$f, $x]}, {Tensor.t: $y}]",
    ],
)
def test_views_writes_and_random_numbers_are_left_alone(built: Built, chain: str) -> None:
    assert built.errors(f"{X}chain: {chain}\ntwin: [{', '.join(REWRITES)}]") == [
        "5:11: warning: no step of the chain can be rewritten, so there is no twin | take twin: out"
    ]


def test_models_in_python_have_no_twin(built: Built) -> None:
    built.write("m.py", "class M: pass\n")
    assert built.errors("inputs: {x: [2]}\nmodule: {file: m.py, name: M}\ntwin: [mask]") == [
        "5:11: a twin is made of a chain of torch's operators alone | take twin: out"
    ]


@pytest.mark.parametrize("factor", ["2.0", "3", "true", "$y"])
def test_only_the_integer_2_is_doubled(built: Built, factor: str) -> None:
    assert twin(built, f"[{{torch.mul: [$x, {factor}]}}, {{torch.add: [$_, $y]}}]", "double") == []
    assert twin(built, "[{operator.mul: [$x, 2]}, {torch.add: [$_, $y]}]", "double")[0] == "h = _twin_double(x)"


def test_independent_steps_change_places_without_a_backward(built: Built) -> None:
    chain = "[{torch.sin: [$x], out: a}, {torch.cos: [$y], out: b}, {torch.add: [$a, $b]}]"
    lines = ["b = torch.cos(y)", "a = torch.sin(x)", "return torch.add(a, b)"]
    assert twin(built, chain, "reorder") == lines
    text = built.sources(
        f"inputs: {{x: {{shape: [4], requires_grad: true}}, y: [4]}}\nchain: {chain}\ntwin: [reorder]\ngrad: backward"
    )[0].text
    assert "class Twin" not in text


@pytest.mark.parametrize(
    ("first", "second", "free"),
    [
        ("a = torch.sin(x)", "b = torch.cos(x)", True),
        ("a = torch.sin(x)", "b = torch.cos(a)", False),
        ("a = torch.sin(b)", "b = torch.cos(x)", False),
        ("a = torch.sin(x)", "a = torch.cos(x)", False),
        ("a = torch.sin(x)", "return torch.cos(x)", False),
        ("a, b = torch.sin(x)", "c = torch.cos(x)", False),
        ("a = torch.sin(x)", "    b = torch.cos(x)", False),
    ],
)
def test_lines_are_independent(first: str, second: str, free: bool) -> None:
    assert are_independent(first, second) == free


def test_the_twin_has_the_modules_of_the_case(built: Built) -> None:
    text = built.source(f"{X}chain: [{{torch.mul: [$x, $y]}}, {{nn.Linear: [3, 2]}}]\ntwin: [mask]\ntrain: true")
    assert text.count("self.linear = ") == 1 and text.count("self.linear(") == 2
    assert "def make_twin():\n    model = Twin()\n    model.train()\n    return model\n" in text
