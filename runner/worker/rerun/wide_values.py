"""The float64 values that eager's are held against, where somebody gives them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from runner.worker.program.snapshot import Leaf
from runner.worker.rounding.sensitivity import Domain


class WideValues:
    """Float64 and complex128 values by path, of one call.

    With no model to run again, how far roundings move them is unknown.
    """

    overflow = ""
    """The first operator by which eager alone has NaN or an infinity."""

    def __init__(self, tensors: Mapping[str, torch.Tensor] | None = None) -> None:
        """Keep the values; without any, tolerances alone decide."""
        self._tensors = tensors or {}

    def tensor(self, call: int, path: str) -> torch.Tensor | None:
        """Return the values of a leaf."""
        return self._tensors.get(path)

    def original(self, call: int, path: str) -> Leaf | None:
        """Return a leaf as it was before the call."""
        return None

    def rounded_in(self, call: int, path: str) -> torch.dtype | None:
        """Return the dtype of the coarsest rounding behind a leaf."""
        return None

    def measure_sensitivity(self, call: int, path: str) -> torch.Tensor | None:
        """Return how far roundings move each element."""
        return None

    def measure_movement(self, call: int, path: str, dtype: torch.dtype) -> torch.Tensor | None:
        """Return how far one rounding of the inputs in ``dtype`` moves each element of eager's result."""
        return None

    def measure_domain(self, call: int, path: str) -> Domain | None:
        """Return what roundings make of each element, such as NaN."""
        return None
