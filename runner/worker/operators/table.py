"""What the judge knows of each operator of ``torch.ops.aten``, in one row. An operator without one is plain arithmetic.

From the row and the schema of an operator follows whether a call of it rounds anything, and what it writes to.
To add an operator, add its row. ``tests/worker/operators/test_table.py`` looks for missing ones in torch's database.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_leaves, tree_map

from runner.worker.operators.choices import Call, aten
from runner.worker.operators.freedoms import FREEDOMS, Freedom


@dataclass(frozen=True)
class Operator:
    """One operator by its name without overload. The row holds for its form in place too, unless that has its own.

    ``sums`` takes roundings of the summands for independent, so that their squares add up: the sum of their sizes grows
    with each layer of a network far beyond what any run shows (N. Higham and T. Mary, A new approach to probabilistic
    rounding error analysis, 2019).
    """

    name: str
    # No arithmetic: floating results of exact arguments are exact, unless they are accumulated, or reduced by another
    # function than a maximum or minimum. A cast to less rounds as it is defined.
    exact: bool = False
    # It rounds once, or adds in an order of its own. Where it rounds nothing, any order of it gives the same.
    rounds_once: bool = False
    sums: bool = False  # its result is a sum of products
    along: bool = False  # an element of its result is computed from its first tensor's elements along ``dim`` alone
    whole: str = ""  # overloads that give whole numbers: which one is their choice, and no rounding moves it afterwards
    # How it makes elements from numbers alone: "whole" is exact for whole numbers; what is "computed" a decomposition
    # may round in another way than the kernel.
    elements: Literal["", "whole", "computed"] = ""
    draws: bool = False  # its result is what was drawn: the shadow has the same numbers
    no_values: bool = False  # it computes and writes no value: what it leaves has a shadow when it is first read
    # Its last argument says that float32 is computed from halves, on CUDA. Shadows are no halves.
    from_half: bool = False
    freedom: str = ""  # what torch leaves open, by its name among FREEDOMS
    overloads: str = "default"  # those with the freedom and the kink
    kink: str = ""  # the argument of which a backward asks on which side of a kink it lies
    # Its backward asks for its result, which does not tell where the argument was: that is not moved there. A result
    # that is zero on the whole other side "moves" in the forward.
    by_result: Literal["", "stays", "moves"] = ""


TABLE: Mapping[str, Operator] = {
    row.name: row
    for row in (
        Operator("abs", exact=True),
        Operator("adaptive_max_pool2d", exact=True),
        Operator("adaptive_max_pool3d", exact=True),
        Operator("add", rounds_once=True),
        Operator("addbmm", sums=True),
        Operator("addmm", sums=True),
        Operator("addmv", sums=True),
        Operator("addr", sums=True),
        Operator("alias_copy", exact=True),
        Operator("all", freedom="torch.sign", overloads="default dim dims"),
        Operator("amax", exact=True),
        Operator("amin", exact=True),
        Operator("aminmax", exact=True),
        Operator("any", freedom="torch.sign", overloads="default dim dims"),
        Operator("arange", elements="whole"),
        Operator("argmax", freedom="torch.max"),
        Operator("argmin", freedom="torch.max"),
        Operator("argsort", exact=True, freedom="torch.sort", overloads="stable"),
        Operator("as_strided_", exact=True),
        Operator("as_strided_copy", exact=True),
        Operator("as_strided_scatter", exact=True),
        Operator("baddbmm", sums=True),
        Operator("bernoulli", freedom="torch.bernoulli", draws=True),
        Operator("binomial", draws=True),
        Operator("block_diag", exact=True),
        Operator("bmm", sums=True),
        Operator("bucketize", freedom="torch.bucketize", overloads="Tensor"),
        Operator("cat", exact=True),
        Operator("cauchy", draws=True),
        Operator("ceil", rounds_once=True, freedom="torch.floor", whole="default"),
        Operator("celu_", by_result="stays"),
        Operator("channel_shuffle", exact=True),
        Operator("_chunk_cat", exact=True),
        Operator("clamp", exact=True),
        Operator("clamp_max", exact=True),
        Operator("clamp_min", exact=True),
        Operator("clone", exact=True),
        Operator("complex", exact=True),
        Operator("_conj_physical", exact=True),
        Operator("conj_physical", exact=True),
        Operator("constant_pad_nd", exact=True),
        Operator("convolution", sums=True),
        Operator("copy", exact=True),
        Operator("copysign", exact=True),
        Operator("copy_", exact=True, freedom="Tensor.to"),
        Operator("count_nonzero", freedom="torch.sign", overloads="dim_IntList"),
        Operator("cumprod", along=True),
        Operator("cummax", exact=True, freedom="torch.cummax"),
        Operator("cummin", exact=True, freedom="torch.cummax"),
        Operator("cumsum", sums=True),
        Operator("detach_copy", exact=True),
        Operator("diag_embed", exact=True),
        Operator("diagonal_backward", exact=True),
        Operator("diagonal_copy", exact=True),
        Operator("diagonal_scatter", exact=True),
        Operator("div", freedom="torch.floor", overloads="Scalar_mode Tensor_mode", whole="Scalar_mode Tensor_mode"),
        Operator("dot", sums=True),
        Operator("elu_", by_result="stays"),
        Operator("elu_backward", kink="self_or_result"),
        Operator("embedding", exact=True),
        Operator("empty", freedom="torch.empty", overloads="memory_format", no_values=True),
        Operator("empty_like", freedom="torch.empty", no_values=True),
        Operator("empty_permuted", freedom="torch.empty", no_values=True),
        Operator("empty_strided", freedom="torch.empty", no_values=True),
        Operator("eq", freedom="torch.eq", overloads="Scalar Tensor", kink="self"),
        Operator("expand_copy", exact=True),
        Operator("exponential", draws=True),
        Operator("fill", exact=True),
        Operator("flip", exact=True),
        Operator("floor", rounds_once=True, freedom="torch.floor", whole="default"),
        Operator("floor_divide", freedom="torch.floor", whole="default"),
        Operator("floor_divide_", freedom="torch.floor", overloads="Tensor"),
        Operator("fmax", exact=True),
        Operator("fmin", exact=True),
        Operator("fmod", exact=True),
        Operator("frac", exact=True),
        Operator("fractional_max_pool2d", exact=True),
        Operator("fractional_max_pool3d", exact=True),
        Operator("frexp", exact=True, freedom="torch.frexp", overloads="Tensor"),
        Operator("full_like", exact=True),
        Operator("gather", exact=True),
        Operator("ge", freedom="torch.eq", overloads="Scalar Tensor", kink="self"),
        Operator("geometric", draws=True),
        Operator("gt", freedom="torch.eq", overloads="Scalar Tensor", kink="self"),
        Operator("histogram", freedom="torch.histc", overloads="bin_ct bins_tensor"),
        Operator("hardshrink", exact=True),
        Operator("hardshrink_backward", exact=True, kink="self"),
        Operator("hardsigmoid_backward", kink="self"),
        Operator("hardswish_backward", kink="self"),
        Operator("hardtanh", exact=True),
        Operator("hardtanh_", exact=True, by_result="stays"),
        Operator("hardtanh_backward", exact=True, kink="self"),
        Operator("heaviside", exact=True, freedom="torch.sign"),
        Operator("histc", freedom="torch.histc"),
        Operator("im2col", exact=True),
        Operator("index", exact=True),
        Operator("index_copy", exact=True, freedom="Tensor.index_copy_"),
        Operator("index_fill", exact=True),
        Operator("index_put", exact=True, freedom="Tensor.index_put_"),
        Operator("_index_put_impl_", exact=True, freedom="Tensor.index_put_"),
        Operator("index_reduce", exact=True),
        Operator("index_select", exact=True),
        Operator("kthvalue", exact=True, freedom="torch.kthvalue"),
        Operator("le", freedom="torch.eq", overloads="Scalar Tensor", kink="self"),
        Operator("leaky_relu_", by_result="stays"),
        Operator("leaky_relu_backward", kink="self"),
        Operator("lift_fresh", exact=True),
        Operator("lift_fresh_copy", exact=True),
        Operator("linalg_eig", freedom="torch.linalg.eig"),
        Operator("_linalg_eigh", freedom="torch.linalg.eigh"),
        Operator("_linalg_eigvals", freedom="torch.linalg.eig"),
        Operator("linalg_qr", freedom="torch.linalg.qr"),
        Operator("_linalg_svd", freedom="torch.linalg.svd"),
        Operator("linalg_vector_norm", along=True),
        Operator("linspace", elements="computed"),
        Operator("log_normal", draws=True),
        Operator("_log_softmax", from_half=True, along=True),
        Operator("logcumsumexp", along=True),
        Operator("logical_and", freedom="torch.sign"),
        Operator("logical_not", freedom="torch.sign"),
        Operator("logical_or", freedom="torch.sign"),
        Operator("logical_xor", freedom="torch.sign"),
        Operator("logsumexp", along=True),
        Operator("logspace", elements="computed"),
        Operator("lt", freedom="torch.eq", overloads="Scalar Tensor", kink="self"),
        Operator("lu_unpack", exact=True),
        Operator("masked_fill", exact=True),
        Operator("masked_scatter", exact=True),
        Operator("masked_scatter_backward", exact=True),
        Operator("masked_select", exact=True),
        Operator("max", exact=True, freedom="torch.max", overloads="dim"),
        Operator("max_pool2d_with_indices", exact=True),
        Operator("max_pool3d_with_indices", exact=True),
        Operator("max_unpool2d", exact=True),
        Operator("max_unpool3d", exact=True),
        Operator("maximum", exact=True),
        Operator("mean", rounds_once=True, sums=True),
        Operator("median", exact=True, freedom="torch.median", overloads="dim"),
        Operator("min", exact=True, freedom="torch.max", overloads="dim"),
        Operator("minimum", exact=True),
        Operator("mm", sums=True),
        Operator("mode", exact=True, freedom="torch.mode"),
        Operator("mul", rounds_once=True),
        Operator("multinomial", draws=True),
        Operator("mv", sums=True),
        Operator("nan_to_num", exact=True),
        Operator("nanmedian", exact=True, freedom="torch.median", overloads="dim"),
        Operator("narrow_copy", exact=True),
        Operator("ne", freedom="torch.eq", overloads="Scalar Tensor", kink="self"),
        Operator("neg", exact=True),
        Operator("new_empty", freedom="torch.empty", no_values=True),
        Operator("new_empty_strided", freedom="torch.empty", no_values=True),
        Operator("new_full", exact=True),
        Operator("new_ones", exact=True),
        Operator("new_zeros", exact=True),
        Operator("nonzero", freedom="torch.sign"),
        Operator("norm", along=True),
        Operator("normal", draws=True),
        Operator("normal_functional", draws=True),
        Operator("ones_like", exact=True),
        Operator("permute_copy", exact=True),
        Operator("pixel_shuffle", exact=True),
        Operator("pixel_unshuffle", exact=True),
        Operator("poisson", draws=True),
        Operator("_prelu_kernel_backward", kink="self"),
        Operator("prod", along=True),
        Operator("put", exact=True, freedom="Tensor.put_"),
        Operator("rand", draws=True),
        Operator("rand_like", draws=True),
        Operator("randint", draws=True),
        Operator("randint_like", draws=True),
        Operator("randn", draws=True),
        Operator("randn_like", draws=True),
        Operator("random", draws=True),
        Operator("randperm", draws=True),
        Operator("reflection_pad1d", exact=True),
        Operator("reflection_pad2d", exact=True),
        Operator("reflection_pad3d", exact=True),
        Operator("relu", exact=True, by_result="moves"),
        Operator("repeat", exact=True),
        Operator("replication_pad1d", exact=True),
        Operator("replication_pad2d", exact=True),
        Operator("replication_pad3d", exact=True),
        Operator("resize_", exact=True, freedom="Tensor.resize_"),
        Operator("resize_as_", exact=True),
        Operator("roll", exact=True),
        Operator("rot90", exact=True),
        Operator("round", rounds_once=True, freedom="torch.floor", overloads="decimals default", whole="default"),
        Operator("rrelu_with_noise_backward", kink="self"),
        Operator("rsub", rounds_once=True),
        Operator("_safe_softmax", along=True),
        Operator("_sample_dirichlet", draws=True),
        Operator("scatter", exact=True, freedom="Tensor.scatter_", overloads="src"),
        Operator("scatter_reduce", exact=True),
        Operator("searchsorted", freedom="torch.bucketize", overloads="Tensor"),
        Operator("segment_reduce", exact=True),
        Operator("select_backward", exact=True),
        Operator("select_copy", exact=True),
        Operator("select_scatter", exact=True),
        Operator("selu_", by_result="stays"),
        Operator("set_", no_values=True),
        Operator("sgn", freedom="torch.sign", kink="self"),
        Operator("sign", exact=True, freedom="torch.sign", whole="default", kink="self"),
        Operator("signbit", freedom="torch.sign"),
        Operator("slice_backward", exact=True),
        Operator("slice_copy", exact=True),
        Operator("slice_scatter", exact=True),
        Operator("_softmax", from_half=True, along=True),
        Operator("softshrink_backward", exact=True, kink="self"),
        Operator("sort", exact=True, freedom="torch.sort", overloads="default stable"),
        Operator("split_copy", exact=True),
        Operator("split_with_sizes_copy", exact=True),
        Operator("square", rounds_once=True),
        Operator("squeeze_", exact=True),
        Operator("squeeze_copy", exact=True),
        Operator("stack", exact=True),
        Operator("_standard_gamma", draws=True),
        Operator("std", along=True),
        Operator("std_mean", along=True),
        Operator("sub", rounds_once=True),
        Operator("sum", rounds_once=True, sums=True),
        Operator("t_", exact=True),
        Operator("t_copy", exact=True),
        Operator("take", exact=True),
        Operator("threshold", exact=True),
        Operator("threshold_", exact=True, by_result="stays"),
        Operator("threshold_backward", exact=True, kink="self"),
        Operator("_to_copy", exact=True, freedom="Tensor.to"),
        Operator("topk", exact=True, freedom="torch.topk"),
        Operator("transpose_", exact=True),
        Operator("transpose_copy", exact=True),
        Operator("tril", exact=True),
        Operator("triu", exact=True),
        Operator("trunc", rounds_once=True, freedom="torch.floor", whole="default"),
        Operator("unbind_copy", exact=True),
        Operator("unfold_copy", exact=True),
        Operator("uniform", draws=True),
        Operator("_unique2", exact=True, freedom="torch.unique"),
        Operator("unique_consecutive", exact=True, freedom="torch.unique_consecutive"),
        Operator("unique_dim", exact=True, freedom="torch.unique"),
        Operator("unique_dim_consecutive", exact=True, freedom="torch.unique_consecutive"),
        Operator("_unsafe_index_put", exact=True, freedom="Tensor.index_put_"),
        Operator("_unsafe_masked_index", exact=True),
        Operator("unsafe_split", exact=True),
        Operator("unsafe_split_with_sizes", exact=True),
        Operator("_unsafe_view", exact=True),
        Operator("unsqueeze_", exact=True),
        Operator("unsqueeze_copy", exact=True),
        Operator("upsample_nearest1d", exact=True),
        Operator("upsample_nearest2d", exact=True),
        Operator("upsample_nearest3d", exact=True),
        Operator("_upsample_nearest_exact1d", exact=True),
        Operator("_upsample_nearest_exact2d", exact=True),
        Operator("_upsample_nearest_exact3d", exact=True),
        Operator("var", along=True),
        Operator("var_mean", along=True),
        Operator("view_copy", exact=True),
        Operator("where", exact=True),
        Operator("zero_", exact=True),
        Operator("zeros_like", exact=True),
    )
}
ARITHMETIC = Operator("")
"""Of all that has no row, and of operators of other packages."""

NARROW = {
    torch.float64: torch.float32,
    torch.float32: torch.float16,
    torch.float16: torch.float8_e4m3fn,
    torch.bfloat16: torch.float8_e4m3fn,
}
"""For each dtype one with half as many bits, or fewer."""


@functools.cache
def row_of(func: Any) -> Operator:
    """Return the row of an overload; of any other function, that of arithmetic."""
    name = func.overloadpacket.__name__ if getattr(func, "namespace", "") == "aten" else ""
    return TABLE.get(name) or TABLE.get(name.removesuffix("_"), ARITHMETIC)


def freedom_of(func: Any) -> Freedom | None:
    """Return what torch leaves open to an overload; None where it is defined."""
    row = row_of(func)
    return FREEDOMS[row.freedom] if row.freedom and func._overloadname in row.overloads.split() else None


def kink_of(func: Any) -> str:
    """Return the argument of which a backward asks on which side of a kink it lies; empty for other operators."""
    row = row_of(func)
    asks = bool(row.kink) and func._overloadname in row.overloads.split() and not func._schema.is_mutable
    return row.kink if asks else ""


@functools.cache
def names_of_written(func: Any) -> frozenset[str]:
    """Return the names of the arguments that an operator writes to."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return frozenset()
    declared = (argument for argument in schema.arguments if argument.alias_info is not None)
    # Batch norms write to these in training, also those whose schema does not say so.
    undeclared = ("running_mean", "running_var") if func.overloadpacket.__name__.endswith("batch_norm") else ()
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
    return not given.get("accumulate") and given.get("reduce") in (None, "amax", "amin", "max", "min")


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

    All are exact in a dtype with half as many bits, as small whole numbers are, or one factor is a power of two. The
    result is that of float64.
    """
    scales = _scales(func, args, kwargs)
    known = (row_of(func).rounds_once or scales) and not func._schema.is_mutable
    leaves = tree_leaves((args, kwargs))
    if not known or not isinstance(result, torch.Tensor) or any(isinstance(leaf, torch.dtype) for leaf in leaves):
        return False
    if func.overloadpacket is aten.mean and (leaves[0].numel() // max(result.numel(), 1)).bit_count() != 1:
        return False  # a quotient and a product with the reciprocal may be rounded in two ways
    tensors = [leaf for leaf in [*leaves, result] if isinstance(leaf, torch.Tensor)]
    if not all(map(_is_real if scales else _has_few_bits, tensors)):
        return False
    as_double = functools.partial(_as_double, integers=scales)
    exact = func(*tree_map(as_double, tuple(args)), **tree_map(as_double, dict(kwargs)))
    return bool(exact.dtype == torch.float64 and torch.equal(exact, result.to(torch.float64)))


def _scales(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call multiplies with powers of two, or divides by them: that changes exponents alone."""
    if row_of(func).name not in ("mul", "div") or kwargs.get("rounding_mode") is not None:
        return False
    given = Call.bind(func, tuple(args), kwargs).arguments
    sides = ("other",) if row_of(func).name == "div" else ("self", "other")
    return any(_is_power_of_two(given.get(side)) for side in sides)


def _is_power_of_two(factor: Any) -> bool:
    """Return whether each element of a factor is a power of two, or the negative of one."""
    if isinstance(factor, torch.Tensor) and _is_real(factor):
        return factor.numel() > 0 and bool((torch.frexp(factor.to(torch.float64)).mantissa.abs() == 0.5).all())
    return isinstance(factor, int | float) and math.isfinite(factor) and abs(math.frexp(factor)[0]) == 0.5


def _is_real(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has real numbers in memory."""
    return tensor.layout == torch.strided and tensor.device.type != "meta" and not tensor.is_complex()


def _has_few_bits(tensor: torch.Tensor) -> bool:
    """Return whether each element of a floating tensor is exact in a dtype with half as many bits."""
    if not tensor.is_floating_point():
        return not tensor.is_complex()
    narrow = NARROW.get(tensor.dtype)
    plain = narrow is not None and tensor.layout == torch.strided and tensor.device.type != "meta"
    return plain and torch.equal(tensor, tensor.to(narrow).to(tensor.dtype))


def _as_double(value: Any, integers: bool) -> Any:
    is_tensor = isinstance(value, torch.Tensor) and (integers or value.is_floating_point())
    return value.to(torch.float64) if is_tensor else value
