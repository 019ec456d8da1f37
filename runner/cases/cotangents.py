"""``grad:``: its modes, and the cotangents that a case gives."""

from __future__ import annotations

from collections.abc import Sequence

from runner.cases.model import Case, Grad, Input
from runner.cases.problems import Problems
from runner.cases.yaml.tree import YamlMapping, YamlNode
from runner.cases.yaml.typed import fields, scalar, several
from runner.diagnostics import nearest

GIVEN = "given"
"""The cotangent of a case that names inputs for it."""


def parse_grads(node: YamlNode | None) -> tuple[Grad, ...]:
    """Return every mode of ``grad:``. Raises Mistyped."""
    return (Grad(),) if node is None else tuple(map(_grad, several(node)))


def _grad(node: YamlNode) -> Grad:
    if not isinstance(node, YamlMapping):
        return Grad(scalar(node, str))
    keys = fields(node)
    order = scalar(keys.get("order"), int, default=1)
    words = (
        [scalar(item, str, type(None)) for item in several(keys["cotangent"])] if "cotangent" in keys else ["seeded"]
    )
    if len(words) == 1 and words[0] is not None and not words[0].startswith("$"):
        return Grad("backward", words[0], order)
    return Grad("backward", GIVEN, order, tuple(None if word is None else word.removeprefix("$") for word in words))


def check_cotangents(case: Case, node: YamlNode | None, problems: Problems) -> None:
    """Report cotangents that are no plain hidden inputs. ``node`` is the case's ``grad:``."""
    names = dict.fromkeys(name for grad in case.grad for name in grad.given if name is not None)
    if node is None or not names:
        return
    inputs = {item.name: item for item in case.inputs}
    for name in names:
        if name not in inputs:
            problems.error(node.span, f"the cotangent ${name} is no input", nearest(name, inputs) or _hint(name))
        elif reason := _objection(inputs[name], case.inputs):
            problems.error(inputs[name].span, f"{name!r} is a cotangent, and {reason}", _hint(name))


def _objection(item: Input, inputs: Sequence[Input]) -> str:
    """Why an input is no cotangent."""
    if item.kind not in ("tensor", "values"):
        return "a cotangent is a tensor with a shape: or values:"
    if not item.hidden:
        return "the model gets it too"
    if item.requires_grad:
        return "it requires a gradient itself"
    viewing = next((other.name for other in inputs if other.view_of == item.name), None)
    return "" if viewing is None else f"{viewing!r} is a view of it"


def _hint(name: str) -> str:
    return f"such as inputs: {{{name}: {{shape: [2, 3], hidden: true}}}}"
