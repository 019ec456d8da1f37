"""Which steps surely do nothing besides giving a value, so that one whose value is not read is a mistake."""

from __future__ import annotations

import re

from runner.builder.operators import BINARY, UNARY
from runner.cases.chain_nodes import Function, Literal, Ref, Step, Value
from runner.cases.walk import values_of

_PLAIN = re.compile(
    r"(nn|F|torch|torch\.special|torch\.linalg|torch\.fft|Tensor)\.[A-Za-z]\w*|aten\.[A-Za-z]\w*(\.\w+)?|"
    rf"operator\.({'|'.join((*BINARY, *UNARY, 'getitem', 'contains', 'abs'))})"
)
"""Operators of which it can be told. Those of packages, of Python and of NumPy may do anything."""

_EFFECT = re.compile(
    r"_(\.\w+)?$|[._]out$|backward|retain_grad|"  # they write into memory
    r"batch_?norm|instance_?norm|embedding|fake_quant|fused_moving|lazy|"  # statistics, weights by max_norm, first shapes
    r"rand|drop|bernoulli|multinomial|poisson|normal$|gumbel|rrelu|fractional|attention|transformer|"  # the generator of random numbers
    r"assert|check|constrain|\.(item|tolist|numpy|is_nonzero|equal|allclose)$",  # they raise, guard or break the graph
    re.IGNORECASE,
)
"""In the name of an operator: it does something besides, or may."""

_KEYWORDS = ("out", "inplace", "dropout", "dropout_p")


def is_plain(operator: str) -> bool:
    """Return whether an operator, by its name, gives a value and does nothing else."""
    return _PLAIN.fullmatch(operator) is not None and _EFFECT.search(operator) is None


def has_only_a_value(step: Step) -> bool:
    """Return whether nothing but the step's value tells that it ran. False also where that cannot be told."""
    if step.id is not None or step.train or not is_plain(step.operator):
        return False
    keywords = [key for arguments in (step.arguments, step.call) if arguments for key, _ in arguments.keywords]
    if any(key in _KEYWORDS for key in keywords):
        return False
    return not any(map(_may_act, values_of((step,))))


def _may_act(value: Value) -> bool:
    """Return whether a value among the arguments may make a step do more: a function, the model itself, true for ``inplace``."""
    if isinstance(value, Ref):
        return value.name == "self" and not value.path
    return isinstance(value, Function) or (isinstance(value, Literal) and value.value is True)
