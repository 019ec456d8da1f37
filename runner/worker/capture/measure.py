"""What a real tensor is: its metadata, statistics of its elements, and the elements of one that decides."""

from __future__ import annotations

import math
from typing import Any

import torch

from runner.contract.graphs import Role, Statistics, Tensor
from runner.worker.torch_private.graphs import is_transformed

SAMPLED = 1 << 16
"""Elements of a floating tensor that are looked at, at most: spread evenly over it."""
COUNTED = 1 << 16
"""Elements of an integer tensor that are compared with one another, at most."""
ORDERED = 8
"""Floats in a row of which ascending order is no chance."""
SMALL = 256
"""Elements of a tensor whose values may be kept, at most."""
MASK = 4096
"""The same for masks: any other values would leave a softmax nothing."""
HUGE = 1e30
"""A float beyond this one stands for infinity, as in masks."""


def name_of(dtype: torch.dtype) -> str:
    """Return a dtype's name without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def fault_of(value: torch.Tensor) -> str:
    """Return why the format cannot make a tensor; an empty text for one that it can."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"it is a {type(value).__name__}"
    if is_transformed(value):
        return "it belongs to a transform of functions"
    if value.layout != torch.strided or value.is_quantized:
        return f"its layout is {value.layout}" if value.layout != torch.strided else "it is quantized"
    return "it has a conjugate or negative bit" if value.is_conj() or value.is_neg() else ""


def metadata(value: torch.Tensor) -> Tensor:
    """Return the metadata of a tensor, without those that link it to others."""
    is_strided = value.layout == torch.strided
    return Tensor(
        shape=tuple(int(size) for size in value.shape),
        dtype=name_of(value.dtype),
        stride=tuple(value.stride()) if is_strided and not value.is_contiguous() else None,
        offset=int(value.storage_offset()) if is_strided else 0,
        device=str(value.device),
        requires_grad=value.requires_grad,
        leaf=value.is_leaf,
    )


def statistics(value: torch.Tensor) -> Statistics | None:
    """Return the statistics of a tensor; None without elements, or where they cannot be read."""
    if not value.numel() or fault_of(value) or value.device.type == "meta":
        return None
    with torch.no_grad(), torch.autocast(value.device.type, enabled=False):
        value = torch.view_as_real(value.detach()) if value.is_complex() else value.detach()
        return _of_floats(value) if value.is_floating_point() else _of_integers(value)


def _of_floats(value: torch.Tensor) -> Statistics:
    step = -(-value.numel() // SAMPLED)
    flat = value.reshape(-1)[::step]
    flat = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
    low, high = torch.aminmax(flat)
    is_ascending = _is_ascending(flat.reshape(value.shape) if step == 1 else flat, ORDERED)
    is_finite = math.isfinite(float(low)) and math.isfinite(float(high))
    if not is_finite:
        flat = flat[flat.isfinite()]
        if not flat.numel():
            return Statistics(0.0, 0.0, 0.0, 0.0, 0.0, False)
        low, high = torch.aminmax(flat)
    zeros = 1.0 - int(torch.count_nonzero(flat)) / flat.numel()
    deviation, mean = torch.std_mean(flat.double(), correction=0)
    return Statistics(float(low), float(high), float(mean), float(deviation), zeros, is_finite, ascending=is_ascending)


def _of_integers(value: torch.Tensor) -> Statistics:
    flat = value.reshape(-1).to(torch.int64)
    low, high = torch.aminmax(flat)
    floats = flat.double()
    deviation, mean = torch.std_mean(floats, correction=0)
    is_distinct = 1 < flat.numel() <= COUNTED and int(flat.unique().numel()) == flat.numel()
    zeros = 1.0 - int(torch.count_nonzero(flat)) / flat.numel()
    is_ascending = _is_ascending(flat.reshape(value.shape), 2)
    return Statistics(int(low), int(high), float(mean), float(deviation), zeros, True, is_distinct, is_ascending)


def _is_ascending(rows: torch.Tensor, least: int) -> bool:
    """Return whether no element of a row is less than the one before; False for rows of fewer elements than
    ``least``."""
    return rows.dim() > 0 and rows.shape[-1] >= least and bool((rows[..., 1:] >= rows[..., :-1]).all())


def deciding_values(value: torch.Tensor, measured: Statistics | None, role: Role = "input") -> Any:
    """Return the elements of a small tensor that decides what a model does, as nested lists; None for any other.

    These are scalars, constants, masks, and integers in order, such as positions.
    """
    if measured is None or value.is_complex() or value.numel() > MASK or role == "parameter":
        return None
    is_float, is_bool = value.is_floating_point(), value.dtype == torch.bool
    is_mask = is_bool or (is_float and (not measured.finite or max(-measured.least, measured.largest) > HUGE))
    is_small = value.numel() <= SMALL
    is_constant = is_small and role in ("constant", "buffer") and (not is_float or value.numel() <= 16)
    is_ordered = is_small and not is_float and not is_bool and _is_ordered(value)
    return value.detach().tolist() if is_mask or is_constant or is_ordered else None


def _is_ordered(value: torch.Tensor) -> bool:
    flat = value.detach().reshape(-1).to(torch.int64)
    return flat.numel() == 1 or (bool((flat[1:] >= flat[:-1]).all()) and bool(flat[0] != flat[-1]))
