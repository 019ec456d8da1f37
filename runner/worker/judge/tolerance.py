"""The tolerance of a dtype, as the job or torch's own test helpers have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._comparison import default_tolerances


@dataclass(frozen=True)
class Tolerance:
    """As ``torch.testing.assert_close`` has them; ``exact`` asks for equal bits, where any NaN equals any other."""

    rtol: float
    atol: float
    exact: bool = False


def tolerance_for(dtype: torch.dtype, overrides: Mapping[str, Any] | None = None) -> Tolerance:
    """Return the tolerance of a dtype: the default of ``torch.testing.assert_close`` where ``overrides`` has none.

    Args:
        overrides: ``{"by_dtype": {"": [rtol, atol], "float16": [rtol, atol]}, "exact": bool}``. None in place of a
            number keeps the default; ``""`` holds for every dtype that has no entry of its own.
    """
    rtol, atol = default_tolerances(dtype)
    overrides = overrides or {}
    table = overrides.get("by_dtype") or {}
    override = table.get(str(dtype).removeprefix("torch."), table.get("", (None, None)))
    return Tolerance(
        rtol=rtol if override[0] is None else float(override[0]),
        atol=atol if override[1] is None else float(override[1]),
        exact=bool(overrides.get("exact")),
    )
