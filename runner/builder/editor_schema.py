"""The JSON Schemas of spec and suite files for editors: with every operator, its signature and its arguments.

An editor completes the keys of ``properties``, shows the ``description`` of what fits, and underlines the rest.
A bare operator is a text, and a text has no keys. So its schema is a tree: ``if`` a pattern fits the first characters,
``then`` more are asked for, and a leaf has the names themselves. An editor asks some forty patterns for a text instead
of 6,000 names, and an unknown name is told the names of its leaf.

Arguments are offered and never refused: a case may give a wrong one on purpose, for the error that eager raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from runner.builder.catalog import callable_names
from runner.cases.operator_names import CONTEXTS
from runner.cases.operator_texts import arguments_of, is_overload, overloads_of, text_of, words_for
from runner.cases.yaml.schema import load_schema

Schema = dict[str, Any]

KINDS = ("spec", "suite")
"""The kinds of files that have steps."""

_LEAF = 24
"""Names of a leaf of the tree, at most: an editor lists them about an unknown name."""
_SIGNATURES = 4
"""Signatures of one operator, at most; ``runner operators`` prints all."""
_FREE = ("self", "triton", "custom")
"""Namespaces whose names a file or a package makes."""
_DTYPES = ("torch.float64", "torch.float32", "torch.float16", "torch.bfloat16", "torch.complex64", "torch.int64",
                "torch.int32", "torch.int16", "torch.int8", "torch.uint8", "torch.bool")  # fmt: skip
_FORMATS = ("torch.contiguous_format", "torch.channels_last", "torch.channels_last_3d", "torch.preserve_format")
_UNKNOWN = "no operator that a case may call begins like this; runner operators lists them"


def editor_schema(kind: str, version: str | None = None) -> str:
    """Return the schema of one of the ``KINDS`` for editors: with the operators of a version of torch, or of all.

    It has no line breaks but the last, for it is large. Raises ValueError for an unknown kind.
    """
    schema = load_schema(kind)
    definitions = schema["definitions"]
    names = callable_names(version)
    definitions["step"] = _with_operators(definitions["step"], names, version)
    definitions["context"] = _with_contexts(definitions["context"])
    definitions |= {
        "trueOrFalse": _offered([True, False]),
        "dtypeArgument": _offered(["$dtype", *_DTYPES]),
        "memoryFormat": _offered(_FORMATS),
    }
    _name_expectations(schema)
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False) + "\n"


def _with_operators(step: Schema, names: Sequence[str], version: str | None) -> Schema:
    """Return the schema of a step whose keys are the operators; other names are those that a file makes, and params."""
    ((_, arguments),) = step["patternProperties"].items()
    own = r"\.[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*"
    spaces = [(space, [*group]) for space, group in groupby(names, lambda name: name.partition(".")[0])]
    operators = {name: _operator(name, version) for name in names}
    texts = {name: schema["description"] for name, schema in operators.items()}
    return {
        **step,
        "properties": {**step["properties"], **operators},
        "patternProperties": {rf"^(({'|'.join(_FREE)}){own}|\$[A-Za-z][A-Za-z0-9_]*)$": arguments},
        # For an empty place of a list in one line the server reads what is written out, and asks for no match. A text
        # is not null: so these names are offered there alone, and no message or hover lists them.
        "anyOf": [{}, {"type": "null", "enum": [name for name in names if not is_overload(name)]}],
        "allOf": [
            {"if": {"type": "string", "pattern": rf"^{space}\."}, "then": _tree(f"{space}.", group, texts)}
            for space, group in spaces
        ],
    }


def _operator(name: str, version: str | None) -> Schema:
    """Return the schema of an operator's arguments, with what a person reads about it."""
    text = text_of(name, version)
    overloads = overloads_of(name)
    shown = text.signatures[:_SIGNATURES] or (name,)
    more = [f"and {len(text.signatures) - len(shown)} more signatures"] * (len(text.signatures) > len(shown))
    lines = [*shown, *more]
    if not is_overload(name):  # what all overloads share stands at their operator
        lines += [text.line, f"dtypes on the CPU: {', '.join(text.dtypes)}" if text.dtypes else ""]
    arguments = {
        argument: _argument(name, argument, default)
        for argument, default in arguments_of(text.signatures).items()
        if not (overloads and argument.startswith("out"))
    }
    return {"description": "\n".join(filter(None, lines)), **({"properties": arguments} if arguments else {})}


def _argument(name: str, argument: str, default: str) -> Schema:
    if words := words_for(name, argument):
        return _offered(words)
    if default in ("True", "False"):
        return {"$ref": "#/definitions/trueOrFalse"}
    definition = {"dtype": "dtypeArgument", "memory_format": "memoryFormat"}.get(argument)
    return {"$ref": f"#/definitions/{definition}"} if definition else {}


def _offered(values: Sequence[object]) -> Schema:
    """Return a schema that offers these values and takes all others too."""
    return {"anyOf": [{"enum": [*values]}, {}]}


def _tree(prefix: str, names: Sequence[str], texts: Mapping[str, str]) -> Schema:
    """Return the schema of a text that begins with ``prefix`` and is one of the sorted ``names``."""
    if len(names) <= _LEAF:  # the text stands here again: behind a reference an editor does not offer the name
        return {"anyOf": [{"const": name, "description": texts[name]} for name in names]}
    branches = {start: [*group] for start, group in groupby(names, lambda name: name[: len(prefix) + 1])}
    if len(branches) == 1:
        return _tree(*branches.popitem(), texts)
    patterns = {start: f"^{re.escape(start)}{'$' if start == prefix else ''}" for start in branches}
    trees = {start: _tree(start, group, texts) for start, group in branches.items()}
    return {
        "pattern": "|".join(patterns.values()),
        "patternErrorMessage": _UNKNOWN,
        "allOf": [{"if": {"pattern": patterns[start]}, "then": tree} for start, tree in trees.items()],
    }


def _with_contexts(context: Schema) -> Schema:
    ((_, arguments),) = context["patternProperties"].items()
    return {
        **{key: value for key, value in context.items() if key != "patternProperties"},
        "if": {"type": "string"},
        "then": {"enum": [*CONTEXTS]},
        "properties": {name: arguments for name in CONTEXTS},
    }


def _name_expectations(schema: Any) -> None:
    """Give each pattern the words that say what is expected; an editor would print the pattern."""
    if isinstance(schema, list):
        for part in schema:
            _name_expectations(part)
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str) and isinstance(schema.get("x-expected"), str):
            schema["patternErrorMessage"] = f"expected {schema['x-expected']}"
        for part in schema.values():
            _name_expectations(part)
