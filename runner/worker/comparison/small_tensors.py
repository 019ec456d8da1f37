"""Tensors whose elements are all smaller than the absolute tolerance, where the tolerance accepts any small numbers.

The second moments of Adam, a softmax over a vocabulary and the gradient of a mean are such tensors: with ``atol`` 1e-5,
zeros pass for each. An error is reported where the float64 reference shows that eager's numbers are right, and the
compiled ones are not. Numbers that are small because larger ones cancelled are noise on both sides, and eager's are
then not right either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from runner.worker import thresholds
from runner.worker.comparison.compare import Comparison, compare_values
from runner.worker.rounding import sensitivity
from runner.worker.tensors import Tolerance, finite_difference, identical, norm, pieces


def compare_small_tensors(
    eager: torch.Tensor,
    compiled: torch.Tensor,
    dtype: torch.dtype,
    tolerance: Tolerance,
    reference: Callable[[], torch.Tensor | None],
    precision: Callable[[], torch.dtype],
    measure_response: Callable[[], torch.Tensor | None],
) -> Comparison:
    """Compare two dense CPU tensors of one shape again, which the tolerance has accepted.

    Args:
        dtype: of the program's tensors; a Python number has that of the tensor it came from.
        tolerance: that has accepted them. Its ``atol`` must come from the dtype, not from a person.
        reference: gives the float64 (complex128) result of the same shape, or None. Called only when it is needed.
        precision: gives the dtype of the coarsest rounding behind the elements. Called after the reference.
        measure_response: gives how far roundings move each element of the reference. Called last: it takes a dozen
        runs.
    """
    if identical(eager, compiled):  # the common case: no pass in float64 for it
        return Comparison()
    scale, (least, step) = _largest(eager), _smallest(dtype, tolerance)
    gross = thresholds.GROSS_FACTOR.value * (sensitivity.small(dtype) * scale + step)
    # atol + rtol * scale is what the difference can be at most, and no pass over the elements is needed above it.
    if scale < least or tolerance.atol + tolerance.rtol * scale <= gross:
        return Comparison()
    if _largest(eager, compiled) <= gross:
        return Comparison()
    exact = reference()
    if exact is None:
        return Comparison()
    right = sensitivity.small(precision()) * scale + step
    if _largest(eager, exact) > right or _largest(compiled, exact) <= thresholds.GROSS_FACTOR.value * right:
        return Comparison()
    response = measure_response()
    atol = tolerance.atol * scale + step
    if response is None or sensitivity.explains(eager, compiled, exact, response, precision(), tolerance.rtol, atol):
        return Comparison()
    return compare_values(eager, compiled, replace(tolerance, atol=atol), lambda: exact)


def _smallest(dtype: torch.dtype, tolerance: Tolerance) -> tuple[float, float]:
    """Return how large the largest element must be, and the distance between numbers there that counts beside the
    relative one.

    Numbers below the normal ones may be flushed to zero. Those of float16 lie above its absolute tolerance, and no CPU
    or GPU flushes them: they count, down to 64 of the steps between them.
    """
    limits = torch.finfo(dtype)
    step = limits.smallest_normal * limits.eps
    return (
        (thresholds.STEPS_OF_SMALL.value * step, step)
        if limits.smallest_normal > tolerance.atol
        else (limits.smallest_normal, 0.0)
    )


def _largest(first: torch.Tensor, second: torch.Tensor | None = None) -> float:
    """Return the largest absolute value of the finite elements, or of the differences from a second tensor."""
    if second is None:
        second = torch.zeros((), dtype=first.dtype).expand_as(first)
    sizes = (norm(finite_difference(*sides)) for _, *sides in pieces(first, second))
    return max((float(size.max()) for size in sizes), default=0.0)
