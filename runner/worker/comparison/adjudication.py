"""Adjudication by the float64 reference: which of two results that differ is right, or whether both are near enough."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.contract.oracles import NEARER, NOISE
from runner.worker.tensors.elements import TINY, classes, finite_difference, finite_part, norm, number, pieces, rmse
from runner.worker.tensors.tolerance import Tolerance

# How many times eager's error against float64 the compiled error may be: torch._dynamo.utils.same takes 3 for half
# precision and for fewer than 1000 elements, 2 otherwise.
SMALL = 1000
MULTIPLIER_NARROW = 3.0
MULTIPLIER = 2.0


@dataclass
class _Errors:
    """Errors of one side against float64, gathered piece by piece."""

    largest: float = 0.0
    worst: float = 0.0  # in units of the tolerance
    pieces: list[tuple[float, int]] = field(default_factory=list)  # (root mean square, elements)

    def add(self, errors: torch.Tensor, unit: torch.Tensor) -> None:
        self.largest = max(self.largest, float(errors.max()))
        self.worst = max(self.worst, float((errors / unit).max()))
        self.pieces.append((rmse(errors), errors.numel()))

    @property
    def rmse(self) -> float:
        """Return the root mean square, scaled so that squares of large errors do not overflow."""
        top = max((value for value, _ in self.pieces), default=0.0)
        if top == 0 or not math.isfinite(top):
            return top
        squares = sum((value / top) ** 2 * count for value, count in self.pieces)
        return top * math.sqrt(squares / sum(count for _, count in self.pieces))


@dataclass(frozen=True)
class Adjudication:
    """What the float64 reference says: of misplaced NaN and infinities, and of finite mismatches."""

    classes_right: bool
    passed: bool
    label: str
    numbers: dict[str, Any]


def adjudicate(
    eager: torch.Tensor, compiled: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance
) -> Adjudication:
    """Let the float64 reference decide on what the tolerance does not accept.

    A misplaced NaN or infinity is accepted if the compiled element has the class of the reference rounded to the output's
    dtype. If finite, it must also lie near the reference: within the multiplier of the tolerance, or of eager's worst error
    where eager is finite too. Otherwise any value would pass where eager alone has a NaN.

    A finite mismatch is accepted by RMSE and by the worst element, in units of the tolerance at the reference. RMSE
    alone would let one wrong element in a million pass. A mismatch without a finite reference is never accepted.
    """
    narrow = eager.dtype in (torch.float16, torch.bfloat16) or eager.numel() < SMALL
    multiplier = MULTIPLIER_NARROW if narrow else MULTIPLIER
    classes_right = measured = within = True
    furthest = 0.0  # of the misplaced elements from the reference, in units of the tolerance
    eager_errors, compiled_errors = _Errors(), _Errors()
    rounded_reference = reference.to(eager.dtype)
    for _, eager_planes, compiled_planes, exact, rounded in pieces(eager, compiled, reference, rounded_reference):
        same_class = (classes(eager_planes) == classes(compiled_planes)).all(dim=1)
        allowed = tolerance.atol + tolerance.rtol * norm(finite_part(exact, compiled_planes))
        right = (classes(rounded) == classes(compiled_planes)).all(dim=1)
        distance = norm(finite_difference(exact, compiled_planes)) / allowed.clamp_min(TINY)
        furthest = max(furthest, float(distance.masked_fill(same_class, 0.0).max()))
        classes_right &= bool((same_class | right).all())

        sides = (eager_planes, compiled_planes, exact)
        finite = torch.stack([plane.isfinite().all(dim=1) for plane in sides]).all(dim=0)
        limit = tolerance.atol + tolerance.rtol * norm(finite_part(eager_planes, compiled_planes))
        mismatched = same_class & (norm(finite_difference(eager_planes, compiled_planes)) > limit)
        measured &= not bool((mismatched & ~finite).any())
        if not bool(finite.any()):
            continue
        eager_error, compiled_error = norm((eager_planes - exact)[finite]), norm((compiled_planes - exact)[finite])
        within &= bool((compiled_error <= allowed[finite]).all())
        unit = allowed[finite].clamp_min(TINY)
        if tolerance.rtol == 0 and tolerance.atol == 0:
            unit = torch.ones_like(unit)  # no tolerance, no unit: errors as they are
        eager_errors.add(eager_error, unit)
        compiled_errors.add(compiled_error, unit)
    classes_right &= furthest <= multiplier * max(1.0, eager_errors.worst)
    if not measured:
        return Adjudication(classes_right, False, "", {})
    needed = max(_ratio(compiled_errors.rmse, eager_errors.rmse), _ratio(compiled_errors.worst, eager_errors.worst))
    numbers = {
        "eager_error_max": number(eager_errors.largest),
        "eager_error_rmse": number(eager_errors.rmse),
        "compiled_error_max": number(compiled_errors.largest),
        "compiled_error_rmse": number(compiled_errors.rmse),
        "multiplier": number(needed),
    }
    finite_sums = all(
        math.isfinite(side) for errors in (eager_errors, compiled_errors) for side in (errors.rmse, errors.worst)
    )
    nearer = compiled_errors.rmse <= eager_errors.rmse and compiled_errors.worst <= eager_errors.worst
    passed = within or (finite_sums and needed <= multiplier)
    return Adjudication(classes_right, passed, NEARER if nearer else NOISE, numbers)


def _ratio(compiled: float, eager: float) -> float:
    if compiled == 0:
        return 0.0
    return compiled / eager if eager else math.inf
