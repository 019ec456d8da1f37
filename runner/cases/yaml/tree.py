"""The tree that a YAML file is read into: values that know their place, and are of the type that a reader expects.

The schema has refused wrong types before; ``scalar`` and its siblings are the second net. Whatever the schema lets
through by mistake becomes a diagnostic with its place, and reaches no field of a case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runner.cases.yaml.scalars import describe_value
from runner.diagnostics import Span


@dataclass(frozen=True, slots=True, eq=False)
class YamlScalar:
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


@dataclass(frozen=True, slots=True, eq=False)
class YamlSequence:
    """A list."""

    items: tuple[YamlNode, ...]
    span: Span

    def plain(self) -> list[Any]:
        """Return the list as Python data."""
        return [item.plain() for item in self.items]


@dataclass(frozen=True, slots=True, eq=False)
class YamlMapping:
    """A mapping. Its keys are text, each there once, in the order written."""

    entries: tuple[tuple[YamlScalar, YamlNode], ...]
    span: Span

    def get(self, key: str) -> YamlNode | None:
        """Return the value of ``key``, or None."""
        return next((value for name, value in self.entries if name.value == key), None)

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
_WORDS = {bool: "true or false", int: "an integer", float: "a number", str: "text", type(None): "null"}


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
        raise Mistyped(node, " or ".join(_WORDS[kind] for kind in types))
    return node.value


def listed(node: YamlNode | None, *types: type, default: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """Return the values of a list, or one value that stands for a list of one.

    Raises Mistyped for one of another type.
    """
    if node is None:
        return default
    return tuple(scalar(item, *types) for item in several(node))


def table(node: YamlNode | None, *types: type) -> dict[str, Any]:
    """Return a mapping of names to values of these types. Raises Mistyped."""
    return {name: scalar(value, *types) for name, value in fields(node).items()}


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
