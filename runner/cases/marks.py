"""Dimensions of inputs that a case marks as dynamic: ``dynamic: {x: [0]}``."""

from __future__ import annotations

from runner.cases.model import Case, Mark, Marks
from runner.cases.problems import Problems
from runner.cases.yaml.values import YamlMapping, YamlNode, fields, listed, scalar
from runner.diagnostics import nearest


def parse_dynamic(node: YamlNode) -> bool | Marks | None:
    """Return a value of ``dynamic:``. A list of dimensions is short for a mapping with the key ``dynamic``.

    Raises Mistyped.
    """
    if not isinstance(node, YamlMapping):
        value: bool | None = scalar(node, bool, type(None))
        return value
    return Marks(
        tuple(
            Mark(str(key.value), listed(dimensions, int), key.span, maybe=way == "maybe")
            for key, value in node.entries
            for way, dimensions in (fields(value) if isinstance(value, YamlMapping) else {"dynamic": value}).items()
        )
    )


def check_marks(case: Case, problems: Problems) -> None:
    """Report marks of what is no tensor that the model gets, and of dimensions that it does not have."""
    cotangents = {name for grad in case.grad for name in grad.given}
    passed = {item.name: item for item in case.inputs if not item.hidden and item.name not in cotangents}
    for mark in (mark for value in case.dynamic if isinstance(value, Marks) for mark in value.items):
        item = passed.get(mark.name)
        if item is None:
            problems.error(mark.span, f"the model gets no input {mark.name!r}", nearest(mark.name, passed))
        elif item.kind not in ("tensor", "values", "view"):
            problems.error(mark.span, f"input {mark.name!r} is no tensor, so it has no dimensions")
        elif item.kind == "tensor" and not item.layout and item.shape is not None:
            for number in mark.dimensions:
                if number >= len(item.shape):
                    problems.error(mark.span, f"input {mark.name!r} has no dimension {number}", "they count from 0")
