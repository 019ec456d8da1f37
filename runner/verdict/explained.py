"""Differences that a documented policy of the compiler explains: fused low-precision casts, its own random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runner.contract.finding import Finding
from runner.contract.oracles import EXPLAINED, row_of
from runner.contract.settings import FALLBACK_RANDOM

EMULATE_CASTS = "torch._inductor.config.emulate_precision_casts"
RANDOM = FALLBACK_RANDOM

ULPS = 16
"""How many units in the last place of the lower precision a fused cast may move a value, on the scale of the tensor.

A few roundings that eager makes between operators and a fused kernel leaves out each move a value by half a unit; a
chain of some ten makes a handful. A comparison that falls on the other side, or a wrapped remainder, moves it by
thousands, and stays a bug.
"""

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Distance from 1 to the next value, as ``torch.finfo(dtype).eps``."""


def candidates(
    findings: Sequence[Finding], stage: str, source: str, dtype: str, config: Mapping[str, Any], drew_random: bool
) -> list[str]:
    """The flags worth trying, each of which would explain the findings if they vanished under it.

    ``drew_random`` says that eager drew random numbers. Where it drew none, they explain no value. They may still
    explain the state of the generator: eager takes nothing from it for a tensor without elements, and Inductor a seed.
    """
    flags = []
    oracles = [row_of(f.oracle) for f in findings]
    epsilon = low_precision(source, dtype)
    fused = stage == "inductor" and all(row.casts for row in oracles) and EMULATE_CASTS not in config
    if fused and epsilon and all(is_small(f, epsilon) for f in findings):
        flags.append(EMULATE_CASTS)
    own_numbers = config.get(RANDOM, drew_random) is False
    if own_numbers and all(row.random if drew_random else row.name == "rng" for row in oracles):
        flags.append(RANDOM)
    return flags


def low_precision(source: str, dtype: str) -> float:
    """The coarsest epsilon of the low-precision dtypes that a case speaks of; 0 when it speaks of none."""
    methods = {"float16": ".half()", "bfloat16": ".bfloat16()"}
    spoken = [name for name in EPSILON if name == dtype or f"torch.{name}" in source or methods[name] in source]
    return max((EPSILON[name] for name in spoken), default=0.0)


def is_small(finding: Finding, epsilon: float) -> bool:
    """Whether the largest difference is a few units of ``epsilon`` on the scale of the tensor's largest value."""
    difference, scale = finding.numbers.get("abs_error_max"), finding.numbers.get("scale")
    if not isinstance(difference, int | float) or not isinstance(scale, int | float):
        return False
    return difference <= ULPS * epsilon * scale


def label(flag: str) -> str:
    """What the report says: ``explained-by-emulate_precision_casts``."""
    return f"{EXPLAINED}{flag.rpartition('.')[2]}"
