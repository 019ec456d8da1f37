"""Values of YAML: which one a plain scalar is, the tree of values that know their place, and how messages show them.

The schema has refused wrong types before; ``scalar`` and its siblings are the second net. Whatever the schema lets
through by mistake becomes a diagnostic with its place, and reaches no field of a case.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from runner.diagnostics import Span

# Named tuples: a frozen dataclass takes twice the time, and a file has thousands of nodes.


class YamlScalar(NamedTuple):
    """One value that is not a collection.

    ``value`` is what the core schema makes of it, ``text`` its characters without quotes or escapes.
    ``quoted`` says that it was quoted or a block scalar. Such a scalar is text, whatever it looks like.
    """

    value: bool | int | float | str | None
    span: Span
    text: str
    quoted: bool = False

    def plain(self) -> Any:
        """Return the value."""
        return self.value


class YamlSequence(NamedTuple):
    """A list."""

    items: tuple[YamlNode, ...]
    span: Span

    def plain(self) -> list[Any]:
        """Return the list as Python data."""
        return [item.plain() for item in self.items]


class YamlMapping(NamedTuple):
    """A mapping. Its keys are text, each there once, in the order written."""

    entries: tuple[tuple[YamlScalar, YamlNode], ...]
    span: Span

    def get(self, key: str) -> YamlNode | None:
        """Return the value of ``key``, or None."""
        for name, value in self.entries:
            if name.value == key:
                return value
        return None

    def key(self, key: str) -> YamlScalar | None:
        """Return the node of the key itself, or None."""
        return next((name for name, _ in self.entries if name.value == key), None)

    def keys(self) -> Iterator[str]:
        """Return the keys, in the order written."""
        return (str(name.value) for name, _ in self.entries)

    def plain(self) -> dict[str, Any]:
        """Return the mapping as Python data."""
        return {str(name.value): value.plain() for name, value in self.entries}


YamlNode = YamlScalar | YamlSequence | YamlMapping


def count_nodes(node: YamlNode) -> int:
    """Return how many values, lists and mappings a node is, aliases followed."""
    if isinstance(node, YamlScalar):
        return 1
    return 1 + sum(
        map(count_nodes, node.items if isinstance(node, YamlSequence) else [value for _, value in node.entries])
    )


def find(node: YamlNode, path: Any) -> YamlNode:
    """Return the node at a path of keys and indices, such as jsonschema gives.

    Where the path leads nowhere, it is the deepest node that exists.
    """
    for part in path:
        child: YamlNode | None = None
        if isinstance(node, YamlMapping) and isinstance(part, str):
            child = node.get(part)
        elif isinstance(node, YamlSequence) and isinstance(part, int) and -len(node.items) <= part < len(node.items):
            child = node.items[part]
        if child is None:
            return node
        node = child
    return node


SCALARS = (bool, int, float, str, type(None))
"""Every type that a scalar of YAML can have."""

NUMBERS = (int, float)
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "text", type(None): "null"}


class Mistyped(Exception):
    """A value of another type than its field has."""

    def __init__(self, node: YamlNode, expected: str) -> None:
        super().__init__(f"expected {expected}, found {describe_value(node.plain())}")
        self.span: Span = node.span


def scalar(node: YamlNode | None, *types: type, default: Any = None) -> Any:
    """Return the value of ``node``, exactly of one of ``types`` (true is no integer).

    Returns ``default`` where there is no node. Raises Mistyped.
    """
    if node is None:
        return default
    if not isinstance(node, YamlScalar) or type(node.value) not in types:
        raise Mistyped(node, " or ".join(_KINDS[kind] for kind in types))
    return node.value


def text_of(node: YamlNode | None) -> str | None:
    """Return the text that a node is; None for anything else."""
    return node.value if isinstance(node, YamlScalar) and isinstance(node.value, str) else None


def listed(node: YamlNode | None, *types: type, default: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Return the values of a list, or one value that stands for a list of one.

    Raises Mistyped for one of another type.
    """
    return default if node is None else tuple(scalar(item, *types) for item in several(node))


def table(node: YamlNode | None, *types: type) -> dict[str, Any]:
    """Return a mapping of names to values of these types. Raises Mistyped."""
    return {name: scalar(value, *types) for name, value in fields(node).items()}


def nested(node: YamlNode, *types: type) -> Any:
    """Return the value of ``node`` as ``scalar`` does, and lists of such values as tuples, however deep. Raises
    Mistyped."""
    if isinstance(node, YamlSequence):
        return tuple(nested(item, *types) for item in node.items)
    return scalar(node, *types)


def nested_table(node: YamlNode | None, *types: type) -> dict[str, Any]:
    """Return a mapping of names to what ``nested`` gives. Raises Mistyped."""
    return {name: nested(value, *types) for name, value in fields(node).items()}


def scalars_of(value: Any) -> Iterator[Any]:
    """Yield the scalars of what ``nested`` gives, in order."""
    for item in value if isinstance(value, tuple) else ():
        yield from scalars_of(item)
    if not isinstance(value, tuple):
        yield value


def several(node: YamlNode) -> tuple[YamlNode, ...]:
    """Return the items of a list; anything else stands for a list of one."""
    return node.items if isinstance(node, YamlSequence) else (node,)


def items(node: YamlNode | None) -> tuple[YamlNode, ...]:
    """Return the items of a list, which may be left out. Raises Mistyped for anything else."""
    if node is None:
        return ()
    if not isinstance(node, YamlSequence):
        raise Mistyped(node, "a list")
    return node.items


def entries(node: YamlNode | None) -> tuple[tuple[YamlScalar, YamlNode], ...]:
    """Return the entries of a mapping, which may be left out. Raises Mistyped for anything else."""
    if node is None:
        return ()
    if not isinstance(node, YamlMapping):
        raise Mistyped(node, "a mapping")
    return node.entries


def fields(node: YamlNode | None) -> dict[str, YamlNode]:
    """Return the entries of a mapping by name, as ``entries`` gives them."""
    return {str(key.value): value for key, value in entries(node)}


# --- which value a plain scalar is -----------------------------------------------------------

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
CURLY_QUOTES = ("\u201c", "\u201d", "\u201e", "\u2018", "\u2019")
"""Quotes of word processors, which YAML takes for text."""
_NUMBER_STARTS = frozenset("0123456789+-.")
_MAX_DIGITS = 1000  # Python refuses to read more than 4300, and no number here needs them


def resolve(text: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar under the YAML 1.2 core schema.

    Raises ValueError, with a message for people, for a number that Python cannot hold.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS:
        return text
    if _INT.fullmatch(text):
        if len(text) > _MAX_DIGITS:
            raise ValueError(f"an integer of {len(text)} digits is too long to be meant")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ValueError(
                f"{text[:60]} is beyond the range of a 64-bit float; write .inf or -.inf where infinity is meant"
            )
        return number
    return text


def split_lines(text: str) -> list[str]:
    """Return the lines of ``text`` as YAML 1.2 and editors count them. Always one or more."""
    return re.split(r"\r\n|\r|\n", text) if "\r" in text else text.split("\n")


# Control characters, what changes the direction of text, and what is no character: a terminal would obey or hide them.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


def excerpt(line: str) -> str:
    """Return a line of a file as it is shown: characters that a terminal obeys become U+FFFD.

    No character is added, so that a caret still fits.
    """
    return _UNSHOWN.sub("\ufffd", line)


# --- values in messages ---


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
        case list() | tuple():
            return f"[{', '.join(map(flow, value))}]"
        case dict():
            return f"{{{', '.join(f'{flow(k)}: {flow(v)}' for k, v in value.items())}}}"
    return str(value)
