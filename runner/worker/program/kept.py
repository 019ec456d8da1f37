"""Results that a caller keeps from call to call: a backend that reuses its memory writes into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import _disable_current_modes

from runner.worker.program.snapshot import Leaf, snapshot_leaf


@dataclass(frozen=True)
class KeptResults:
    """The tensors of one call's result, detached so that no autograd graph is kept, and their elements right after the call."""

    tensors: dict[str, torch.Tensor]
    elements: dict[str, torch.Tensor]

    @staticmethod
    def of(tensors: Sequence[tuple[str, torch.Tensor]], leaves: Sequence[Leaf]) -> KeptResults:
        """Return what can be compared later: plain dense tensors by their paths, and the copies that a snapshot holds."""
        copies = {leaf.path: leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)}
        plain = {
            p: t.detach() for p, t in tensors if type(t) is torch.Tensor and t.layout == torch.strided and p in copies
        }
        return KeptResults(plain, {path: copies[path] for path in plain})

    def overwritten(self) -> frozenset[str]:
        """Return the paths whose tensors hold other bits than right after the call."""
        changed = set()
        with _disable_current_modes():  # memory that is read as bytes has no float64 shadow any more
            for path, tensor in self.tensors.items():
                now = snapshot_leaf(tensor, path, copy=False).value
                if isinstance(now, torch.Tensor) and not torch.equal(_bits(now), _bits(self.elements[path])):
                    changed.add(path)
        return frozenset(changed)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a dense tensor: a NaN equals itself there.

    A lone element counts as contiguous with any stride, and only one of stride 1 can be viewed as bytes.
    """
    dense = tensor.contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)
