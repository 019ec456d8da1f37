"""``runner.cases.case``: modes, and cotangents that a case gives."""

from __future__ import annotations

import pytest
from spec_files import Files

from runner.cases.model import Grad

INPUTS = "inputs: {x: {shape: [2], requires_grad: true}, g: {shape: [2], hidden: true}, h: {values: [1.0, 2.0], hidden: true}}\n"


@pytest.mark.parametrize(
    ("grad", "modes"),
    [
        ("off", [Grad("off")]),
        ("{order: 2}", [Grad("backward", order=2)]),
        ("{cotangent: ones}", [Grad("backward", "ones")]),
        ("{cotangent: $g}", [Grad("backward", "given", given=("g",))]),
        ("{cotangent: [$h, null, $g], order: 2}", [Grad("backward", "given", 2, ("h", None, "g"))]),
        ("[{cotangent: $g}, {cotangent: $h}, off]", [Grad("backward", "given", given=("g",)), Grad("backward", "given", given=("h",)), Grad("off")]),
    ],
)  # fmt: skip
def test_modes(files: Files, grad: str, modes: list[Grad]) -> None:
    assert [*files.case(f"{INPUTS}grad: {grad}").grad] == modes


def test_ids_name_the_inputs(files: Files) -> None:
    ids = [
        v.id
        for v in files.variants(f"{INPUTS}grad: [{{cotangent: $g}}, {{cotangent: [$h, null]}}, {{cotangent: ones}}]")
    ]
    assert [name.partition("[")[2].partition(",")[0] for name in ids] == [
        "grad=given-g1",
        "grad=given-h-1",
        "grad=ones1",
    ]


@pytest.mark.parametrize(
    ("inputs", "cotangent", "message"),
    [
        ("{x: {shape: [2], requires_grad: true}}", "$g", "4:11: the cotangent $g is no input | such as inputs: {g: {shape: [2, 3], hidden: true}}"),
        ("{x: {shape: [2], requires_grad: true}, seed: {shape: [2], hidden: true}}", "$seeed", "4:11: the cotangent $seeed is no input | did you mean 'seed'?"),
        ("{x: {shape: [2], requires_grad: true}, g: [2]}", "$g", "3:52: 'g' is a cotangent, and the model gets it too"),
        ("{x: {shape: [2], requires_grad: true}, g: {shape: [2], hidden: true, requires_grad: true}}", "$g", "3:52: 'g' is a cotangent, and it requires a gradient itself"),
        ("{x: {shape: [2], requires_grad: true}, g: {view_of: x, hidden: true}}", "$g", "3:52: 'g' is a cotangent, and a cotangent is a tensor with a shape: or values:"),
        ("{g: {shape: [2], hidden: true}, x: {view_of: g, requires_grad: true}}", "[$g]", "3:14: 'g' is a cotangent, and 'x' is a view of it"),
        ("{x: {shape: [2], requires_grad: true}}", "zeros", "4:23: "),
        ("{x: {shape: [2], requires_grad: true}}", "[ones]", "4:24: expected a reference such as $g, or null"),
        ("{x: {shape: [2], requires_grad: true}}", "[]", "4:23: "),
        ("{x: {shape: [2], requires_grad: true}}", "$g.T", "4:23: expected seeded, ones, sum, a reference such as $g, or a list of references"),
    ],
)  # fmt: skip
def test_what_is_told(files: Files, inputs: str, cotangent: str, message: str) -> None:
    (error,) = files.errors(f"inputs: {inputs}\ngrad: {{cotangent: {cotangent}}}")
    assert error.startswith(message)
