"""``runner.cases.case``: a case that runs backward has something whose gradient can be compared."""

from __future__ import annotations

import contextlib
import warnings

import pytest
from spec_files import Files

from runner.builder.operators import inventory
from runner.cases.case import holds_parameters

NOTHING = (
    "nothing in case 'a' requires a gradient, so backward would compare nothing | write requires_grad: true for an input, "
    "such as {}: {{shape: [2, 3], requires_grad: true}}, or take grad: out"
)


@pytest.mark.parametrize(
    ("keys", "place", "name"),
    [
        ("grad: backward", "3:11", "x"),
        ("grad: {cotangent: ones}", "3:11", "x"),
        ("grad: [off, backward]", "3:11", "x"),
        ("inputs: {y: [2], x: [3]}\ngrad: backward\nchain: [{torch.mul: [$x, $y]}]", "4:11", "y"),
        ("grad: backward\nchain: [nn.ReLU, {nn.Dropout: {p: 0.5}}]", "3:11", "x"),
        ("grad: backward\nstate: {s: [2]}\nchain: [{torch.add: [$x, $self.s]}]", "3:11", "x"),
        ("inputs: {x: {shape: [2], requires_grad: false}}\ngrad: backward", "4:11", "x"),
        ("inputs: {x: {shape: [2], layout: [{torch.zeros_like: {'*': [$_], requires_grad: false}}]}}\ngrad: backward", "4:11", "x"),
    ],
)  # fmt: skip
def test_backward_without_a_leaf_is_refused(files: Files, keys: str, place: str, name: str) -> None:
    assert files.errors(keys) == [f"{place}: {NOTHING.format(name)}"]


@pytest.mark.parametrize(
    "keys",
    [
        "grad: [off, forward]",
        "inputs: {x: {shape: [2], requires_grad: true}}\ngrad: backward",
        "inputs: {x: {list: [[2], {list: [{shape: [2], requires_grad: true}]}]}}\nchain: [{torch.neg: '$x[0]'}]\ngrad: backward",
        "inputs: {x: {shape: [2], layout: [{Tensor.requires_grad_: [$_]}]}}\ngrad: backward",
        "inputs: {x: {shape: [2], layout: [{torch.zeros_like: {'*': [$_], requires_grad: true}}]}}\ngrad: backward",
        "inputs: {b: {shape: [2], requires_grad: true, hidden: true}, x: {view_of: b, layout: [torch.neg]}}\ngrad: backward",
        "state: {w: {shape: [3], requires_grad: true}}\nchain: [{torch.mul: [$x, $self.w]}]\ngrad: backward",
        "grad: backward\nchain: [{nn.Linear: [3, 3]}]",
        "grad: backward\nchain: [{with: [torch.enable_grad], chain: [{nn.Linear: [3, 3]}]}]",
        "grad: backward\nchain: [{torch.mul: [$_, {$tensor: 2.0, requires_grad: true}]}]",
        "grad: backward\nchain: [{Tensor.requires_grad_: $_}, torch.neg]",
        "grad: backward\ncalls: [{inputs: {x: {shape: [2, 3], requires_grad: true}}}]",
    ],
)
def test_backward_with_a_leaf_is_taken(files: Files, keys: str) -> None:
    assert files.errors(keys) == []


def test_a_model_in_python_may_have_parameters(files: Files) -> None:
    files.write("m.py", "")
    assert files.errors("grad: backward\nmodule: {file: m.py, name: M}") == []


def test_the_place_is_that_of_the_defaults_where_they_say_it(files: Files) -> None:
    files.write(
        "a.spec.yaml",
        "defaults: {grad: backward}\ncases:\n  - {name: a, inputs: {x: [2]}, chain: [F.relu]}\n"
        "  - {name: b, inputs: {x: {shape: [2], requires_grad: true}}, chain: [F.relu]}\n",
    )
    files.suites("a.spec.yaml")
    assert [(d.span.line, d.span.column, d.message[:17]) for d in files.diagnostics] == [(1, 18, "nothing in case '")]


@pytest.mark.slow
def test_modules_with_parameters_are_known() -> None:
    torch = pytest.importorskip("torch")
    arguments = [(), (2,), (2, 2), (2, 2, 1), (2, 2, 2), ("RNN_TANH", 2, 2), (2, 2, True, 4), (4, 8, [2])]
    layers = {"TransformerEncoder": "TransformerEncoderLayer", "TransformerDecoder": "TransformerDecoderLayer"}

    def has_parameters(name: str) -> bool:
        """Whether any way of making the module that works gives parameters."""
        own = [(getattr(torch.nn, layers[name])(2, 1), 1)] if name in layers else arguments
        for values in own:
            with contextlib.suppress(TypeError, ValueError, AttributeError, AssertionError, RuntimeError):
                if [*getattr(torch.nn, name)(*values).parameters()]:
                    return True
        return False

    modules = [name for name in inventory()["nn"] if hasattr(torch.nn, name) and name not in HOLDERS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = {name for name in modules if has_parameters(name) != holds_parameters(f"nn.{name}")}
    assert wrong == set()


HOLDERS = (
    "Module",
    "Container",
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "ParameterList",
    "ParameterDict",
    "DataParallel",
)
"""Modules that are no operators."""
