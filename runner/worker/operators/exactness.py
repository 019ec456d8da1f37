"""Whether a call of an operator rounds anything, and what it writes to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from runner.worker.operators.choices import Call, aten
from runner.worker.operators.table import row_of

NARROW = {
    torch.float64: torch.float32,
    torch.float32: torch.float16,
    torch.float16: torch.float8_e4m3fn,
    torch.bfloat16: torch.float8_e4m3fn,
}
"""For each dtype one with half as many bits, or fewer."""

EXTREMES = (None, "amax", "amin", "max", "min")
"""How an operator may reduce without a rounding."""

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
    row = row_of(func)
    if row.elements == "computed" or getattr(func, "_schema", None) is None:
        return False
    leaves = tree_leaves((args, kwargs))
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return row.elements != "whole" or not any(isinstance(leaf, float) and leaf % 1 for leaf in leaves)
    if not row.exact:
        return is_view(func)
    given = Call.bind(func, tuple(args), kwargs).arguments
    return not given.get("accumulate") and given.get("reduce") in EXTREMES


def gives_whole_numbers(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Return whether each element of a result is a whole number that an operator chooses."""
    return (
        getattr(func, "_overloadname", "") in row_of(func).whole.split()
        and kwargs.get("rounding_mode", "floor") is not None
    )


def is_view(func: Any) -> bool:
    """Return whether a result of an operator lies in an argument's memory, and is not written to."""
    return any(value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns)


def rounds_nothing(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
    """Return whether no rounding can occur in a call of arithmetic, in any order: its numbers have few bits.

    All are exact in a dtype with half as many bits, as small whole numbers are, and the result is that of float64.
    """
    known = row_of(func).rounds_once and not func._schema.is_mutable
    leaves = tree_leaves((args, kwargs))
    if not known or not isinstance(result, torch.Tensor) or any(isinstance(leaf, torch.dtype) for leaf in leaves):
        return False
    if func.overloadpacket is aten.mean and (leaves[0].numel() // max(result.numel(), 1)).bit_count() != 1:
        return False  # a quotient and a product with the reciprocal may be rounded in two ways
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
