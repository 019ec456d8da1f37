"""Which bytes of memory a tensor has elements in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def reach(tensor: torch.Tensor) -> range:
    """Return the addresses from the first element's to the last one's: none where it has no elements."""
    size = tensor.element_size()
    return reach_of(tensor.data_ptr(), tensor.shape, [step * size for step in tensor.stride()], size)


def array_reach(array: Any) -> range:
    """Return the addresses of an array of NumPy, as ``reach`` does of a tensor's."""
    return reach_of(array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize)


def reach_of(first: int, shape: Sequence[int], steps: Sequence[int], size: int) -> range:
    """Return the addresses from the first byte of elements to the last, by their ``steps`` and ``size`` in bytes."""
    ends = [(count - 1) * step for count, step in zip(shape, steps, strict=True)]
    below, above = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    return range(first + below, first + above + size) if 0 not in shape else range(0)


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
