"""Aliases by their effect: write into an output, and compare inputs and state before and after.

Storage identity finds most of them. But memory can be shared below the storage (NumPy's arrays, tensors made over
foreign memory), and then only a write shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from runner.worker.tensors.elements import as_integers
from runner.worker.torch_private.dispatch import disable_modes

LARGEST = 1 << 20
"""Elements of inputs and state together beyond which nothing is tried: each write compares them all."""


def paths_written(outputs: Sequence[torch.Tensor], tensors: Sequence[tuple[str, torch.Tensor]]) -> list[frozenset[str]]:
    """Return for each output the paths of ``tensors`` that a write into its first element changes. All is put back.

    No write is tried into an output that is empty, not strided, overlapping itself, on the meta device, or an inference
    tensor. Its set is empty.
    """
    writable = [(path, tensor) for path, tensor in tensors if is_plain(tensor)]
    if sum(tensor.numel() for _, tensor in writable) > LARGEST:
        return [frozenset() for _ in outputs]
    with disable_modes():  # the write that is put back and the comparison of bits are not the program's
        return [_paths_changed(output, writable) for output in outputs]


def _paths_changed(output: torch.Tensor, writable: Sequence[tuple[str, torch.Tensor]]) -> frozenset[str]:
    if not is_plain(output) or _overlaps(output):
        return frozenset()
    first = output.detach()[(0,) * output.dim()]
    if first.is_floating_point() and first.element_size() == 1:
        first = as_integers(first)  # float8 dtypes have no operator that chooses between two values
    snapshots = [tensor.detach().clone() for _, tensor in writable]
    original = first.clone()
    try:
        first.copy_(_different_value(original))
    except RuntimeError:  # memory that may not be written to, such as an expanded or read-only one
        return frozenset()
    changed = [
        path
        for (path, tensor), snapshot in zip(writable, snapshots, strict=True)
        if not torch.equal(_bits(tensor.detach()), _bits(snapshot))
    ]
    first.copy_(original)
    return frozenset(changed)


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements at strides in memory that anybody may write to."""
    kind = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    strided = tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested
    return kind and strided and tensor.numel() > 0 and tensor.device.type != "meta" and not tensor.is_inference()


def _overlaps(tensor: torch.Tensor) -> bool:
    """Return whether two of its elements may be one place in memory: then a write would be counted twice."""
    reach = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if step < reach:
                return True
            reach = step * (size - 1) + reach
    return False


def _different_value(value: torch.Tensor) -> torch.Tensor:
    """Return a value of the same dtype that is certainly different."""
    if value.dtype == torch.bool:
        return ~value
    return torch.where(value == 1, torch.zeros_like(value), torch.ones_like(value))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits as integers: a NaN would never equal itself, and of float8 dtypes no comparison is to be had."""
    return as_integers(tensor.resolve_conj().resolve_neg())
