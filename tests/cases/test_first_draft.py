"""A case from operators and shapes has all that each operator needs, or says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.cases.canonical import format_text
from runner.cases.first_draft import DraftError, Shape, draft_case
from runner.cases.serialize import emit
from runner.cases.signatures import signatures_of
from runner.cases.torch_names import signature_texts
from runner.cases.walk import all_steps
from runner.session.collect import collect
from runner.session.settings import RunSettings

SPECS = Path(__file__).parents[2] / "specs"
ONE = [Shape((4, 8))]


def draft(*operators: str, shapes: list[Shape] = ONE, **options: Any) -> dict[str, Any]:
    arguments = options.pop("arguments", {})
    return draft_case(operators, shapes, arguments, **options)


@pytest.mark.parametrize(
    ("operator", "shapes", "arguments", "step", "inputs"),
    [
        ("F.gelu", 1, {}, "F.gelu", 1),
        ("F.gelu", 1, {"approximate": "tanh"}, {"F.gelu": {"approximate": "tanh"}}, 1),
        ("torch.add", 1, {}, {"torch.add": ["$x", "$y"]}, 2),
        ("torch.add", 1, {"other": 2}, {"torch.add": ["$x", 2]}, 1),
        ("torch.add", 2, {"alpha": 2}, {"torch.add": {"*": ["$x", "$y"], "alpha": 2}}, 2),
        ("torch.index_select", 2, {"dim": 0}, {"torch.index_select": ["$x", 0, "$y"]}, 2),
        ("torch.where", 3, {}, {"torch.where": ["$x", "$y", "$z"]}, 3),
        ("torch.where", 1, {}, "torch.where", 1),
        ("torch.cat", 1, {}, {"torch.cat": [["$x", "$y"]]}, 2),
        ("torch.cat", 3, {"dim": 1}, {"torch.cat": {"*": [["$x", "$y", "$z"]], "dim": 1}}, 3),
        ("torch.zeros", 1, {"size": [2, 3]}, {"torch.zeros": [[2, 3]]}, 0),
        ("nn.ReLU", 1, {}, "nn.ReLU", 1),
        ("nn.Linear", 1, {"in_features": 8, "out_features": 3}, {"nn.Linear": {"in_features": 8, "out_features": 3}}, 1),
        ("nn.MSELoss", 2, {}, {"nn.MSELoss": {}, "call": ["$x", "$y"]}, 2),
        ("operator.add", 2, {}, {"operator.add": ["$x", "$y"]}, 2),
        ("aten.sum.dim_IntList", 1, {"dim": [0]}, {"aten.sum.dim_IntList": {"*": ["$x"], "dim": [0]}}, 1),
    ],
    ids=str,
)  # fmt: skip
def test_a_step_has_what_its_operator_needs(
    operator: str, shapes: int, arguments: dict[str, Any], step: Any, inputs: int
) -> None:
    case = draft(operator, shapes=ONE * shapes, arguments=arguments)
    assert case["chain"] == [step]
    assert case.get("inputs", {}) == {name: [4, 8] for name in "xyz"[:inputs]}


def test_a_chain_goes_on_with_the_value_of_the_step_before() -> None:
    shapes = [Shape((4, 8)), Shape((8,), "int64"), Shape(())]
    case = draft("F.relu", "torch.add", "torch.mul", shapes=shapes, grad=True, dtypes=["float32", "bfloat16"])
    leaf = {"shape": [4, 8], "requires_grad": True}
    assert case == {
        "name": "relu_add_mul",
        "inputs": {"x": leaf, "y": {"shape": [8], "dtype": "int64"}, "z": {"shape": [], "requires_grad": True}},
        "chain": ["F.relu", {"torch.add": ["$_", "$y"]}, {"torch.mul": ["$_", "$z"]}],
        "grad": "backward",
        "dtypes": ["float32", "bfloat16"],
    }


@pytest.mark.parametrize(
    ("operators", "shapes", "options", "message"),
    [
        (["F.softmax", "torch.index_select"], 1, {}, "torch.index_select needs dim, an integer: --arg dim=VALUE"),
        (["nn.Linear"], 1, {"arguments": {"in_features": 8}}, "nn.Linear needs out_features, an integer"),
        (["F.gelu"], 1, {"arguments": {"foo": 1}}, "F.gelu: no argument 'foo'; there are input, approximate"),
        (["F.gelu"], 2, {}, "2 shapes are given, and the operators take 1 tensor"),
        (["torch.add"] * 10, 1, {}, "at most 10 inputs"),
        (["F.gelu"], 1, {"grad": True, "dtypes": ["int8"]}, "int8 has no gradients"),
    ],
    ids=str,
)
def test_what_is_missing_is_said(operators: list[str], shapes: int, options: Any, message: str) -> None:
    with pytest.raises(DraftError, match=message.replace("(", r"\(")):
        draft(*operators, shapes=ONE * shapes, **options)


@pytest.mark.parametrize(
    ("operators", "name"),
    [(["nn.LogSigmoid"], "log_sigmoid"), (["aten.relu.default"], "relu"), (["torch._foreach_abs"], "foreach_abs"),
     (["F.relu", "torch.t"], "relu_t"), (["F.relu"] * 20, ("relu_" * 12)[:-1]), (["operator.3"], "case_3")],
)  # fmt: skip
def test_the_name_is_made_of_the_operators(operators: list[str], name: str) -> None:
    assert draft(*operators)["name"] == name


def _errors(cases: list[dict[str, Any]], folder: Path) -> list[str]:
    named = [{**case, "name": f"c{number}"} for number, case in enumerate(cases)]
    text = format_text(emit({"cases": named}))
    assert format_text(text) == text
    (folder / "a.spec.yaml").write_text(text, encoding="utf-8")
    return [problem.message for problem in collect([str(folder / "a.spec.yaml")], RunSettings()).errors]


def test_each_operator_of_the_shipped_cases_of_numbers_makes_a_valid_case(tmp_path: Path) -> None:
    files = [str(SPECS / "numerics" / f"{name}.spec.yaml") for name in ("unary", "binary")]
    cases = {id(variant.case): variant.case for variant in collect(files, RunSettings()).variants}
    operators = sorted({step.operator for case in cases.values() for step in all_steps(case.chain)})
    assert len(operators) > 100
    arguments = {"threshold": 0.5, "value": 0.0, "p": 2, "n": 1, "dim": 0}
    cases_drafted = []
    for operator in operators:
        named = {argument.name for each in signatures_of(operator) for argument in each if not argument.is_optional}
        given = {name: value for name, value in arguments.items() if name in named}
        cases_drafted.append(draft(operator, arguments=given))
    assert _errors(cases_drafted, tmp_path) == []


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.nightly)])
def test_each_operator_of_tensors_alone_makes_a_valid_case_or_is_one_that_is_refused(step: int, tmp_path: Path) -> None:
    cases = []
    for operator in [*signature_texts()][::step]:
        try:
            cases.append(draft(operator))
        except DraftError as error:
            assert "needs" in str(error), operator
            assert all(any(not argument.is_optional for argument in each) for each in signatures_of(operator))
    assert len(cases) > 700 / step
    errors = _errors(cases, tmp_path)
    assert [message for message in errors if "is refused" not in message and "unknown operator" not in message] == []
    assert len(errors) < 100
