"""Twins: the names of rewrites, and the steps of a chain at which each may stand.

A twin is the program of a case after rewrites that change none of its results. ``runner/builder/chain.py`` writes them.
"""

from __future__ import annotations

from runner.cases.model import Case, Literal, Ref, Step
from runner.cases.walk import steps_of

REWRITES = ("double", "mask", "negate", "reorder", "reshape", "split", "transpose")

_POINTWISE = (
    "abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_or bitwise_xor ceil clamp "
    "copysign cos cosh div eq erf erfc exp expm1 floor floor_divide fmax fmin fmod frac ge gelu gt hypot le lerp log "
    "log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit logsigmoid lt maximum minimum mul "
    "ne neg pow reciprocal relu remainder round rsqrt sgn sigmoid sign silu sin sinh softplus sqrt square sub tan tanh "
    "true_divide trunc where"
)
_OTHERS = (
    "addmm amax amin baddbmm bmm cat clone cumprod cumsum flip gather index_select linear log_softmax logsumexp matmul "
    "mean mm prod softmax stack std sum tril triu var"
)
_OPERATORS = "add and_ eq floordiv ge gt le lt matmul mod mul ne neg or_ pow sub truediv xor"

_NAMES = f"{_POINTWISE} {_OTHERS}".split()

FRESH = frozenset(
    [f"{space}.{name}" for space in ("torch", "Tensor", "F") for name in _NAMES]
    + [f"operator.{name}" for name in _OPERATORS.split()]
)
"""Operators that draw no random numbers and write nothing, and whose tensor has memory of its own."""

MULTIPLICATIONS = ("torch.mul", "Tensor.mul", "operator.mul")


def gives_fresh(step: Step) -> bool:
    """Return whether a step gives one value with memory of its own, and does nothing else."""
    arguments = step.arguments
    writes = any(name in ("out", "inplace") for name, _ in arguments.keywords)
    in_place = step.operator.startswith("F.") and Literal(True) in arguments.positional  # F.relu: [$x, true]
    plain = len(step.out) <= 1 and not step.unpack and not any(name.startswith("self.") for name in step.out)
    return step.operator in FRESH and plain and not (writes or in_place)


def doubled_value(step: Step) -> Ref | None:
    """Return what a step multiplies by the integer 2, if it does that alone."""
    arguments = step.arguments
    if step.operator not in MULTIPLICATIONS or arguments.keywords or len(arguments.positional) != 2:
        return None
    value, factor = arguments.positional
    is_two = isinstance(factor, Literal) and type(factor.value) is int and factor.value == 2
    return value if is_two and isinstance(value, Ref) else None


def has_place(case: Case) -> bool:
    """Return whether one step at least may be rewritten."""
    return any(map(gives_fresh, steps_of(case.chain)))
