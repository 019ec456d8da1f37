"""``init:``: the ways in which values are made."""

from __future__ import annotations

from runner.cases.complex_numbers import is_complex
from runner.cases.problems import Problems
from runner.cases.yaml.scalars import describe_value
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
_EXAMPLES = {
    "randint": "{randint: [0, 10]}",
    "uniform": "{uniform: [0, 1]}",
    "full": "{full: 2}",
    "arange": "{arange: [0, 1]}",
    "linspace": "{linspace: [0, 1]}",
    **{n: n for n in ("normal", "zeros", "ones", "integer", "special", "eye", "randperm")},
}
_CONSTANTS = ("torch.e", "torch.inf", "torch.nan", "torch.pi")


def read_init(node: YamlNode, problems: Problems) -> tuple[str | None, tuple[YamlNode, ...]]:
    """Return the way in which ``init:`` makes values, and its arguments; None for one that is reported."""
    name_node: YamlNode = node
    arguments: tuple[YamlNode, ...] = ()
    if isinstance(node, YamlMapping):
        if len(node.entries) != 1:
            return problems.refuse(
                (None, ()), node.span, "init: has one way of making values", "such as init: {uniform: [0, 1]}"
            )
        name_node, body = node.entries[0]
        arguments = body.items if isinstance(body, YamlSequence) else (body,)
    name = name_node.value if isinstance(name_node, YamlScalar) else None
    if name not in INITS:
        return problems.refuse(
            (None, ()),
            name_node.span,
            f"unknown init {name!r}",
            nearest(str(name), INITS) or f"inits: {', '.join(INITS)}",
        )
    count = _COUNTS.get(str(name), 0)
    optional = name == "uniform"
    if len(arguments) != count and not (optional and not arguments):
        return problems.refuse(
            (None, ()),
            name_node.span,
            f"init {name} takes {count} numbers, not {len(arguments)}",
            f"such as init: {_EXAMPLES[str(name)]}",
        )
    return (str(name), arguments) if all(check_numbers(argument, problems) for argument in arguments) else (None, ())


def check_numbers(node: YamlNode, problems: Problems) -> bool:
    """Return whether a value is a number, true, false, a param or a nested list of these, and report one that is
    not."""
    if isinstance(node, YamlSequence):
        return all(check_numbers(item, problems) for item in node.items)
    if isinstance(node, YamlScalar) and _is_number(node):
        return True
    hint = "write numbers without quotes, true, false or ${param}, such as [1.0, -0.0, .nan]"
    return problems.refuse(False, node.span, f"expected a number, found {describe_value(node.plain())}", hint)


def _is_number(node: YamlScalar) -> bool:
    if not isinstance(node.value, str):
        return node.value is not None
    is_reference = node.value.startswith("$") and node.value not in ("$dtype", "$device")
    return is_reference or node.value in _CONSTANTS or (not node.quoted and is_complex(node.value))
