"""``init:``: the ways in which values are made."""

from __future__ import annotations

from runner.cases.problems import Problems
from runner.cases.yaml.tree import YamlMapping, YamlNode, YamlScalar, YamlSequence
from runner.diagnostics import nearest

INITS = (
    "normal",
    "randint",
    "uniform",
    "zeros",
    "ones",
    "full",
    "arange",
    "linspace",
    "integer",
    "special",
    "eye",
    "randperm",
)
FILLS = ("zeros", "ones", "normal", "uniform", "integer", "full", "randint")
"""Ways of ``init:`` that need no shape, so that they can fill what a module has made."""
_COUNTS = {"randint": 2, "uniform": 2, "full": 1, "arange": 2, "linspace": 2}
_EXAMPLES = {"randint": "{randint: [0, 10]}", "uniform": "{uniform: [0, 1]}", "full": "{full: 2}", "arange": "{arange: [0, 1]}",
             "linspace": "{linspace: [0, 1]}", **{n: n for n in ("normal", "zeros", "ones", "integer", "special", "eye", "randperm")}}  # fmt: skip


def read_init(node: YamlNode, problems: Problems) -> tuple[str | None, tuple[YamlNode, ...]]:
    """Return the way in which ``init:`` makes values, and its arguments; None for one that is reported."""
    name_node: YamlNode = node
    arguments: tuple[YamlNode, ...] = ()
    if isinstance(node, YamlMapping):
        if len(node.entries) != 1:
            problems.error(node.span, "init: has one way of making values", "such as init: {uniform: [0, 1]}")
            return None, ()
        name_node, body = node.entries[0]
        arguments = body.items if isinstance(body, YamlSequence) else (body,)
    name = name_node.value if isinstance(name_node, YamlScalar) else None
    if name not in INITS:
        problems.error(
            name_node.span, f"unknown init {name!r}", nearest(str(name), INITS) or f"inits: {', '.join(INITS)}"
        )
        return None, ()
    count = _COUNTS.get(str(name), 0)
    optional = name == "uniform"
    if len(arguments) != count and not (optional and not arguments):
        problems.error(
            name_node.span,
            f"init {name} takes {count} numbers, not {len(arguments)}",
            f"such as init: {_EXAMPLES[str(name)]}",
        )
        return None, ()
    return str(name), arguments
