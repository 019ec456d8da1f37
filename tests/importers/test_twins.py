"""Public functions in the place of operators that no case may call: they compute what the operators compute."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from runner.builder.operators import Operator, resolve
from runner.contract.graphs import Tensor, UnsayableError
from runner.importers.twins import _TEXTS, twin_of

torch = pytest.importorskip("torch")
F = torch.nn.functional
aten = torch.ops.aten


def test_each_twin_is_an_operator_that_a_case_may_call() -> None:
    for text in _TEXTS.values():
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        if not isinstance(call.func, ast.Call):  # a helper chooses the function
            assert isinstance(resolve(ast.unparse(call.func)), Operator), text


def test_each_twin_replaces_an_operator_that_no_case_may_call_on_a_cpu() -> None:
    packets = [text.partition("(")[0] for text in _TEXTS]
    allowed = [packet for packet in packets if isinstance(resolve(f"aten.{packet}"), Operator)]
    assert allowed == [
        "cudnn_batch_norm", "cudnn_batch_norm_backward",  # of GPUs alone
        "upsample_nearest2d_backward", "upsample_bilinear2d_backward",  # but for an overload
    ]  # fmt: skip


def meta(value: Any, reals: dict[int, Any]) -> Any:
    """The contract's tensor in the place of each of torch's. Its offset says which: ``reals`` has that by offset."""
    if isinstance(value, torch.Tensor):
        reals[len(reals) + 1] = value
        return Tensor(tuple(value.shape), str(value.dtype).removeprefix("torch."), offset=len(reals))
    return [meta(item, reals) for item in value] if isinstance(value, list | tuple) else value


def function(name: str) -> Any:
    space, _, member = name.partition(".")
    root = {"F": F, "torch": torch, "Tensor": torch.Tensor, "aten": aten}[space]
    for part in member.split("."):
        root = getattr(root, part)
    return root


def x(*shape: Any) -> Any:
    return torch.randn(*shape, dtype=torch.float64)


def calls() -> dict[str, tuple[Any, ...]]:
    """For each derivative its arguments, and at last those of its function in the order of the twin's tensors."""
    torch.manual_seed(0)
    image, weight, bias, grad = x(2, 3, 8, 8), x(3), x(3), x(2, 3, 8, 8)
    rows, logits, target = x(4, 6), x(5, 7), torch.tensor([1, 0, 6, 3, 3])
    pooled, places = aten.max_pool2d_with_indices(image, [2, 2], [2, 2], [0, 0], [1, 1], False)
    normed = aten.native_layer_norm(rows, [6], x(6), None, 1e-5)
    mean, var = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    batch = aten.native_batch_norm(image, weight, bias, mean.clone(), var.clone(), True, 0.1, 1e-5)
    _, total = aten.nll_loss_forward(logits, target, None, 1, -100)
    return {
        "native_layer_norm_backward": (x(4, 6), rows, [6], normed[1], normed[2], x(6), x(6), [True, True, True]),
        "native_batch_norm_backward": (
            grad, image, weight, mean, var, batch[1], batch[2], True, 1e-5, [True, True, False],
        ),
        "embedding_dense_backward": (x(3, 4), torch.tensor([1, 5, 1]), 9, -1, False),
        "avg_pool2d_backward": (x(2, 3, 4, 4), image, [2, 2], [2, 2], [0, 0], False, True, None),
        "max_pool2d_with_indices_backward": (
            torch.randn_like(pooled), image, [2, 2], [2, 2], [0, 0], [1, 1], False, places,
        ),
        "_adaptive_avg_pool2d_backward": (x(2, 3, 4, 4), image),
        "nll_loss_backward": (x(()), logits, target, None, 1, -100, total),
        "upsample_nearest2d_backward": (x(2, 3, 16, 16), [16, 16], [2, 3, 8, 8]),
        "upsample_bilinear2d_backward": (x(2, 3, 16, 16), [16, 16], [2, 3, 8, 8], True),
        "reflection_pad2d_backward": (x(2, 3, 10, 10), image, [1, 1, 1, 1]),
        "grid_sampler_2d_backward": (x(2, 3, 4, 4), image, torch.rand(2, 4, 4, 2).double(), 0, 0, True, [True, True]),
    }  # fmt: skip


@pytest.mark.parametrize("packet", calls())
def test_the_gradients_of_a_twin_are_what_the_derivative_gives(packet: str) -> None:
    arguments = calls()[packet]
    operator = getattr(aten, packet)
    wanted = operator(*arguments)
    wanted = [item for item in (wanted if isinstance(wanted, tuple) else [wanted]) if item is not None]
    reals: dict[int, Any] = {}
    twin = twin_of(packet, meta(arguments, reals), {})
    assert twin is not None and twin.grad
    inputs = []

    def real(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return [real(item) for item in value] if isinstance(value, list | tuple) else value
        tensor = reals[value.offset].clone() if value.offset else torch.zeros(value.shape, dtype=torch.float64)
        if value.requires_grad:
            inputs.append(tensor.requires_grad_())
        return tensor

    result = function(twin.operator)(*(real(value) for value in twin.positional))
    grads = torch.autograd.grad(result, inputs, arguments[0].reshape(result.shape))
    for item, grad in zip(wanted, grads, strict=False):
        torch.testing.assert_close(item, grad, rtol=1e-6, atol=1e-8)
    assert grads


def test_the_functions_compute_the_same() -> None:
    torch.manual_seed(0)
    image, weight, bias = x(2, 3, 4, 4), x(3), x(3)
    mean, var = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    table, indices, offsets = x(9, 4), torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2])
    signal = torch.randn(2, 6, dtype=torch.complex128)
    for packet, arguments in {
        "native_batch_norm": (image, weight, bias, mean, var, False, 0.1, 1e-5),
        "_native_batch_norm_legit_no_training": (image, weight, bias, mean, var, 0.1, 1e-5),
        "_embedding_bag": (table, indices, offsets, False, 1),
        "_fft_c2c": (signal, [1], 2, False),
        "im2col_backward": (x(2, 12, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
        "_index_put_impl_": (table.clone(), [indices], x(4, 4), True, False),
        "_unsafe_index": (table, [indices]),
    }.items():
        operator = getattr(aten, packet, None)
        twin = twin_of(packet, arguments, {})
        assert twin is not None and not twin.grad
        result = function(twin.operator)(*twin.positional)
        wanted = operator(*arguments) if packet != "im2col_backward" else aten.col2im(*arguments)
        torch.testing.assert_close(result, wanted[0] if isinstance(wanted, tuple) else wanted)


@pytest.mark.parametrize(
    ("packet", "positional", "keywords", "words"),
    [
        ("nll_loss_backward", (Tensor((), "float32"),), {}, "lacks arguments"),
        ("copy_", (1, 2, 3, 4), {}, "takes 3 arguments"),
        ("nll_loss_backward", (1, Tensor((2, 3), "float32"), 2, None, 7, -100, 3), {}, "not among the numbers"),
        ("avg_pool2d_backward", (1, "x", [2], [2], [0], False, True, None), {}, "not known"),
        ("embedding_dense_backward", (Tensor((2, 3), "float32"), 1, "9", -1, False), {}, "no list of sizes"),
    ],
)
def test_arguments_of_another_operator_are_said(packet: str, positional: Any, keywords: Any, words: str) -> None:
    with pytest.raises(UnsayableError, match=words):
        twin_of(packet, positional, keywords)


def test_an_unknown_operator_has_no_twin() -> None:
    assert twin_of("add", (1, 2), {}) is None
