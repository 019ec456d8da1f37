"""Which objects stand where: whoever holds one sees what is written into it, and nothing of another one in its
place."""

from __future__ import annotations

import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from runner.worker.program.arrays import is_array
from runner.worker.program.snapshot import storage_key


@dataclass(frozen=True)
class Places:
    """Objects that can change, by their paths, each with its storage. Both are held, so that their addresses stay
    theirs."""

    objects: Mapping[str, tuple[Any, Any]]

    @staticmethod
    def of(leaves: Iterable[tuple[str, Any]], containers: Mapping[str, Any]) -> Places:
        """Return the places of containers, and of the tensors, arrays, sets and bytearrays among leaves."""
        tensors = {path: (leaf, _storage(leaf)) for path, leaf in leaves if issubclass(type(leaf), torch.Tensor)}
        others = {
            path: leaf
            for path, leaf in leaves
            if issubclass(type(leaf), (set, bytearray, array.array)) or _is_array(leaf)
        }
        return Places({**{path: (value, None) for path, value in {**containers, **others}.items()}, **tensors})

    def joined(self, others: Places) -> Places:
        """Return these places and others."""
        return Places({**self.objects, **others.objects})

    def changed(self, before: Places) -> list[str]:
        """Return the paths at which another object stood ``before``, or none, or the same one with other memory."""
        return [
            path
            for path, (value, storage) in self.objects.items()
            if path not in before.objects
            or before.objects[path][0] is not value
            or _key(before.objects[path][1]) != _key(storage)
        ]

    def replaced(self, after: Places) -> dict[str, str]:
        """Return what stands ``after`` a call in place of another object, by its path.

        NumPy's arrays do not count: Dynamo puts another array in the place of one that ``+=`` writes into.
        """
        found: dict[str, str] = {}
        for path in after.changed(self):
            value, (now, _) = self.objects.get(path, (None, None))[0], after.objects[path]
            if path in self.objects and not _is_array(value):
                found[path] = "other memory" if now is value else f"another {type(now).__name__}"
        return found

    def relations(self, *sources: Places) -> dict[str, frozenset[str]]:
        """Return which containers *are* containers of ``sources``, as ``find_relations`` says it of tensors."""
        known = {id(value): path for places in reversed(sources) for path, (value, _) in places.objects.items()}
        return {
            path: frozenset({f"is {known[id(value)]}"})
            for path, (value, _) in self.objects.items()
            if id(value) in known and not (issubclass(type(value), torch.Tensor) or _is_array(value))
        }


def _is_array(value: Any) -> bool:
    return is_array(type(value), scalars=False)


def _storage(tensor: torch.Tensor) -> Any:
    return None if is_lazy(tensor) or storage_key(tensor) is None else tensor.untyped_storage()


def _key(storage: Any) -> int | None:
    return None if storage is None else int(storage._cdata)
