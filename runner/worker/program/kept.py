"""What a caller keeps from call to call: a backend that reuses its memory writes into it, or gives it out again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runner.worker.program.memory import have_common_elements, reach
from runner.worker.program.snapshot import Leaf, snapshot_leaf
from runner.worker.torch_private.dispatch import disable_modes

_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Types of tensors whose memory anybody may read: a subclass may refuse."""


@dataclass(frozen=True)
class KeptTensors:
    """Tensors and arrays of one call, mostly detached so that no autograd graph is kept, and their elements right after
    it."""

    values: Mapping[str, Any]
    elements: Mapping[str, torch.Tensor]

    @staticmethod
    def of(values: Iterable[tuple[str, Any]], leaves: Iterable[Leaf]) -> KeptTensors:
        """Return what can be compared later: tensors and arrays by their paths, and the copies that a snapshot
        holds."""
        copies = {leaf.path: leaf.value for leaf in leaves if isinstance(leaf.value, torch.Tensor)}
        kept = {
            path: value.detach() if isinstance(value, torch.Tensor) else value
            for path, value in values
            if path in copies
        }
        return KeptTensors(kept, {path: copies[path] for path in kept})

    def overwritten(self) -> dict[str, torch.Tensor]:
        """Return copies of what holds other bits than right after the call, by their paths."""
        changed = {}
        with disable_modes():  # memory that is read as bytes has no float64 shadow any more
            for path, value in self.values.items():
                now = snapshot_leaf(value, path, copy=False).value
                if isinstance(now, torch.Tensor) and not torch.equal(_bits(now), _bits(self.elements[path])):
                    changed[path] = now.clone()
        return changed

    def named(self, call: int) -> Iterator[tuple[str, Any]]:
        """Yield the values with paths that name the call."""
        return ((f"{path} of call {call}", value) for path, value in self.values.items())

    def repeated(self, calls: Iterable[KeptTensors]) -> frozenset[tuple[str, int, str]]:
        """Return what is shared with earlier ``calls``, in their order: a path, a call's number and a path of that
        call."""
        return frozenset((path, call, same) for call, one in enumerate(calls) for path, same in self.shared_with(one))

    def shared_with(self, earlier: KeptTensors) -> Iterator[tuple[str, str]]:
        """Yield a path and one of ``earlier`` for all plain dense tensors that have an element in common.

        They may have storages of their own over the same memory. All are alive, so that no allocator has given it
        twice.
        """
        with disable_modes():
            places = earlier._places()
            for path, tensor, memory in self._places():
                for earlier_path, earlier_tensor, place in places:
                    near = (
                        memory.start < place.stop
                        and place.start < memory.stop
                        and tensor.device == earlier_tensor.device
                    )
                    if near and have_common_elements(tensor, earlier_tensor):
                        yield path, earlier_path

    def _places(self) -> list[tuple[str, torch.Tensor, range]]:
        plain = ((path, value) for path, value in self.values.items() if type(value) in _PLAIN)
        return [(p, t, reach(t)) for p, t in plain if t.layout == torch.strided and not t.is_nested]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a dense tensor: a NaN equals itself there.

    A lone element counts as contiguous with any stride, and only one of stride 1 can be viewed as bytes.
    """
    dense = tensor.contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)
