"""Which objects and which memory a call leaves in inputs and state: whoever holds them sees what is written later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from runner.worker.program.arrays import is_array
from runner.worker.program.memory import array_reach, have_common_elements, reach
from runner.worker.program.places import Places
from runner.worker.program.snapshot import storage_key
from runner.worker.program.writes import is_plain
from runner.worker.torch_private.dispatch import disable_modes

BEFORE = " before the call"
"""How the name of an object ends that no longer stands at its place."""


def find_sharing(
    before: Places, results: Iterable[tuple[str, Any]], after: Places, keeps: bool = True
) -> dict[str, frozenset[str]]:
    """Return for all that a call has put into inputs and state what it *is*, and with what it has an element in common.

    These are the objects ``before`` the call, ``results`` of this call and of earlier ones, and what else it has put
    there. An object that it has removed counts where the device ``keeps`` its memory: a CUDA graph may use it again.
    """
    changed = after.changed(before)
    sources = []
    for path, (value, _) in before.objects.items() if changed else ():
        now = after.objects[path][0] if path in after.objects else None
        if path not in changed and now is value:
            sources.append((path, value))
        elif keeps and now is not value and not is_array(type(value), scalars=False):
            sources.append((path + BEFORE, value))
    return find_common([(path, after.objects[path][0]) for path in changed], [*sources, *results])


def find_common(values: Sequence[tuple[str, Any]], sources: Iterable[tuple[str, Any]]) -> dict[str, frozenset[str]]:
    """Return what each of ``values`` *is* among ``sources`` and earlier values, and with what it has an element in
    common."""
    relations: dict[str, frozenset[str]] = {}
    if values:
        with disable_modes():
            known = [_Memory.of(path, value) for path, value in sources]
            for path, value in values:
                memory = _Memory.of(path, value)
                relations[path] = frozenset(filter(None, map(memory.relation, known)))
                known.append(memory)
    return relations


class _Memory(NamedTuple):
    """An object with the key of its storage, its device and the addresses that it reaches over; only a tensor has the
    first two."""

    path: str
    value: Any
    key: int | None = None
    device: torch.device | None = None
    place: range = range(0)

    @staticmethod
    def of(path: str, value: Any) -> _Memory:
        if is_array(type(value), scalars=False):
            return _Memory(path, value, place=array_reach(value))
        if not issubclass(type(value), torch.Tensor) or is_lazy(value):
            return _Memory(path, value)
        return _Memory(path, value, storage_key(value), value.device, reach(value) if is_plain(value) else range(0))

    def relation(self, other: _Memory) -> str:
        """Return how this one belongs to another one; empty where a write into either shows in itself alone.

        Of two tensors over the same memory nobody sees whether they are one, unless these are parameters.
        """
        is_same, cls = self.value is other.value, type(self.value)
        if is_same and (not issubclass(cls, torch.Tensor) or issubclass(cls, torch.nn.Parameter)):
            return f"is {other.path}"
        return f"shares memory with {other.path}" if is_same or self._shares(other) else ""

    def _shares(self, other: _Memory) -> bool:
        if not (self.place and other.place):
            return self.key is not None and self.key == other.key
        if self.place.start >= other.place.stop or other.place.start >= self.place.stop:
            return False
        if self.device is None or other.device is None:  # an array has no device
            return "cuda" not in f"{self.device} {other.device}"
        return self.device == other.device and have_common_elements(self.value, other.value)
