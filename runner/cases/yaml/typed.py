"""Values of YAML nodes, each checked to be of the type that its reader expects.

The schema has refused wrong types before; this is the second net. Whatever the schema lets through by mistake becomes a
diagnostic with its place, and reaches no field of a case.
"""

from __future__ import annotations

from typing import Any

from runner.cases.yaml.tree import YamlMapping, YamlNode, YamlScalar, YamlSequence
from runner.cases.yaml.wording import describe_value
from runner.diagnostics import Span

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
    """Return the values of a list, or one value that stands for a list of one. Raises Mistyped for one of another type."""
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
