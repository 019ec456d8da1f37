"""The tolerance of a dtype, as the job or torch's own test helpers have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.worker.torch_private.comparison import default_tolerances

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
