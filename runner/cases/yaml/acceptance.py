"""Whether a schema accepts plain data: yes or no, thirty times faster than jsonschema, which says why not.

The rules are those of draft 7 as far as the schemas of this project use them, and their own keywords. A schema becomes
a function that looks up by a value's type which rules there are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]
"""Whether a value passes."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "array": (list,),
    "object": (dict,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_EVERY = tuple(dict.fromkeys(kind for kinds in _TYPES.values() for kind in kinds))
_SILENT = {"title", "description", "examples", "default", "$schema", "$id", "$comment", "enumDescriptions"}
_SILENT |= {"x-expected", "x-namespaces", "x-refused", "type", "then", "else"}
"""Keywords that refuse nothing by themselves."""


def compile_schema(schema: Any, any_device: bool = False) -> Check:
    """Return the function that says whether a value passes ``schema``, whose references are resolved.

    ``any_device`` takes devices that torch does not name. Raises ValueError for a keyword that is not known here.
    """
    compiler = _Compiler(any_device)
    check = compiler.check(schema)

    def accepts(value: Any) -> bool:
        try:
            return check(value)
        finally:
            compiler.answers.clear()

    return accepts


def _passes_all(rules: list[Check], value: Any) -> bool:
    for rule in rules:  # noqa: SIM110 -- all() of a generator takes twice as long
        if not rule(value):
            return False
    return True


class _Compiler:
    def __init__(self, any_device: bool) -> None:
        self.any_device = any_device
        self.checks: dict[int, Check] = {}  # by the ids of schemas: these may hold themselves
        self.answers: dict[tuple[int, int], bool] = {}
        """By the ids of a schema and a list or mapping, while one value is checked: several rules ask the same of each
        level, so that the time would double with every level."""

    def check(self, schema: Any) -> Check:
        """The function for one schema."""
        if isinstance(schema, bool):
            return lambda _: schema
        if id(schema) in self.checks:
            return self.checks[id(schema)]
        rules_of: dict[type, list[Check]] = {}

        def passes(value: Any) -> bool:
            rules = rules_of.get(type(value))
            if rules is None:
                return False
            if not isinstance(value, (dict, list)):
                return _passes_all(rules, value)
            key = (id(rules_of), id(value))
            answer = self.answers.get(key)
            if answer is None:
                answer = self.answers[key] = _passes_all(rules, value)
            return answer

        self.checks[id(schema)] = passes
        names = schema.get("type", [*_TYPES])
        kinds = {kind for name in ([names] if isinstance(names, str) else names) for kind in _TYPES[name]}
        rules = [self._rule(key, value, schema) for key, value in schema.items() if key not in _SILENT]
        rules_of.update({kind: [rule for types, rule in rules if kind in types] for kind in _EVERY if kind in kinds})
        return passes

    def _rule(self, key: str, bound: Any, schema: Mapping[str, Any]) -> tuple[tuple[type, ...], Check]:
        """The types that a keyword is about, and its rule for them."""
        match key:
            case "properties" | "patternProperties" | "additionalProperties":
                return (dict,), self._members(schema)
            case "propertyNames":
                name = self.check(bound)
                return (dict,), lambda value: all(map(name, value))
            case "items":
                item = self.check(bound)
                return (list,), lambda value: all(map(item, value))
            case "anyOf":
                ways = [self.check(way) for way in bound]
                return _EVERY, lambda value: any(way(value) for way in ways)
            case "if":
                condition = self.check(bound)
                then, otherwise = (self.check(schema.get(branch, True)) for branch in ("then", "else"))
                return _EVERY, lambda value: then(value) if condition(value) else otherwise(value)
            case "x-devices":
                return (str,), lambda value: self.any_device or value.partition(":")[0] in bound
        if key not in _PLAIN:
            raise ValueError(f"the keyword {key!r} of a schema is not known")
        types, make = _PLAIN[key]
        return types, make(bound)

    def _members(self, schema: Mapping[str, Any]) -> Check:
        own = {name: self.check(part) for name, part in schema.get("properties", {}).items()}
        patterns = [
            (re.compile(pattern).search, self.check(part))
            for pattern, part in schema.get("patternProperties", {}).items()
        ]
        extra = self.check(schema.get("additionalProperties", True))

        def passes(value: dict[str, Any]) -> bool:
            for name, item in value.items():
                check = own.get(name)
                if check is not None and not check(item):
                    return False
                is_known = check is not None
                for search, part in patterns:
                    if search(name):
                        is_known = True
                        if not part(item):
                            return False
                if not is_known and not extra(item):
                    return False
            return True

        return passes


def _among(words: list[Any]) -> Check:
    known = {(isinstance(word, bool), word) for word in words}  # true is no 1
    return lambda value: not isinstance(value, list | dict) and (isinstance(value, bool), value) in known


def _matching(pattern: str) -> Check:
    search = re.compile(pattern).search
    return lambda value: search(value) is not None


def _dependencies(needed: Mapping[str, list[str]]) -> Check:
    return lambda value: all(value.keys() >= {*partners} for name, partners in needed.items() if name in value)


_PLAIN: Mapping[str, tuple[tuple[type, ...], Callable[[Any], Check]]] = {
    "enum": (_EVERY, _among),
    "required": ((dict,), lambda names: lambda value: all(name in value for name in names)),
    "dependencies": ((dict,), _dependencies),
    "minProperties": ((dict,), lambda bound: lambda value: len(value) >= bound),
    "maxProperties": ((dict,), lambda bound: lambda value: len(value) <= bound),
    "minItems": ((list,), lambda bound: lambda value: len(value) >= bound),
    "maxItems": ((list,), lambda bound: lambda value: len(value) <= bound),
    "uniqueItems": ((list,), lambda holds: lambda value: not holds or len({*map(repr, value)}) == len(value)),
    "minLength": ((str,), lambda bound: lambda value: len(value) >= bound),
    "maxLength": ((str,), lambda bound: lambda value: len(value) <= bound),
    "pattern": ((str,), _matching),
    "minimum": ((int, float), lambda bound: lambda value: not value < bound),
    "maximum": ((int, float), lambda bound: lambda value: not value > bound),
    "exclusiveMinimum": ((int, float), lambda bound: lambda value: not value <= bound),
    "x-finite": ((float,), lambda holds: lambda value: not holds or math.isfinite(value)),
}
"""Keywords that hold no schema: the types that each is about, and what makes its rule."""
