"""Memory behind inputs and state in which they have no element, such as what lies between those of ``base[::2]``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from runner.worker.program.memory import element_bytes
from runner.worker.program.snapshot import storage_key
from runner.worker.program.writes import is_plain
from runner.worker.torch_private.dispatch import disable_modes

LARGEST = 1 << 26
"""Bytes of a storage beyond which nothing is looked at: its gaps are copied twice."""

Gaps = tuple[torch.Tensor, torch.Tensor]
"""What the gaps of a storage hold before a call and after it, each as one row."""


@dataclass(frozen=True)
class _Storage:
    """A storage with gaps: the elements of ``dtype`` at ``places``, counted from its beginning."""

    storage: torch.UntypedStorage
    dtype: torch.dtype
    places: torch.Tensor

    def read(self) -> torch.Tensor | None:
        """Return what the gaps hold, on the CPU; None where the storage has become smaller."""
        if self.storage.nbytes() < (int(self.places[-1]) + 1) * self.dtype.itemsize:
            return None
        row = torch.empty(0, dtype=self.dtype, device=self.storage.device)
        row.set_(self.storage, 0, (int(self.places[-1]) + 1,), (1,))
        return row[self.places.to(row.device)].cpu()


class GapWatch:
    """Gaps as they are before a call."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy what the gaps behind these hold now. Each storage has the path of its first tensor."""
        groups: dict[int | None, list[tuple[str, torch.Tensor]]] = {}
        with disable_modes():
            for path, tensor in tensors:
                if is_plain(tensor):
                    groups.setdefault(storage_key(tensor), []).append((path, tensor))
            named = {group[0][0]: _with_gaps([tensor for _, tensor in group]) for group in groups.values()}
            self._before = {path: (one, one.read()) for path, one in named.items() if one is not None}

    def read(self) -> dict[str, Gaps]:
        """Return what they held and what they hold now, by the paths."""
        with disable_modes():
            rows = {path: (before, storage.read()) for path, (storage, before) in self._before.items()}
        return {path: (before, now) for path, (before, now) in rows.items() if before is not None and now is not None}


def _with_gaps(tensors: Sequence[torch.Tensor]) -> _Storage | None:
    """Return the storage of these if it has gaps, and is small enough."""
    storage = tensors[0].untyped_storage()
    length = storage.nbytes()
    if length > LARGEST or any(tensor.numel() * tensor.element_size() >= length for tensor in tensors):
        return None
    row = torch.zeros(length, dtype=torch.bool)
    for tensor in tensors:
        element_bytes(row, storage.data_ptr(), tensor).fill_(True)
    size = tensors[0].element_size()
    covered = row[: length // size * size].view(-1, size).any(1)
    places = covered.logical_not().nonzero().flatten()
    dtype = tensors[0].dtype if size > 1 else torch.uint8  # of float8 dtypes and of bool the bits
    return _Storage(storage, dtype, places) if len(places) else None
