"""Bounds on rounding in float32: the response of the float64 run to perturbed inputs.

Another order of addition gives another sum. Inductor adds in another order than eager, whose sums are cascaded. Then
eager's own error against float64 does not bound the allowed error: it is smaller by the square root of the count.
The sensitivity does: each input is perturbed by one unit roundoff, up or down at random, and the results are compared.
So is each number that an operator with arithmetic reads, since its own inputs were rounded: a difference of two such
numbers that nearly cancel is uncertain, though the program's inputs may not be.
Results in float16 or bfloat16 are rounded once more where they are stored, and are perturbed there too.
This is Monte Carlo arithmetic (D. S. Parker, "Monte Carlo Arithmetic", 1997).

Where there is no float64 run, or no wider one, eager's own run is perturbed instead. It rounds as it goes, so that the
inputs move by several units (``steps``), and what is measured is divided by their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from runner.worker import thresholds
from runner.worker.rounding.shadow import Blur, plain, whole
from runner.worker.tensors import Tolerance

UNIT = 2.0**-24
"""Unit roundoff of float32."""

WIDEST = (torch.float64, torch.complex128)
"""Dtypes that no float64 run is wider than."""

UNITS = {torch.float64: 2.0**-53, torch.float32: UNIT, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Unit roundoff of the dtypes whose roundings are measured."""


def unit(dtype: torch.dtype) -> float | None:
    """Return the unit roundoff of a dtype, of the parts if it is complex; None where nothing may stand in."""
    return UNITS.get(dtype.to_real())


def is_measured(dtype: torch.dtype) -> bool:
    """Return whether the roundings of a dtype are known, and a float64 run is wider than it."""
    return unit(dtype) is not None and dtype not in WIDEST


def factor(dtype: torch.dtype) -> float:
    """Return how many times the movement by a rounding in this dtype counts as rounding."""
    return (thresholds.ROUNDING_FACTOR_NARROW if (unit(dtype) or 0.0) > UNIT else thresholds.ROUNDING_FACTOR).value


def small(dtype: torch.dtype) -> float:
    """Return the part of a tensor's largest element that roundings in this dtype can reach: four units of a narrow
    one."""
    return max(thresholds.ROUNDING_PART.value, thresholds.ROUNDING_FACTOR_NARROW.value * (unit(dtype) or 0.0))


def _most(dtype: torch.dtype) -> float:
    """Return the part of the largest element that roundings can reach where large numbers cancel."""
    return max(small(dtype), thresholds.CANCELLED_PART.value)


def is_coarser(first: torch.dtype, second: torch.dtype) -> bool:
    """Return whether the roundings of the first dtype are larger than those of the second; False where one is
    unknown."""
    own, other = unit(first), unit(second)
    return own is not None and other is not None and own > other


def holds(narrow: torch.dtype, dtype: torch.dtype) -> bool:
    """Return whether tensors of the first dtype can be moved by a rounding of the second."""
    own, movement = unit(narrow), unit(dtype)
    return own is not None and movement is not None and own <= movement


def steps(dtype: torch.dtype) -> int:
    """Return by how many units inputs move in a run of that dtype: far above the run's own rounding, and still
    small."""
    return (thresholds.INPUT_STEPS_NARROW if (unit(dtype) or 0.0) > UNIT else thresholds.INPUT_STEPS).value


def perturb(tensors: Iterable[torch.Tensor], draw: int, sign: int, size: float = UNIT) -> None:
    """Multiply every element of floating or complex tensors by 1 plus or minus ``size``, in place, once in each memory.

    ``draw`` chooses which go up; the other ``sign`` (1 or -1) has those go down. A tensor without strides stays.
    """
    generator = torch.Generator().manual_seed(draw)
    visited: set[int] = set()
    for tensor in plain(tensors):
        key = tensor.untyped_storage()._cdata
        if key in visited or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        visited.add(key)
        flat = whole(tensor)
        up = torch.randint(0, 2, flat.shape, generator=generator, dtype=torch.int8).to(torch.float64) * 2 - 1
        flat.mul_((1 + sign * size * up).to(tensor.device))


def blur(draw: int, sign: int) -> Blur:
    """Return a function that gives a tensor with every element perturbed by a rounding in a dtype.

    Each is perturbed by itself, also those that lie in one place of memory. ``draw`` and ``sign`` are those of
    ``perturb``: calls in the same order move the same elements, up or down.
    """
    generator = torch.Generator().manual_seed(draw)

    def perturbed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        size = unit(dtype) or 0.0
        up = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8).to(torch.float64) * 2 - 1
        return tensor * (1 + sign * size * up).to(tensor.device)

    return perturbed


def element_sensitivity(exact: torch.Tensor, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
    """Return how far each element moves: the root mean square over (up, down) pairs of results, shaped like ``exact``.

    An element has crossed a step (a comparison, a floor) if it does not move up as it moves down. One that is not
    finite has no distance. Both give 0, so that nothing is accepted there. The root mean squares of all pairs tell: in
    a single pair two perturbations may cancel, and what is left of their product moves the element to the same side.
    """
    squares, smooth = torch.zeros(exact.shape, dtype=torch.float64), torch.ones(exact.shape, dtype=torch.bool)
    uneven = torch.zeros(exact.shape, dtype=torch.float64)
    for up, down in pairs:
        odd, even = ((up - down) / 2).abs(), ((up + down) / 2 - exact).abs()
        smooth &= odd.isfinite()
        squares += odd.square()
        uneven += even.square()
    smooth &= uneven <= squares * thresholds.UNEVEN_PART.value
    return torch.where(smooth, (squares / len(pairs)).sqrt(), 0.0)


class Domain(NamedTuple):
    """Of each element, what perturbed runs made of it; all have one shape."""

    either: torch.Tensor  # finite in one run, and not in another
    largest: torch.Tensor  # absolute value of a finite one, in float64
    nan: torch.Tensor  # whether it was NaN in any
    infinite: torch.Tensor

    def holds(self, compiled: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return which elements that are finite or not are of a kind that a run has, a finite one of its size."""
        finite = compiled.isfinite() & (compiled.abs().to(self.largest.dtype) <= factor(dtype) * self.largest)
        return self.either & (finite | compiled.isnan() & self.nan | compiled.isinf() & self.infinite)


def domain(exact: torch.Tensor, runs: Sequence[torch.Tensor]) -> Domain:
    """Return what the elements are in float64 and in perturbed runs of it.

    A square root of a difference that nearly cancels is an example: a rounding decides whether it is NaN. An element
    that is finite in no perturbed run is not counted: the perturbation itself has taken it from its domain, as the
    gradient of a norm that divides by the number of elements that equal it.
    """
    finite = torch.stack([run.isfinite() for run in runs])
    sizes = torch.stack([torch.where(run.isfinite(), run, 0).abs().to(torch.float64) for run in (exact, *runs)])
    nan, infinite = (torch.stack([kind(run) for run in (exact, *runs)]).any(0) for kind in (torch.isnan, torch.isinf))
    return Domain(finite.any(0) & ~(finite.all(0) & exact.isfinite()), sizes.amax(0), nan, infinite)


def is_small(eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether both results are off by no more than rounding in ``dtype`` could explain anywhere.

    All have one shape; ``exact`` is the float64 result. Where that is zero everywhere nothing says what is large.
    """
    finite = exact.isfinite()
    scale = exact[finite].abs().max() if bool(finite.any()) else torch.tensor(0.0)
    sides = (side.to(exact.dtype) for side in (eager, compiled))  # float8 dtypes have no arithmetic
    return not bool(scale) or all(bool(((side - exact)[finite].abs() <= _most(dtype) * scale).all()) for side in sides)


def _limit(
    size: torch.Tensor, scale: torch.Tensor, movement: torch.Tensor, dtype: torch.dtype, tolerance: Tolerance
) -> torch.Tensor:
    """Return how far elements of these sizes may be off: as far as the factor says, but no more than ``small`` of the
    largest element, the ``scale``; where large numbers cancel a smaller factor counts, and more of the scale."""
    allowed = tolerance.allowed(size)
    moved = (allowed + factor(dtype) * movement).minimum(small(dtype) * scale)
    least = min(factor(dtype), thresholds.CANCELLED_FACTOR.value)
    return moved.maximum((allowed + least * movement).minimum(_most(dtype) * scale)).maximum(allowed)


def explains(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    exact: torch.Tensor,
    response: torch.Tensor,
    dtype: torch.dtype,
    tolerance: Tolerance,
) -> bool:
    """Return whether both results lie within the tolerance plus a multiple of the sensitivity, everywhere.

    ``dtype`` is that of the coarsest rounding behind them.
    """
    finite = eager.isfinite() & compiled.isfinite() & exact.isfinite()
    allowed = (tolerance.allowed(exact.abs()) + factor(dtype) * response)[finite]
    return all(bool(((side - exact)[finite].abs() <= allowed).all()) for side in (eager, compiled))


def response_explains(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    exact: torch.Tensor,
    response: torch.Tensor,
    dtype: torch.dtype,
    tolerance: Tolerance,
) -> bool:
    """Return whether both results lie as near the float64 result as ``_limit`` says, everywhere; a scale of zero limits
    nothing."""
    finite = eager.isfinite() & compiled.isfinite() & exact.isfinite()
    sizes = exact[finite].abs()
    if not sizes.numel():
        return True
    scale = sizes.max() if bool(sizes.max()) else torch.tensor(torch.inf, dtype=sizes.dtype)
    limit = _limit(sizes, scale, response[finite], dtype, tolerance)
    return all(bool(((side.to(exact.dtype) - exact)[finite].abs() <= limit).all()) for side in (eager, compiled))


def movement_explains(
    eager: torch.Tensor, compiled: torch.Tensor, movement: torch.Tensor, dtype: torch.dtype, tolerance: Tolerance
) -> bool:
    """Return whether two results that no wider one judges differ by no more than the movement of eager's explains,
    everywhere.

    Each finite element lies within the tolerance, or within what ``_limit`` makes of the movement.
    """
    finite = eager.isfinite() & compiled.isfinite()
    kind = torch.complex128 if eager.is_complex() else torch.float64
    first, second = eager.to(kind)[finite], compiled.to(kind)[finite]
    if not first.numel():
        return True
    limit = _limit(first.abs(), first.abs().max(), movement[finite], dtype, tolerance)
    return bool(((first - second).abs() <= limit).all())
