"""The families of ``specs/operators``: which operators of torch's database a file holds, and how the format spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from runner.builder.operators import Operator, resolve


@dataclass(frozen=True)
class Family:
    """A file of cases. ``pattern`` matches whole names of the database; ``together`` is how many operators share a case."""

    file: str
    pattern: str
    together: int = 3


FAMILIES = (
    Family(
        "casts",
        r"bfloat16|bool|byte|char|double|float|half|int|long|short|cdouble|cfloat|chalf|to|clone|contiguous|complex|view_as_.*|real|imag|conj.*|resolve_.*|polar",
        5,
    ),
    Family("random", r"cauchy|exponential|geometric|log_normal|normal|uniform|rand.*|multinomial|bernoulli|.*dropout.*|.*rrelu"),
    Family("windows", r"signal\..*", 4),
    Family("transforms", r"fft\..*|stft|istft", 3),
    Family("special", r"special\..*|i0|polygamma|mvlgamma|igammac?|lgamma|digamma|erf.*|logit|xlogy|sinc", 5),
    Family("masked", r"masked\..*", 3),
    Family(
        "matrices",
        r"linalg\.(det|slogdet|cholesky.*|inv.*|solve.*|ld.*|lu.*|lstsq|tensor.*|matrix_(rank|power)|pinv|cond)|cholesky.*|lu.*|pinverse|triangular_solve|logdet|matrix_exp",
        2,
    ),
    Family("decompositions", r"linalg\.(eig.*|qr|svd.*|householder.*)|qr|svd.*|geqrf|ormqr|pca_lowrank", 1),
    Family("norms_of_tensors", r"linalg\..*norm|norm|dist|cdist|renorm|cov|corrcoef|nn\.functional\.(pdist|pairwise_distance|cosine_similarity|normalize)", 2),
    Family("products", r"addmm|addmv|addbmm|baddbmm|bmm|mm|mv|v?dot|addr|outer|inner|kron|tensordot|einsum|matmul|linalg\..*|cross|sparse\..*|to_sparse|.*_scaled_mm.*", 3),
    Family("attention", r".*attention.*|.*_softmax_backward.*|.*_safe_softmax.*", 1),
    Family("losses", r"nn\.functional\..*(loss|cross_entropy|kl_div).*", 2),
    Family("convolutions", r"nn\.functional\.(conv.*|linear|bilinear|unfold|embedding.*|one_hot)", 1),
    Family("pooling", r".*pool.*", 1),
    Family("normalisation", r".*(batch|group|layer|rms|instance|local_response)_norm.*", 1),
    Family("resampling", r"nn\.functional\.(interpolate|upsample.*|grid_sample|pad|pixel.*|channel_shuffle)|_upsample.*|grid_sampler.*|constant_pad_nd", 2),
    Family("softmax", r".*(softmax|softmin|logsumexp)", 2),
    Family("activations", r"nn\.functional\..*|sigmoid|heaviside", 5),
    Family("comparisons", r"eq|ne|ge|gt|le|lt|is.*|equal|allclose|logical_.*|signbit", 5),
    Family("arithmetic", r"add|sub|mul|div|true_divide|floor_divide|remainder|fmod|pow|float_power|__r.*__|rsub|atan2|hypot|copysign|ldexp|logaddexp2?|lerp|addc.*|clamp.*|f?m(ax|in)(imum)?|maximum|minimum|nextafter|bitwise_.*|gcd|lcm|where|gradient|.*trapezoid|trapz|diff", 4),
    Family("sorting", r"sort|msort|argsort|topk|kthvalue|.*median|mode|unique.*|bucketize|searchsorted|.*quantile|hist.*|bincount|hash_tensor", 2),
    Family("reductions", r"sum|prod|mean|nanmean|nansum|std.*|var.*|all|any|am.*|arg(max|min)|aminmax|count_nonzero|cum.*|logcumsumexp|trace|max|min|scatter_reduce|_segment_reduce|sum_to_size", 3),
    Family("indexing", r"index_.*|_unsafe_masked.*|__getitem__|gather|scatter.*|take.*|put|masked_.*|nonzero.*|argwhere|select_scatter|slice_scatter|diagonal_scatter|as_strided_scatter|unravel_index|repeat_interleave", 3),
    Family("creation", r"arange|linspace|logspace|empty.*|zeros.*|ones.*|full.*|new_.*|eye|scalar_tensor|tri.*_indices|fill|zero_|resize.*|item|broadcast_shapes", 4),
    Family("joining", r"cat|stack|.stack|column_stack|_chunk_cat|.*split.*|.*chunk|unbind.*|meshgrid|block_diag|combinations|cartesian_prod|atleast.*|broadcast_tensors", 3),
    Family("views", r"[a-zA-Z_]*(copy|view|reshape|permute|transpose|squeeze|expand|narrow|select|slice|diag|diagonal|unfold|flatten|ravel|flip|roll|rot90|movedim|repeat|tile|tri[lu]|as_strided).*|flip.*|[tTH]|m[TH]|broadcast_to", 4),
    Family("pointwise", r"[a-z0-9_]+", 5),
)  # fmt: skip

_SPACES = {"nn.functional": "F"}
_OWN = {
    "__getitem__": ("operator.getitem",), "__radd__": ("operator.add",), "__rdiv__": ("operator.truediv",), "__rmul__": ("operator.mul",),
    "__rand__": ("operator.and_",), "__ror__": ("operator.or_",), "__rxor__": ("operator.xor",), "__rmod__": ("operator.mod",),
    "__rpow__": ("operator.pow",), "__rsub__": ("operator.sub",), "torch._scaled_mm": ("aten._scaled_mm",),
    "torch._scaled_mm_v2": ("aten._scaled_mm_v2", "F.scaled_mm"), "normal": ("Tensor.normal_", "torch.normal"),
    "jiterator_unary": (), "jiterator_binary": (), "jiterator_binary_return_by_ref": (), "jiterator_2inputs_2outputs": (),
    "jiterator_4inputs_with_extra_args": (), "__rmatmul__": (),
}  # fmt: skip
"""Spellings that no rule gives. A jiterator compiles a text for CUDA; Python calls ``__rmatmul__`` for no two tensors."""


def spellings(name: str) -> tuple[str, ...]:
    """Return the operators of the format that stand for a name of torch's database, the public ones first."""
    if name in _OWN:
        return _OWN[name]
    space, _, member = name.removeprefix("torch.ops.").removesuffix(".default").rpartition(".")
    if space:
        candidates = [f"{_SPACES.get(space, space if space == 'aten' else f'torch.{space}')}.{member}"]
    else:
        candidates = [f"{kind}.{member}{tail}" for kind in ("torch", "Tensor", "aten") for tail in ("", "_")]
    return tuple(candidate for candidate in candidates if isinstance(resolve(candidate), Operator))


def family_of(name: str) -> Family:
    """Return the first family whose pattern matches a name of the database."""
    return next(family for family in FAMILIES if re.fullmatch(family.pattern, name))


def reached(names: Iterable[str], operators: Iterable[tuple[str, bool]]) -> Mapping[str, bool]:
    """Return for each name of the database whether one of its spellings is among the operators of steps.

    Each operator stands beside whether its first argument is a number: Python calls ``__radd__`` for these alone.
    """
    pairs = set(operators)
    known = {operator for operator, _ in pairs}
    return {
        name: any(
            (spelling, True) in pairs if name.startswith("__r") else spelling in known for spelling in spellings(name)
        )
        for name in names
    }
