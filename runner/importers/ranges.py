"""Which values a tensor may hold, by how an operator uses it: a log has shapes, and no values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.cases.operator_names import without_overload
from runner.contract.graphs import Statistics, Tensor

_ALL, _CLASSES = "all", "classes"
_ALONG_DIM = ("self", "dim", "index")

_INDICES: Mapping[str, tuple[Sequence[str], str, str, Any]] = {
    "aten.embedding": (("weight", "indices"), "indices", "weight", 0),
    "embedding": (("input", "weight"), "input", "weight", 0),
    "aten.embedding_bag": (("weight", "indices"), "indices", "weight", 0),
    "embedding_bag": (("input", "weight"), "input", "weight", 0),
    **dict.fromkeys(
        ("index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy",
         "index_fill", "index_reduce"),
        (_ALONG_DIM, "index", "self", "dim"),
    ),
    "take_along_dim": (("self", "index", "dim"), "index", "self", "dim"),
    "take": (("self", "index"), "index", "self", _ALL),
    "put": (("self", "index"), "index", "self", _ALL),
    **dict.fromkeys(
        ("nll_loss", "nll_loss_forward", "nll_loss2d_forward", "nll_loss_nd", "nll_loss2d", "cross_entropy",
         "cross_entropy_loss", "multi_margin_loss"),
        (("self", "target"), "target", "self", _CLASSES),
    ),
}  # fmt: skip
"""For each operator its parameters, the one that holds indices, and the dimension of which tensor they count."""

_OTHER_NAMES = {"input": "self", "indices": "index", "src": "source", "x": "self"}
_WRITES = ("scatter", "index_copy", "index_put", "put", "index_fill")
"""Operators of which the result depends on the order where an index stands twice."""
_ITEMS = ("index", "index_put", "_unsafe_index", "getitem", "setitem")
_DIVISORS = ("floor_divide", "remainder", "fmod", "div", "divide", "true_divide", "floordiv", "mod", "truediv")
_SHIFTS = ("bitwise_left_shift", "bitwise_right_shift", "lshift", "rshift")
_SMALL = 10


def is_integer(tensor: Tensor) -> bool:
    """Return whether a tensor holds integers."""
    return tensor.dtype.startswith(("int", "uint"))


def ranges_of(
    operator: str, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> Iterator[tuple[Tensor, Statistics]]:
    """Yield the tensors among the arguments that an operator bounds, each with the values that it may have.

    Indices lie below the size that they index. They are all different where the order of writing would matter and
    there are few enough of them. Divisors are no zeros.
    """
    name, member = _names(operator)
    if member in _DIVISORS or member in _SHIFTS:
        values = [*positional[1:2], *(value for key, value in keywords.items() if key == "other")]
        for value in values:
            if isinstance(value, Tensor) and is_integer(value):
                yield value, _between(1, _SMALL)
    elif member in _ITEMS:
        yield from _items(member, positional)
    elif member == "batch_norm":
        yield from _variances(positional[2 if name == "F.batch_norm" else 4 :])
    elif name == "torch.sparse_coo_tensor":
        yield from _coordinates(positional)
    else:
        yield from _indices(name, member, positional, keywords)


def _names(operator: str) -> tuple[str, str]:
    """Return an operator without its overload, and its own name without the underscore of its form in place."""
    name = without_overload(operator)
    member = name.rpartition(".")[2]
    return name.rstrip("_"), member.rstrip("_")


def _indices(
    name: str, member: str, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> Iterator[tuple[Tensor, Statistics]]:
    rule = _INDICES.get(name) or _INDICES.get(member)
    if rule is None:
        return
    parameters, of_indices, of_table, dimension = rule
    values = {_OTHER_NAMES.get(key, key): value for key, value in zip(parameters, positional, strict=False)}
    values |= {_OTHER_NAMES.get(key, key): value for key, value in keywords.items()}
    index = values.get(_OTHER_NAMES.get(of_indices, of_indices))
    table = values.get(_OTHER_NAMES.get(of_table, of_table))
    if not isinstance(index, Tensor) or not isinstance(table, Tensor) or not is_integer(index):
        return
    size = _size(table, values.get("dim") if dimension == "dim" else dimension)
    if size:
        yield index, _below(size, index, member in _WRITES)


def _size(table: Tensor, dimension: Any) -> int:
    if dimension == _ALL:
        return math.prod(table.shape)
    if dimension == _CLASSES:
        dimension = 1 if len(table.shape) > 1 else 0
    is_one = type(dimension) is int and -len(table.shape) <= dimension < len(table.shape)
    return table.shape[dimension] if is_one else 0


def _items(member: str, positional: Sequence[Any]) -> Iterator[tuple[Tensor, Statistics]]:
    """Yield the indices within a list of them, one for each dimension; one of booleans takes several."""
    if len(positional) < 2 or not isinstance(positional[0], Tensor):
        return
    shape, place = positional[0].shape, 0
    entries = positional[1] if isinstance(positional[1], list | tuple) else [positional[1]]
    tensors = [entry for entry in entries if isinstance(entry, Tensor)]
    is_write = member in ("index_put", "setitem") and len(tensors) == 1
    for entry in entries:
        if isinstance(entry, Tensor) and is_integer(entry) and place < len(shape) and shape[place]:
            yield entry, _below(shape[place], entry, is_write)
        place += max(len(entry.shape), 1) if isinstance(entry, Tensor) and entry.dtype == "bool" else 1


def _variances(positional: Sequence[Any]) -> Iterator[tuple[Tensor, Statistics]]:
    """Yield the running variance, which is positive."""
    if positional and isinstance(positional[0], Tensor):
        yield positional[0], Statistics(0.5, 1.5, 1.0, 0.25)


def _coordinates(positional: Sequence[Any]) -> Iterator[tuple[Tensor, Statistics]]:
    if len(positional) > 2 and isinstance(positional[0], Tensor) and positional[0].shape:
        least = min((size for size in positional[2][: positional[0].shape[0]] if type(size) is int), default=0)
        if least:
            yield positional[0], _between(0, least)


def _below(size: int, index: Tensor, is_write: bool) -> Statistics:
    count = math.prod(index.shape)
    if is_write and 1 < count <= size:
        return Statistics(0, count - 1, count / 2, count / 4, distinct=True)
    return _between(0, size)


def _between(low: int, high: int) -> Statistics:
    """Return the statistics of integers from ``low`` up to ``high``, without that."""
    return Statistics(low, high - 1, (low + high - 1) / 2, (high - low) / 4)
