"""Families that reduce, sort, scan and index, and those whose sizes depend on values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from runner.worker.generate.chain import Chain, Index, Size, Value, family, require


@family(16)
def _reduction(chain: Chain) -> None:
    x = chain.tensor(1)
    name = chain.word(
        "sum mean var std amax amin prod logsumexp norm nansum nanmean all any count_nonzero vector_norm "
        "var_mean aminmax sum_all max_all median_all std_mean"
    )
    keep = {"keepdim": True} if chain.chance(0.4) else {}
    over_dims = ["sum", "mean", "amax", "amin", "logsumexp", "nansum", "nanmean", "all", "any"]
    reductions: dict[str, Callable[[], Any]] = {
        **dict.fromkeys(over_dims, lambda: chain.call(f"torch.{name}", x, chain.dims(x), **keep)),
        **dict.fromkeys(
            ("var", "std"),
            lambda: chain.call(f"torch.{name}", x, dim=chain.dim(x), correction=chain.one(0, 1), **keep),
        ),
        **dict.fromkeys(
            ("var_mean", "std_mean", "aminmax"),
            lambda: chain.call(f"torch.{name}", x, dim=chain.dim(x), out=2, **keep),
        ),
        "prod": lambda: chain.call("torch.prod", x, chain.dim(x), **keep),
        "norm": lambda: chain.call("torch.norm", x, p=chain.one(1, 2, 3), dim=chain.dims(x), **keep),
        "vector_norm": lambda: chain.call(
            "torch.linalg.vector_norm", x, chain.one(1, 2, 0, float("inf")), dim=chain.dim(x), **keep
        ),
        "count_nonzero": lambda: chain.call("torch.count_nonzero", x, chain.dim(x)),
    }
    reductions.get(name, lambda: chain.call(f"torch.{name.removesuffix('_all')}", x))()


@family(6)
def _extreme(chain: Chain) -> None:
    x = chain.tensor(1)
    name = chain.one("torch.argmax", "torch.argmin", "torch.max", "torch.min")
    keep = {"keepdim": True} if chain.chance(0.4) else {}
    if name in ("torch.max", "torch.min"):
        chain.call(name, x, chain.dim(x), out=2, **keep)
    else:
        chain.call(name, x, *([chain.dim(x)] if chain.chance(0.8) else []), **(keep if chain.chance(0.2) else {}))


@family(8)
def _cumulative(chain: Chain) -> None:
    x = chain.tensor(1)
    name = chain.word("cumsum cumprod cummax cummin logcumsumexp cumsum diff trapezoid cumulative_trapezoid")
    dim = chain.dim(x)
    if name in ("diff", "trapezoid", "cumulative_trapezoid"):
        chain.call(f"torch.{name}", x, dim=dim)
    else:
        chain.call(f"torch.{name}", x, dim, out=2 if name in ("cummax", "cummin") else 1)


@family(8)
def _sort(chain: Chain) -> None:
    x = chain.tensor(1)
    dim = chain.dim(x)
    most = max(1, min(3, x.shape[dim]))
    chain.add_one(
        lambda: chain.call("torch.sort", x, dim, chain.chance(0.5), out=2),
        lambda: chain.call("torch.argsort", x, dim, chain.chance(0.5)),
        lambda: chain.call("torch.topk", x, chain.integer(1, most), dim, out=2),
        lambda: chain.call("torch.kthvalue", x, chain.integer(1, most), dim, out=2),
        lambda: chain.call("torch.median", x, dim, chain.chance(0.4), out=2),
        lambda: chain.call("torch.msort", x),
        lambda: chain.call("torch.sort", x, dim=dim, descending=chain.chance(0.5), stable=True, out=2),
        lambda: chain.call("torch.nanmedian", x, dim, chain.chance(0.4), out=2),
        lambda: chain.call("torch.mode", x, dim, chain.chance(0.4), out=2),
        lambda: chain.call("torch.argsort", x, dim=dim, descending=chain.chance(0.5), stable=True),
    )


def _index_like(chain: Chain, x: Value, dim: int) -> Value:
    """Indices along ``dim``, of the shape that gather and scatter take."""
    shape = [max(1, size if chain.chance(0.7) else size - 1) for size in x.shape]
    shape[dim] = chain.integer(1, 5) if chain.chance(0.5) and not chain.dynamic else shape[dim]
    return chain.index(shape, x.shape[dim])


@family(9)
def _gather(chain: Chain) -> None:
    x = chain.tensor(1)
    dim = chain.dim(x)

    def index_select() -> None:
        kind = [chain.integer(1, 6)], x.shape[dim], chain.one(torch.int64, torch.int64, torch.int32)
        chain.call("torch.index_select", x, dim, chain.index(*kind))

    chain.add_one(
        lambda: chain.call("torch.gather", x, dim, _index_like(chain, x, dim)),
        index_select,
        lambda: chain.call("torch.take_along_dim", x, _index_like(chain, x, dim), dim),
        lambda: chain.call("torch.take", x, chain.index([chain.integer(1, 5), 2], x.data.numel())),
        index_select,
        lambda: chain.call("torch.gather", x, dim, chain.call("torch.argsort", x, dim=dim, stable=True)),
    )


@family(9)
def _scatter(chain: Chain) -> None:
    x = chain.tensor(1)
    dim = chain.dim(x)
    index = _index_like(chain, x, dim)
    in_place = chain.chance(0.3)
    name = chain.word("scatter scatter_add scatter_reduce scatter_value scatter scatter_add")
    write = _writer(chain, name.removesuffix("_value"), x, in_place)
    source = chain.input(index.shape, x.data.dtype)
    if name == "scatter_reduce":
        write(dim, index, source, reduce=chain.word("sum amax amin prod mean"), include_self=chain.chance(0.6))
    else:
        write(dim, index, chain.integer(-2, 3) if name == "scatter_value" else source)


def _writer(chain: Chain, name: str, x: Value, in_place: bool) -> Callable[..., object]:
    """Return what adds a step of an operator that writes into ``x``, or a copy of it, given the other arguments."""
    if in_place:
        return partial(chain.do, f"Tensor.{name}_", chain.call("torch.clone", x))
    return partial(chain.call, f"{'Tensor' if name == 'put' else 'torch'}.{name}", x)


@family(9)
def _index_write(chain: Chain) -> None:
    x = chain.tensor(1)
    dim = chain.dim(x)
    in_place = chain.chance(0.4)
    name = chain.word("index_add index_copy index_fill index_reduce index_put index_put put")
    write = _writer(chain, name, x, in_place)
    count, kind = chain.integer(1, 4), x.data.dtype
    if name == "index_put":
        places = [chain.index([count], x.shape[0])]
        places += [chain.index([count], x.shape[1])] if x.ndim > 1 and chain.chance(0.4) else []
        value = chain.input([count, *x.shape[len(places) :]] if chain.chance(0.7) else [1], kind)
        write(places, value, accumulate=chain.chance(0.7))
        return
    if name == "put":
        write(chain.index([count], x.data.numel()), chain.input([count], kind), accumulate=True)
        return
    index = chain.index([count], x.shape[dim])
    shape = list(x.shape)
    shape[dim] = count
    match name:
        case "index_fill":
            write(dim, index, chain.integer(-2, 3))
        case "index_reduce":
            source = chain.input(shape, kind)
            write(dim, index, source, chain.one("amax", "amin", "prod", "mean"), include_self=chain.chance(0.6))
        case _:
            options = {"alpha": chain.one(2, -1)} if name == "index_add" and chain.chance(0.4) else {}
            write(dim, index, chain.input(shape, kind), **options)


@family(6)
def _mask(chain: Chain) -> None:
    x = chain.tensor(1)
    mask = chain.mask_of(x) if chain.chance(0.6) else chain.mask(x)
    name = chain.word("masked_fill masked_scatter masked_fill_ masked_scatter_ masked_fill")
    if name.endswith("_"):
        x = chain.call("torch.clone", x)
    operand = chain.input(x.shape, x.data.dtype) if "scatter" in name else chain.integer(-2, 2)
    if name.endswith("_"):
        chain.do(f"Tensor.{name}", x, mask, operand)
    else:
        chain.call(f"torch.{name}", x, mask, operand)


@family(5)
def _embedding(chain: Chain) -> None:
    weight = chain.real(2, 2)
    index = chain.index([chain.integer(1, 4), chain.integer(1, 3)][: chain.integer(1, 2)], weight.shape[0])
    match chain.one("F.embedding", "F.embedding", "F.embedding_bag", "F.one_hot"):
        case "F.one_hot":
            chain.call("F.one_hot", index, weight.shape[0])
        case "F.embedding_bag":
            offsets = [chain.index([1], 1)] if index.ndim == 1 else []
            chain.call("F.embedding_bag", index, weight, *offsets, mode=chain.one("sum", "mean", "max"))
        case name:
            chain.call(name, index, weight, **({"padding_idx": 0} if chain.chance(0.4) else {}))


@family(6)
def _buckets(chain: Chain) -> None:
    name = chain.word("bucketize searchsorted histc bincount quantile isin nanquantile histogram")
    if name == "bincount":
        chain.call("torch.bincount", chain.index([chain.integer(2, 20)], 7), minlength=7)
        return
    x = chain.real(1, 3)
    require(name != "histogram", "breaks the graph")
    match name:
        case "bucketize" | "searchsorted":
            edges = chain.call("torch.linspace", -2, 2, chain.integer(2, 9), dtype=x.data.dtype)
            operands = (x, edges) if name == "bucketize" else (edges, x)
            chain.call(f"torch.{name}", *operands, right=chain.chance(0.5))
        case "histc":
            chain.call("torch.histc", x, chain.integer(3, 9), -3, 3)
        case "isin":
            whole = chain.whole(1)
            chain.call("torch.isin", whole, chain.like(whole))
        case _:
            chain.call(f"torch.{name}", x, chain.one(0.25, 0.5, 0.9), chain.dim(x), keepdim=chain.chance(0.5),
                       interpolation=chain.one("linear", "lower", "nearest"))  # fmt: skip


@family(5)
def _unknown_size(chain: Chain) -> None:
    """Sizes that depend on values."""
    x = chain.tensor(1, 3)

    def select() -> None:
        picked = chain.call("torch.masked_select", x, chain.mask_of(x))
        chain.call(*(("torch.sum", picked) if chain.chance(0.5) else ("torch.mul", picked, 2)))

    chain.add_one(
        lambda: chain.call("torch.nonzero", chain.mask(x) if chain.chance(0.5) else x),
        select,
        lambda: chain.call("operator.getitem", x, Index([chain.mask_of(x)])),
        lambda: chain.call("torch.unique", x if chain.chance(0.5) else chain.whole(1, 2)),
        lambda: chain.call("torch.unique_consecutive", x if chain.chance(0.5) else chain.whole(1, 2)),
        lambda: chain.call("torch.argwhere", x),
    )


@family(4)
def _number(chain: Chain) -> None:
    """Python numbers: of tensors, and of shapes."""
    x = chain.tensor(1)

    def size() -> Size:
        return Size(x, chain.integer(0, x.ndim - 1), chain.integer(-1, 2))

    chain.add_one(
        lambda: chain.call("torch.mul", x, chain.call("Tensor.item", chain.call("torch.sum", x))),
        lambda: chain.call("operator.add", x, chain.sizes(x)[0]),
        lambda: chain.call(chain.one("operator.mul", "operator.sub"), x, size()),
        lambda: chain.call("torch.arange", size()),
    )
