"""``grad:``: its modes, the cotangents that a case gives, and whether anything has a gradient that could be
compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from runner.cases.model import Case, Grad, Input, Literal, Node, TensorLiteral
from runner.cases.problems import Problems
from runner.cases.walk import all_steps, values_of
from runner.cases.yaml.tree import YamlMapping, YamlNode, fields, scalar, several
from runner.diagnostics import Span, nearest

_WITH_PARAMETERS = re.compile(
    r"nn\.(AdaptiveLogSoftmax|(Sync)?BatchNorm|Bilinear|Conv|Embedding|GRU|GroupNorm|InstanceNorm|LSTM|LayerNorm|"
    r"Lazy|Linear|"
    r"MultiheadAttention|PReLU|RMSNorm|RNN|Transformer)"
)


def holds_parameters(operator: str) -> bool:
    """Return whether the module ``nn.X`` can have parameters; some have none with certain arguments."""
    return _WITH_PARAMETERS.match(operator) is not None


def check_leaves(case: Case, place: Span, problems: Problems) -> None:
    """Report a case that runs backward although nothing in it requires a gradient: no gradient would be compared.

    ``place`` is where ``grad:`` stands. A model in Python may have parameters that nobody sees here.
    """
    if case.module is not None or all(grad.mode != "backward" for grad in case.grad):
        return
    inputs = (*case.inputs, *case.state, *(item for call in case.calls for item in call.inputs))
    if any(map(_requires_grad, inputs)) or _makes_leaf(case.chain):
        return
    name = case.inputs[0].name if case.inputs else "x"
    problems.error(
        place,
        f"nothing in case {case.name!r} requires a gradient, so backward would compare nothing",
        f"write requires_grad: true for an input, such as {name}: {{shape: [2, 3], requires_grad: true}}, or take "
        "grad: out",
    )


def _requires_grad(item: Input) -> bool:
    return item.requires_grad or any(map(_requires_grad, item.items)) or _makes_leaf(item.layout)


def _makes_leaf(chain: Iterable[Node]) -> bool:
    """Whether a chain has a module with parameters, or asks for a gradient itself."""
    nodes = tuple(chain)
    for step in all_steps(nodes):
        if holds_parameters(step.operator) or step.operator == "Tensor.requires_grad_":
            return True
        if dict(step.arguments.keywords).get("requires_grad", Literal(False)) != Literal(False):
            return True
    return any(
        isinstance(value, TensorLiteral) and "requires_grad" in dict(value.options) for value in values_of(nodes)
    )


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
