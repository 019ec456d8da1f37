"""Families of views and shapes: views, writes through them, pads, rolls, repeats, cats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.worker.generate.chain import Chain, Index, Value, family, require
from runner.worker.generate.points import write_in_place


def draw_view(chain: Chain, x: Value) -> Value:
    """Add one view of ``x``."""
    name = chain.word(
        "transpose permute narrow select unfold diagonal expand movedim unsqueeze squeeze t mT flatten slice "
        "slice integer none detach T swapaxes unflatten alias"
    )
    if x.ndim == 0:
        return chain.call("torch.unsqueeze", x, 0)  # type: ignore[no-any-return]
    dim = chain.dim(x)
    size = x.shape[dim]

    def narrow() -> Any:
        start = chain.integer(0, max(0, size - 1))
        return chain.call("torch.narrow", x, dim, start, chain.integer(1, max(1, size - start)))

    views: dict[str, Callable[[], Any]] = {
        **dict.fromkeys(
            ("transpose", "movedim", "swapaxes"), lambda: chain.call(f"torch.{name}", x, dim, chain.dim(x))
        ),
        "permute": lambda: chain.call("torch.permute", x, chain.numbers.sample(range(x.ndim), x.ndim)),
        "narrow": narrow,
        "select": lambda: chain.call("torch.select", x, dim, chain.one(0, -1)),
        "unfold": lambda: chain.call(
            "Tensor.unfold", x, dim, chain.integer(1, max(1, min(4, size))), chain.integer(1, 3)
        ),
        "diagonal": lambda: chain.call("torch.diagonal", x, chain.integer(-1, 1), -2, -1),
        "expand": lambda: chain.call("Tensor.expand", x, [chain.one(2, 3), *[-1] * x.ndim]),
        "unsqueeze": lambda: chain.call("torch.unsqueeze", x, chain.integer(-x.ndim - 1, x.ndim)),
        "squeeze": lambda: chain.call("torch.squeeze", x, *([dim] if chain.chance(0.5) else [])),
        "flatten": lambda: chain.call("torch.flatten", x, *([dim] if chain.chance(0.4) else [])),
        "slice": lambda: chain.call("operator.getitem", x, _slices(chain, x)),
        "integer": lambda: chain.call("operator.getitem", x, Index([chain.one(0, -1)])),
        "none": lambda: chain.call("operator.getitem", x, Index([None, Ellipsis])),
        "unflatten": lambda: chain.call("torch.unflatten", x, dim, [chain.divisor(size, 2, 3, 4), -1]),
        "detach": lambda: chain.call("Tensor.view_as", x, x) if chain.backward else chain.call("torch.detach", x),
        "alias": lambda: chain.call(chain.one("Tensor.contiguous", "aten.alias"), x),
    }
    return views.get(name, lambda: chain.call(f"Tensor.{name}", x))()  # type: ignore[no-any-return]


def _slices(chain: Chain, x: Value) -> Index:
    index: list[Any] = [slice(None)] * chain.integer(0, x.ndim - 1)
    bounds = ((1, None), (None, -1), (None, None, 2), (1, None, 2), (None, 2), (None, None, 3), (-2, None))
    choices = [slice(*bound) for bound in bounds]
    index.append(chain.one(*choices))
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
            sizes = [-1]
        case 1 if x.ndim > 1:
            sizes[-2:] = [-1]
        case 2:
            sizes[-1:] = [-1, chain.divisor(x.shape[-1], 2, 3, 4, 5)]
        case 3:
            sizes = [1, *sizes, 1]
        case _:
            sizes.reverse()
    chain.call(*(("Tensor.contiguous", x) if choice == 4 else (name, x, sizes)))


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
        case "torch.unbind":
            require(0 < size < 5, "too many parts, or none")
            parts = chain.call(name, x, dim, out=max(size, 2))
        case _:
            parts = chain.call(name, x, max(1, (size + 1) // 2) if name == "torch.split" else 2, dim, out=2)
    if chain.chance(0.4):
        chain.call(chain.one("torch.add", "torch.mul", "torch.maximum"), parts[0], parts[-1])


@family(5)
def _as_strided(chain: Chain) -> None:
    x = chain.tensor(1)
    count = x.data.numel()
    require(count > 3 and x.data.is_contiguous() and not chain.dynamic, "nothing to stride over")
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
        copy = chain.one("torch.clone", "operator.mul") if chain.chance(0.5) else "operator.add"
        x = chain.call(copy, x, *([1] if copy == "operator.add" else []))
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
    value: Any = chain.number() if x.floating else chain.integer(-3, 3)
    index: Index = chain.add_one(
        lambda: Index([chain.one(0, -1)]),
        lambda: _slices(chain, x),
        lambda: Index([chain.index([chain.integer(1, 4)], x.shape[0])]),
        lambda: Index([chain.mask_of(x)]),
        lambda: Index([Ellipsis, chain.index([2], x.shape[-1])]),
    )
    if not any(isinstance(part, Value) for part in index.parts) and chain.chance(0.5):
        part = chain.call("operator.getitem", x, index)
        value = chain.call("operator.mul", part, 2) if chain.chance(0.5) else chain.like(part)
    chain.do("operator.setitem", x, index, value)
    if chain.chance(0.5):
        chain.call(chain.one("operator.mul", "torch.add"), x, 2)


@family(6)
def _getitem(chain: Chain) -> None:
    x = chain.tensor(1)
    is_vector, numbers = x.ndim < 2, [[0, -1, 0]]
    parts = chain.add_one(
        lambda: [chain.index([chain.integer(1, 5)], x.shape[0])],
        lambda: [chain.index([2, 3], x.shape[0]), None],
        lambda: [Ellipsis, chain.index([chain.integer(1, 4)], x.shape[-1])],
        lambda: numbers if is_vector else [chain.index([3], x.shape[0]), slice(None), *([0] if x.ndim > 2 else [])],
        lambda: numbers if is_vector else [chain.index([3], x.shape[0]), chain.index([2, 1], x.shape[1])],
        lambda: numbers,
    )
    chain.call("operator.getitem", x, Index(parts))


@family(8)
def _pad(chain: Chain) -> None:
    x = chain.tensor(1, 4)
    mode = chain.word("constant constant reflect replicate circular constant_pad_nd")
    low = -1 if chain.chance(0.15) else 0
    if mode == "constant":
        widths = chain.integers(low, 3, 2 * chain.integer(1, min(2, x.ndim)))
        chain.call("F.pad", x, widths, **({"value": chain.one(0, 1, -1.5, 2)} if chain.chance(0.7) else {}))
    elif mode == "constant_pad_nd":
        chain.call("torch.constant_pad_nd", x, [chain.integer(low, 2), chain.integer(0, 2)], chain.one(0, 1))
    else:
        dims = 1 if x.ndim in (2, 3) and chain.chance(0.6) else 2
        chain.call("F.pad", x, chain.integers(low, 2, 2 * dims), mode=mode)


@family(6)
def _roll(chain: Chain) -> None:
    x = chain.tensor(1)

    def flip() -> None:
        dims = chain.dims(x)
        chain.call("torch.flip", x, dims if isinstance(dims, list) else [dims])

    chain.add_one(
        lambda: chain.call("torch.roll", x, chain.integer(-3, 3), chain.dim(x)),
        flip,
        lambda: chain.call("torch.rot90", x, chain.integer(-1, 3), [0, 1]),
        lambda: chain.call("torch.fliplr", x),
        lambda: chain.call("torch.flipud", x),
        lambda: chain.call("torch.roll", x, chain.integer(-3, 3)),
    )


@family(6)
def _repeat(chain: Chain) -> None:
    x = chain.tensor(1, 3)
    chain.add_one(
        lambda: chain.call("Tensor.repeat", x, chain.integers(1, 2, x.ndim + chain.integer(0, 1))),
        lambda: chain.call("torch.tile", x, chain.integers(1, 3, chain.integer(1, x.ndim))),
        lambda: chain.call("torch.repeat_interleave", x, chain.integer(1, 3), dim=chain.dim(x)),
        lambda: chain.call("Tensor.expand_as", chain.like(x), x),
        lambda: chain.call("torch.broadcast_to", x, [2, *chain.sizes(x)]),
        lambda: chain.call("torch.repeat_interleave", x, chain.index([x.shape[0]], 3), dim=0),
    )


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
    else:
        chain.call(name, parts, *([chain.integer(-x.ndim - 1, x.ndim)] if name == "torch.stack" else []))


@family(5)
def _triangle(chain: Chain) -> None:
    x = chain.tensor(1, 3)

    def indices() -> None:
        chain.call(
            "torch.add", chain.call("torch.tril_indices", chain.integer(2, 4), chain.integer(2, 4)), chain.integer(1, 3)
        )

    chain.add_one(
        lambda: chain.call("torch.triu", x, chain.integer(-2, 2)),
        lambda: chain.call("torch.tril", x, chain.integer(-2, 2)),
        lambda: chain.call("torch.diag_embed", x, *([1] if chain.chance(0.3) else [])),
        lambda: chain.call("torch.diag", x),
        lambda: chain.call("torch.trace", x),
        lambda: chain.do("Tensor.tril_", chain.call("torch.clone", x), chain.integer(-1, 1)),
        lambda: chain.do("Tensor.fill_diagonal_", chain.call("torch.clone", x), chain.integer(-1, 1)),
        lambda: chain.call("torch.diagonal_scatter", x, chain.like(chain.call("torch.diagonal", x), same=True)),
        indices,
    )


@family(5)
def _scatter_view(chain: Chain) -> None:
    x = chain.tensor(1)
    name = chain.word("select_scatter slice_scatter diff unfold_copy narrow_copy")
    dim = chain.dim(x)
    half = max(1, x.shape[dim] // 2)

    def part(view: str, *bounds: int) -> Value:
        return chain.like(chain.call(view, x, dim, *bounds), same=True)

    steps: dict[str, Callable[[], Any]] = {
        "select_scatter": lambda: chain.call(f"torch.{name}", x, part("torch.select", 0), dim, chain.one(0, -1)),
        "slice_scatter": lambda: chain.call(f"torch.{name}", x, part("torch.narrow", 0, half), dim, 0, half),
        "diff": lambda: chain.call("torch.diff", x, dim=dim),
    }
    steps.get(name, lambda: chain.call(f"torch.{name}", x, dim, int(name == "unfold_copy"), 1))()
