"""Operators whose result torch leaves open: each with the sentence of torch's documentation, and another legal choice.

An operator without such a sentence is defined. ``torch.max`` is an example: its documentation says that the index of
the first maximum is returned. It is here for computed elements alone, where a rounding decides which is the largest.
To add an operator, add its row to the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from runner.worker.operators.choices import (
    Choose,
    accumulate_otherwise,
    cast_otherwise,
    grow_otherwise,
    index_otherwise,
    leave_otherwise,
    list_otherwise,
    search_otherwise,
    sort_otherwise,
    take_own,
    turn_columns,
    turn_eigenvectors,
    turn_singular_vectors,
    turn_symmetric_vectors,
    write_otherwise,
)
from runner.worker.operators.steps import toss_otherwise


@dataclass(frozen=True)
class Freedom:
    """What one operator leaves open: its public name, the sentence that says so, and the choice."""

    name: str
    sentence: str
    choose: Choose
    compares: bool = False
    """It makes a step where an element is larger than another, or crosses a number: of computed ones, a rounding
    decides."""


OVERLAP = (
    "Tensor.expand",
    "More than one element of an expanded tensor may refer to a single memory location. As a result, in-place "
    "operations"
    " (especially ones that are vectorized) may result in incorrect behavior.",
)
SHARED = (
    "a write into memory that the operator reads",
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
    "location. Please clone() the"
    " tensor before performing the operation.",
)
"""The sentence is eager's own, with which it refuses most such calls.

It lets others pass: products, and slices of matrices.
"""
ROUNDED = (
    "Computed values are known up to the tolerance only, and so is which of two is larger, or whether they are equal."
)
ANYTHING = frozenset({"torch.empty", "Tensor.resize_", "Tensor.to", "torch.bucketize", OVERLAP[0], SHARED[0]})
"""Operators whose undefined elements may hold any number; the others choose among few."""

_PUT = "If accumulate is ``False``, the behavior is undefined if indices contain duplicate elements."

_ROWS: tuple[tuple[Freedom, str], ...] = (
    (Freedom("torch.max", ROUNDED, take_own, compares=True), "max.dim min.dim argmax.default argmin.default"),
    (
        Freedom("torch.eq", ROUNDED, take_own, compares=True),
        "eq.Scalar eq.Tensor ne.Scalar ne.Tensor lt.Scalar lt.Tensor le.Scalar le.Tensor gt.Scalar gt.Tensor ge.Scalar"
        " ge.Tensor",
    ),
    (
        Freedom("torch.floor", ROUNDED, take_own, compares=True),
        "floor.default floor_.default ceil.default ceil_.default trunc.default trunc_.default round.default"
        " round_.default round.decimals round_.decimals floor_divide.default floor_divide_.Tensor div.Tensor_mode"
        " div.Scalar_mode div_.Tensor_mode div_.Scalar_mode",
    ),
    (
        Freedom("torch.histc", ROUNDED, take_own, compares=True),
        "histc.default frexp.Tensor",
    ),
    (
        Freedom("torch.sign", ROUNDED, take_own, compares=True),
        "sign.default sign_.default sgn.default sgn_.default signbit.default heaviside.default logical_not.default"
        " logical_and.default logical_or.default logical_xor.default any.default any.dim any.dims all.default all.dim"
        " all.dims nonzero.default count_nonzero.dim_IntList",
    ),
    (Freedom("torch.bernoulli", ROUNDED, toss_otherwise, compares=True), "bernoulli.default"),
    (
        Freedom("torch.unique_consecutive", ROUNDED, take_own, compares=True),
        "unique_consecutive.default unique_dim_consecutive.default",
    ),
    (
        Freedom(
            "torch.sort",
            "If ``False``, the relative order of values which compare equal is not guaranteed.",
            sort_otherwise,
            compares=True,
        ),
        "sort.default sort.stable argsort.stable",
    ),
    (
        Freedom(
            "torch.topk",
            "When using `torch.topk`, the indices of tied elements are not guaranteed to be stable and may vary across"
            " different invocations.",
            index_otherwise,
            compares=True,
        ),
        "topk.default",
    ),
    (
        Freedom(
            "torch.kthvalue",
            "And ``indices`` is the index location of each element found.",
            index_otherwise,
            compares=True,
        ),
        "kthvalue.default",
    ),
    (
        Freedom(
            "torch.median",
            "``indices`` does not necessarily contain the first occurrence of each median value found, unless it is "
            "unique.",
            index_otherwise,
            compares=True,
        ),
        "median.dim nanmedian.dim",
    ),
    (
        Freedom(
            "torch.mode", "``indices`` is the index location of each mode value found.", index_otherwise, compares=True
        ),
        "mode.default",
    ),
    (
        Freedom(
            "torch.cummax",
            "And ``indices`` is the index location of each maximum value found in the dimension :attr:`dim`.",
            accumulate_otherwise,
            compares=True,
        ),
        "cummax.default cummin.default",
    ),
    (
        Freedom(
            "torch.unique",
            "Whether to sort the unique elements in ascending order before returning as output.",
            list_otherwise,
            compares=True,
        ),
        "_unique2.default unique_dim.default",
    ),
    (
        Freedom(
            "Tensor.scatter_",
            "When indices are not unique, the behavior is non-deterministic (one of the values from ``src`` will be "
            "picked"
            " arbitrarily)",
            write_otherwise,
        ),
        "scatter.src scatter_.src",
    ),
    (
        Freedom("Tensor.index_put_", _PUT, write_otherwise),
        "index_put.default index_put_.default _index_put_impl_.default _unsafe_index_put.default",
    ),
    (
        Freedom(
            "Tensor.index_copy_",
            "The result is nondeterministic since it depends on which copy occurs last.",
            write_otherwise,
        ),
        "index_copy.default index_copy_.default",
    ),
    (
        Freedom(
            "Tensor.put_",
            "If accumulate is ``False``, the behavior is undefined if :attr:`index` contain duplicate elements.",
            write_otherwise,
        ),
        "put.default put_.default",
    ),
    (
        Freedom("torch.empty", "Returns a tensor filled with uninitialized data.", leave_otherwise),
        "empty.memory_format empty_strided.default empty_like.default new_empty.default new_empty_strided.default"
        " empty_permuted.default",
    ),
    (
        Freedom(
            "Tensor.resize_", "Existing elements are preserved but any new memory is uninitialized.", grow_otherwise
        ),
        "resize_.default",
    ),
    (
        Freedom(
            "Tensor.to",
            "If the truncated value cannot fit into the target type (e.g., casting ``torch.inf`` to ``torch.long``), "
            "the"
            " behavior is undefined and the result may vary across platforms.",
            cast_otherwise,
            compares=True,
        ),
        "_to_copy.default copy_.default",
    ),
    (
        Freedom(
            "torch.bucketize",
            "1-D tensor, must contain a strictly increasing sequence, or the return value is undefined.",
            search_otherwise,
            compares=True,
        ),
        "bucketize.Tensor searchsorted.Tensor",
    ),
    (
        Freedom("torch.linalg.svd", "The returned tensors `U` and `V` are not unique", turn_singular_vectors),
        "_linalg_svd.default",
    ),
    (
        Freedom("torch.linalg.eigh", "The eigenvectors of a symmetric matrix are not unique", turn_symmetric_vectors),
        "_linalg_eigh.default",
    ),
    (
        Freedom(
            "torch.linalg.eig",
            "The returned eigenvalues are not guaranteed to be in any specific order.",
            turn_eigenvectors,
        ),
        "linalg_eig.default _linalg_eigvals.default",
    ),
    (
        Freedom(
            "torch.linalg.qr",
            "the returned QR decomposition is only unique up to the sign of the diagonal of `R`.",
            turn_columns,
        ),
        "linalg_qr.default",
    ),
)


def overload_of(name: str) -> Any:
    """Return an overload of ``torch.ops.aten`` by its name, such as ``max.dim``; None where this torch has none."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload, None)


FREEDOMS: Mapping[Any, Freedom] = {
    overload: freedom
    for freedom, names in _ROWS
    for overload in map(overload_of, names.split())
    if overload is not None  # this torch has it
}
"""Each overload that leaves something open, with what it leaves open."""

TWO_SIDED = frozenset({"torch.eq", "torch.floor", "torch.sign", "torch.bernoulli", "Tensor.to"})
"""Freedoms that choose between the two sides of a step.

A maximum or a sort chooses among many, of which few runs show few.
"""

WHOLE = frozenset(
    overload
    for names in (
        "floor ceil trunc round floor_ ceil_ trunc_ round_ sign sign_ floor_divide",
        "div.Tensor_mode div.Scalar_mode",
    )
    for name in names.split()
    if (overload := overload_of(name if "." in name else f"{name}.default")) is not None
)
"""Operators that give whole numbers. Which one is their own choice, and no rounding moves it afterwards."""

EXACT = frozenset({
    "_to_copy", "abs", "amax", "amin", "argsort", "as_strided_scatter", "cat", "clamp", "clamp_", "clamp_max",
    "clamp_min", "clone", "constant_pad_nd", "copy", "copy_", "cummax", "cummin", "diagonal_scatter", "fill",
    "fill_", "flip", "full_like", "gather", "index", "index_copy", "index_copy_", "index_fill", "index_fill_",
    "index_put", "index_put_", "index_select", "kthvalue", "lift_fresh", "lift_fresh_copy", "masked_fill",
    "masked_fill_", "masked_scatter", "masked_scatter_", "masked_select", "max", "maximum", "median", "min",
    "minimum", "mode", "nan_to_num", "nanmedian", "neg", "neg_", "new_full", "new_ones", "new_zeros", "ones_like",
    "put", "put_", "relu", "relu_", "repeat", "roll", "rot90", "scatter", "scatter_", "select_scatter", "sign",
    "slice_scatter", "sort", "stack", "take", "threshold", "topk", "tril", "tril_", "triu", "triu_", "unfold_copy",
    "where", "zero_", "zeros_like",
})  # fmt: skip
"""Operators without arithmetic: floating results of exact arguments are exact.

A cast to less rounds as it is defined.
"""

SELECTING = frozenset({"index_reduce", "index_reduce_", "scatter_reduce", "scatter_reduce_"})
"""Operators that choose among their elements where they reduce by ``amax`` or ``amin``."""

CHECKED = frozenset({"add", "ceil", "floor", "mul", "round", "rsub", "square", "sub", "sum", "trunc"})
"""Operators that round once, or add in an order of their own.

Where they round nothing, any order of them gives the same.
"""

NARROW = {
    torch.float64: torch.float32,
    torch.float32: torch.float16,
    torch.float16: torch.float8_e4m3fn,
    torch.bfloat16: torch.float8_e4m3fn,
}
"""For each dtype one with half as many bits, or fewer."""

STEPPED = frozenset({"linspace", "logspace"})
"""Operators that compute their elements from numbers alone.

Their decompositions may round in another way than their kernels.
"""

RUNNING = ("running_mean", "running_var")
"""Arguments that batch norms write to in training, also those whose schema does not say so."""


@functools.cache
def names_of_written(func: Any) -> frozenset[str]:
    """Return the names of the arguments that an operator writes to."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return frozenset()
    declared = (argument for argument in schema.arguments if argument.alias_info is not None)
    undeclared = RUNNING if func.overloadpacket.__name__.endswith("batch_norm") else ()
    return frozenset({argument.name for argument in declared if argument.alias_info.is_write}.union(undeclared))


def map_arguments(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], change: Callable[[str, Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, each as ``change`` makes it of its name in the schema and its value."""
    names = (argument.name for argument in func._schema.arguments)
    return (
        tuple(change(name, value) for name, value in zip(names, args, strict=False)),
        {name: change(name, value) for name, value in kwargs.items()},
    )


def is_exact(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call of an operator leaves no rounding in its floating result, if its tensors hold no rounding.

    A call without tensors is exact, except for an operator that computes its elements from numbers: those of ``arange``
    are exact if all its numbers are whole.
    """
    packet = getattr(func, "overloadpacket", None)
    schema = getattr(func, "_schema", None)
    if packet is None or schema is None or packet.__name__ in STEPPED:
        return False
    leaves = tree_leaves((args, kwargs))
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return packet.__name__ != "arange" or not any(isinstance(leaf, float) and leaf % 1 for leaf in leaves)
    selects = packet.__name__ in SELECTING and any(leaf in ("amax", "amin") for leaf in leaves if isinstance(leaf, str))
    return is_view(func) or packet.__name__ in EXACT or selects


def gives_whole_numbers(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Return whether each element of a result is a whole number that an operator chooses."""
    return func in WHOLE and kwargs.get("rounding_mode", "floor") is not None


def is_view(func: Any) -> bool:
    """Return whether a result of an operator lies in an argument's memory, and is not written to."""
    return any(value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns)


def rounds_nothing(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
    """Return whether no rounding can occur in a call of arithmetic, in this order of it or in another: its numbers have
    few bits.

    All are exact in a dtype with half as many bits, as small whole numbers are, and the result is that of float64.
    """
    packet = getattr(func, "overloadpacket", None)
    known = packet is not None and packet.__name__ in CHECKED and not func._schema.is_mutable
    leaves = tree_leaves((args, kwargs))
    if not known or not isinstance(result, torch.Tensor) or any(isinstance(leaf, torch.dtype) for leaf in leaves):
        return False
    if not all(_has_few_bits(leaf) for leaf in [*leaves, result] if isinstance(leaf, torch.Tensor)):
        return False
    exact = func(*tree_map(_as_double, tuple(args)), **tree_map(_as_double, dict(kwargs)))
    return bool(exact.dtype == torch.float64 and torch.equal(exact, result.to(torch.float64)))


def _has_few_bits(tensor: torch.Tensor) -> bool:
    """Return whether each element of a floating tensor is exact in a dtype with half as many bits."""
    if not tensor.is_floating_point():
        return not tensor.is_complex()
    narrow = NARROW.get(tensor.dtype)
    plain = narrow is not None and tensor.layout == torch.strided and tensor.device.type != "meta"
    return plain and torch.equal(tensor, tensor.to(narrow).to(tensor.dtype))


def _as_double(value: Any) -> Any:
    return value.to(torch.float64) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
