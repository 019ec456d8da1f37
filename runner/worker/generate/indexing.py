"""Families that reduce, sort, scan and index, and those whose sizes depend on values."""

from __future__ import annotations

import torch

from runner.worker.generate.chain import Chain, family
from runner.worker.generate.values import Index, RefusedStepError, Size, Value


@family(16)
def _reduction(chain: Chain) -> None:
    x = chain.tensor(1)
    name = chain.word(
        "sum mean var std amax amin prod logsumexp norm nansum nanmean all any count_nonzero vector_norm "
        "var_mean aminmax sum_all max_all median_all std_mean"
    )
    keep = {"keepdim": True} if chain.chance(0.4) else {}
    match name:
        case "sum" | "mean" | "amax" | "amin" | "logsumexp" | "nansum" | "nanmean" | "all" | "any":
            dims = chain.dims(x)
            chain.call(f"torch.{name}", x, dims, **keep)
        case "var" | "std":
            chain.call(f"torch.{name}", x, dim=chain.dim(x), correction=chain.one(0, 1), **keep)
        case "var_mean" | "std_mean":
            chain.call(f"torch.{name}", x, dim=chain.dim(x), out=2, **keep)
        case "prod":
            chain.call("torch.prod", x, chain.dim(x), **keep)
        case "norm":
            chain.call("torch.norm", x, p=chain.one(1, 2, 3), dim=chain.dims(x), **keep)
        case "vector_norm":
            chain.call("torch.linalg.vector_norm", x, chain.one(1, 2, 0, float("inf")), dim=chain.dim(x), **keep)
        case "count_nonzero":
            chain.call("torch.count_nonzero", x, chain.dim(x))
        case "aminmax":
            chain.call("torch.aminmax", x, dim=chain.dim(x), out=2, **keep)
        case _:
            chain.call(f"torch.{name.removesuffix('_all')}", x)


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
    if name in ("cummax", "cummin"):
        chain.call(f"torch.{name}", x, dim, out=2)
    elif name in ("diff", "trapezoid", "cumulative_trapezoid"):
        chain.call(f"torch.{name}", x, dim=dim)
    else:
        chain.call(f"torch.{name}", x, dim)


@family(8)
def _sort(chain: Chain) -> None:
    x = chain.tensor(1)
    dim = chain.dim(x)
    name = chain.word("sort argsort topk kthvalue median msort stable nanmedian mode stable_argsort")
    match name:
        case "sort":
            chain.call("torch.sort", x, dim, chain.chance(0.5), out=2)
        case "stable":
            chain.call("torch.sort", x, dim=dim, descending=chain.chance(0.5), stable=True, out=2)
        case "argsort":
            chain.call("torch.argsort", x, dim, chain.chance(0.5))
        case "stable_argsort":
            chain.call("torch.argsort", x, dim=dim, descending=chain.chance(0.5), stable=True)
        case "topk" | "kthvalue":
            chain.call(f"torch.{name}", x, chain.integer(1, max(1, min(3, x.shape[dim]))), dim, out=2)
        case "msort":
            chain.call("torch.msort", x)
        case _:
            chain.call(f"torch.{name}", x, dim, chain.chance(0.4), out=2)


def _index_like(chain: Chain, x: Value, dim: int) -> Value:
    """Indices along ``dim``, of the shape that gather and scatter take."""
    shape = [max(1, size if chain.chance(0.7) else size - 1) for size in x.shape]
    shape[dim] = chain.integer(1, 5) if chain.chance(0.5) and not chain.dynamic else shape[dim]
    return chain.index(shape, x.shape[dim])


@family(9)
def _gather(chain: Chain) -> None:
    x = chain.tensor(1)
    dim = chain.dim(x)
    name = chain.word("gather index_select take_along_dim take index_select argsorted")
    match name:
        case "gather":
            chain.call("torch.gather", x, dim, _index_like(chain, x, dim))
        case "index_select":
            chain.call(
                "torch.index_select",
                x,
                dim,
                chain.index([chain.integer(1, 6)], x.shape[dim], chain.one(torch.int64, torch.int64, torch.int32)),
            )
        case "take_along_dim":
            chain.call("torch.take_along_dim", x, _index_like(chain, x, dim), dim)
        case "take":
            chain.call("torch.take", x, chain.index([chain.integer(1, 5), 2], x.data.numel()))
        case _:
            order = chain.call("torch.argsort", x, dim=dim, stable=True)
            chain.call("torch.gather", x, dim, order)


@family(9)
def _scatter(chain: Chain) -> None:
    x = chain.tensor(1)
    dim = chain.dim(x)
    index = _index_like(chain, x, dim)
    in_place = chain.chance(0.3)
    name = chain.word("scatter scatter_add scatter_reduce scatter_value scatter scatter_add")
    if in_place:
        x = chain.call("torch.clone", x)
    make = chain.do if in_place else chain.call
    end = "_" if in_place else ""
    space = "Tensor" if in_place else "torch"
    source = chain.input(index.shape, x.data.dtype)
    if name == "scatter_value":
        make(f"{space}.scatter{end}", x, dim, index, chain.integer(-2, 3))
    elif name == "scatter_reduce":
        make(f"{space}.scatter_reduce{end}", x, dim, index, source, reduce=chain.word(
        "sum amax amin prod mean"
    ),
             include_self=chain.chance(0.6))  # fmt: skip
    else:
        make(f"{space}.{name}{end}", x, dim, index, source)


@family(9)
def _index_write(chain: Chain) -> None:
    x = chain.tensor(1)
    dim = chain.dim(x)
    in_place = chain.chance(0.4)
    name = chain.word("index_add index_copy index_fill index_reduce index_put index_put put")
    if in_place:
        x = chain.call("torch.clone", x)
    make = chain.do if in_place else chain.call
    space, end = ("Tensor", "_") if in_place else ("torch", "")
    count = chain.integer(1, 4)
    if name == "index_put":
        rows = chain.index([count], x.shape[0])
        columns = [chain.index([count], x.shape[1])] if x.ndim > 1 and chain.chance(0.4) else []
        shape = [count, *x.shape[1 + len(columns) :]]
        value = chain.input(shape if chain.chance(0.7) else [1], x.data.dtype)
        make(f"{space}.index_put{end}", x, [rows, *columns], value, accumulate=chain.chance(0.7))
        return
    if name == "put":
        make(
            f"Tensor.put{end}",
            x,
            chain.index([count], x.data.numel()),
            chain.input([count], x.data.dtype),
            accumulate=True,
        )
        return
    index = chain.index([count], x.shape[dim])
    shape = list(x.shape)
    shape[dim] = count
    match name:
        case "index_fill":
            make(f"{space}.index_fill{end}", x, dim, index, chain.integer(-2, 3))
        case "index_reduce":
            source = chain.input(shape, x.data.dtype)
            make(
                f"{space}.index_reduce{end}",
                x,
                dim,
                index,
                source,
                chain.one("amax", "amin", "prod", "mean"),
                include_self=chain.chance(0.6),
            )
        case "index_add":
            options = {"alpha": chain.one(2, -1)} if chain.chance(0.4) else {}
            make(f"{space}.index_add{end}", x, dim, index, chain.input(shape, x.data.dtype), **options)
        case _:
            make(f"{space}.index_copy{end}", x, dim, index, chain.input(shape, x.data.dtype))


@family(6)
def _mask(chain: Chain) -> None:
    x = chain.tensor(1)
    mask = chain.mask_of(x) if chain.chance(0.6) else chain.mask(x)
    name = chain.word("masked_fill masked_scatter masked_fill_ masked_scatter_ masked_fill")
    if name.endswith("_"):
        x = chain.call("torch.clone", x)
        argument = chain.integer(-2, 2) if name == "masked_fill_" else chain.input(x.shape, x.data.dtype)
        chain.do(f"Tensor.{name}", x, mask, argument)
    elif name == "masked_fill":
        chain.call("torch.masked_fill", x, mask, chain.integer(-2, 2))
    else:
        chain.call("torch.masked_scatter", x, mask, chain.input(x.shape, x.data.dtype))


@family(5)
def _embedding(chain: Chain) -> None:
    weight = chain.real(2, 2)
    index = chain.index([chain.integer(1, 4), chain.integer(1, 3)][: chain.integer(1, 2)], weight.shape[0])
    name = chain.one("F.embedding", "F.embedding", "F.embedding_bag", "F.one_hot")
    if name == "F.one_hot":
        chain.call(name, index, weight.shape[0])
    elif name == "F.embedding_bag":
        chain.call(
            name,
            index,
            weight,
            *([chain.index([1], 1)] if index.ndim == 1 else []),
            mode=chain.one("sum", "mean", "max"),
        )
    else:
        chain.call(name, index, weight, **({"padding_idx": 0} if chain.chance(0.4) else {}))


@family(6)
def _buckets(chain: Chain) -> None:
    name = chain.word("bucketize searchsorted histc bincount quantile isin nanquantile histogram")
    if name == "bincount":
        x = chain.index([chain.integer(2, 20)], 7)
        chain.call("torch.bincount", x, minlength=7)
        return
    x = chain.real(1, 3)
    match name:
        case "bucketize" | "searchsorted":
            edges = chain.call("torch.linspace", -2, 2, chain.integer(2, 9), dtype=x.data.dtype)
            first, second = (x, edges) if name == "bucketize" else (edges, x)
            chain.call(f"torch.{name}", first, second, right=chain.chance(0.5))
        case "histc":
            chain.call("torch.histc", x, chain.integer(3, 9), -3, 3)
        case "isin":
            whole = chain.whole(1)
            chain.call("torch.isin", whole, chain.like(whole))
        case "histogram":
            raise RefusedStepError("breaks the graph")
        case _:
            chain.call(f"torch.{name}", x, chain.one(0.25, 0.5, 0.9), chain.dim(x), keepdim=chain.chance(0.5),
                       interpolation=chain.one("linear", "lower", "nearest"))  # fmt: skip


@family(5)
def _unknown_size(chain: Chain) -> None:
    """Sizes that depend on values."""
    x = chain.tensor(1, 3)
    name = chain.word("nonzero masked_select index unique unique_consecutive argwhere")
    match name:
        case "nonzero":
            chain.call("torch.nonzero", chain.mask(x) if chain.chance(0.5) else x)
        case "argwhere":
            chain.call("torch.argwhere", x)
        case "masked_select":
            picked = chain.call("torch.masked_select", x, chain.mask_of(x))
            chain.call("torch.sum", picked) if chain.chance(0.5) else chain.call("torch.mul", picked, 2)
        case "index":
            chain.call("operator.getitem", x, Index([chain.mask_of(x)]))
        case _:
            chain.call(f"torch.{name}", x if chain.chance(0.5) else chain.whole(1, 2))


@family(4)
def _number(chain: Chain) -> None:
    """Python numbers: of tensors, and of shapes."""
    x = chain.tensor(1)
    choice = chain.integer(0, 3)
    match choice:
        case 0:
            total = chain.call("torch.sum", x)
            number = chain.call("Tensor.item", total)
            chain.call("torch.mul", x, number)
            chain.used.add(number.name)
        case 1:
            chain.call("operator.add", x, chain.sizes(x)[0])
        case 2:
            chain.call(chain.one("operator.mul", "operator.sub"), x, _size_of(x, chain))
        case _:
            chain.call("torch.arange", _size_of(x, chain))


def _size_of(x: Value, chain: Chain) -> object:

    return Size(x, chain.integer(0, x.ndim - 1), chain.integer(-1, 2))
