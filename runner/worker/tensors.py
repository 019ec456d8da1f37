"""Elements of tensors as float64 planes or as bytes, what every comparison is made of, and the tolerance of a dtype.

Planes are float64 [elements, 1], or [elements, 2] for complex tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.worker.torch_private.comparison import default_tolerances

PIECE = 1 << 20  # elements compared at a time
TINY = torch.finfo(torch.float64).tiny
SAME_SIZE_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[Any, ...]]:
    """Yield (start, planes of each tensor) a piece at a time, since float64 copies of whole tensors may not fit."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), PIECE):
        yield (start, *(planes(tensor[start : start + PIECE]) for tensor in flat))


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return complex128 for a complex dtype, float64 for a floating one, else the dtype itself."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


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


DEFAULTS = {dtype: default_tolerances(dtype) for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
"""rtol and atol by dtype, as torch has them before a case's Python may change its table."""


@dataclass(frozen=True)
class Tolerance:
    """As ``torch.testing.assert_close`` has them; ``exact`` asks for equal bits, where any NaN equals any other.

    ``entry`` says where the case has them: at a place, for a dtype, or ``""`` for all; None where they are torch's
    default, or exact.
    """

    rtol: float
    atol: float
    exact: bool = False
    entry: str | None = field(default=None, compare=False)

    def allowed(self, sizes: torch.Tensor) -> torch.Tensor:
        """Return how far off elements of these sizes may be."""
        return self.atol + self.rtol * sizes


GRADIENTS = "gradients"
"""The place that stands for every gradient."""


def tolerance_for(dtype: torch.dtype, overrides: Mapping[str, Any] | None = None, path: str = "") -> Tolerance:
    """Return the tolerance of a dtype: the default of ``torch.testing.assert_close`` where ``overrides`` has none.

    Args:
        dtype: of the tensor.
        overrides: ``{"by_dtype": {"": [rtol, atol], "float16": [rtol, atol]}, "exact": bool}``. None in place of a
            number keeps the default; ``""`` holds for every dtype that has no entry of its own. ``"by_place"`` may hold
            bounds of single outputs and of the gradients, which replace all others there.
        path: where the tensor stands, such as ``output[1]`` or ``gradient of x``.
    """
    rtol, atol = DEFAULTS[dtype]
    overrides = overrides or {}
    place = _own_place(overrides, path)
    table = overrides.get("by_place" if place is not None else "by_dtype") or {}
    names = (str(dtype).removeprefix("torch."), "") if place is None else (place,)
    entry = next((name for name in names if name in table), None)
    override = (None, None) if entry is None else table[entry]
    exact = bool(overrides.get("exact")) and place is None
    return Tolerance(
        rtol=rtol if override[0] is None else float(override[0]),
        atol=atol if override[1] is None else float(override[1]),
        exact=exact,
        entry=None if exact else entry,
    )


def missing_place(overrides: Mapping[str, Any] | None, paths: Iterable[str]) -> str | None:
    """Return a place of ``overrides`` at which none of the outputs stands, whose ``paths`` these are; None without
    one."""
    table = (overrides or {}).get("by_place") or {}
    used = {place for path in paths for place in table if own_bounds({"by_place": {place: ()}}, path) is not None}
    return next((place for place in table if place != GRADIENTS and place not in used), None)


def own_bounds(overrides: Mapping[str, Any] | None, path: str) -> Sequence[float | None] | None:
    """Return rtol and atol that ``overrides`` has for the place of a leaf, by the longest of its places; None without
    one."""
    place = _own_place(overrides or {}, path)
    table: Mapping[str, Sequence[float | None]] = (overrides or {}).get("by_place") or {}
    return None if place is None else table[place]


def _own_place(overrides: Mapping[str, Any], path: str) -> str | None:
    table = overrides.get("by_place") or {}
    if path.startswith("gradient of "):
        return GRADIENTS if GRADIENTS in table else None
    places = [place for place in table if path == place or path.startswith((f"{place}[", f"{place}."))]
    return max(places, key=len, default=None)
