"""Which bytes of memory a tensor has elements in."""

from __future__ import annotations

import torch


def reach(tensor: torch.Tensor) -> range:
    """Return the addresses from the first element's to the last one's: none where it has no elements."""
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.data_ptr()
    return range(first, first + (steps + 1) * tensor.element_size() if tensor.numel() else first)


def element_bytes(row: torch.Tensor, start: int, tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of ``row``, one element for each byte from the address ``start`` on, that belongs to those of
    ``tensor``."""
    size = tensor.element_size()
    steps = (*(step * size for step in tensor.stride()), 1)
    return row.as_strided((*tensor.shape, size), steps, tensor.data_ptr() - start)


def have_common_elements(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors that are alive, and on one device, have an element in the same place."""
    one, another = reach(first), reach(second)
    if max(one.start, another.start) >= min(one.stop, another.stop):
        return False
    if _is_dense(first) and _is_dense(second):
        return True
    start = min(one.start, another.start)
    row = torch.zeros(max(one.stop, another.stop) - start, dtype=torch.bool)
    element_bytes(row, start, first).fill_(True)
    return bool(element_bytes(row, start, second).any())


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor surely has an element in each byte that it reaches over."""
    return tensor.is_contiguous() or bool(tensor.dim() == 2 and tensor.t().is_contiguous())
