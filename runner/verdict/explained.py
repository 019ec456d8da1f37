"""Differences that a documented policy of the compiler explains: fused low-precision casts, its own random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.contract.finding import Finding
from runner.contract.oracles import EXPLAINED, row_of
from runner.contract.settings import FALLBACK_RANDOM

EMULATE_CASTS = "torch._inductor.config.emulate_precision_casts"
RANDOM = FALLBACK_RANDOM

_GEMM = "torch._inductor.config.max_autotune_gemm_backends"
_PADDING = "torch._inductor.config.shape_padding"
_FORCED = "torch._inductor.config.force_shape_pad"

PINS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "padding": ({_PADDING: False}, {_PADDING: True, _FORCED: True}),
    "autotuning": ({_GEMM: "ATEN"}, {_GEMM: "TRITON"}),
}
"""The flags that pin what a benchmark of torch chooses, one way and the other."""

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


def choices(benchmarked: Sequence[str], stage: str, config: Mapping[str, Any]) -> list[str]:
    """Return which choices of a benchmark are worth asking again with either pin: those that the case leaves open."""
    if stage != "inductor":
        return []
    return [choice for choice, pins in PINS.items() if choice in benchmarked and not {*pins[0], *pins[1]} & {*config}]


def decided(
    findings: Sequence[Finding], choice: str, pinned: tuple[Sequence[Finding], Sequence[Finding]]
) -> list[Finding]:
    """Return the findings, those with the choice that show in one of both pinned runs alone.

    ``pinned`` are the findings of the two runs under ``PINS``.
    """
    groups = [{row_of(finding.oracle).group for finding in run} for run in pinned]
    alone = groups[0] ^ groups[1]
    return [replace(f, choice=choice) if row_of(f.oracle).group in alone else f for f in findings]


def choice_note(choice: str, pinned: tuple[Sequence[Finding], Sequence[Finding]]) -> str:
    """Return what the two pinned runs say, for people."""
    runs = []
    for flags, run in zip(PINS[choice], pinned, strict=True):
        name, value = [*flags.items()][-1]
        flag = name.rpartition(".")[2]
        runs.append(f"with {flag}={value} {', '.join(dict.fromkeys(f.oracle for f in run)) or 'it passes'}")
    return f"torch chose by a benchmark ({choice}), so machines differ: {', '.join(runs)}"


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


GROSS = 0.01
"""A difference of this part of the tensor's largest value is no rounding of float32, so that it needs no float64
witness."""


def is_evident(finding: Finding, epsilon: float) -> bool:
    """Return whether upstream would take a difference of rounded values for a bug. Any other finding is evident.

    Compiled must be farther from a float64 run than eager, and ``torch._dynamo.utils.same`` may not accept it. Without
    such a run the difference must be gross. ``epsilon`` is the coarsest of the case's low-precision dtypes.
    """
    if not is_rounded(finding):
        return True
    numbers = finding.numbers
    eager, compiled = (as_float(numbers.get(name)) for name in ("eager_error_max", "compiled_error_max"))
    if eager is not None and compiled is not None:
        return compiled > eager and numbers.get("same") is not True
    difference, scale = (as_float(numbers.get(name)) for name in ("abs_error_max", "scale"))
    return difference is not None and scale is not None and difference > gross_part(epsilon) * scale


def is_rounded(finding: Finding) -> bool:
    """Return whether a finding is about finite floating elements, for which tolerances count."""
    numbers = finding.numbers
    is_exact = all(type(numbers.get(side)) in (bool, int) for side in ("eager", "compiled"))
    return row_of(finding.oracle).measured and "elements" in numbers and "rel_error" in numbers and not is_exact


def gross_part(epsilon: float) -> float:
    """Return the part of a tensor's largest value that is no rounding, where ``epsilon`` is as of ``is_evident``."""
    return max(GROSS, ULPS * epsilon)


def as_float(value: Any) -> float | None:
    """Return a number of a finding, where infinities and NaN may be words; None for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def label(flag: str) -> str:
    """What the report says: ``explained-by-emulate_precision_casts``."""
    return f"{EXPLAINED}{flag.rpartition('.')[2]}"
