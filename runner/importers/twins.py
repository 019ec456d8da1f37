"""Operators of ATen that no case may call, or that run on a GPU alone, as public functions that compute the same.

An operator that is a derivative becomes its function, of which the case compares gradients.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from runner.contract.graphs import Tensor, UnsayableError

_TEXTS = {
    "native_batch_norm(x, weight, bias, mean, var, training, momentum, eps)":
        "F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)",
    "_native_batch_norm_legit(x, weight, bias, mean, var, training, momentum, eps)":
        "F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)",
    "_native_batch_norm_legit_functional(x, weight, bias, mean, var, training, momentum, eps)":
        "F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)",
    "_native_batch_norm_legit_no_training(x, weight, bias, mean, var, momentum, eps)":
        "F.batch_norm(x, mean, var, weight, bias, False, momentum, eps)",
    "_batch_norm_with_update(x, weight, bias, mean, var, momentum, eps)":
        "F.batch_norm(x, mean, var, weight, bias, True, momentum, eps)",
    "_batch_norm_no_update(x, weight, bias, mean, var, momentum, eps)":
        "F.batch_norm(x, mean, var, weight, bias, False, momentum, eps)",
    "cudnn_batch_norm(x, weight, bias, mean, var, training, momentum, eps)":
        "F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)",
    "copy_(x, source, non_blocking=False)": "Tensor.copy_(x, source)",
    "_index_put_impl_(x, indices, values, accumulate=False, unsafe=False)":
        "Tensor.index_put_(x, indices, values, accumulate)",
    "_unsafe_index(x, indices)": "aten.index(x, indices)",
    "_unsafe_index_put(x, indices, values, accumulate=False)": "torch.index_put(x, indices, values, accumulate)",
    "_embedding_bag(weight, indices, offsets, scale=False, mode=0, sparse=False, factors=None, last=False, pad=-1)":
        "F.embedding_bag(indices, weight, offsets, None, 2.0, scale, bag_mode(mode), sparse, factors, last, "
        "padding(pad))",
    "_embedding_bag_forward_only(weight, indices, offsets, scale=False, mode=0, sparse=False, factors=None, last=False,"
    " pad=-1)":
        "F.embedding_bag(indices, weight, offsets, None, 2.0, scale, bag_mode(mode), sparse, factors, last, "
        "padding(pad))",
    "_sparse_coo_tensor_with_dims_and_tensors(sparse_dim, dense_dim, size, indices, values)":
        "torch.sparse_coo_tensor(indices, values, size)",
    "_fft_c2c(x, dim, normalization, forward)": "fourier(forward)(x, None, dim, norm(normalization, forward))",
    "_reshape_alias(x, size, stride)": "torch.reshape(x, size)",
    # derivatives
    "native_batch_norm_backward(grad, x, weight, mean, var, save_mean, save_var, training, eps, mask)":
        "F.batch_norm(+x, mean, var, +weight, None, training, 0.1, eps)",
    "cudnn_batch_norm_backward(x, grad, weight, mean, var, save_mean, save_var, eps, reserve)":
        "F.batch_norm(+x, mean, var, +weight, None, True, 0.1, eps)",
    "native_layer_norm_backward(grad, x, shape, mean, rstd, weight, bias, mask)":
        "F.layer_norm(+x, shape, +weight, +bias)",
    "embedding_dense_backward(grad, indices, count, pad, scale)":
        "F.embedding(indices, +table(count, grad), padding(pad), None, 2.0, scale)",
    "avg_pool2d_backward(grad, x, kernel, stride, padding, ceil, count_pad, divisor)":
        "F.avg_pool2d(+x, kernel, stride, padding, ceil, count_pad, divisor)",
    "avg_pool3d_backward(grad, x, kernel, stride, padding, ceil, count_pad, divisor)":
        "F.avg_pool3d(+x, kernel, stride, padding, ceil, count_pad, divisor)",
    "max_pool2d_with_indices_backward(grad, x, kernel, stride, padding, dilation, ceil, indices)":
        "F.max_pool2d(+x, kernel, stride, padding, dilation, ceil)",
    "max_pool3d_with_indices_backward(grad, x, kernel, stride, padding, dilation, ceil, indices)":
        "F.max_pool3d(+x, kernel, stride, padding, dilation, ceil)",
    "_adaptive_avg_pool2d_backward(grad, x)": "F.adaptive_avg_pool2d(+x, sizes(grad, 2))",
    "_adaptive_avg_pool3d_backward(grad, x)": "F.adaptive_avg_pool3d(+x, sizes(grad, 3))",
    "adaptive_max_pool2d_backward(grad, x, indices)": "F.adaptive_max_pool2d(+x, sizes(grad, 2))",
    "_log_softmax_backward_data(grad, x, dim, dtype)": "F.log_softmax(+x, dim)",
    "nll_loss_backward(grad, x, target, weight, reduction, ignored, total)":
        "F.nll_loss(+x, target, weight, None, ignored, None, loss(reduction))",
    "nll_loss2d_backward(grad, x, target, weight, reduction, ignored, total)":
        "F.nll_loss(+x, target, weight, None, ignored, None, loss(reduction))",
    "upsample_nearest2d_backward(grad, size, from_size, scales=None)":
        "F.interpolate(+sized(from_size, grad), size, scales, nearest)",
    "upsample_bilinear2d_backward(grad, size, from_size, corners, scales=None)":
        "F.interpolate(+sized(from_size, grad), size, scales, bilinear, corners)",
    "reflection_pad1d_backward(grad, x, padding)": "F.pad(+x, padding, reflect)",
    "reflection_pad2d_backward(grad, x, padding)": "F.pad(+x, padding, reflect)",
    "reflection_pad3d_backward(grad, x, padding)": "F.pad(+x, padding, reflect)",
    "replication_pad2d_backward(grad, x, padding)": "F.pad(+x, padding, replicate)",
    "im2col_backward(grad, size, kernel, dilation, padding, stride)":
        "aten.col2im(grad, size, kernel, dilation, padding, stride)",
    "col2im_backward(grad, kernel, dilation, padding, stride)": "aten.im2col(grad, kernel, dilation, padding, stride)",
    "grid_sampler_2d_backward(grad, x, grid, mode, pad, corners, mask)":
        "torch.grid_sampler_2d(+x, +grid, mode, pad, corners)",
    "_embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, bags, mode, pad=-1)":
        "F.embedding_bag(indices, weight, offsets, None, 2.0, False, bag_mode(mode), False, +sized_as(indices, weight),"
        " False, padding(pad))",
}  # fmt: skip
"""What a log writes, and what a case writes. A plus stands before what is differentiated."""

_WORDS = {name: name for name in ("nearest", "bilinear", "reflect", "replicate")}
_PARTS = ("native_batch_norm", "cudnn_batch_norm", "_batch_norm", "_native_batch_norm", "_embedding_bag")
"""Operators that give more than their function does: that is their first result."""


@dataclass(frozen=True, slots=True)
class Twin:
    """A call of a public function. ``grad`` says that its gradients are what the operator computes.

    ``is_part`` says that the function gives the first of the operator's results alone.
    """

    operator: str
    positional: tuple[Any, ...]
    grad: bool = False
    is_part: bool = False


def twin_of(packet: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> Twin | None:
    """Return the twin of ``aten.<packet>``; None where none is known.

    Raises:
        UnsayableError: the arguments are not those of the operator.
    """
    if packet not in _twins():
        return None
    parameters, call = _twins()[packet]
    values = {name: default for name, default in parameters.items() if default is not ...}
    if len(positional) > len(parameters):
        raise UnsayableError(f"aten.{packet} takes {len(parameters)} arguments, not {len(positional)}")
    values |= dict(zip(parameters, positional, strict=False))
    # Names are those of ATen, which differ from the short ones here; what goes by name is left at its default.
    missing = [name for name in parameters if name not in values]
    if missing or any(key in parameters for key in keywords):
        raise UnsayableError(f"aten.{packet} lacks arguments by position")
    reader = _Template(values)
    result = tuple(reader.value(node) for node in call.args)
    operator = reader.value(call.func) if isinstance(call.func, ast.Call) else ast.unparse(call.func)
    while result and result[-1] is None:
        result = result[:-1]
    return Twin(operator, result, reader.grad, packet.startswith(_PARTS))


@cache
def _twins() -> dict[str, tuple[dict[str, Any], ast.Call]]:
    """Return parameters with their defaults, and the call, by the name of the operator."""
    twins = {}
    for text, call in _TEXTS.items():
        signature, body = _call(text), _call(call)
        parameters: dict[str, Any] = {node.id: ... for node in signature.args if isinstance(node, ast.Name)}
        parameters |= {str(item.arg): ast.literal_eval(item.value) for item in signature.keywords}
        twins[ast.unparse(signature.func)] = parameters, body
    return twins


def _call(text: str) -> ast.Call:
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Call):
        raise TypeError(text)
    return node


class _Template:
    """Fills the arguments of a call of this module's table."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values, self.grad = values, False

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.values[node.id] if node.id in self.values else _WORDS[node.id]
            case ast.UnaryOp():
                self.grad = True
                return _differentiated(self.value(node.operand))
            case ast.Call(func=ast.Name(id=name)):
                return _HELPERS[name](*map(self.value, node.args))
        raise TypeError(ast.unparse(node))


def _differentiated(value: Any) -> Any:
    if value is None:
        return None
    tensor = _tensor(value)
    return replace(tensor, requires_grad=True) if tensor.dtype.startswith(("float", "bfloat", "complex")) else tensor


def _tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise UnsayableError("it is a derivative, which is computed from a tensor that is not known")
    return value


def _word(words: Sequence[str]) -> Callable[[Any], str]:
    def choose(number: Any) -> str:
        if type(number) is not int or not 0 <= number < len(words):
            raise UnsayableError(f"{number!r} is not among the numbers of {', '.join(words)}")
        return words[number]

    return choose


def _sized(shape: Any, like: Any) -> Tensor:
    if not isinstance(shape, list | tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise UnsayableError("a shape is no list of sizes")
    return Tensor(tuple(shape), _tensor(like).dtype)


def _norm(number: Any, forward: Any) -> str:
    names = ("backward", "ortho", "forward") if forward else ("forward", "ortho", "backward")
    return _word(names)(number)


_HELPERS: dict[str, Callable[..., Any]] = {
    "bag_mode": _word(("sum", "mean", "max")),
    "loss": _word(("none", "mean", "sum")),
    "padding": lambda number: None if number == -1 else number,
    "table": lambda count, grad: _sized((count, *_tensor(grad).shape[-1:]), grad),
    "sized": _sized,
    "sized_as": lambda shaped, like: _sized(_tensor(shaped).shape, like),
    "sizes": lambda tensor, count: list(_tensor(tensor).shape[-count:]),
    "fourier": lambda forward: "torch.fft.fftn" if forward else "torch.fft.ifftn",
    "norm": _norm,
}
