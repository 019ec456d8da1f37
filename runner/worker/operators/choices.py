"""Other legal results of operators that torch leaves a choice: one function for each kind of choice.

Each is given a call and a draw, and returns a result and whether it differs from torch's own.
Some operators make a step where their argument crosses a value: comparisons, sorts, rounding to whole numbers, coins.
Of a computed argument it is not known on which side it lies: ``compare_rounded`` lets them see it moved by a rounding.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from runner.worker import thresholds
from runner.worker.tensors import tolerance_for

FIRST_MOVED = 3
"""The first draw in which computed elements are moved. ``Draw.blur`` says where to."""

GARBAGE = (0.0, 3.0, 1.0, float("nan"), 2.0, -1.5, 7.0)
"""What memory holds that nobody has written, a number a draw: small ones, since they may be used as indices."""

aten = torch.ops.aten


@dataclass(frozen=True)
class Call:
    """One call of an operator, its arguments by the names of its schema."""

    func: Any
    arguments: Mapping[str, Any]
    uncertainty: torch.Tensor | None = None
    """How far a unit roundoff moves each element that it compares, NaN for one that is compared with its copy; None
    where its arguments are exact."""

    @staticmethod
    def bind(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """Return the call of an overload, with the schema's defaults."""
        defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
        return Call(func, {**defaults, **dict(zip(defaults, args, strict=False)), **kwargs})

    def run(self, /, **changes: Any) -> Any:
        """Call the operator, with some of its arguments replaced."""
        return self.func(**{**self.arguments, **changes})


@dataclass
class Draw:
    """How free choices are made: 0 as torch makes them, 1 the first of equals, 2 the last, 3 and more at random.

    Draw 1 with a ``turn`` has the positions turned by it: over all turns each of some equals is the first.
    """

    number: int
    turn: int = 0
    largest: int = field(default=0, repr=False)  # number of positions that an order was asked for
    _made: int = field(default=0, repr=False)

    def order(self, size: int, device: torch.device) -> torch.Tensor:
        """Return a permutation of ``size`` positions."""
        self.largest = max(self.largest, size)
        if self.number == 1:
            return torch.arange(size, device=device).roll(self.turn)
        if self.number == 2:
            return torch.arange(size - 1, -1, -1, device=device)
        return torch.randperm(size, generator=self._generator()).to(device)

    def signs(self, like: torch.Tensor) -> torch.Tensor:
        """Return 1 or -1 for each element of ``like``, in its dtype; at least one is -1."""
        signs = torch.randint(0, 2, like.shape, generator=self._generator()).mul_(2).sub_(1)
        signs[..., :1] = 1 if self.number % 2 else -1
        return signs.to(device=like.device, dtype=like.dtype)

    def garbage(self, dtype: torch.dtype) -> Any:
        """Return a number that fits a dtype."""
        value = GARBAGE[self.number % len(GARBAGE)]
        if dtype.is_floating_point or dtype.is_complex:
            return value
        return bool(self.number % 2) if dtype == torch.bool else 5 if value != value else abs(int(value))

    def blur(self, x: torch.Tensor, other: Any = 0, uncertainty: torch.Tensor | float = 0.0) -> torch.Tensor:
        """Return floating elements moved by up to the tolerance of the dtype and their ``uncertainty``.

        Draw 3 moves all of them up by this much, and draw 4 down, so that each crosses any number that it may lie on
        either side of. Draw 5 makes those equal to ``other`` that may be equal to it: no random number would hit it.
        Later draws move each at random, so that they change places. The absolute part of the tolerance counts too: a
        sum of large numbers that is nearly zero has either sign.
        """
        amount = tolerance_for(x.dtype).allowed(x.abs()) + torch.as_tensor(uncertainty).to(x.device, x.dtype)
        return self.move(x, other, amount)

    def move(self, x: torch.Tensor, other: Any, amount: torch.Tensor) -> torch.Tensor:
        """Return floating elements moved by up to ``amount``, as ``blur`` says. One with NaN for an amount stays."""
        if self.number == 5:
            return torch.where((x - other).abs() <= amount, torch.as_tensor(other, dtype=x.dtype, device=x.device), x)
        if self.number in (FIRST_MOVED, FIRST_MOVED + 1):
            noise = torch.full(x.shape, 1.0 if self.number == FIRST_MOVED else -1.0)
        else:
            noise = torch.rand(x.shape, generator=self._generator()).mul_(2).sub_(1)
        noise = noise.to(device=x.device, dtype=x.dtype)
        return torch.where(x.isfinite() & ~amount.isnan(), x + amount * noise, x)

    def _generator(self) -> torch.Generator:
        self._made += 1
        return torch.Generator().manual_seed(1000 * self.number + self._made)


Choose = Callable[[Call, Draw], tuple[Any, bool]]
"""Gives another legal result of a call, and whether it differs from torch's own."""


def dimension(call: Call) -> int:
    """Return the dimension that an operator works along, not negative."""
    return int((call.arguments.get("dim") or 0) % max(call.arguments["self"].dim(), 1))


def into(own: tuple[torch.Tensor, ...], chosen: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Return other elements in torch's own results: strides are not open."""
    return tuple(result.copy_(elements) for result, elements in zip(own, chosen, strict=True))


def unequal(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two results have other shapes or other elements."""
    return first.shape != second.shape or not torch.equal(first, second)


def take_own(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Make no other choice: equal elements leave no choice."""
    return call.run(), False


def sort_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Sort what stands in another order, stably."""
    x, dim = call.arguments["self"], dimension(call)
    own = call.run()
    if call.arguments.get("stable") or x.dim() == 0:
        return own, False
    order = draw.order(x.size(dim), x.device)
    descending = call.arguments["descending"]
    values, indices = aten.sort.stable(x.index_select(dim, order), stable=True, dim=dim, descending=descending)
    indices = order[indices]
    if isinstance(own, torch.Tensor):  # argsort
        free = unequal(indices, own)
        return own.copy_(indices), free
    free = unequal(indices, own[1])
    return into(own, (values, indices)), free


def index_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Look for values and their indices in another order of the elements."""
    x, own = call.arguments["self"], call.run()
    if x.dim() == 0 or x.numel() == 0:
        return own, False
    dim = dimension(call)
    order = draw.order(x.size(dim), x.device)
    values, indices = call.run(self=x.index_select(dim, order))
    indices = order[indices]
    if call.arguments.get("sorted") is False:
        turn = draw.order(values.size(dim), x.device)
        values, indices = values.index_select(dim, turn), indices.index_select(dim, turn)
    free = unequal(indices, own[1])
    return into(own, (values, indices)), free


def accumulate_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Name another of the equal extremes up to each element."""
    x, dim = call.arguments["self"], dimension(call)
    values, indices = call.run()
    if x.dim() == 0 or x.numel() * x.size(dim) > thresholds.MOST_PAIRS.value:
        return (values, indices), False
    rows, extremes = x.movedim(dim, -1).unsqueeze(-2), values.movedim(dim, -1).unsqueeze(-1)
    equal = ((rows == extremes) | (rows.isnan() & extremes.isnan())).tril()
    other = torch.where(equal, draw.order(x.size(dim), x.device) + 1, 0).argmax(-1).movedim(-1, dim)
    return (values, other), unequal(other, indices)


def list_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """List unique elements in another order."""
    values, inverse, counts = call.run()
    if call.arguments["sorted"]:
        return (values, inverse, counts), False
    dim = call.arguments.get("dim", 0)
    order = draw.order(values.size(dim), values.device)
    chosen = values.index_select(dim, order)
    places = order.argsort()[inverse] if inverse.numel() else inverse
    return (chosen, places, counts[order] if counts.numel() else counts), unequal(chosen, values)


def targets(call: Call) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return where an operator writes, as positions in its flat result, and what: both [writes].

    None means that the operator adds up, or that this function does not know its arguments.
    """
    given = call.arguments
    x = given["self"]
    if given.get("accumulate") or x.dim() == 0:
        return None
    places = torch.arange(x.numel(), device=x.device).view(x.shape)
    if "indices" in given:
        if all(index.dtype in (torch.bool, torch.uint8) for index in given["indices"] if index is not None):
            return None
        written = aten.index(places, given["indices"])
        return written.reshape(-1), given["values"].expand(written.shape).reshape(-1)
    if "src" in given:
        index, source = given["index"], given["src"]
        if index.dim() != x.dim() or source.dim() != x.dim():
            return None
        values = source[tuple(slice(size) for size in index.shape)]
        return places.gather(given["dim"], index).reshape(-1), values.reshape(-1)
    if "dim" in given:
        written = places.index_select(given["dim"], given["index"].reshape(-1))
        return written.reshape(-1), given["source"].expand(written.shape).reshape(-1)
    return given["index"].reshape(-1) % max(x.numel(), 1), given["source"].reshape(-1)


def write_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Let another of several writes to one element be the last."""
    if overlaps_itself(call.arguments["self"]):
        return call.run(), False  # nothing of the write is defined
    writes = targets(call)
    before = call.arguments["self"].clone()
    result = call.run()
    if writes is None or not len(writes[0]):
        return result, False
    positions, values = (part.clone() for part in writes)
    rank = draw.order(len(positions), positions.device)
    last = torch.full((before.numel(),), -1, device=rank.device).scatter_reduce_(0, positions, rank, "amax")
    chosen = values[rank.argsort()[last.clamp_min(0)]].to(before.dtype)
    chosen = torch.where(last >= 0, chosen, before.reshape(-1)).view(before.shape)
    free = bool(((result != chosen) & ~((result != result) & (chosen != chosen))).any())
    if free:
        result.copy_(chosen)
    return result, free


def leave_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Put something else into new memory."""
    result = call.run()
    if result.layout != torch.strided or result.device.type == "meta" or not result.numel():
        return result, False
    return result.fill_(draw.garbage(result.dtype)), True


def grow_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Put something else into the memory by which a tensor grew."""
    size = call.arguments["self"].untyped_storage().nbytes()
    result = call.run()
    storage = result.untyped_storage()
    new = (storage.nbytes() - size) // result.element_size()
    if new <= 0:
        return result, False
    whole = torch.empty(0, dtype=result.dtype, device=result.device).set_(storage)
    whole[-new:].fill_(draw.garbage(result.dtype))
    return result, True


def _outside(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """Return which floating elements do not fit an integer dtype once they are truncated; None where all do."""
    if not values.is_floating_point() or dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return None
    bounds, whole = torch.iinfo(dtype), values.to(torch.float64).trunc()
    outside = ~((whole >= float(bounds.min)) & (whole < float(bounds.max) + 1))  # true for NaN as well
    return outside if bool(outside.any()) else None


def cast_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Give any number where a float does not fit an integer."""
    copies = "src" in call.arguments
    values = call.arguments["src" if copies else "self"]
    dtype = call.arguments["self"].dtype if copies else call.arguments["dtype"]
    outside = None if dtype is None or values.layout != torch.strided else _outside(values, dtype)
    result = call.run()
    if outside is None:
        return result, False
    return result.masked_fill_(outside.to(result.device), draw.garbage(dtype)), True


def search_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Give any place in a sequence that does not ascend."""
    given, result = call.arguments, call.run()
    sequence = given["boundaries"] if "boundaries" in given else given["sorted_sequence"]
    if given.get("sorter") is not None:
        sequence = sequence.gather(-1, given["sorter"])
    if sequence.dim() == 0 or bool((sequence[..., 1:] >= sequence[..., :-1]).all()):
        return result, False
    return torch.full_like(result, draw.number % (sequence.size(-1) + 1)), True


def turn_singular_vectors(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Decompose with rows and columns in another order, and turn vectors around."""
    own = call.run()
    matrix = call.arguments["A"]
    if not call.arguments["compute_uv"] or not matrix.numel():
        return own, False
    rows, columns = (draw.order(matrix.size(dim), matrix.device) for dim in (-2, -1))
    left, values, right = call.run(A=matrix.index_select(-2, rows).index_select(-1, columns))
    left, right = left.index_select(-2, rows.argsort()), right.index_select(-1, columns.argsort())
    signs, count = draw.signs(values), values.size(-1)
    left[..., :count] *= signs.unsqueeze(-2)
    right[..., :count, :] *= signs.unsqueeze(-1)
    return into(own, (left, values, right)), True


def symmetric_matrix(call: Call) -> torch.Tensor:
    """Return the whole matrix of a call that reads one triangle of it."""
    matrix, lower = call.arguments["A"], call.arguments["UPLO"].upper() == "L"
    half = matrix.tril(-1) if lower else matrix.triu(1)
    return half + half.mH + torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1))


def turn_symmetric_vectors(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Decompose with rows and columns in another order, and turn vectors around."""
    own = call.run()
    matrix = call.arguments["A"]
    if not call.arguments["compute_v"] or not matrix.numel():
        return own, False
    order = draw.order(matrix.size(-1), matrix.device)
    values, vectors = call.run(A=symmetric_matrix(call).index_select(-2, order).index_select(-1, order))
    vectors = vectors.index_select(-2, order.argsort()) * draw.signs(values).unsqueeze(-2)
    return into(own, (values, vectors)), True


def turn_eigenvectors(call: Call, draw: Draw) -> tuple[Any, bool]:
    """List eigenvalues in another order, and turn vectors around."""
    own = call.run()
    values = own if isinstance(own, torch.Tensor) else own[0]
    if not values.numel():
        return own, False
    order = draw.order(values.size(-1), values.device)
    chosen = values.index_select(-1, order)
    if isinstance(own, torch.Tensor):
        return chosen, True
    return into(own, (chosen, own[1].index_select(-1, order) * draw.signs(chosen).unsqueeze(-2))), True


def turn_columns(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Turn columns of Q and rows of R around; of a whole Q, also those that R makes nothing of."""
    left, right = call.run()
    if not right.numel():
        return (left, right), False
    signs = draw.signs(right[..., 0])
    right *= signs.unsqueeze(-1)
    if left.numel():
        left *= signs.unsqueeze(-2)
    return (left, right), True


def compare_rounded(choose: Choose, call: Call, draw: Draw) -> tuple[Any, bool]:
    """Choose by elements that are moved by a rounding, and give the elements themselves for what is chosen."""
    x = call.arguments["self"]
    if not x.is_floating_point():
        return call.run(), False
    if _is_smooth(call):
        return choose(call, draw)
    with _same_numbers(call):
        moved = draw.blur(x, _opposite(call), 0.0 if call.uncertainty is None else call.uncertainty)
        chosen, _ = choose(replace(call, arguments={**call.arguments, "self": moved}), draw)
    own = call.run()
    if isinstance(chosen, torch.Tensor):
        free = unequal(chosen, own)
        return (own.copy_(chosen) if call.func._schema.is_mutable else chosen), free
    if len(chosen) == 2 and x.dim() and chosen[1].dtype == torch.int64:  # values, and where they stand
        dim = dimension(call)
        indices = chosen[1]
        values = x.gather(dim, indices if indices.dim() == x.dim() else indices.unsqueeze(dim)).view(indices.shape)
        chosen = into(own, (values, indices.clone()))
    return chosen, True


def _opposite(call: Call) -> Any:
    """Return what a comparison compares its argument with, of the argument's shape or a number; zero for other
    operators."""
    x, other = call.arguments["self"], call.arguments.get("other", 0)
    if isinstance(other, torch.Tensor) and torch.broadcast_shapes(other.shape, x.shape) != x.shape:
        return 0
    return 0 if isinstance(other, complex) or (isinstance(other, torch.Tensor) and other.is_complex()) else other


def toss_otherwise(call: Call, draw: Draw) -> tuple[Any, bool]:
    """Toss coins of these probabilities, also where one was moved out of 0 to 1."""
    return call.run(self=call.arguments["self"].clamp(0, 1)), False


def _is_smooth(call: Call) -> bool:
    """Return whether a result moves as its argument does: a cast to a floating dtype, or a quotient that is not
    rounded."""
    given = call.arguments
    if call.func is aten.copy_.default:
        return True  # what is moved would be the memory that is written to
    if call.func is aten._to_copy.default:
        return given["dtype"] is None or given["dtype"].is_floating_point or given["dtype"].is_complex
    return "rounding_mode" in given and given["rounding_mode"] is None


@contextlib.contextmanager
def _same_numbers(call: Call) -> Iterator[None]:
    """Put back the state of the generator that a random operator draws from."""
    if torch.Tag.nondeterministic_seeded not in call.func.tags:
        yield
        return
    x = call.arguments["self"]
    generator = call.arguments.get("generator")
    if generator is None:
        generator = torch.default_generator if x.device.type == "cpu" else torch.cuda.default_generators[x.device.index]
    state = generator.get_state()
    try:
        yield
    finally:
        generator.set_state(state)


def element_offsets(tensor: torch.Tensor) -> torch.Tensor:
    """Return the offsets of a tensor's elements in its storage, in elements, each once: [at most numel]."""
    offsets = torch.full((1,), tensor.storage_offset(), dtype=torch.int64)
    for step, size in zip(tensor.stride(), tensor.shape, strict=True):
        offsets = (offsets.unsqueeze(-1) + torch.arange(size) * step).reshape(-1)
    return offsets.unique()


def share_elements(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors of one storage have an element in common.

    Large ones, and those of two dtypes, count as if they had.
    """
    if not first.numel() or not second.numel():
        return False
    is_open = first.dtype != second.dtype or max(first.numel(), second.numel()) > thresholds.MOST_PAIRS.value
    return is_open or bool(torch.isin(element_offsets(first), element_offsets(second)).any())


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Return whether two elements of a tensor are one place in memory."""
    if tensor.layout != torch.strided or tensor.numel() < 2 or tensor.device.type == "meta":
        return False
    steps = sorted((step, size) for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    reaches = itertools.accumulate((step * (size - 1) for step, size in steps), initial=0)
    if all(step > reach for (step, _), reach in zip(steps, reaches, strict=False)):
        return False  # each dimension steps over all that the smaller ones reach
    is_small = tensor.numel() <= thresholds.MOST_PAIRS.value
    return bool(steps[0][0] == 0 or (is_small and len(element_offsets(tensor)) < tensor.numel()))
