"""Inputs and state of a captured graph as plain data: how each tensor is made again.

Values are drawn with the statistics of the real ones, unless they are few and decide, or lie in a file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runner.contract.graphs import GraphInput, Statistics, Tensor

FLOATS = ("float32", "float64", "float16", "bfloat16")
ALIGNED = 64
"""Elements after which an offset into a storage says nothing new about alignment."""
MANY = 8
"""A storage that is larger than its tensor by this factor is not made as a whole."""
_UNSIGNED = ("uint16", "uint32", "uint64")
"""Dtypes that ``linspace`` does not make."""
HUGE = 1e30
"""A float beyond this one stands for infinity."""


def plain_input(item: GraphInput, dtype: str) -> Any:
    """Return an input as plain data. ``dtype`` is the case's own, which floats have unless they say otherwise."""
    tensor = item.tensor
    if tensor is None:
        return {"python": item.python}
    is_given = bool(item.file) or (item.values is not None and not _is_filled(item.statistics))
    shape, layout = _given_as(tensor) if is_given else made_as(tensor)
    data: dict[str, Any] = {}
    if item.file:
        data["file"] = {"path": item.file, "tensor": item.key}
    elif is_given:
        data["values"] = _permuted(item.values, _order(tensor)) if layout else item.values
    init = None if is_given else init_of(tensor, item.statistics)
    if not item.file:
        if not is_given or not math.prod(tensor.shape):
            data["shape"] = shape
        if tensor.dtype != dtype:
            data["dtype"] = tensor.dtype
        if init is not None:
            data["init"] = init
    if tensor.device.partition(":")[0] == "meta":
        data["device"] = tensor.device
    data |= _gradient(tensor, layout)
    return shape if list(data) == ["shape"] else data


def made_as(tensor: Tensor) -> tuple[list[int], list[Any]]:
    """Return the shape of a contiguous tensor, and the layout that makes this one of it."""
    shape, stride = list(tensor.shape), tensor.stride
    offset = tensor.offset % ALIGNED
    if (stride is None or _is_contiguous(shape, stride)) and not offset:
        return shape, []
    stride = stride or _contiguous(shape)
    order = _order(replace(tensor, stride=stride))
    permuted = [shape[place] for place in order]
    if not offset and _contiguous(permuted) == tuple(stride[place] for place in order):
        if order == [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]:
            return permuted, [{"Tensor.transpose": ["$_", -2, -1]}]
        return permuted, [{"Tensor.permute": ["$_", [order.index(place) for place in range(len(shape))]]}]
    size = offset + 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)) if math.prod(shape) else 0
    return [size], [{"Tensor.as_strided": ["$_", shape, list(stride), offset]}]


def _given_as(tensor: Tensor) -> tuple[list[int], list[Any]]:
    """Return the same for a tensor whose elements are given: those that share memory are given apart."""
    shape, layout = made_as(replace(tensor, offset=0))
    is_apart = bool(layout) and "Tensor.as_strided" in layout[0]
    return (list(tensor.shape), []) if is_apart else (shape, layout)


def _order(tensor: Tensor) -> list[int]:
    """Return the dimensions in the order in which they lie in memory, the outermost first."""
    stride = tensor.stride or _contiguous(tensor.shape)
    return sorted(range(len(stride)), key=lambda place: -stride[place])


def _permuted(values: Any, order: Sequence[int]) -> Any:
    """Return nested lists with their dimensions in another order."""

    def build(indices: tuple[int, ...], level: int) -> Any:
        if level == len(order):
            item = values
            for index in (indices[order.index(place)] for place in range(len(order))):
                item = item[index]
            return item
        return [build((*indices, n), level + 1) for n in range(sizes[order[level]])]

    sizes, part = [], values
    while isinstance(part, list):
        sizes.append(len(part))
        part = part[0] if part else None
    return build((), 0)


def init_of(tensor: Tensor, statistics: Statistics | None) -> Any:
    """Return the ``init:`` that draws values with these statistics; None for the format's own choice."""
    if statistics is None or tensor.dtype.startswith("complex"):
        return None
    if statistics.init:
        return statistics.init
    low, high = statistics.least, statistics.largest
    if low == high:
        return "zeros" if low == 0 else "ones" if low == 1 else {"full": rounded(low)}
    if tensor.dtype == "bool":
        return None
    is_float = tensor.dtype.startswith(("float", "bfloat"))
    is_one_row = len(tensor.shape) == 1 or tensor.stride is None
    if statistics.ascending and is_one_row and tensor.dtype not in _UNSIGNED and max(-low, high) <= HUGE:
        return {"linspace": [rounded(low), rounded(high)] if is_float else [int(low), int(high)]}
    if not is_float:
        count = math.prod(tensor.shape)
        if statistics.distinct and low == 0 and high == count - 1:
            return "randperm"
        return {"randint": [int(low), int(high) + 1]}
    if max(-low, high) > HUGE:  # a mask, whose values are not kept: nothing is masked
        return "zeros"
    if low >= 0 or high <= 0:
        return {"uniform": [rounded(low), rounded(high)]}
    return {"normal": [rounded(statistics.mean), rounded(statistics.deviation)]}


def _is_filled(statistics: Statistics | None) -> bool:
    """Return whether all elements are one number that a fill gives again exactly."""
    return statistics is not None and statistics.finite and statistics.least == statistics.largest in (0, 1)


def rounded(value: float) -> float:
    """Return a number with four significant digits: more say nothing of what is drawn."""
    return float(f"{value:.4g}")


def main_dtype(tensors: Sequence[Tensor]) -> str:
    """Return the floating dtype that most tensors have; float32 without one."""
    dtypes = [tensor.dtype for tensor in tensors if tensor.dtype in FLOATS]
    return max(dict.fromkeys(dtypes), key=dtypes.count, default="float32")


def shared_inputs(items: Sequence[GraphInput], dtype: str, taken: set[str]) -> dict[str, Any]:
    """Return inputs that share a storage: the storage, which is hidden, and each of them as a view of it.

    ``taken`` are names that the storage may not have; its own is added.
    """
    tensors = [(item, item.tensor) for item in items if item.tensor is not None]
    first = max(tensors, key=lambda pair: math.prod(pair[1].shape))
    start = min(tensor.offset for _, tensor in tensors)
    start -= start % ALIGNED
    size = max(_end(tensor) for _, tensor in tensors) - start
    name = next(f"storage_{n}" for n in range(len(taken) + 1) if f"storage_{n}" not in taken)
    taken.add(name)
    data: dict[str, Any] = {"shape": [size], **({} if first[1].dtype == dtype else {"dtype": first[1].dtype})}
    init = init_of(first[1], first[0].statistics)
    inputs: dict[str, Any] = {name: {**data, **({} if init is None else {"init": init}), "hidden": True}}
    for item, tensor in tensors:
        stride = tensor.stride or _contiguous(tensor.shape)
        layout = [{"Tensor.as_strided": ["$_", list(tensor.shape), list(stride), tensor.offset - start]}]
        inputs[item.name] = {"view_of": name, "layout": layout, **_leaf(tensor)}
    return inputs


def _leaf(tensor: Tensor) -> dict[str, Any]:
    return {"requires_grad": "after_layout"} if tensor.requires_grad else {}


def _gradient(tensor: Tensor, layout: list[Any]) -> dict[str, Any]:
    """Return ``requires_grad`` and ``layout``. An operator made what is no leaf, so one makes it here."""
    if not tensor.requires_grad:
        return {"layout": layout} if layout else {}
    if not tensor.leaf:
        return {"requires_grad": True, "layout": layout or ["Tensor.clone"]}
    return {"requires_grad": "after_layout", "layout": layout} if layout else {"requires_grad": True}


def _end(tensor: Tensor) -> int:
    stride = tensor.stride or _contiguous(tensor.shape)
    if not math.prod(tensor.shape):
        return tensor.offset
    return tensor.offset + 1 + sum((n - 1) * step for n, step in zip(tensor.shape, stride, strict=True))


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(max(size, 1) for size in shape[place + 1 :]) for place in range(len(shape)))


def _is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    pairs = zip(shape, stride, _contiguous(shape), strict=True)
    return all(size <= 1 or step == own for size, step, own in pairs) or not math.prod(shape)
