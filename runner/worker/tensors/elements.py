"""Elements of tensors as float64 planes or as bytes: what every comparison is made of.

Planes are float64 [elements, 1], or [elements, 2] for complex tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch

PIECE = 1 << 20  # elements compared at a time
TINY = torch.finfo(torch.float64).tiny
SAME_SIZE_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[Any, ...]]:
    """Yield (start, planes of each tensor) a piece at a time, since float64 copies of whole tensors may not fit."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), PIECE):
        yield (start, *(planes(tensor[start : start + PIECE]) for tensor in flat))


def planes(tensor: torch.Tensor) -> torch.Tensor:
    """Return float64 [elements, 1], or [elements, 2] for complex. float64 holds narrower floats exactly."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128).contiguous()).reshape(-1, 2)
    return tensor.to(torch.float64).reshape(-1, 1)


def classes(plane: torch.Tensor) -> torch.Tensor:
    """Return the class of each element: 0 finite, 1 NaN, 2 infinity, 3 minus infinity."""
    return plane.isnan() * 1 + plane.isposinf() * 2 + plane.isneginf() * 3


def finite_difference(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the difference, and 0 where either side is not finite."""
    return torch.where(first.isfinite() & second.isfinite(), first - second, 0.0)


def finite_part(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return the first, and 0 where either side is not finite."""
    return torch.where(first.isfinite() & second.isfinite(), first, 0.0)


def norm(plane: torch.Tensor) -> torch.Tensor:
    """Return the absolute value of each element [elements]; hypot neither overflows nor underflows early."""
    return plane[:, 0].abs() if plane.shape[1] == 1 else torch.hypot(plane[:, 0], plane[:, 1])


def largest(tensor: torch.Tensor) -> float:
    """Return the size of the largest finite element; 0 without elements."""
    return float(tensor.abs().masked_fill(~tensor.isfinite(), 0).max()) if tensor.numel() else 0.0


def rmse(errors: torch.Tensor) -> float:
    """Return the root mean square, scaled so that squares of large errors do not overflow."""
    top = float(errors.max())
    return top if top == 0 or not math.isfinite(top) else top * math.sqrt(float(((errors / top) ** 2).mean()))


def identical(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether every byte is the same: the common case, without a copy. A NaN of other bits differs here."""
    return bool(torch.equal(as_integers(first), as_integers(second)))


@functools.cache
def has_numbers(dtype: torch.dtype) -> bool:
    """Return whether torch reads the elements of a dtype as numbers: those of ``bits8`` or ``float4_e2m1fn_x2`` are
    bytes to it."""
    try:
        torch.empty(1, dtype=dtype, device="cpu").to(torch.float64)
    except (NotImplementedError, RuntimeError):
        return False
    return True


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same bytes as signed integers. Every operator knows those; float8 and unsigned dtypes lack some."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor if tensor.dtype == torch.bool else tensor.view(SAME_SIZE_INTEGER[tensor.element_size()])


def different_bits(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return bool [elements]: where the bits differ; any NaN equals any other."""
    if first.is_floating_point() or first.is_complex():
        # Through float64, since float8 dtypes have no isnan of their own.
        first_planes, second_planes = planes(first), planes(second)
        unequal = (first_planes != second_planes) | (torch.signbit(first_planes) != torch.signbit(second_planes))
        return (unequal & ~(first_planes.isnan() & second_planes.isnan())).any(dim=1)
    return as_integers(first).reshape(-1) != as_integers(second).reshape(-1)


def error_of(eager: Any, compiled: Any) -> tuple[Any, float]:
    """Return the absolute and relative error of one compiled element, exact for integers of any size."""
    gap = abs(int(compiled) - int(eager)) if isinstance(eager, (bool, int)) else abs(compiled - eager)
    return gap, gap / abs(eager) if eager else math.inf if gap else 0.0


def number(value: Any) -> Any:
    """Return a number that JSON can carry: NaN, infinities and complex numbers become text."""
    if isinstance(value, complex):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
