"""Adjudication by the float64 reference: which of two results that differ is right, or whether both are near enough."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.contract.oracles import NEARER, NOISE
from runner.worker import thresholds
from runner.worker.rounding import sensitivity
from runner.worker.tensors import TINY, Tolerance, classes, finite_difference, finite_part, norm, number, pieces, rmse

Movement = tuple[torch.Tensor, torch.dtype]
"""How far roundings move each element, and the dtype of the coarsest."""


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


class _Doubts:
    """Elements that are further off than their own error in eager, or the tolerance, accounts for."""

    def __init__(self) -> None:
        self._parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def add(self, start: int, doubtful: torch.Tensor, errors: torch.Tensor, unit: torch.Tensor) -> None:
        """Add those elements of a piece that begins at ``start``. All others have the piece's shape."""
        if bool(doubtful.any()):
            self._parts.append((start + doubtful.nonzero()[:, 0], errors[doubtful], unit[doubtful]))

    def worst(
        self, multiplier: float, typical: float, measure: Callable[[], Movement | None]
    ) -> tuple[int, float] | None:
        """Return the element that is furthest off, and by how many units; None where roundings account for each of
        them.

        How far roundings move the element itself tells; and ``typical``, eager's usual error in units: where most
        elements are noise, so is one that eager has right by chance.
        """
        if not self._parts:
            return None
        index, error, unit = (torch.cat(part) for part in zip(*self._parts, strict=True))
        limit = multiplier * unit * max(1.0, thresholds.TYPICAL_FACTOR.value * typical)
        if bool((error > limit).any()) and (movement := measure()) is not None:
            response, dtype = movement
            limit = torch.maximum(limit, multiplier * unit + sensitivity.factor(dtype) * response.reshape(-1)[index])
        ratio = torch.where(error > limit, error / unit, 0.0)
        place = int(ratio.argmax())
        return (int(index[place]), float(ratio[place])) if float(ratio[place]) else None


@dataclass(frozen=True)
class Adjudication:
    """What the float64 reference says: of misplaced NaN and infinities, and of finite mismatches.

    ``place`` is the flat index of an element that is wrong though all errors together are no larger than eager's.
    """

    classes_right: bool
    passed: bool
    label: str
    numbers: dict[str, Any]
    place: int | None = None


def adjudicate(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    reference: torch.Tensor,
    tolerance: Tolerance,
    measure_conditioning: Callable[[], Movement | None] = lambda: None,
) -> Adjudication:
    """Let the float64 reference decide on what the tolerance does not accept.

    A misplaced NaN or infinity is accepted if the compiled element has the class of the reference rounded to the
    output's dtype. If finite, it must also lie near the reference. Otherwise any value would pass where eager alone has
    a NaN.

    A finite mismatch is accepted by RMSE and by the worst element, in units of the tolerance at the reference. RMSE
    alone would let one wrong element in a million pass. A mismatch without a finite reference is never accepted.

    One element that is ill-conditioned says nothing about the others. So each element must also lie within the
    multiplier of the tolerance, or of its own error in eager; else within what roundings move that very element by, or
    near eager's usual error.

    Args:
        measure_conditioning: gives how far roundings move each element, and the dtype of the coarsest. Called only when
        it is
            needed: it takes a dozen runs.
    """
    narrow = eager.dtype in (torch.float16, torch.bfloat16) or eager.numel() < thresholds.FEW_ELEMENTS.value
    multiplier = (thresholds.ERROR_FACTOR_NARROW if narrow else thresholds.ERROR_FACTOR).value
    classes_right = measured = within = True
    eager_errors, compiled_errors = _Errors(), _Errors()
    misplaced, doubts, medians = _Doubts(), _Doubts(), []
    rounded_reference = reference.to(eager.dtype)
    for start, eager_planes, compiled_planes, exact, rounded in pieces(eager, compiled, reference, rounded_reference):
        same_class = (classes(eager_planes) == classes(compiled_planes)).all(dim=1)
        allowed = tolerance.atol + tolerance.rtol * norm(finite_part(exact, compiled_planes))
        unit = _units(allowed, norm(finite_part(exact, exact)), eager.dtype, tolerance)
        right = (classes(rounded) == classes(compiled_planes)).all(dim=1)
        classes_right &= bool((same_class | right).all())
        distance = norm(finite_difference(exact, compiled_planes))
        misplaced.add(start, ~same_class & (distance > multiplier * unit), distance, unit)

        sides = (eager_planes, compiled_planes, exact)
        finite = torch.stack([plane.isfinite().all(dim=1) for plane in sides]).all(dim=0)
        limit = tolerance.atol + tolerance.rtol * norm(finite_part(eager_planes, compiled_planes))
        mismatched = same_class & (norm(finite_difference(eager_planes, compiled_planes)) > limit)
        measured &= not bool((mismatched & ~finite).any())
        if not bool(finite.any()):
            continue
        own = norm(finite_difference(exact, eager_planes))
        within &= bool((distance <= allowed)[finite].all())
        doubts.add(start, finite & (distance > multiplier * torch.maximum(own, unit)), distance, unit)
        eager_errors.add(own[finite], unit[finite])
        compiled_errors.add(distance[finite], unit[finite])
        medians.append(float((own / unit)[finite].median()))
    typical = sorted(medians)[len(medians) // 2] if medians else 0.0
    needed = max(_ratio(compiled_errors.rmse, eager_errors.rmse), _ratio(compiled_errors.worst, eager_errors.worst))
    finite_sums = all(
        math.isfinite(side) for errors in (eager_errors, compiled_errors) for side in (errors.rmse, errors.worst)
    )
    passed = measured and (within or (finite_sums and needed <= multiplier))
    measure = functools.cache(measure_conditioning)
    classes_right = classes_right and misplaced.worst(multiplier, typical, measure) is None
    if not measured:
        return Adjudication(classes_right, False, "", {})
    numbers = {
        "eager_error_max": number(eager_errors.largest),
        "eager_error_rmse": number(eager_errors.rmse),
        "compiled_error_max": number(compiled_errors.largest),
        "compiled_error_rmse": number(compiled_errors.rmse),
        "multiplier": number(needed),
    }
    wrong = doubts.worst(multiplier, typical, measure) if passed else None
    if wrong is not None:
        return Adjudication(classes_right, False, "", {**numbers, "multiplier": number(wrong[1])}, wrong[0])
    nearer = compiled_errors.rmse <= eager_errors.rmse and compiled_errors.worst <= eager_errors.worst
    return Adjudication(classes_right, passed, NEARER if nearer else NOISE, numbers)


def _units(allowed: torch.Tensor, sizes: torch.Tensor, dtype: torch.dtype, tolerance: Tolerance) -> torch.Tensor:
    """Return what errors are measured in: what the tolerance allows; without one, the steps between numbers of the
    dtype."""
    if tolerance.rtol == 0 and tolerance.atol == 0:
        limits = torch.finfo(dtype)
        allowed = limits.eps * (sizes + limits.smallest_normal)
    return allowed.clamp_min(TINY)


def _ratio(compiled: float, eager: float) -> float:
    if compiled == 0:
        return 0.0
    return compiled / eager if eager else math.inf
