"""Which operators of ATen a case may call, and where their arguments must be names.

A function of ``torch`` checks what it passes on; an operator of ``torch.ops`` need not. One is allowed if a public
function has its name, if it is a structured kernel, whose shapes a function of its own checks, or if ``BY_NAME`` holds
it. Structured derivatives are no exception to the last: many check nothing. Overloads follow their operator.
``tools/operator_sweep.py`` tries wrong arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from runner.cases.inventory import inventory

UNCHECKED = (
    "nothing is known to check its arguments, and its kernel may read or write past a tensor's end where these are "
    "wrong"
)

TRUSTS = (
    "it trusts the indices or sizes that it is given, and reads or writes past a tensor's end where these are wrong"
)

TRUSTING = frozenset({
    "aten.native_batch_norm", "torch.native_batch_norm", "aten.batch_norm_update_stats",
    "torch.batch_norm_update_stats", "torch.nn.utils.rnn.PackedSequence", "torch.nn.utils.rnn.PackedSequence_",
    "torch.nn.attention.flex_attention.BlockMask", "aten.lu_unpack", "torch.lu_unpack", "aten.lstm", "torch.lstm",
    "aten.gru", "torch.gru", "aten.align_to", "prims.fft_c2r", "aten.choose_qparams_optimized",
    "torch.choose_qparams_optimized",
})  # fmt: skip
"""Public functions that the sweep found to do so."""

BY_NAME = {
    "it copies, views or casts one tensor": (
        "_conj _conj_copy _conj_physical _efficientzerotensor _lazy_clone _local_scalar_dense _neg_view "
        "_neg_view_copy _reshape_copy _shape_as_tensor _to_copy _unsafe_view alias copy lift lift_fresh "
        "lift_fresh_copy set slice zero"
    ),
    "it is the form without a mutation of a public method": (
        "_foreach_zero cauchy exponential geometric log_normal normal_functional random resize uniform"
    ),
    "it is a public method, which has an older one of its name without the underscore": "resize_",
    "public functions consist of it, so that graphs of models hold it": (
        "_adaptive_avg_pool2d _adaptive_avg_pool3d _aminmax _cdist_forward _chunk_cat _convolution _fused_rms_norm "
        "_int_mm _pdist_forward _prelu_kernel _safe_softmax _to_dense _to_sparse _trilinear _unique _unique2 col2im "
        "im2col log_sigmoid log_sigmoid_forward multilabel_margin_loss_forward nll_loss2d_forward reflection_pad2d "
        "_grouped_mm _scaled_grouped_mm _scaled_mm _scaled_mm_v2 _scaled_dot_product_attention_math "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_flash_attention"
    ),
    "it is the derivative of a public function that checks its arguments, so that graphs of training hold it": (
        "_prelu_kernel_backward _softmax_backward_data binary_cross_entropy_backward convolution_backward "
        "diagonal_backward elu_backward gelu_backward glu_backward hardshrink_backward hardsigmoid_backward "
        "hardswish_backward hardtanh_backward huber_loss_backward leaky_relu_backward log_sigmoid_backward "
        "logit_backward masked_scatter_backward mish_backward mse_loss_backward multi_margin_loss_backward "
        "multilabel_margin_loss_backward native_dropout_backward native_group_norm_backward select_backward "
        "sigmoid_backward silu_backward slice_backward smooth_l1_loss_backward soft_margin_loss_backward "
        "softplus_backward softshrink_backward tanh_backward threshold_backward unfold_backward "
        "upsample_bicubic2d_backward upsample_bilinear2d_backward upsample_linear1d_backward "
        "upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward "
        "upsample_trilinear3d_backward"
    ),
    "shipped cases of an accelerator call it": "_cudnn_rnn cudnn_batch_norm_backward",
    "no backend knows it, and it returns its argument": "_foobar",
}
"""Why operators without a public function are allowed, and which.

In the sweep none of them accessed memory past an end.
"""

_PREFIXES = ("special", "linalg", "fft", "sparse", "nested")
_BESIDE = frozenset({
    "native", "fused", "thnn", "mkldnn", "cudnn", "miopen", "mps", "legit", "with", "no", "update", "training",
    "helper", "interface", "impl", "kernel", "functional", "differentiable", "cachemask", "forward", "backward",
    "data", "out",
})  # fmt: skip
"""Words of internal names that their public function does not have."""

_CODES = frozenset({"dtype", "layout", "memory_format", "input_dtype", "out_dtype", "output_dtype", "compute_dtype"})
_CONSTANT = re.compile(r"None|torch\.\w+|\w+(\.\w+)*\.(dtype|layout)")


@cache
def by_name() -> frozenset[str]:
    """Return the operators of ``BY_NAME``."""
    return frozenset(name for names in BY_NAME.values() for name in names.split())


def is_checked(packet: str, is_operator: Callable[[str], bool]) -> bool:
    """Return whether an operator of ATen is allowed. ``is_operator`` says whether the format allows a public name."""
    is_structured = packet in inventory()["structured"] and "backward" not in packet
    return packet in by_name() or is_structured or bool(public_name(packet, is_operator))


def public_name(packet: str, is_operator: Callable[[str], bool]) -> str:
    """Return how a public function or method of this name is written in a case; an empty text without one."""
    return next((name for name in _spellings(packet.rstrip("_")) if is_operator(name)), "")


def replacement(packet: str, is_operator: Callable[[str], bool]) -> str:
    """Return a hint that names the public function behind an internal operator; an empty text if none is known."""
    words = [word for word in packet.split("_") if word]
    stems = "_".join(words), "_".join(word for word in words if word not in _BESIDE)
    name = next(filter(None, (public_name(stem, is_operator) for stem in stems)), "")
    if not name:
        return ""
    return f"write {name}, and differentiate it" if "backward" in words else f"write {name}"


_GRID_SAMPLER = re.compile(r"(torch|aten)\._?grid_sampler(_|\b)")


def code_fault(name: str, positional: Sequence[str], keywords: Sequence[tuple[str, str]]) -> str:
    """Return the argument of ``torch.ops`` that is a number where torch takes a dtype, a layout or a memory format;
    else an empty text.

    Arguments are written in Python. Such a number is no longer checked: torch reads a table at it.
    """
    space, packet = name.split(".")[:2]
    if space not in ("aten", "prims"):
        return ""
    places = inventory()["codes"].get(f"{space}.{packet}", ())
    values = [text for place, text in enumerate(positional) if place in places and not text.startswith(("[", "("))]
    values += [text for key, text in keywords if key in _CODES]
    return next((text for text in values if not _CONSTANT.fullmatch(text)), "")


def mode_fault(name: str, positional: Sequence[str], keywords: Sequence[tuple[str, str]]) -> str:
    """Return the number of a grid sampler's interpolation or padding that is no literal of 0 to 2; else an empty text.

    Arguments are written in Python. Beside these numbers it leaves its result as the memory that it was given.
    """
    if not _GRID_SAMPLER.match(name):
        return ""
    values = [*positional[2:4], *(text for key, text in keywords if key in ("interpolation_mode", "padding_mode"))]
    return next((text for text in values if text not in ("0", "1", "2")), "")


def _spellings(word: str) -> Iterator[str]:
    lists = inventory()
    for space in ("F", "torch", "Tensor"):
        if word in lists[space]:
            yield f"{space}.{word}"
    prefix, _, member = word.partition("_")
    if prefix in _PREFIXES and member in lists[prefix]:
        yield f"torch.{prefix}.{member}"
    if word in lists["attributes"]:
        yield f"Tensor.{word}"
    if word in lists["nn.utils.rnn"]:
        yield f"torch.nn.utils.rnn.{word}"
