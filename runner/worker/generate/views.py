"""Families of views and shapes: views, writes through them, pads, rolls, repeats, cats."""

from __future__ import annotations

from typing import Any

from runner.worker.generate.chain import Chain, family
from runner.worker.generate.points import write_in_place
from runner.worker.generate.values import Index, RefusedStepError, Size, Value


def draw_view(chain: Chain, x: Value) -> Value:
    """Add one view of ``x``."""
    name = chain.word(
        "transpose permute narrow select unfold diagonal expand movedim unsqueeze squeeze t mT flatten slice "
        "slice integer none detach T swapaxes unflatten alias"
    )
    if x.ndim == 0:
        return chain.call("torch.unsqueeze", x, 0)  # type: ignore[no-any-return]
    dim, shape = chain.dim(x), x.shape
    size = shape[dim]
    result: Value
    match name:
        case "transpose" | "movedim" | "swapaxes":
            result = chain.call(f"torch.{name}", x, dim, chain.dim(x))
        case "permute":
            result = chain.call("torch.permute", x, chain.numbers.sample(range(x.ndim), x.ndim))
        case "narrow":
            start = chain.integer(0, max(0, size - 1))
            result = chain.call("torch.narrow", x, dim, start, chain.integer(1, max(1, size - start)))
        case "select":
            result = chain.call("torch.select", x, dim, chain.one(0, -1))
        case "unfold":
            window = chain.integer(1, max(1, min(4, size)))
            result = chain.call("Tensor.unfold", x, dim, window, chain.integer(1, 3))
        case "diagonal":
            result = chain.call("torch.diagonal", x, chain.integer(-1, 1), -2, -1)
        case "expand":
            result = chain.call("Tensor.expand", x, [chain.one(2, 3), *[-1] * x.ndim])
        case "unsqueeze":
            result = chain.call("torch.unsqueeze", x, chain.integer(-x.ndim - 1, x.ndim))
        case "squeeze":
            result = chain.call("torch.squeeze", x, *([dim] if chain.chance(0.5) else []))
        case "flatten":
            result = chain.call("torch.flatten", x, *([dim] if chain.chance(0.4) else []))
        case "slice":
            result = chain.call("operator.getitem", x, _slices(chain, x))
        case "integer":
            result = chain.call("operator.getitem", x, Index([chain.one(0, -1)]))
        case "none":
            result = chain.call("operator.getitem", x, Index([None, Ellipsis]))
        case "unflatten":
            parts = [part for part in (2, 3, 4) if size % part == 0] or [1]
            result = chain.call("torch.unflatten", x, dim, [chain.one(*parts), -1])
        case "detach":
            result = chain.call("torch.detach", x) if not chain.backward else chain.call("Tensor.view_as", x, x)
        case "alias":
            result = chain.call(chain.one("Tensor.contiguous", "aten.alias"), x)
        case _:
            result = chain.call(f"Tensor.{name}", x)
    return result


def _slices(chain: Chain, x: Value) -> Index:
    parts = [slice(None)] * chain.integer(0, x.ndim - 1)
    choices = (
        slice(1, None),
        slice(None, -1),
        slice(None, None, 2),
        slice(1, None, 2),
        slice(None, 2),
        slice(None, None, 3),
        slice(-2, None),
    )
    index = [*parts, chain.one(*choices)]
    if len(index) < x.ndim and chain.chance(0.3):
        index.append(chain.one(*choices, 0, -1))
    return Index([Ellipsis, chain.one(*choices)] if chain.chance(0.3) else index)


@family(18)
def _view(chain: Chain) -> None:
    draw_view(chain, chain.tensor(1))


@family(8)
def _reshape(chain: Chain) -> None:
    x = chain.tensor(1)
    sizes = chain.sizes(x)
    choice = chain.integer(0, 5)
    name = chain.one("torch.reshape", "Tensor.view", "Tensor.reshape")
    match choice:
        case 0:
            chain.call(name, x, [-1])
        case 1 if x.ndim > 1:
            chain.call(name, x, [*sizes[:-2], -1])
        case 2:
            parts = [part for part in (2, 3, 4, 5) if x.shape[-1] % part == 0] or [1]
            chain.call(name, x, [*sizes[:-1], -1, chain.one(*parts)])
        case 3:
            chain.call(name, x, [1, *sizes, 1])
        case 4:
            chain.call("Tensor.contiguous", x)
        case _:
            chain.call(name, x, [*reversed(sizes)])


@family(8)
def _split(chain: Chain) -> None:
    x = chain.tensor(1)
    dim = chain.dim(x)
    name = chain.word("torch.chunk torch.split torch.tensor_split torch.unbind torch.split_sizes")
    size = x.shape[dim]
    match name:
        case "torch.split_sizes":
            first = chain.integer(0, size)
            parts = chain.call("torch.split", x, [first, size - first], dim, out=2)
        case "torch.split":
            parts = chain.call(name, x, max(1, (size + 1) // 2), dim, out=2)
        case "torch.unbind":
            if size not in (1, 2, 3, 4):
                raise RefusedStepError("too many parts")
            parts = (chain.call(name, x, dim, out=size),) if size == 0 else chain.call(name, x, dim, out=max(size, 2))
        case _:
            parts = chain.call(name, x, 2, dim, out=2)
    if chain.chance(0.4) and isinstance(parts, tuple):
        chain.call(chain.one("torch.add", "torch.mul", "torch.maximum"), parts[0], parts[-1])


@family(5)
def _as_strided(chain: Chain) -> None:
    x = chain.tensor(1)
    count = x.data.numel()
    if count < 4 or not x.data.is_contiguous() or chain.dynamic:
        raise RefusedStepError("nothing to stride over")
    columns = chain.integer(1, 3)
    rows = chain.integer(1, max(1, min(5, count // columns - 1)))
    stride = chain.one([columns, 1], [1, rows], [1, 1] if chain.chance(0.2) else [columns, 1])
    result = chain.call("torch.as_strided", x, [rows, columns], stride, chain.integer(0, 1))
    if chain.chance(0.4):
        chain.call("torch.add", result, 1)


@family(12)
def _write_view(chain: Chain) -> None:
    """A write through a view of a value, and a read of the value."""
    x = chain.tensor(1)
    if (x.data.requires_grad and x.data.is_leaf) or chain.chance(0.4):
        x = (
            chain.call(chain.one("torch.clone", "operator.mul"), x, *[])
            if chain.chance(0.5)
            else chain.call("operator.add", x, 1)
        )
    view = draw_view(chain, x)
    if chain.chance(0.25) and view.ndim:
        view = draw_view(chain, view)
    write_in_place(chain, view)
    if chain.chance(0.6):
        chain.call(chain.one("operator.mul", "torch.add", "torch.sub"), x, 2)


@family(9)
def _setitem(chain: Chain) -> None:
    x = chain.tensor(1)
    if (x.data.requires_grad and x.data.is_leaf) or chain.chance(0.5):
        x = chain.call("torch.clone", x)
    number = chain.number() if x.floating else chain.integer(-3, 3)
    choice = chain.integer(0, 4)
    match choice:
        case 0:
            index = Index([chain.one(0, -1)])
        case 1:
            index = _slices(chain, x)
        case 2:
            index = Index([chain.index([chain.integer(1, 4)], x.shape[0])])
        case 3:
            index = Index([chain.mask_of(x)])
        case _:
            index = Index([Ellipsis, chain.index([2], x.shape[-1])])
    value: Any = number
    if choice in (0, 1) and chain.chance(0.5):
        part = chain.call("operator.getitem", x, index)
        value = chain.call("operator.mul", part, 2) if chain.chance(0.5) else chain.like(part)
    chain.do("operator.setitem", x, index, value)
    if chain.chance(0.5):
        chain.call(chain.one("operator.mul", "torch.add"), x, 2)


@family(6)
def _getitem(chain: Chain) -> None:
    x = chain.tensor(1)
    choice = chain.integer(0, 5)
    match choice:
        case 0:
            index = Index([chain.index([chain.integer(1, 5)], x.shape[0])])
        case 1:
            index = Index([chain.index([2, 3], x.shape[0]), None])
        case 2:
            index = Index([Ellipsis, chain.index([chain.integer(1, 4)], x.shape[-1])])
        case 3 if x.ndim > 1:
            index = Index([chain.index([3], x.shape[0]), slice(None), *([0] if x.ndim > 2 else [])])
        case 4 if x.ndim > 1:
            index = Index([chain.index([3], x.shape[0]), chain.index([2, 1], x.shape[1])])
        case _:
            index = Index([[0, -1, 0]])
    chain.call("operator.getitem", x, index)


@family(8)
def _pad(chain: Chain) -> None:
    x = chain.tensor(1, 4)
    mode = chain.word("constant constant reflect replicate circular constant_pad_nd")
    low = -1 if chain.chance(0.15) else 0
    if mode == "constant":
        dims = chain.integer(1, min(2, x.ndim))
        widths = [chain.integer(low, 3) for _ in range(2 * dims)]
        chain.call("F.pad", x, widths, **({"value": chain.one(0, 1, -1.5, 2)} if chain.chance(0.7) else {}))
    elif mode == "constant_pad_nd":
        chain.call("torch.constant_pad_nd", x, [chain.integer(low, 2), chain.integer(0, 2)], chain.one(0, 1))
    else:
        dims = 1 if x.ndim in (2, 3) and chain.chance(0.6) else 2
        chain.call("F.pad", x, [chain.integer(low, 2) for _ in range(2 * dims)], mode=mode)


@family(6)
def _roll(chain: Chain) -> None:
    x = chain.tensor(1)
    name = chain.word("roll flip rot90 fliplr flipud roll_all")
    match name:
        case "roll":
            chain.call("torch.roll", x, chain.integer(-3, 3), chain.dim(x))
        case "roll_all":
            chain.call("torch.roll", x, chain.integer(-3, 3))
        case "flip":
            dims = chain.dims(x)
            chain.call("torch.flip", x, dims if isinstance(dims, list) else [dims])
        case "rot90":
            chain.call("torch.rot90", x, chain.integer(-1, 3), [0, 1])
        case _:
            chain.call(f"torch.{name}", x)


@family(6)
def _repeat(chain: Chain) -> None:
    x = chain.tensor(1, 3)
    name = chain.word("Tensor.repeat torch.tile torch.repeat_interleave Tensor.expand_as torch.broadcast_to repeats")
    match name:
        case "Tensor.repeat":
            chain.call(name, x, [chain.integer(1, 2) for _ in range(x.ndim + chain.integer(0, 1))])
        case "torch.tile":
            chain.call(name, x, [chain.integer(1, 3) for _ in range(chain.integer(1, x.ndim))])
        case "torch.repeat_interleave":
            chain.call(name, x, chain.integer(1, 3), dim=chain.dim(x))
        case "repeats":
            repeats = chain.index([Size(x, 0).data], 3)
            chain.call("torch.repeat_interleave", x, repeats, dim=0)
        case "Tensor.expand_as":
            chain.call(name, chain.like(x), x)
        case _:
            chain.call(name, x, [2, *chain.sizes(x)])


@family(9)
def _cat(chain: Chain) -> None:
    x = chain.tensor(1)
    y = chain.like(x, same=chain.chance(0.9)) if chain.chance(0.85) else chain.tensor(x.ndim, x.ndim)
    name = chain.word(
        "torch.cat torch.cat torch.stack torch.hstack torch.vstack torch.dstack torch.column_stack torch.concat"
    )
    parts = [x, y] if chain.chance(0.7) else [y, x, x]
    if name in ("torch.cat", "torch.concat"):
        chain.call(name, parts, chain.dim(x))
    elif name == "torch.stack":
        chain.call(name, parts, chain.integer(-x.ndim - 1, x.ndim))
    else:
        chain.call(name, parts)


@family(5)
def _triangle(chain: Chain) -> None:
    x = chain.tensor(1, 3)
    name = chain.word("triu tril diag_embed diag trace tril_ fill_diagonal_ diagonal_scatter tril_indices")
    match name:
        case "triu" | "tril":
            chain.call(f"torch.{name}", x, chain.integer(-2, 2))
        case "diag_embed":
            chain.call("torch.diag_embed", x, *([1] if chain.chance(0.3) else []))
        case "tril_indices":
            result = chain.call("torch.tril_indices", chain.integer(2, 4), chain.integer(2, 4))
            chain.call("torch.add", result, chain.integer(1, 3))
        case "diagonal_scatter":
            part = chain.call("torch.diagonal", x)
            chain.call("torch.diagonal_scatter", x, chain.like(part, same=True))
        case "tril_" | "fill_diagonal_":
            copy = chain.call("torch.clone", x)
            chain.do(f"Tensor.{name}", copy, *([chain.integer(-1, 1)]))
        case _:
            chain.call(f"torch.{name}", x)


@family(5)
def _scatter_view(chain: Chain) -> None:
    x = chain.tensor(1)
    name = chain.word("select_scatter slice_scatter diff unfold_copy narrow_copy")
    dim = chain.dim(x)
    match name:
        case "select_scatter":
            part = chain.call("torch.select", x, dim, 0)
            chain.call("torch.select_scatter", x, chain.like(part, same=True), dim, chain.one(0, -1))
        case "slice_scatter":
            size = x.shape[dim]
            part = chain.call("torch.narrow", x, dim, 0, max(1, size // 2))
            chain.call("torch.slice_scatter", x, chain.like(part, same=True), dim, 0, max(1, size // 2))
        case "diff":
            chain.call("torch.diff", x, dim=dim)
        case "unfold_copy":
            chain.call("torch.unfold_copy", x, dim, 1, 1)
        case _:
            chain.call("torch.narrow_copy", x, dim, 0, 1)
