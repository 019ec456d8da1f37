"""With which inputs, state and earlier outputs an output shares its memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from runner.worker.program.arrays import is_array
from runner.worker.program.memory import array_reach
from runner.worker.program.snapshot import storage_key
from runner.worker.program.writes import paths_written


def find_relations(outputs: Iterable[tuple[str, Any]], sources: Iterable[tuple[str, Any]]) -> dict[str, frozenset[str]]:
    """Return for every tensor or array among outputs what it *is* and what it shares memory with.

    These are ``sources``, the inputs and the state, and earlier outputs. An array only shares: who gives it makes it
    anew.
    """
    known = [_Memory.of(path, value) for path, value in sources if _has_memory(value)]
    relations: dict[str, frozenset[str]] = {}
    for path, output in outputs:
        if _has_memory(output):
            memory = _Memory.of(path, output)
            relations[path] = frozenset(filter(None, map(memory.relation, known)))
            known.append(memory)
    return relations


def _has_memory(value: Any) -> bool:
    """Return whether a value is an array or a tensor, and not a parameter of a lazy module that has not run yet."""
    return is_array(type(value), scalars=False) or (isinstance(value, torch.Tensor) and not is_lazy(value))


class _Memory(NamedTuple):
    """A tensor with the key of its storage, or an array."""

    path: str
    value: Any
    key: int | None

    @staticmethod
    def of(path: str, value: Any) -> _Memory:
        return _Memory(path, value, storage_key(value) if isinstance(value, torch.Tensor) else None)

    def relation(self, other: _Memory) -> str:
        """Return how this one belongs to another one; empty where they share nothing."""
        are_tensors = isinstance(self.value, torch.Tensor) and isinstance(other.value, torch.Tensor)
        if are_tensors and self.value is other.value and self.value.numel():
            return f"is {other.path}"
        if are_tensors:
            shared = self.key is not None and self.key == other.key
        else:
            first, second = self._addresses(), other._addresses()
            shared = max(first.start, second.start) < min(first.stop, second.stop)
        return f"shares memory with {other.path}" if shared else ""

    def _addresses(self) -> range:
        """Return the addresses of an array, or of a tensor's storage on the CPU."""
        if not isinstance(self.value, torch.Tensor):
            return array_reach(self.value)
        if self.key is None or self.value.device.type != "cpu":
            return range(0)
        storage = self.value.untyped_storage()
        try:
            first = storage.data_ptr()
        except RuntimeError:  # of a subclass that has no elements of its own
            return range(0)
        return range(first, first + storage.nbytes())


def memory_of(relations: frozenset[str]) -> frozenset[str]:
    """Return the tensors whose memory an output shares, whether it *is* one of them or not."""
    return frozenset(map(source_of, relations))


def source_of(relation: str) -> str:
    """Return what a relation is about."""
    return relation.removeprefix("is ").removeprefix("shares memory with ")


def add_writes(
    relations: dict[str, frozenset[str]],
    outputs: list[tuple[str, torch.Tensor]],
    tensors: list[tuple[str, torch.Tensor]],
) -> dict[str, frozenset[str]]:
    """Return the relations and those that only a write shows. A user cannot tell shared storage from shared memory."""
    extended = dict(relations)
    for (path, _), paths in zip(outputs, paths_written([tensor for _, tensor in outputs], tensors)):  # noqa: B905
        by_write = {f"shares memory with {target}" for target in paths if f"is {target}" not in relations[path]}
        extended[path] = relations[path] | by_write
    return extended
