"""The tree that a YAML file is read into: values that know their place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
    inner = node.items if isinstance(node, YamlSequence) else [value for _, value in node.entries]
    return 1 + sum(map(count_nodes, inner))


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
