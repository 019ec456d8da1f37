"""``runner.cases.yaml.acceptance``: it accepts what jsonschema accepts, and nothing else."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.cases.yaml import schema
from runner.cases.yaml.acceptance import compile_schema
from runner.cases.yaml.reader import load
from runner.cases.yaml.schema import KINDS

ROOT = Path(__file__).resolve().parents[3]
STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2.0, 0.5, float("inf"), float("nan"), 10**30, "", "a", "A b", "a\n", "$x", "${x + 1}",
    "$x.", "float32", "cuda:1", "spyre", "nn.X", "F.relu\n", "<<", [], [1, 1], [True, 1], ["a", "a"], [[]], [None],
    {}, {"a": 1}, {"": None}, {"chain": []}, {"name": "a"}, {"type": "x"}, {"$x": 1}, {"torch.add": [1]}, {"value": 0},
]  # fmt: skip
"""Values of every type, at the borders of what the schemas say."""


def has_no_errors(kind: str, value: Any, any_device: bool = False) -> bool:
    """What jsonschema says."""
    return bool(schema._validator(kind, any_device).is_valid(value))


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every collection in ``value`` with each of its keys or indices."""
    for key in [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def change(value: Any, draw: random.Random, words: list[str]) -> None:
    """Change one place of a file: another value, none, or a key or an item more."""
    part, key = draw.choice([*places(value)])
    match draw.randrange(5):
        case 0 if isinstance(part, dict):
            part[draw.choice(words)] = part.pop(key)
        case 1 if isinstance(part, dict):
            part[draw.choice(words)] = copy.deepcopy(draw.choice(STRANGE))
        case 2:
            del part[key]
        case 3 if isinstance(part, list):
            part.append(copy.deepcopy(draw.choice([part[key], *STRANGE])))
        case _:
            part[key] = copy.deepcopy(draw.choice(STRANGE))


@functools.cache
def wholes(kind: str) -> list[Any]:
    """The shipped files of a kind. No ledger is shipped: the entries of all specs make one."""
    if kind == "ledger":
        cases = [case for whole in wholes("spec") for case in whole["cases"]]
        return [{"known": [{"case": case["name"], **entry} for case in cases for entry in case.get("known", ())]}]
    paths = sorted(path for folder in ("specs", "suites") for path in (ROOT / folder).rglob(f"*.{kind}.yaml"))
    nodes = [load(path)[0] for path in paths]
    return [node.plain() for node in nodes if node is not None]


def compare(kind: str, whole: Any, draw: random.Random, times: int) -> list[bool]:
    """Hold both against each other on changes of a file, by a case at a time where it has several."""
    words = sorted({key for _, key in places(whole) if isinstance(key, str)} | {"unknown", "a\n", "$x", "aten.add.out"})
    answers = []
    for _ in range(times):
        parts = {key: [draw.choice(whole[key])] for key in ("cases", "known") if whole.get(key)}
        value = copy.deepcopy({**whole, **parts})
        for _ in range(draw.randint(1, 2)):
            if [*places(value)]:
                change(value, draw, words)
        for any_device in (False, True):
            answers.append(has_no_errors(kind, value, any_device))
            assert schema._acceptance(kind, any_device)(value) == answers[-1], (kind, value)
    return answers


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_files_are_right(kind: str) -> None:
    for whole in wholes(kind):
        assert schema._acceptance(kind, False)(whole) and has_no_errors(kind, whole)


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_of_changed_files_what_jsonschema_says(kind: str) -> None:
    draw = random.Random(2026)
    answers = [answer for whole in wholes(kind) for answer in compare(kind, whole, draw, 400 // len(wholes(kind)))]
    assert 0.1 < sum(answers) / len(answers) < 0.9


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_many_changed_files(kind: str) -> None:
    draw = random.Random()
    for whole in wholes(kind):
        compare(kind, whole, draw, 2000 // len(wholes(kind)))


@pytest.mark.parametrize("value", STRANGE, ids=repr)
@pytest.mark.parametrize("kind", [*KINDS, "project"])
def test_whole_files_of_every_type(kind: str, value: Any) -> None:
    assert schema._acceptance(kind, False)(value) == has_no_errors(kind, value)


@pytest.mark.parametrize("definition", sorted(schema.load_schema("definitions")["definitions"]))
def test_every_definition_alone(definition: str) -> None:
    parts = schema._whole("spec"), schema.load_schema("definitions")["definitions"]
    part = schema._resolved(parts[1][definition], parts[1], {})
    validator, accepts = schema._validator("spec", False).evolve(schema=part), compile_schema(part)
    examples = [*part.get("examples", ()), *STRANGE]
    values = [*examples, *([item] for item in examples), *({"a": item} for item in examples)]
    assert [accepts(value) for value in values] == [validator.is_valid(value) for value in values]


def test_a_keyword_that_is_not_known_here_is_no_silent_consent() -> None:
    with pytest.raises(ValueError, match="the keyword 'multipleOf' of a schema is not known"):
        compile_schema({"properties": {"a": {"multipleOf": 2}}})
