"""Texts that stand for something else: references ``$x``, arithmetic ``${...}``, indices ``"[:, 0]"``."""

from __future__ import annotations

import re
from typing import Any

from runner.cases import expressions
from runner.cases.model import Arithmetic, Index, Literal, Ref, Value
from runner.cases.problems import Problems, within
from runner.cases.yaml.scalars import show_value
from runner.cases.yaml.tree import YamlScalar
from runner.diagnostics import Span

_INDEX_DIGITS = len(str(1 << expressions.MAX_BITS))
"""Of an integer in an index: as many as the result of an expression may have."""

MAX_NESTING = 8
"""How deep the brackets of an index may be nested."""

MAX_INDEX = 1000
"""Characters in one index."""

_REF = re.compile(r"\$(?P<name>[A-Za-z_]\w*)(?P<path>(?:\.[A-Za-z_]\w*|\[-?\d{1,18}\])*)", re.ASCII)
_PART = re.compile(r"\.([A-Za-z_]\w*)|\[(-?\d+)\]", re.ASCII)


def parse_reference(text: str, span: Span, problems: Problems) -> Ref | None:
    """Return the reference ``$name.attr[0]``; None for any other text, which is reported."""
    match = _REF.fullmatch(text)
    if match is None:
        return problems.refuse(
            None,
            span,
            f"{show_value(text)} is no reference",
            "write $name, $name.attr, $name[0] or ${...}; plain text is {$text: ...}",
        )
    path = tuple(attr or int(item) for attr, item in _PART.findall(match["path"]))
    return Ref(match["name"], path, span)


def parse_arithmetic(text: str, span: Span, problems: Problems) -> Arithmetic | None:
    """Return ``${...}`` as a whole, checked; None for one that is wrong, which is reported."""
    inner = text[2:-1]
    try:
        expressions.parse(inner)
    except expressions.ExpressionError as error:
        return problems.refuse(None, within(span, 2 + error.offset), f"in {text}: {error}")
    return Arithmetic(inner, span)


def parse_index(node: YamlScalar, problems: Problems) -> Value:
    """Return an index such as ``"[..., None, $i, 1:3]"``; a harmless value for any other text, which is reported."""
    text = str(node.value)
    if len(text) > MAX_INDEX:
        return problems.refuse(
            Literal(0), node.span, f"an index has at most {MAX_INDEX} characters, this one has {len(text)}"
        )
    if not text.endswith("]") or _nesting(text) > MAX_NESTING:
        return problems.refuse(
            Literal(0), node.span, f"{show_value(text)} is no index", 'such as "[:, 0]" or "[..., $i, 1:3]"'
        )
    parts = _items(text)
    entries = [_entry(part, within(node.span, node.quoted + text.find(part), len(part)), problems) for part in parts]
    return Index(tuple(entries), node.span)


def _nesting(text: str) -> int:
    depth = deepest = 0
    for char in text:
        depth += (char == "[") - (char == "]")
        deepest = max(deepest, depth)
    return deepest


def _items(text: str) -> list[str]:
    """What stands between brackets; a trailing comma adds nothing (``[0,]``)."""
    *items, last = split(text[1:-1], ",")
    return [*items, last] if last or not items else items


def split(text: str, separator: str) -> list[str]:
    """Return the parts of a text outside brackets and braces, without blanks around them."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char in "[{(") - (char in ")}]")
        if char == separator and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    return [*parts, current.strip()]


def _entry(text: str, span: Span, problems: Problems) -> Any:
    if text == "...":
        return Ellipsis
    if ":" in text:
        parts = split(text, ":")
        if 1 < len(parts) <= 3:
            bounds = [_entry(part, span, problems) if part else None for part in parts]
            return tuple(bounds + [None] * (3 - len(bounds)))
    if text.startswith("["):
        return [_entry(part, span, problems) for part in _items(text)]
    if text in ("None", "null"):
        return None
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    if re.fullmatch(rf"-?[0-9]{{1,{_INDEX_DIGITS}}}", text):
        return int(text)
    if text.startswith("${") and text.endswith("}"):
        return parse_arithmetic(text, span, problems)
    if text.startswith("$"):
        return parse_reference(text, span, problems)
    return problems.refuse(
        0, span, f"{show_value(text)} is no part of an index", "parts are integers, a:b:c, ..., None, $name and ${...}"
    )
