"""Families of layers and products: matrix products, norms, convolutions, pools, losses, transforms, linear algebra,
functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from runner.worker.generate.chain import Chain, Function, Value, family, require


@family(10)
def _matmul(chain: Chain) -> None:
    name = chain.word(
        "matmul mm linear addmm einsum bmm baddbmm mv outer operator tensordot chain_matmul addmv dot kron"
    )
    if name in ("bmm", "baddbmm"):
        x = chain.real(3, 3)
        y = chain.input([x.shape[0], x.shape[2], chain.integer(1, 6)], x.data.dtype)
        if name == "bmm":
            chain.call("torch.bmm", x, y)
            return
        bias = chain.input([*(x.shape[:2] if chain.chance(0.5) else (1, 1)), y.shape[2]], x.data.dtype)
        chain.call("torch.baddbmm", bias, x, y, beta=chain.one(1, 0.5), alpha=chain.one(1, 2))
        return
    if name in ("outer", "dot", "kron"):
        x = chain.real(1, 1)
        chain.call(f"torch.{name}", x, chain.like(x, same=True))
        return
    x = chain.real(2, 3)
    inner, columns, kind = x.shape[-1], chain.integer(1, 8), x.data.dtype
    require(name not in ("mm", "addmm", "addmv") or x.ndim == 2, "no matrix")
    shape = {"mv": [inner], "addmv": [inner], "linear": [columns, inner]}.get(name, [inner, columns])
    y = chain.input(shape, kind)
    match name:
        case "addmv":
            chain.call("torch.addmv", chain.input([x.shape[0]], kind), x, y)
        case "linear":
            bias = chain.input([columns], kind)
            chain.call("F.linear", x, y, *([bias] if chain.chance(0.6) else []))
        case "addmm":
            bias = chain.input([columns] if chain.chance(0.6) else [x.shape[0], columns], kind)
            options: dict[str, Any] = {"beta": 0.5, "alpha": 2} if chain.chance(0.4) else {}
            chain.call("torch.addmm", bias, x, y, **options)
        case "einsum":
            chain.call("torch.einsum", *(("...i,ij->...j", x, y) if chain.chance(0.6) else ("...ij->...ji", x)))
        case "operator" if chain.chance(0.6):
            chain.call("operator.matmul", x, y)
        case "operator":
            chain.call("torch.matmul", x, chain.call("Tensor.mT", x))
        case "tensordot":
            chain.call("torch.tensordot", x, y, 1)
        case _:
            chain.call("torch.mm" if name == "mm" else "torch.matmul", x, y)


@family(8)
def _norm(chain: Chain) -> None:
    name = chain.word(
        "layer_norm batch_norm group_norm rms_norm instance_norm normalize local_response_norm batch_norm"
    )
    x = chain.real(2, 4)
    width, kind = x.shape[-1], x.data.dtype
    match name:
        case "layer_norm" | "rms_norm":
            chain.call(f"F.{name}", x, [width], *([chain.input([width], kind)] if chain.chance(0.6) else []))
        case "normalize":
            chain.call("F.normalize", x, dim=chain.dim(x))
        case "group_norm":
            chain.call("F.group_norm", x, chain.divisor(x.shape[1], 1, 2, 3, 4))
        case "batch_norm":
            channels, training = x.shape[1:2], chain.chance(0.6)
            mean = chain.input(channels, kind, grad=False, plain=True)
            var = chain.input(channels, kind, {"uniform": [0.5, 2]}, grad=False, plain=True)
            affine = [chain.input(channels, kind) for _ in range(2)] if chain.chance(0.5) else []
            chain.call("F.batch_norm", x, mean, var, *affine, training=training, momentum=0.1)
        case _:
            chain.call(f"F.{name}", x, *([2] if name == "local_response_norm" else []))


@family(7)
def _softmax(chain: Chain) -> None:
    x = chain.real(1)
    name = chain.word("torch.softmax torch.log_softmax F.softmin F.softmax F.log_softmax")
    options = {"dtype": chain.one(torch.float32, torch.float64)} if chain.chance(0.2) else {}
    chain.call(name, x, dim=chain.dim(x), **options)


@family(3)
def _attention(chain: Chain) -> None:
    q = chain.real(4, 4, fresh=0.3) if chain.chance(0.5) else chain.input([1, 2, chain.integer(2, 6), 4])
    k = chain.like(q, same=True)
    require(q.floating, "no float")
    chain.call("F.scaled_dot_product_attention", q, k, chain.like(q, same=True), is_causal=chain.chance(0.4))


def _image(chain: Chain, rank: int) -> Value:
    """A batch of images with ``rank`` dimensions, or of rows with 1."""
    image = chain.pick(lambda t: t.is_floating_point() and t.ndim == rank + 2 and min(t.shape) > 0, 0.3)
    if image is not None:
        return image
    kind = chain.dtype if chain.dtype.is_floating_point else torch.float32
    batch = chain.n if chain.dynamic and chain.chance(0.6) else chain.integer(1, 2)
    return chain.input([batch, chain.integer(1, 4), *chain.integers(4, 9, rank)], kind)


@family(7)
def _convolution(chain: Chain) -> None:
    rank = chain.one(1, 2, 2)
    x = _image(chain, rank)
    channels, kind = x.shape[1], x.data.dtype
    groups = channels if chain.chance(0.25) else 1
    filters = groups * chain.integer(1, 3)
    window = [chain.integer(1, 3)] * rank
    if chain.chance(0.2):
        weight = chain.input([channels, filters // groups, *window], kind)
        chain.call(f"F.conv_transpose{rank}d", x, weight, stride=chain.one(1, 2), groups=groups)
        return
    operands = [x, chain.input([filters, channels // groups, *window], kind)]
    operands += [chain.input([filters], kind)] if chain.chance(0.5) else []
    chain.call(f"F.conv{rank}d", *operands, padding=chain.one(0, 1), stride=chain.one(1, 2), groups=groups)


@family(7)
def _pool(chain: Chain) -> None:
    rank = chain.one(1, 2, 2)
    x = _image(chain, rank)
    name = chain.word("max_pool avg_pool adaptive_avg_pool adaptive_max_pool lp_pool unfold max_indices pixel_shuffle")
    require(rank == 2 or name not in ("unfold", "pixel_shuffle"), "no image")
    pooled = f"F.{name}{rank}d"

    def avg_pool() -> None:
        options = {"count_include_pad": False} if chain.chance(0.3) else {}
        window, stride, padding = chain.one(2, 3), chain.one(1, 2), chain.one(0, 1)
        chain.call(pooled, x, window, stride=stride, padding=padding, ceil_mode=chain.chance(0.3), **options)

    steps: dict[str, Callable[[], Any]] = {
        "max_pool": lambda: chain.call(pooled, x, 2, padding=chain.one(0, 1), ceil_mode=chain.chance(0.3)),
        "avg_pool": avg_pool,
        "lp_pool": lambda: chain.call(pooled, x, 2, 2),
        "max_indices": lambda: chain.call(f"F.max_pool{rank}d", x, 2, return_indices=True, out=2),
        "unfold": lambda: chain.call("F.unfold", x, 2, padding=chain.one(0, 1), stride=chain.one(1, 2)),
        "pixel_shuffle": lambda: chain.call(
            "F.relu",
            chain.call("F.pixel_unshuffle", x, 2) if chain.chance(0.5) else chain.call("F.channel_shuffle", x, 1),
        ),
    }
    steps.get(name, lambda: chain.call(pooled, x, chain.integer(1, 4)))()


@family(5)
def _interpolate(chain: Chain) -> None:
    rank = chain.one(1, 2, 2)
    x = _image(chain, rank)
    mode = chain.one("nearest", "linear" if rank == 1 else "bilinear", "area", "nearest", "bicubic")
    options: dict[str, Any] = (
        {"scale_factor": chain.one(2, 0.5, 1.5)} if chain.chance(0.5) else {"size": chain.integers(2, 9, rank)}
    )
    if "linear" in mode or mode == "bicubic":
        options["align_corners"] = chain.chance(0.5)
    if chain.chance(0.2) and rank == 2:
        theta = chain.input([x.shape[0], *x.shape[-2:], 2], x.data.dtype, {"uniform": [-1, 1]})
        chain.call(
            "F.grid_sample", x, theta, align_corners=chain.chance(0.5), padding_mode=chain.one("zeros", "border")
        )
    else:
        chain.call("F.interpolate", x, mode=mode, **options)


@family(6)
def _loss(chain: Chain) -> None:
    x = chain.real(1, 3)
    name = chain.word(
        "mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy_with_logits cross_entropy "
        "nll_loss cosine_similarity poisson_nll_loss soft_margin_loss pairwise_distance cdist "
        "gaussian_nll_loss hinge_embedding_loss margin_ranking_loss"
    )
    options = {"reduction": chain.one("mean", "sum", "none")}
    match name:
        case "cross_entropy" | "nll_loss":
            require(x.ndim == 2, "no classes")
            options |= {"label_smoothing": 0.1} if name == "cross_entropy" and chain.chance(0.3) else {}
            chain.call(f"F.{name}", x, chain.index([x.shape[0]], x.shape[1]), **options)
        case "cosine_similarity" | "pairwise_distance" | "cdist":
            chain.call(f"{'torch' if name == 'cdist' else 'F'}.{name}", x, chain.like(x, same=True))
        case "gaussian_nll_loss":
            spread = chain.input(x.shape, x.data.dtype, {"uniform": [0.5, 2]}, grad=False)
            chain.call("F.gaussian_nll_loss", x, chain.like(x, same=True), spread, **options)
        case _:
            targets = [chain.like(x, same=True) for _ in range(2 if name == "margin_ranking_loss" else 1)]
            chain.call(f"F.{name}", x, *targets, **options)


@family(5)
def _fourier(chain: Chain) -> None:
    x = chain.pick(lambda t: t.dtype in (torch.float32, torch.float64, torch.complex64) and t.ndim > 0, 0.1)
    x = x or chain.input(chain.shape(), torch.float32)
    name = chain.word("fft rfft ifft fft2 fftshift irfft ifftshift hfft rfft2")
    options: dict[str, Any] = {"norm": "ortho"} if "shift" not in name and chain.chance(0.3) else {}
    result = chain.call(f"torch.fft.{name}", x, **options)
    if result.data.is_complex() and chain.chance(0.7):
        chain.call(chain.one("torch.abs", "torch.view_as_real", "Tensor.real", "Tensor.imag"), result)


@family(6)
def _algebra(chain: Chain) -> None:
    kind = chain.dtype if chain.dtype in (torch.float32, torch.float64) else torch.float32
    square = chain.pick(
        lambda t: t.dtype == kind and t.ndim in (2, 3) and t.shape[-1] == t.shape[-2] and 0 < t.shape[-1] < 9, 0.2
    )
    size = chain.integer(1, 5)
    a = square or chain.input([*([2] if chain.chance(0.3) else []), size, size], kind)
    eye = chain.call("torch.eye", a.shape[-1], dtype=kind)
    name = chain.word(
        "inv det solve cholesky qr svdvals eigvalsh slogdet matrix_exp pinv matrix_power eigh svd lu_factor "
        "solve_triangular cross matrix_norm multi_dot vander"
    )
    space = "torch" if name == "matrix_exp" else "torch.linalg"
    if name in ("cross", "vander"):
        row = chain.input([4, 3], kind)
        chain.call(f"{space}.{name}", row, *([chain.like(row, same=True)] if name == "cross" else []))
        chain.call("torch.mul", eye, 2)
        return
    if name in ("cholesky", "eigvalsh", "eigh"):
        a = chain.call("torch.add", chain.call("torch.matmul", a, chain.call("Tensor.mT", a)), eye)
    else:
        a = chain.call("torch.add", a, chain.call("torch.mul", eye, chain.one(5, 8)))
    match name:
        case "solve" | "solve_triangular":
            b = chain.input([*a.shape[:-1], chain.integer(1, 3)], kind)
            options = {"upper": chain.chance(0.5)} if name == "solve_triangular" else {}
            chain.call(f"{space}.{name}", a, b, **options)
        case "qr" | "eigh" | "slogdet" | "lu_factor" | "svd":
            chain.call(f"{space}.{name}", a, out=3 if name == "svd" else 2)
        case "multi_dot":
            chain.call("torch.matmul", a, a)
        case _:
            chain.call(f"{space}.{name}", a, *([chain.one(0, 2, -1)] if name == "matrix_power" else []))


BODIES = (
    ([{"torch.softmax": {"*": ["$_"], "dim": -1}}], lambda t: torch.softmax(t, dim=-1)),
    ([{"torch.cumsum": ["$_", 0]}], lambda t: torch.cumsum(t, 0)),
    (["torch.sin", "torch.sum"], lambda t: torch.sin(t).sum()),
    ([{"torch.flip": ["$_", [0]]}, {"torch.mul": ["$_", 2]}], lambda t: torch.flip(t, [0]) * 2),
    ([{"torch.amax": ["$_", 0]}], lambda t: torch.amax(t, 0)),
)


@family(5)
def _vmap(chain: Chain) -> None:
    x = chain.real(2, 3)
    chain.call("operator.call", chain.call("torch.vmap", Function(["row"], *chain.one(*BODIES))), x)


@family(3)
def _condition(chain: Chain) -> None:
    x = chain.real(1, 3)
    truth = chain.call("operator.gt", chain.call("torch.sum", x), 0)
    first, second = Function(["t"], ["torch.sin"], torch.sin), Function(["t"], ["torch.cos"], torch.cos)
    chain.call("torch.cond", truth, first, second, [x])


@family(4)
def _autocast(chain: Chain) -> None:
    """Products under autocast, and a cast back."""
    context: Any = {"torch.autocast": {"device_type": "$device", "dtype": "torch.bfloat16"}}
    with chain.block([context], torch.autocast("cpu", torch.bfloat16)):
        x = chain.real(2, 2)
        y = chain.input([x.shape[-1], chain.integer(1, 6)], x.data.dtype)
        result = chain.call(chain.one("torch.matmul", "torch.mm"), x, y)
        if chain.chance(0.6):
            result = chain.call(chain.one("F.relu", "torch.tanh", "torch.exp", "torch.softmax"), result)
    chain.call("Tensor.float", result)
