"""With which inputs, state and earlier outputs an output shares its memory."""

from __future__ import annotations

from typing import Any

import torch

from runner.worker.program.snapshot import storage_key
from runner.worker.program.writes import paths_written


def find_relations(
    outputs: list[tuple[str, Any]], tensors: list[tuple[str, torch.Tensor]]
) -> dict[str, frozenset[str]]:
    """Return for every tensor output what it *is* and what it shares storage with: inputs, state, earlier outputs."""
    known = [(path, tensor, storage_key(tensor)) for path, tensor in tensors]
    relations: dict[str, frozenset[str]] = {}
    for path, output in outputs:
        if not isinstance(output, torch.Tensor):
            continue
        key = storage_key(output)
        shared = set()
        for known_path, tensor, known_key in known:
            if tensor is output and output.numel():
                shared.add(f"is {known_path}")
            elif key is not None and key == known_key:
                shared.add(f"shares memory with {known_path}")
        relations[path] = frozenset(shared)
        known.append((path, output, key))
    return relations


def memory_of(relations: frozenset[str]) -> frozenset[str]:
    """Return the tensors whose memory an output shares, whether it *is* one of them or not."""
    return frozenset(relation.removeprefix("is ").removeprefix("shares memory with ") for relation in relations)


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
