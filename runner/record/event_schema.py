"""A JSON Schema as functions: fast enough for each line of a long log, where a general validator takes 100 times as
long.

The published schema stays the one truth. This module knows the keywords that ``events.schema.json`` uses and refuses
others.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from runner.cases.yaml.schema import load_schema
from runner.text import one_line

_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),), "boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,),
    "array": (list,), "object": (dict,),
}  # fmt: skip
_WORDS = {
    "null": "null", "boolean": "true or false", "integer": "an integer", "number": "a number", "string": "a text",
    "array": "a list", "object": "a mapping",
}  # fmt: skip
_NOTES = frozenset({"$schema", "title", "description", "definitions", "type"})
"""Keywords that are no checks, and the type, which is looked at first."""

Check = Callable[[Any], None]
"""Raises Unfit for a value that does not fit."""

Schema = Mapping[str, Any]


class Unfit(ValueError):
    """A value that does not fit its schema; the text says where and why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.path: list[str] = []  # from the inside outwards

    def __str__(self) -> str:
        place = ".".join(reversed(self.path))
        return f"{place}: {self.reason}" if place else self.reason


@functools.cache
def event_checks() -> Mapping[str, Check]:
    """Return a check for each kind of event of the published schema, by the kind's name."""
    schema = load_schema("events")
    definitions = schema["definitions"]
    stamps = compile_schema({"properties": {key: schema["properties"][key] for key in ("plan", "shard")}}, definitions)
    kinds = (rule["if"]["properties"]["event"]["const"] for rule in schema["allOf"])
    return {kind: _all([stamps, compile_schema(definitions[kind], definitions)]) for kind in kinds}


def compile_schema(schema: Schema, definitions: Schema) -> Check:
    """Return the check of a schema that may refer to ``definitions``.

    Values are what ``json.loads`` returns, so their types are compared and not their classes. Raises ValueError for a
    keyword that is not known here.
    """
    schema = _target(schema, definitions)
    return _all([*_type_checks(schema), *_further(schema, definitions)])


def _target(schema: Schema, definitions: Schema) -> Schema:
    return _target(definitions[schema["$ref"].rpartition("/")[2]], definitions) if "$ref" in schema else schema


def _further(schema: Schema, definitions: Schema) -> list[Check]:
    """The checks of what a schema says beside its type."""
    keywords = {key: value for key, value in schema.items() if key not in _NOTES}
    if {"properties", "additionalProperties"} <= keywords.keys():
        raise ValueError("no check for additionalProperties beside properties")
    checks = []
    if {"properties", "required"} & keywords.keys():
        checks.append(_members(keywords.pop("properties", {}), keywords.pop("required", []), definitions))
    if {"minimum", "maximum"} & keywords.keys():
        low, high = keywords.pop("minimum", -math.inf), keywords.pop("maximum", math.inf)
        reason = f"is not between {low} and {high}"
        checks.append(_bound(lambda value: not (value < low or value > high), reason, int, float))
    for key, value in keywords.items():
        if key in ("items", "additionalProperties"):
            checks.append(_each(value, list if key == "items" else dict, definitions))
        elif key == "anyOf":
            checks.append(_any([compile_schema(part, definitions) for part in value]))
        elif key in _KEYWORDS:
            checks.append(_KEYWORDS[key](value))
        else:
            raise ValueError(f"no check for the keyword {key!r}")
    return checks


def _members(properties: Schema, required: list[str], definitions: Schema) -> Check:
    # Types are looked at here, without a call: of most members nothing else is to be said.
    rules = []
    for name, part in properties.items():
        target = _target(part, definitions)
        further = _further(target, definitions)
        whole = _all([*_type_checks(target), *further])
        rules.append((name, _classes(target), _all(further) if further else None, whole))

    def check_members(value: Any) -> None:
        if type(value) is not dict:
            return
        for name in required:
            if name not in value:
                raise Unfit(f"{name!r} is missing")
        for name, classes, further, whole in rules:
            if name not in value:
                continue
            check = further if type(value[name]) in classes else whole
            if check is not None:
                try:
                    check(value[name])
                except Unfit as error:
                    error.path.append(name)
                    raise

    return check_members


def _each(schema: Schema, kind: type, definitions: Schema) -> Check:
    check = compile_schema(schema, definitions)
    pairs: Callable[[Any], Iterable[tuple[object, Any]]] = enumerate if kind is list else dict.items

    def check_each(value: Any) -> None:
        if type(value) is not kind:
            return
        for key, item in pairs(value):
            try:
                check(item)
            except Unfit as error:
                error.path.append(str(key))
                raise

    return check_each


def _all(checks: Sequence[Check]) -> Check:
    """Several checks as one."""
    if len(checks) == 1:
        return checks[0]

    def check_all(value: Any) -> None:
        for check in checks:
            check(value)

    return check_all


def _any(checks: Sequence[Check]) -> Check:
    """One check of several: a value that fits none is refused with the reason of the first."""

    def check_any(value: Any) -> None:
        reasons = []
        for check in checks:
            try:
                return check(value)
            except Unfit as error:
                reasons.append(error)
        raise reasons[0]

    return check_any


def _names(schema: Schema) -> list[str]:
    names = schema.get("type", [])
    return [names] if isinstance(names, str) else names


def _classes(schema: Schema) -> frozenset[type]:
    return frozenset(kind for name in _names(schema) for kind in _TYPES[name])


def _type_checks(schema: Schema) -> list[Check]:
    """The check of the type; none for a schema that says nothing of it."""
    names, classes = _names(schema), _classes(schema)
    return (
        [_allowed(lambda value: type(value) in classes, " or ".join(map(_WORDS.__getitem__, names)))] if names else []
    )


def _enum(values: list[Any]) -> Check:
    allowed = frozenset((type(value), value) for value in values)
    words = f"one of {', '.join(map(str, values))}" if len(values) > 1 else str(values[0])
    return _allowed(lambda value: type(value) not in (list, dict) and (type(value), value) in allowed, words)


def _allowed(test: Callable[[Any], bool], words: str) -> Check:
    """A check that a value is what ``words`` say."""

    def check_allowed(value: Any) -> None:
        if not test(value):
            raise Unfit(f"expected {words}, found {_shown(value)}")

    return check_allowed


def _bound(test: Callable[[Any], bool], reason: str, *kinds: type) -> Check:
    """A check of values of some types; others pass."""

    def check_bound(value: Any) -> None:
        if type(value) in kinds and not test(value):
            raise Unfit(f"{_shown(value)} {reason}")

    return check_bound


_KEYWORDS: dict[str, Callable[[Any], Check]] = {
    "enum": _enum,
    "maxLength": lambda bound: _bound(lambda value: len(value) <= bound, f"has more than {bound} characters", str),
    "pattern": lambda text: _bound(lambda value: bool(re.fullmatch(text, value)), f"does not match {text}", str),
    "x-finite": lambda _: _bound(math.isfinite, "is not finite", float),
}


def _shown(value: Any) -> str:
    """A value in a message: a few words of it."""
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    return one_line(repr(value[:60]) if isinstance(value, str) else str(value), 60)
