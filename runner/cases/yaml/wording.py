"""YAML values and what a schema wants, in the words of messages."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_TYPES = {
    "string": "text",
    "array": "a list",
    "object": "a mapping",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}


def expected(schema: dict[str, Any]) -> str:
    """Return what a value under ``schema`` should be."""
    if "x-expected" in schema:
        return str(schema["x-expected"])
    types = schema.get("type", [])
    words = [_TYPES[name] for name in ([types] if isinstance(types, str) else types)]
    return " or ".join(words) or "something else"


def describe_value(value: Any) -> str:
    """Describe a value: its kind and, where it is short, itself."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return f"{show_value(value)}"
        case int():
            return f"the integer {show_value(value)}"
        case float():
            return f"the number {show_value(value)}"
        case str():
            return f"the text {show_value(value)}"
        case list():
            return "a list" if value else "an empty list"
    return "a mapping" if value else "an empty mapping"


def show_value(value: Any) -> str:
    """Return a value as it stands in a message: short, on one line."""
    text = repr(value) if isinstance(value, str) else flow(value)
    return text if len(text) <= 60 else text[:57] + "..."


def flow(value: Any) -> str:
    """Return a value in flow style."""
    match value:
        case None | bool():
            return json.dumps(value)
        case float() if not math.isfinite(value):
            return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
        case str():
            return (
                value if re.fullmatch(r"[A-Za-z$./_][^:#,\[\]{}'\"]*", value) else json.dumps(value, ensure_ascii=False)
            )
        case list():
            return f"[{', '.join(map(flow, value))}]"
        case dict():
            return f"{{{', '.join(f'{flow(k)}: {flow(v)}' for k, v in value.items())}}}"
    return str(value)


def such_as(schema: dict[str, Any]) -> str:
    """Return the schema's first example as a hint, or an empty string."""
    examples = schema.get("examples")
    return f"such as {flow(examples[0])}" if examples else ""


def count(number: int, singular: str, plural: str) -> str:
    """Return ``one key``, ``2 keys``."""
    return f"one {singular}" if number == 1 else f"{number} {plural}"
