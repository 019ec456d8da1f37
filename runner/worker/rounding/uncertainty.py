"""How far roundings may have moved each element of a program's tensors, followed through its operators.

A mask of -1e9 that is added to some elements says nothing about the others, so that the amount stands beside each
element.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map

from runner.worker import thresholds
from runner.worker.operators.choices import Call
from runner.worker.operators.table import gives_whole_numbers, is_exact, is_view, rounds_nothing, row_of
from runner.worker.tensors import largest, tolerance_for, wide_dtype

_MOST = 1e38
_SWEEP = 512  # results after which those of tensors that are gone are forgotten

Layout = tuple[int, tuple[int, ...], tuple[int, ...]]


class Pair(NamedTuple):
    """A tensor in float64 with each rounding up, and with each down. Copies of one number are equal in both."""

    up: torch.Tensor
    down: torch.Tensor
    eps: float  # of the dtype that the numbers were rounded to: a cast to a coarser one rounds them again

    def stored(self, dtype: torch.dtype) -> Pair:
        """Return the tensors as one of another dtype holds them."""
        eps = torch.finfo(dtype).eps
        if eps <= self.eps:
            return self
        up, down = (side.to(dtype).to(side.dtype) for side in (self.up, self.down))
        return Pair(up, down, eps)


@dataclass
class _Memory:
    """What is known of one memory, by the layouts of the tensors that lie in it."""

    reference: StorageWeakRef  # keeps another storage from the address
    largest: float = 0.0  # amount of all, for other views
    amounts: dict[Layout, torch.Tensor] = field(default_factory=dict)
    pairs: dict[Layout, Pair] = field(default_factory=dict)


class Uncertainties:
    """Follows operators, and knows of each computed tensor how far a unit roundoff in each of them moves its elements.

    Exact tensors, such as inputs, are not computed. An amount is float64, absolute, and has the shape of its tensor.
    """

    def __init__(self) -> None:
        """Know nothing: all tensors are exact."""
        self._memories: dict[int, _Memory] = {}
        self._count = 0

    def of(self, *tensors: Any) -> torch.Tensor | None:
        """Return the larger amounts of one or more tensors that are broadcast; None where all are exact."""
        known = [amount for tensor in tensors if (amount := self._of(tensor)) is not None]
        return None if not known else known[0] if len(known) == 1 else torch.maximum(known[0], known[1])

    def of_compared(self, arguments: Mapping[str, Any]) -> torch.Tensor | None:
        """Return the amounts of an operator's first argument and what it compares that with, broadcast; None where both
        are exact.

        An amount is NaN where no rounding moves an element, such as a whole number that ``floor`` gave, and where the
        two are one number and its copy, as a maximum is of one of its arguments. A copy of one of two numbers that a
        rounding may tie is no such copy.
        """
        x, other = arguments.get("self"), arguments.get("other", arguments.get("threshold"))
        amount = self.of(x, other)
        if amount is None:
            known = any(self._of(leaf) is not None for leaf in tree_leaves(dict(arguments)))
            return torch.zeros((), dtype=torch.float64) if known else None  # another argument is computed
        pair, other_pair = self._pair_of(x), self._pair_of(other)
        if pair is not None and other_pair is not None:
            are_one = (pair.up == other_pair.up) & (pair.down == other_pair.down)
            amount = torch.where(are_one, torch.nan, amount)
        return torch.where(amount == 0, torch.nan, amount)

    def _pair_of(self, tensor: Any) -> Pair | None:
        memory = self._memory(tensor)
        return None if memory is None else memory.pairs.get(layout(tensor))

    def _of(self, tensor: Any) -> torch.Tensor | None:
        memory = self._memory(tensor)
        if memory is None:
            return None
        amount = memory.amounts.get(layout(tensor))
        return _full(tensor, memory.largest) if amount is None else amount

    def _memory(self, tensor: Any) -> _Memory | None:
        return self._memories.get(tensor.untyped_storage()._cdata) if is_plain(tensor) else None

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[Any], None]:
        """Look at a call before it is made; return what is to be given its result afterwards."""
        computed = [(leaf, amount) for leaf in tree_leaves((args, kwargs)) if (amount := self._of(leaf)) is not None]
        exact, whole = is_exact(func, args, kwargs), gives_whole_numbers(func, kwargs)
        view = exact and is_view(func)
        call = _Trial(func, args, kwargs)
        try:
            amounts = call.view(computed) if view else call.squares(computed) if call.linear else call.moves(computed)
            copies = call.copies([(leaf, self._pair_of(leaf)) for leaf, _ in computed]) if exact and computed else []
        except Exception:  # noqa: BLE001  kernels refuse float64, layouts and shapes in as many ways as there are
            amounts, copies = [], []
        most = max((float(amount.max()) for _, amount in computed), default=0.0)

        def record(result: Any) -> None:
            if not computed and (exact or rounds_nothing(func, args, kwargs, result)):
                return
            results = [leaf for leaf in tree_leaves(result) if is_plain(leaf)]
            fits = [amount.shape for amount in amounts] == [tensor.shape for tensor in results]
            for place, tensor in enumerate(results):
                amount = amounts[place] if fits else _full(tensor, most)
                if whole:
                    amount = torch.zeros_like(tensor, dtype=torch.float64, requires_grad=False)
                elif not exact:
                    is_local = call.pointwise or (fits and call.linear)
                    size = tensor.detach().abs().to(torch.float64) if is_local else call.size(tensor)
                    size = size.nan_to_num(nan=0.0, posinf=0.0)
                    amount = torch.maximum(amount, size * torch.finfo(tensor.dtype).eps)
                memory = self._store(tensor, amount, view and fits)
                known = copies[place].stored(tensor.dtype) if len(copies) == len(results) else None
                pair = known if exact else _moved(tensor, amount, self._count)
                if func._schema.is_mutable:
                    memory.pairs.clear()
                memory.pairs.pop(layout(tensor), None)
                if pair is not None and pair.up.shape == tensor.shape:
                    memory.pairs[layout(tensor)] = pair

        return record

    def _store(self, tensor: torch.Tensor, amount: torch.Tensor, view: bool) -> _Memory:
        storage, place = tensor.untyped_storage(), layout(tensor)
        memory = self._memories.setdefault(storage._cdata, _Memory(StorageWeakRef(storage)))
        if memory.amounts.get(place, amount) is not amount:
            memory.amounts[place].copy_(amount)  # views have their amounts in the same memory
        else:
            own = amount if view else torch.empty_like(tensor, dtype=torch.float64, requires_grad=False).copy_(amount)
            memory.amounts[place] = own
        memory.largest = max(memory.largest, float(amount.max()))
        self._count += 1
        if self._count % _SWEEP == 0:
            self._memories = {key: known for key, known in self._memories.items() if not known.reference.expired()}
        return memory


def fitting(amount: torch.Tensor | None, x: Any) -> torch.Tensor | None:
    """Return what another run knows of ``x``; a rounding of its largest element where that run had another shape
    there."""
    if amount is None or not is_plain(x) or not amount.dim() or amount.shape[-x.dim() :] == x.shape:
        return amount
    with contextlib.suppress(RuntimeError):  # shapes that are broadcast to no common one
        if torch.broadcast_shapes(amount.shape, x.shape) == amount.shape:
            return amount
    return _full(x, torch.finfo(x.dtype).eps * largest(x))


Computed = list[tuple[torch.Tensor, torch.Tensor]]
"""Arguments that are computed, each with its amounts."""


class _Trial:
    """An operator's call, to be tried in float64 with other arguments."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Try nothing yet."""
        self._func, self._args, self._kwargs = func, args, kwargs
        self.linear = row_of(func).sums
        self.pointwise = torch.Tag.pointwise in getattr(func, "tags", ())

    def size(self, result: torch.Tensor) -> torch.Tensor:
        """Return for each element of a result how large the numbers are that it is computed from.

        Where elements are mixed along dimensions, a number is as large as the sum of the magnitudes there, which bounds
        a sum in any order, and as its own result. Otherwise all are as large as the largest result.
        """
        most = _full(result, largest(result))
        given = Call.bind(self._func, self._args, self._kwargs).arguments if row_of(self._func).along else {}
        x, dim = next((leaf for leaf in given.values() if is_plain(leaf)), None), given.get("dim")
        if x is None or dim is None or not x.dim():
            return most
        sums = x.detach().abs().to(torch.float64).sum(dim, keepdim=True).nan_to_num(nan=torch.inf)
        if result.shape != x.shape and sums.numel() != result.numel():
            return most
        sums = sums.expand_as(result) if result.shape == x.shape else sums.reshape(result.shape)
        return torch.minimum(most, torch.maximum(sums, result.detach().abs().to(torch.float64)))

    def view(self, computed: Computed) -> list[torch.Tensor]:
        """Return the same view of the amounts, in the same memory."""
        ((leaf, amount),) = computed
        return self._run(lambda other: other, leaf, amount)

    def squares(self, computed: Computed) -> list[torch.Tensor]:
        """Return the roots of the sums of squares of the summands' roundings: their own, and those of each computed
        factor."""
        eps = max(torch.finfo(leaf.dtype).eps for leaf in tree_leaves((self._args, self._kwargs)) if is_plain(leaf))
        squares = [total * eps**2 for total in self._run(_square)]
        for leaf, amount in computed:
            square = amount**2
            most = square.max().clamp_min(torch.finfo(torch.float64).tiny)
            whole, rest = self._run(_square, leaf, square / most), self._run(_square, leaf, torch.zeros_like(square))
            squares = [torch.maximum(old, (a - b) * most) for old, a, b in zip(squares, whole, rest, strict=True)]
        return [_finite(square.clamp_min(0).sqrt()) for square in squares]

    def moves(self, computed: Computed) -> list[torch.Tensor]:
        """Return how far results move with each computed argument: up, down, and for operators that mix elements,
        both."""
        if not computed or self._func.namespace not in ("aten", "prims"):  # another operator may do more than compute
            return []
        if torch.Tag.nondeterministic_seeded in self._func.tags:
            return []
        own = self._run(_wide)
        amounts = [torch.zeros_like(tensor.abs(), dtype=torch.float64) for tensor in own]
        for leaf, amount in computed:
            for sign in [1.0, -1.0] if self.pointwise else [1.0, -1.0, _signs(leaf)]:
                moved = self._run(_wide, leaf, _wide(leaf) + thresholds.TRIAL_FACTOR.value * sign * amount)
                amounts = [
                    torch.maximum(old, (a - b).abs().nan_to_num(nan=0.0) / thresholds.TRIAL_FACTOR.value)
                    for old, a, b in zip(amounts, own, moved, strict=True)
                ]
        return [_finite(amount) for amount in amounts]

    def copies(self, computed: Sequence[tuple[torch.Tensor, Pair | None]]) -> list[Pair]:
        """Return the results for arguments with all roundings up, and down; none where those are not known."""
        pairs = [(id(leaf), pair) for leaf, pair in computed if pair is not None]
        if len(pairs) < len(computed):
            return []
        sides = {leaf: pair.up for leaf, pair in pairs}, {leaf: pair.down for leaf, pair in pairs}
        wide = {name: wide_dtype(value) if name == "dtype" and value else value for name, value in self._kwargs.items()}
        call = _Trial(self._func, self._args, wide)

        def moved(leaf: torch.Tensor, side: Mapping[int, torch.Tensor]) -> torch.Tensor:
            return side[id(leaf)].clone() if id(leaf) in side else _wide(leaf)

        up, down = (call._run(functools.partial(moved, side=side)) for side in sides)
        return [Pair(*both, min(pair.eps for _, pair in pairs)) for both in zip(up, down, strict=True)]

    def _run(
        self, change: Callable[[torch.Tensor], torch.Tensor], leaf: Any = None, instead: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """Return the results for arguments that are changed; one, ``leaf``, is another tensor ``instead``."""

        def changed(other: Any) -> Any:
            if not isinstance(other, torch.Tensor):
                return other
            return instead if other is leaf else change(other) if _is_number(other) else other.clone()

        result = self._func(*tree_map(changed, self._args), **tree_map(changed, dict(self._kwargs)))
        return [tensor for tensor in tree_leaves(result) if is_plain(tensor)]


def _wide(leaf: torch.Tensor) -> torch.Tensor:
    """Return a copy in float64 or complex128."""
    return leaf.detach().to(wide_dtype(leaf.dtype), copy=True)


def _moved(tensor: torch.Tensor, amount: torch.Tensor, seed: int) -> Pair:
    """Return a tensor with each element up, and down, by another number of its amounts."""
    noise = torch.rand(tensor.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).add_(1)
    eps = torch.finfo(tensor.dtype).eps
    most = tolerance_for(tensor.dtype).rtol / eps + 1  # units by which a legal run moves a number, its own one too
    step, own = min(thresholds.TRIAL_FACTOR.value, most) * amount * noise.to(tensor.device), _wide(tensor)
    return Pair(torch.where(own.isfinite(), own + step, own), torch.where(own.isfinite(), own - step, own), eps)


def _square(leaf: torch.Tensor) -> torch.Tensor:
    return leaf.detach().abs().to(torch.float64) ** 2


def _signs(leaf: torch.Tensor) -> torch.Tensor:
    return torch.randint(0, 2, leaf.shape, generator=torch.Generator().manual_seed(0)).mul_(2).sub_(1).to(leaf.device)


def _finite(amount: torch.Tensor) -> torch.Tensor:
    return amount.nan_to_num(nan=0.0, posinf=_MOST)


def _full(tensor: torch.Tensor, amount: float) -> torch.Tensor:
    return torch.full((), amount, dtype=torch.float64, device=tensor.device).expand(tensor.shape)


def layout(tensor: torch.Tensor) -> Layout:
    """Return which elements of its memory a tensor has, and in which order."""
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def is_plain(leaf: Any) -> bool:
    """Return whether a leaf is a tensor of floating or complex numbers in memory."""
    return (
        isinstance(leaf, torch.Tensor)
        and _is_number(leaf)
        and leaf.layout == torch.strided
        and leaf.device.type != "meta"
        and leaf.numel() > 0
    )


def _is_number(leaf: torch.Tensor) -> bool:
    """Return whether the elements are floating or complex."""
    return bool(leaf.is_floating_point() or leaf.is_complex())
