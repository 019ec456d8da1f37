"""``runner.builder.editor_schema``: the schemas that editors read accept what is legal, and no unknown operator."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from runner.builder.catalog import callable_names, refused_names
from runner.builder.editor_schema import KINDS, editor_schema
from runner.cases.operator_texts import VERSIONS
from runner.cases.yaml.reader import load

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 4 << 20
"""Bytes of a schema; docs/editors.md has what a server needs for it."""


@cache
def schema_of(kind: str = "spec", version: str | None = None) -> dict[str, Any]:
    return json.loads(editor_schema(kind, version))  # type: ignore[no-any-return]


@cache
def step_validator(version: str | None = None) -> Draft7Validator:
    schema = schema_of("spec", version)
    return Draft7Validator({**schema["definitions"]["step"], "definitions": schema["definitions"]})


def takes(step: Any, version: str | None = None) -> bool:
    return bool(step_validator(version).is_valid(step))


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_stands_alone_and_is_small_enough(kind: str) -> None:
    text = editor_schema(kind)
    assert len(text.encode()) < LARGEST and text.count("\n") == 1
    Draft7Validator.check_schema(json.loads(text))
    assert "definitions.schema.json#" not in text


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no schema 'specs'"):
        editor_schema("specs")


def test_every_operator_is_a_property_with_its_signature() -> None:
    properties = schema_of()["definitions"]["step"]["properties"]
    assert {name for name in properties if "." in name} == {*callable_names()}
    gelu = properties["F.gelu"]
    assert gelu["description"].splitlines() == [
        "F.gelu(input: Tensor, *, approximate: str = 'none') -> Tensor",
        "Applies the Gaussian Error Linear Units function.",
        "dtypes on the CPU: bfloat16, float16, float32, float64",
    ]
    assert gelu["properties"] == {"input": {}, "approximate": {"anyOf": [{"enum": ["none", "tanh"]}, {}]}}
    assert properties["torch.cumsum"]["properties"]["dtype"] == {"$ref": "#/definitions/dtypeArgument"}
    assert properties["torch.amax"]["properties"]["keepdim"] == {"$ref": "#/definitions/trueOrFalse"}
    assert [name for name in callable_names() if not properties[name]["description"]] == []


@pytest.mark.slow
def test_it_takes_every_name_and_no_refused_one() -> None:
    tree = Draft7Validator({"allOf": schema_of()["definitions"]["step"]["allOf"]})  # of texts; mappings have properties
    assert [name for name in callable_names() if not tree.is_valid(name)] == []
    assert [name for name in refused_names() if tree.is_valid(name)] == []


@pytest.mark.parametrize(
    "step",
    [
        "F.rellu", {"F.rellu": None}, "F.qq", "F.", "torch.relu.x", "aten.add.Tenso", "torch.save", "zzz.x",
        {"torch.zeros": 1, "aut": "x"}, {"with": ["torch.no_gra"], "chain": ["F.relu"]},
        {"with": [{"F.relu": []}], "chain": ["F.relu"]}, {"with": ["torch.no_grad"], "chain": ["F.rellu"]},
        {"if": "$x", "do": ["F.rellu"]}, "torch.no_grad",
    ],
    ids=str,
)  # fmt: skip
def test_it_refuses_what_no_step_may_call(step: Any) -> None:
    assert not takes(step)


@pytest.mark.parametrize(
    "step",
    [
        "custom.mine.op", {"custom.mine.op.overload": ["$_"]}, "self.first", {"self.first": "$_", "out": "y"},
        "triton.scale", "$f", {"$f": {"dim": 1}}, {"F.gelu": {"approximate": "nonsense", "unknown": 1}},
        {"F.gelu": {"approximate": "$mode"}}, {"torch.neg": {"$tensor": [1]}}, {"torch.sum": {"keepdim": "${n > 1}"}},
        {"with": [{"torch.autocast": {"device_type": "cpu"}}, "torch.no_grad"], "chain": ["F.relu"]},
        {"if": "$x", "do": ["F.relu"], "else": [{"nn.Linear": [2, 2], "id": "a", "call": ["$x"]}]},
    ],
    ids=str,
)  # fmt: skip
def test_it_takes_what_a_file_or_a_package_makes_and_any_argument(step: Any) -> None:
    assert takes(step)


def test_a_version_takes_its_own_operators_alone() -> None:
    assert [takes("Tensor.grad_dtype", version) for version in (*VERSIONS, None)] == [False, True, True]
    assert takes("F.gelu", VERSIONS[0])
    assert "dim: str" in schema_of("spec", "2.6")["definitions"]["step"]["properties"]["torch.max"]["description"]


FILES = [
    path
    for kind in KINDS
    for folder in ("specs", "suites", "profiles", "tools")
    for path in sorted((ROOT / folder).rglob(f"*.{kind}.yaml"))
]


@pytest.mark.slow
def test_every_shipped_file_fits() -> None:
    """An editor underlines nothing in a file that is right."""
    assert len(FILES) > 140
    validators = {kind: Draft7Validator(schema_of(kind)) for kind in KINDS}
    for path in FILES:
        node, problems = load(str(path), path.read_text(encoding="utf-8"))
        assert node is not None and not problems
        errors = validators[path.name.split(".")[-2]].iter_errors(node.plain())
        assert [f"{path}: {[*error.absolute_path]}: {error.message[:200]}" for error in errors] == []
