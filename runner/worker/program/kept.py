"""What a caller keeps from call to call: a backend that reuses its memory writes into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from runner.worker.program.snapshot import Leaf, snapshot_leaf
from runner.worker.torch_private.dispatch import disable_modes


@dataclass(frozen=True)
class KeptTensors:
    """Tensors of one call, detached so that no autograd graph is kept, and their elements right after the call."""

    tensors: Mapping[str, torch.Tensor]
    elements: Mapping[str, torch.Tensor]

    @staticmethod
    def of(tensors: Iterable[tuple[str, torch.Tensor]], leaves: Iterable[Leaf]) -> KeptTensors:
        """Return what can be compared later: plain dense tensors by their paths, and the copies that a snapshot holds."""
        copies = {leaf.path: leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)}
        plain = {
            p: t.detach()
            for p, t in tensors
            if type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided and p in copies
        }
        return KeptTensors(plain, {path: copies[path] for path in plain})

    def overwritten(self) -> frozenset[str]:
        """Return the paths whose tensors hold other bits than right after the call."""
        changed = set()
        with disable_modes():  # memory that is read as bytes has no float64 shadow any more
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
