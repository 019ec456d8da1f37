"""How far results lie from the exact one: units in the last place, special values, the ratio of signal to noise.

A unit in the last place is the distance between the numbers of the result's dtype at the exact value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runner.worker.comparison.compare import Comparison, Difference, error_at, numbers_at, sentence
from runner.worker.tensors import classes, different_bits, number, own_bounds, planes

STEPS = (0.5, 1.0, 2.0, 4.0, 16.0, 256.0)
"""Upper bounds of the histogram's parts, in units in the last place. A result that is rounded once is off by 0.5."""


@dataclass(frozen=True)
class Errors:
    """Of one side, each element: ``ulps`` from the exact value, infinite where NaN or an infinity stands elsewhere.

    ``other_zero`` says where a zero has another sign than the exact value.
    """

    ulps: torch.Tensor
    other_zero: torch.Tensor

    def summary(self) -> dict[str, Any]:
        """Return the histogram and its worst finite error, and how many special values are other ones."""
        finite = self.ulps[self.ulps.isfinite()]
        edges = torch.tensor(STEPS, dtype=torch.float64)
        counts = torch.bincount(torch.bucketize(finite, edges), minlength=len(STEPS) + 1)
        return {
            "ulps": counts.tolist(),
            "largest": number(float(finite.max())) if finite.numel() else 0.0,
            "other_class": int(self.ulps.isinf().sum()),
            "other_zero": int(self.other_zero.sum()),
        }


def errors(side: torch.Tensor, exact: torch.Tensor) -> Errors:
    """Return the errors of one side against the float64 (complex128) result of the same shape.

    Of a complex element the worse part counts. A number beyond the dtype's largest is infinite once it is rounded.
    """
    actual, expected = planes(side), planes(exact)
    info = torch.finfo(side.dtype.to_real())
    rounded = planes(exact.to(side.dtype))
    size = expected.abs().clamp(info.smallest_normal, info.max)
    unit = size / torch.frexp(size)[0] / 2 * info.eps  # a number by its mantissa is a power of two
    alike = classes(actual) == classes(rounded)
    finite = actual.isfinite() & expected.isfinite()
    ulps = torch.where(finite & alike, (actual - expected).abs() / unit, 0.0).masked_fill(~alike, math.inf)
    zeros = (actual == 0) & (rounded == 0) & (torch.signbit(actual) != torch.signbit(expected))
    return Errors(ulps.amax(dim=1), zeros.any(dim=1))


def signal_to_noise(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return the ratio of signal to noise in decibels, over elements that are finite on both sides; inf without noise.

    It is ``torch.ao.ns.fx.utils.compute_sqnr``, in float64.
    """
    signal, other = planes(expected), planes(actual)
    finite = signal.isfinite() & other.isfinite()
    signal, noise = signal[finite], (signal - other)[finite]
    if not bool(noise.any()):
        return math.inf
    level = float(torch.linalg.vector_norm(signal)) / float(torch.linalg.vector_norm(noise))
    return 20 * math.log10(level) if level > 0 else -math.inf


def measure(eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor | None) -> dict[str, Any]:
    """Return the numbers of two results of one shape and dtype, as JSON carries them.

    ``exact`` is the float64 result; without it there is nothing from which the units in the last place count.
    """
    numbers: dict[str, Any] = {
        "dtype": str(eager.dtype).removeprefix("torch."),
        "elements": eager.numel(),
        "different": int(different_bits(eager, compiled).sum()),
        "sqnr": number(signal_to_noise(eager, compiled)),
    }
    if exact is not None and (eager.is_floating_point() or eager.is_complex()):
        for name, side in (("eager", eager), ("compiled", compiled)):
            numbers[name] = {**errors(side, exact).summary(), "sqnr": number(signal_to_noise(exact, side))}
    return numbers


Compare = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, float], Comparison]
"""Takes eager's, the compiled and the float64 result, and the number that goes with the rule."""


def bounded_rule(tolerance: Mapping[str, Any] | None, tensor: torch.Tensor, path: str) -> Compare | None:
    """Return how a job's rule for values compares elements of this kind at this place; None where tolerances do."""
    rule = (tolerance or {}).get("values")
    if rule not in ("ulp", "sqnr") or not tensor.numel() or own_bounds(tolerance, path) is not None:
        return None
    is_floating = tensor.is_floating_point() or tensor.is_complex()
    if rule == "ulp":
        return compare_units if is_floating else None
    return compare_noise if is_floating or tensor.dtype in (torch.int8, torch.uint8) else None  # quantized numbers


def compare_units(eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor | None, bound: float) -> Comparison:
    """Compare floating tensors by units in the last place: each element at most ``bound`` further off than eager's.

    NaN, infinities and the signs of zeros must be eager's, or those of the exact value. Without an exact value eager's
    takes its place.
    """
    wide = torch.complex128 if eager.is_complex() else torch.float64
    exact = eager.to(wide) if exact is None else exact
    own, other = errors(eager, exact), errors(compiled, exact)
    different = different_bits(eager, compiled)
    # Where eager has another NaN or infinity than the exact value, either is right.
    ulps = torch.where(own.ulps.isinf(), errors(compiled, eager.to(wide)).ulps.minimum(other.ulps), other.ulps)
    # float32 rounds away what the division by the unit has rounded.
    further = (ulps - own.ulps.masked_fill(own.ulps.isinf(), 0.0)).float()
    kinds = {
        "nonfinite": different & ulps.isinf(),
        "value": different & ulps.isfinite() & (further > bound),
        "sign-of-zero": different & other.other_zero & ~own.other_zero,
    }
    differences = []
    for oracle, wrong in kinds.items():
        if bool(wrong.any()):
            worst = int(ulps.masked_fill(~wrong, -1).argmax())
            numbers = numbers_at(int(wrong.sum()), worst, eager, compiled=compiled, reference=exact)
            numbers.update(
                eager_ulps=number(float(own.ulps[worst])),
                compiled_ulps=number(float(ulps[worst])),
                ulps_allowed=bound,
            )
            if oracle == "value":
                numbers["abs_error"], numbers["rel_error"] = map(number, error_at(eager, compiled, worst))
            remark = f", off by {ulps[worst]:.4g} units in the last place" if oracle == "value" else ""
            differences.append(Difference(oracle, sentence(numbers, _VERBS[oracle], remark), numbers))
    return Comparison(tuple(differences))


def compare_noise(eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor | None, bound: float) -> Comparison:
    """Compare tensors by the ratio of signal to noise: ``bound`` decibels against eager's, or eager's own against the
    exact value.

    NaN and infinities must be eager's.
    """
    other_class = (classes(planes(eager)) != classes(planes(compiled))).any(dim=1)
    if bool(other_class.any()):
        numbers = numbers_at(int(other_class.sum()), int(other_class.nonzero()[0]), eager, compiled=compiled)
        return Comparison((Difference("nonfinite", sentence(numbers, _VERBS["nonfinite"]), numbers),))
    ratio = signal_to_noise(eager, compiled)
    if ratio >= bound or (exact is not None and signal_to_noise(exact, compiled) >= signal_to_noise(exact, eager)):
        return Comparison()
    worst = int((planes(eager) - planes(compiled)).abs().nan_to_num(0.0).amax(dim=1).argmax())
    numbers = numbers_at(int(different_bits(eager, compiled).sum()), worst, eager, compiled=compiled)
    numbers.update(sqnr=number(ratio), sqnr_wanted=bound)
    message = f"the ratio of signal to noise is {ratio:.4g} dB, and {bound:g} dB are wanted"
    return Comparison((Difference("value", message, numbers),))


_VERBS = {"nonfinite": "have another NaN or infinity", "value": "are further off than allowed",
          "sign-of-zero": "are zeros of the other sign"}  # fmt: skip
