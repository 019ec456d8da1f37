"""Which objects stand where: whoever holds one sees what is written into it, and nothing of another one in its
place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from runner.worker.program.snapshot import storage_key


@dataclass(frozen=True)
class Places:
    """Objects that can change, by their paths, each with its storage. Both are held, so that their addresses stay
    theirs.

    NumPy's arrays do not count: Dynamo puts another array in the place of one that ``+=`` writes into.
    """

    objects: Mapping[str, tuple[Any, Any]]

    @staticmethod
    def of(leaves: Iterable[tuple[str, Any]], containers: Mapping[str, Any]) -> Places:
        """Return the places of containers, and of the tensors, sets and bytearrays among leaves."""
        tensors = {path: (leaf, _storage(leaf)) for path, leaf in leaves if issubclass(type(leaf), torch.Tensor)}
        others = {path: leaf for path, leaf in leaves if issubclass(type(leaf), (set, bytearray))}
        return Places({**{path: (value, None) for path, value in {**containers, **others}.items()}, **tensors})

    def replaced(self, after: Places) -> dict[str, str]:
        """Return what stands ``after`` a call in place of another object, by its path."""
        found: dict[str, str] = {}
        for path, (value, storage) in self.objects.items():
            now, storage_now = after.objects.get(path, (value, storage))
            if now is not value:
                found[path] = f"another {type(now).__name__}"
            elif _key(storage) != _key(storage_now):
                found[path] = "other memory"
        return found

    def relations(self, *sources: Places) -> dict[str, frozenset[str]]:
        """Return which containers *are* containers of ``sources``, as ``find_relations`` says it of tensors."""
        known = {id(value): path for places in reversed(sources) for path, (value, _) in places.objects.items()}
        return {
            path: frozenset({f"is {known[id(value)]}"})
            for path, (value, _) in self.objects.items()
            if id(value) in known and not issubclass(type(value), torch.Tensor)
        }


def _storage(tensor: torch.Tensor) -> Any:
    return None if is_lazy(tensor) or storage_key(tensor) is None else tensor.untyped_storage()


def _key(storage: Any) -> int | None:
    return None if storage is None else int(storage._cdata)
