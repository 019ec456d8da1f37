"""Strategies of what the project's own JSON Schemas accept, as far as types, keys, items and patterns say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.forks import ROOT

Schema = Mapping[str, Any]
_CHARACTERS = st.characters(exclude_categories=["Cs"])
_NAME = "^[a-z_]{1,6}$"


@cache
def schema(file: str) -> dict[str, Any]:
    """Return a schema of the project, such as ``spec``."""
    data: dict[str, Any] = json.loads((ROOT / "schema" / f"{file}.schema.json").read_text(encoding="utf-8"))
    return data


@cache
def definition(name: str, file: str = "definitions") -> st.SearchStrategy[Any]:
    """Values of a definition, such as ``case.grad``."""
    return st.deferred(lambda: values(schema(file)["definitions"][name], file))


def values(node: Schema, file: str = "definitions") -> st.SearchStrategy[Any]:
    """Values that ``node`` accepts, its examples among them."""
    if "$ref" in node:
        place, _, name = node["$ref"].rpartition("#/definitions/")
        return definition(name, place.removesuffix(".schema.json") or file)
    if "if" in node:
        branches = {key: node[key] for key in ("then", "else") if key in node}
        base = {key: value for key, value in node.items() if key not in ("if", "then", "else")}
        only = _types(node["if"])
        other_types = [name for name in _types(base) if name not in only]
        return st.one_of(values({**base, **node["if"], **branches.get("then", {})}, file),
                         values({**base, "type": other_types, **branches.get("else", {})}, file))  # fmt: skip
    kinds = [st.sampled_from(node["enum"])] if "enum" in node else [_of_type(name, node, file) for name in _types(node)]
    if "examples" in node:
        kinds.insert(0, st.sampled_from(node["examples"]))
    return st.one_of(kinds)


def _types(node: Schema) -> list[str]:
    names = node.get("type", ["string", "integer", "boolean", "null", "array"])
    return [names] if isinstance(names, str) else [*names]


def _of_type(name: str, node: Schema, file: str) -> st.SearchStrategy[Any]:
    if name == "object":
        return _mappings(node, file)
    if name == "array":
        least, most = node.get("minItems", 0), min(node.get("maxItems", 3), 3)
        return st.lists(values(node.get("items", {"type": ["integer", "string"]}), file), min_size=least, max_size=most)
    if name == "string" and "pattern" in node:
        return st.from_regex(node["pattern"], alphabet=_CHARACTERS)  # its $ lets a line break pass, as re does
    if name in ("integer", "number"):
        whole = st.integers(node.get("minimum"), node.get("maximum"))
        return whole if name == "integer" else st.one_of(whole,
            st.floats(node.get("minimum"), node.get("maximum"), allow_nan=False, allow_infinity=False))  # fmt: skip
    return {"string": st.text(_CHARACTERS, min_size=node.get("minLength", 0), max_size=8), "boolean": st.booleans(),
        "null": st.none()}[name]  # fmt: skip


@st.composite
def _mappings(draw: st.DrawFn, node: Schema, file: str) -> dict[str, Any]:
    own: Schema = node.get("properties", {})
    for need in node.get("anyOf", ()):
        node = {**node, "required": [*node.get("required", ()), *need.get("required", ())]}
        break
    optional = [key for key in own if key not in node.get("required", ())]
    keys = [*node.get("required", ()), *(draw(st.lists(st.sampled_from(optional), max_size=3,
        unique=True)) if optional else ())]  # fmt: skip
    keys += [needed for key in keys for needed in node.get("dependencies", {}).get(key, ()) if needed not in keys]
    data = {key: draw(values(own.get(key, {}), file)) for key in keys}
    for pattern, value in node.get("patternProperties", {}).items():
        data = {draw(st.from_regex(pattern, alphabet=_CHARACTERS)): draw(values(value, file)), **data}
    if further := node.get("additionalProperties", True):
        names = values(node.get("propertyNames", {"type": "string", "pattern": _NAME}), file)
        least = max(node.get("minProperties", 1) - len(data), 0)
        data |= draw(st.dictionaries(names, values(further if isinstance(further, dict) else {}, file),
            min_size=least, max_size=max(least, 2)))  # fmt: skip
    return data
