"""Which values a tensor may hold, by how an operator uses it: a log has shapes, and no values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.cases.operator_names import without_overload
from runner.contract.graphs import Statistics, Tensor

_ALL, _CLASSES = "all", "classes"
_ALONG_DIM = ("self", "dim", "index")

_INDICES: Mapping[str, tuple[Sequence[str], str, str, Any]] = {
    **dict.fromkeys(
        ("aten.embedding", "torch.embedding", "aten.embedding_bag", "torch.embedding_bag"),
        (("weight", "indices"), "indices", "weight", 0),
    ),
    **dict.fromkeys(("embedding", "embedding_bag"), (("input", "weight"), "input", "weight", 0)),
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

_OPEN = Statistics(-2.0, 2.0, 0.0, 1.0)
"""Boundaries for numbers that are normally distributed."""
_WHOLE = Statistics(-8.0, 8.0, 0.0, 4.9, init="integer")
_NONFINITE = Statistics(-2.0, 2.0, 0.0, 1.0, finite=False, init="special")
_FAR = 1e4
_SHARES = Statistics(0.0, 1.0, 0.5, 0.29)
_Values = Mapping[str, Any]
_Bound = Callable[[Tensor, _Values], Statistics | None]


def _up_to(name: str, dimension: Any = _ALL) -> _Bound:
    """Return a bound of positions in a tensor: ascending from 0 to its elements, or to the size of a dimension."""

    def bound(_: Tensor, values: _Values) -> Statistics | None:
        end = _size(values[name], dimension) if isinstance(values.get(name), Tensor) else 0
        return _ascending(end)

    return bound


def _boundaries(tensor: Tensor, _: _Values) -> Statistics:
    return _ascending(_SMALL - 1) if is_integer(tensor) else replace(_OPEN, ascending=True)


def _is_float(tensor: Tensor) -> bool:
    return tensor.dtype.startswith(("float", "bfloat"))


def _share(tensor: Tensor, _: _Values) -> Statistics | None:
    return _SHARES if _is_float(tensor) else None


def _equalled(tensor: Tensor, values: _Values) -> Statistics | None:
    """Bound what is compared with a number, or with another tensor, so that some elements are equal."""
    number = values.get("other")
    if is_integer(tensor) and type(number) is int:
        return _around(tensor, number, 2)
    is_near = isinstance(number, Tensor) or (isinstance(number, int | float) and number in range(-8, 9))
    return _WHOLE if _is_float(tensor) and is_near else None


def _ordered(tensor: Tensor, values: _Values) -> Statistics | None:
    """Bound what is compared with a number that the format's own choice seldom reaches."""
    number = values.get("other")
    if isinstance(number, Tensor | bool) or not isinstance(number, int | float) or not 1 < abs(number) < _FAR:
        return None
    if is_integer(tensor):
        return _around(tensor, math.ceil(number), _SMALL // 2)
    return Statistics(number - 1.0, number + 1.0, float(number), 1.0) if _is_float(tensor) else None


def _around(tensor: Tensor, number: int, distance: int) -> Statistics:
    least = 0 if tensor.dtype.startswith("uint") else number - distance
    return _between(max(least, number - distance), max(least, number) + distance + 1)


def _special(tensor: Tensor, _: _Values) -> Statistics | None:
    return _NONFINITE if _is_float(tensor) else None


def _groups(_: Tensor, values: _Values) -> Statistics | None:
    """Bound the ends of groups: of the left matrix's rows, of what both sum over, or of the right one's columns."""
    left, right = values.get("self"), values.get("mat2")
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or len(left.shape) < 2 or len(right.shape) < 2:
        return None
    if len(left.shape) > 2:
        return _ascending(right.shape[-1])
    return _ascending(left.shape[0 if len(right.shape) > 2 else 1])


def _plain_indices(dimension: int) -> _Bound:
    """Return a bound of the indices of a compressed sparse tensor, which differ and ascend within a row."""

    def bound(index: Tensor, values: _Values) -> Statistics | None:
        shape = values.get("size")
        size = shape[dimension] if isinstance(shape, list | tuple) and len(shape) == 2 else 0
        count = math.prod(index.shape)
        if type(size) is not int or size < 1:
            return None
        return _ascending(size - 1) if count <= size else _between(0, size)

    return bound


def _below_number(name: str) -> _Bound:
    """Return a bound of classes, whose number is an argument."""

    def bound(_: Tensor, values: _Values) -> Statistics | None:
        number = values.get(name)
        return _between(0, number) if type(number) is int and number > 0 else None

    return bound


def _lengths(name: str, dimension: int, is_whole: bool) -> _Bound:
    """Return a bound of lengths within a dimension; of the whole one, or from 1 up."""

    def bound(_: Tensor, values: _Values) -> Statistics | None:
        table = values.get(name)
        size = _size(table, dimension) if isinstance(table, Tensor) and len(table.shape) > 1 else 0
        return _between(size if is_whole else 1, size + 1) if size else None

    return bound


def _labels(_: Tensor, values: _Values) -> Statistics | None:
    """Bound the targets of a CTC loss: 0 is the blank."""
    table = values.get("log_probs")
    size = _size(table, -1) if isinstance(table, Tensor) and len(table.shape) > 1 else 0
    return _between(1, size) if size > 1 else None


_CTC = (
    ("log_probs", "targets", "input_lengths", "target_lengths"),
    {"targets": _labels, "input_lengths": _lengths("log_probs", 0, True),
     "target_lengths": _lengths("targets", 1, False)},
)  # fmt: skip
_COMPRESSED: Mapping[str, tuple[str, str, int]] = {
    "sparse_csr_tensor": ("crow_indices", "col_indices", 1),
    "sparse_csc_tensor": ("ccol_indices", "row_indices", 0),
}

_ARGUMENTS: Mapping[str, tuple[Sequence[str], Mapping[str, _Bound]]] = {
    "embedding_bag": (("self", "weight", "offsets"), {"offsets": _up_to("self")}),
    **dict.fromkeys(
        ("aten.embedding_bag", "torch.embedding_bag"),
        (("weight", "index", "offsets"), {"offsets": _up_to("index")}),
    ),
    **{
        name: ((compressed, plain, "values", "size"),
               {compressed: _up_to(plain), plain: _plain_indices(dimension)})
        for name, (compressed, plain, dimension) in _COMPRESSED.items()
    },
    "grouped_mm": (("self", "mat2", "offs"), {"offs": _groups}),
    "_grouped_mm": (("self", "mat2", "offs"), {"offs": _groups}),
    "nested_tensor_from_jagged": (("values", "offsets"), {"offsets": _up_to("values", 0)}),
    "searchsorted": (("sorted_sequence", "self"), {"sorted_sequence": _boundaries}),
    "bucketize": (("self", "boundaries"), {"boundaries": _boundaries}),
    "histogram": (("self", "bins"), {"bins": _boundaries}),
    "one_hot": (("self", "num_classes"), {"self": _below_number("num_classes")}),
    "ctc_loss": _CTC,
    **dict.fromkeys(("bernoulli", "multinomial", "poisson"), (("self",), {"self": _share})),
    "quantile": (("self", "q"), {"q": _share}),
    "nanquantile": (("self", "q"), {"q": _share}),
    **dict.fromkeys(("eq", "ne"), (("self", "other"), {"self": _equalled, "other": _equalled})),
    **dict.fromkeys(("lt", "le", "gt", "ge"), (("self", "other"), {"self": _ordered})),
    **dict.fromkeys(
        ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "nan_to_num"), (("self",), {"self": _special})
    ),
    "binary_cross_entropy": (("self", "target"), {"self": _share, "target": _share}),
}  # fmt: skip
"""For each operator its parameters, and what bounds those of them that an operator refuses or reads in no order."""

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
    there are few enough of them. Positions in other tensors ascend. Divisors are no zeros.
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
        yield from _bounded(name, member, positional, keywords)


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
    values = _by_name(parameters, positional, keywords)
    index = values.get(_OTHER_NAMES.get(of_indices, of_indices))
    table = values.get(_OTHER_NAMES.get(of_table, of_table))
    if not isinstance(index, Tensor) or not isinstance(table, Tensor) or not is_integer(index):
        return
    size = _size(table, values.get("dim") if dimension == "dim" else dimension)
    if size:
        yield index, _below(size, index, member in _WRITES)


def _bounded(
    name: str, member: str, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> Iterator[tuple[Tensor, Statistics]]:
    parameters, bounds = _ARGUMENTS.get(name) or _ARGUMENTS.get(member) or ((), {})
    values = _by_name(parameters, positional, keywords)
    for key, bound in bounds.items():
        tensor = values.get(key)
        if isinstance(tensor, Tensor) and (statistics := bound(tensor, values)):
            yield tensor, statistics


def _by_name(parameters: Sequence[str], positional: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by the names of ATen's parameters."""
    pairs = [*zip(parameters, positional, strict=False), *keywords.items()]
    return {_OTHER_NAMES.get(key, key): value for key, value in pairs}


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


def _ascending(end: int) -> Statistics:
    """Return the statistics of integers from 0 to ``end``, each at least the one before."""
    return Statistics(0, end, end / 2, end / 4, ascending=end > 0)


def _between(low: int, high: int) -> Statistics:
    """Return the statistics of integers from ``low`` up to ``high``, without that."""
    return Statistics(low, high - 1, (low + high - 1) / 2, (high - low) / 4)
