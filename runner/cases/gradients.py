"""``grad: backward``: whether a case has anything whose gradient could be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable

from runner.cases.chain_nodes import Literal, Node, TensorLiteral
from runner.cases.model import Case, Input
from runner.cases.problems import Problems
from runner.cases.walk import all_steps, values_of
from runner.diagnostics import Span

_WITH_PARAMETERS = re.compile(
    r"nn\.(AdaptiveLogSoftmax|(Sync)?BatchNorm|Bilinear|Conv|Embedding|GRU|GroupNorm|InstanceNorm|LSTM|LayerNorm|Lazy|Linear|"
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
        f"write requires_grad: true for an input, such as {name}: {{shape: [2, 3], requires_grad: true}}, or take grad: out",
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
