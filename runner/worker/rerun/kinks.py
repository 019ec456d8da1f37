"""Gradients at a kink: of relu, abs, clamp and their like, where a rounding decides on which side a computed argument lies.

Eager's backward runs again, and each such operator sees its argument moved by a rounding. Elements of gradients that move with it
are open between the gradients of these runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runner.worker.operators.choices import Call, Draw, aten
from runner.worker.operators.freedoms import is_exact, overload_of, rounds_nothing
from runner.worker.program.observe import Observation
from runner.worker.program.snapshot import elements
from runner.worker.tensors.elements import largest, planes

DRAWS = (3, 4, 5, 6, 7, 8)
"""Of ``choices.Draw``: all up, all down, onto what they are compared with, and three times at random."""

UNITS = 16.0
"""Units in the last place of the largest number behind an argument, by which it is moved. Sums of 10,007 equal numbers were off by one."""

FAR = 4.0
"""How many times the distance of the gradients of these runs a gradient may lie outside of them: runs are few, and kinks may be many."""

_ARGUMENTS: Mapping[str, str] = {
    "threshold_backward": "self",
    "leaky_relu_backward": "self",
    "hardtanh_backward": "self",
    "hardshrink_backward": "self",
    "softshrink_backward": "self",
    "hardswish_backward": "self",
    "hardsigmoid_backward": "self",
    "rrelu_with_noise_backward": "self",
    "_prelu_kernel_backward": "self",
    "elu_backward": "self_or_result",
    "sgn": "self",
    "sign": "self",
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

KINKS: Mapping[Any, str] = {
    overload: argument
    for name, argument in [
        *((f"{name}.default", argument) for name, argument in _ARGUMENTS.items()),
        *((f"{name}.{kind}", "self") for name in _COMPARISONS for kind in ("Scalar", "Tensor")),
    ]
    if (overload := overload_of(name)) is not None
}
"""What autograd's formulas ask on which side of a kink an argument lies, and the name of that argument."""

_EQUALITIES = tuple(overload for overload in KINKS if overload.overloadpacket in (aten.eq, aten.ne))

RELUS = (aten.relu.default, aten.relu_.default)
"""Their backward asks for their result, which is zero on the whole other side: the argument is moved in the forward."""
_BY_RESULT = frozenset({"celu_", "elu_", "hardtanh_", "leaky_relu_", "relu", "relu_", "selu_", "threshold_"})
"""Operators whose result their backward asks for. It does not tell where the argument was, so that it is not moved there."""

SUMS = frozenset({"add", "add_", "addmm", "baddbmm", "cumsum", "mean", "rsub", "sub", "sub_", "sum"})
"""Operators whose result is as uncertain as the largest of what they add."""
PRODUCTS = frozenset({"bmm", "div", "div_", "mm", "mul", "mul_", "neg", "neg_"})
"""Operators whose result is as uncertain, in proportion, as their arguments."""


@dataclass(frozen=True)
class Spread:
    """The lowest and the highest of each element of a leaf in several runs, as planes; NaN where eager's is."""

    shape: torch.Size
    low: torch.Tensor
    high: torch.Tensor

    def open_elements(self) -> torch.Tensor:
        """Return which elements were not the same in all runs, in the leaf's shape."""
        return (self.low != self.high).any(dim=1).view(self.shape)

    def reaches(self, compiled: torch.Tensor) -> torch.Tensor:
        """Return which elements lie among those of the runs, or not far from them, in the leaf's shape."""
        if compiled.shape != self.shape:
            return torch.zeros(self.shape, dtype=torch.bool)
        reach, flat = FAR * (self.high - self.low), planes(compiled)
        return ((flat >= self.low - reach) & (flat <= self.high + reach)).all(dim=1).view(self.shape)


def spreads_of(eager: Observation, runs: Sequence[Observation]) -> dict[tuple[int, str], Spread]:
    """Return the spreads of the gradients that are not the same in all runs, by call and path. A call that raised in one has none.

    NaN and infinity of a moved run say nothing: the gradient of a maximum divides by the number of elements that equal it, and none
    of the moved ones may.
    """
    spreads = {}
    for call, (own, *moved_records) in enumerate(zip(eager.calls, *(run.calls for run in runs), strict=False)):
        if any(record.error is not None for record in (own, *moved_records)):
            break
        for path, leaf in own.gradients.items():
            first, *moved_elements = (
                elements(each) if each is not None else None
                for each in (leaf, *(record.gradients.get(path) for record in moved_records))
            )
            if first is None:
                continue
            flat = [planes(first)]
            flat += [planes(moved) for moved in moved_elements if moved is not None and moved.shape == first.shape]
            runs_of_leaf = torch.stack([torch.where(plane.isfinite(), plane, flat[0]) for plane in flat])
            spread = Spread(first.shape, runs_of_leaf.amin(0), runs_of_leaf.amax(0))
            if bool(spread.open_elements().any()):
                spreads[call, path] = spread
    return spreads


class Kinks(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Follows in a forward how large the numbers behind each tensor are, and moves arguments of ``KINKS`` in its ``backward``."""

    supports_higher_order_operators = True  # of torch 2.7 and later

    def __init__(self, draw: Draw) -> None:
        """Keep the draw, which says where arguments are moved to."""
        super().__init__()
        self.has_kinks = False
        """Whether a gradient depends on the side of a kink on which a computed argument lies."""
        self.kink_names: set[str] = set()
        """Operators whose result was another one for the moved argument."""
        self._draw = draw
        self._in_backward = False
        self._results: set[int] = set()  # memory of the results of ``_BY_RESULT``
        self._behind: dict[int, tuple[StorageWeakRef, float]] = {}  # of memory that computed numbers lie in

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Move arguments of what runs meanwhile."""
        self._in_backward = True
        try:
            with self:
                yield
        finally:
            self._in_backward = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func``, of a moved argument if it asks for the side of a kink."""
        kwargs = kwargs or {}
        if self._in_backward and func in KINKS:
            return self._cross(Call.bind(func, args, kwargs))
        arguments = [(self._size_behind(leaf), leaf) for leaf in tree_leaves((args, kwargs)) if _is_plain(leaf)]
        computed = [(size, leaf) for size, leaf in arguments if size is not None]
        result = self._relu(func, *args) if func in RELUS and computed else func(*args, **kwargs)
        if getattr(getattr(func, "overloadpacket", None), "__name__", "") in _BY_RESULT and _is_plain(result):
            self._results.add(result.untyped_storage()._cdata)
        exact = is_exact(func, args, kwargs)
        if (exact and not computed) or (not computed and rounds_nothing(func, args, kwargs, result)):
            return result
        for tensor in tree_leaves(result):
            if _is_plain(tensor):
                self._remember(tensor, _uncertain(func, exact, computed, arguments, tensor))
        return result

    def _cross(self, call: Call) -> Any:
        own, name = call.run(), KINKS[call.func]
        x, other = call.arguments[name], call.arguments.get("other", call.arguments.get("threshold", 0))
        sizes = [self._size_behind(leaf) for leaf in (x, other) if _is_plain(leaf)]
        size = max((size for size in sizes if size is not None), default=None)
        if size is None or not _is_plain(x) or isinstance(other, complex) or self._is_result(x):
            return own
        self.has_kinks = True
        amount = _uncertainty(x, size)
        moved = (
            self._equal(call, own.shape, amount)
            if call.func in _EQUALITIES
            else call.run(**{name: self._draw.move(x, other, amount)})
        )
        pairs = list(zip(tree_leaves(own), tree_leaves(moved), strict=True))
        if any(not torch.equal(first, second) for first, second in pairs):
            self.kink_names.add(call.func.overloadpacket.__name__)
        return moved

    def _is_result(self, x: torch.Tensor) -> bool:
        """Return whether a tensor is a result that its backward asks for."""
        return x.untyped_storage()._cdata in self._results

    def _relu(self, func: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the result for the moved argument, where it may lie on either side of zero."""
        self.has_kinks = True
        amount = _uncertainty(x, self._size_behind(x) or 0.0)
        moved, near = self._draw.move(x, 0, amount).clamp_min(0), x.abs() <= amount
        result: torch.Tensor = func(x)
        if bool((near & ((moved > 0) != (result > 0))).any()):
            self.kink_names.add("relu")
        return result.copy_(torch.where(near, moved, result))

    def _equal(self, call: Call, shape: torch.Size, amount: torch.Tensor) -> torch.Tensor:
        """Return which elements may equal what they are compared with: all, none, or some at random. No moved one would."""
        near = (call.arguments["self"] - call.arguments["other"]).abs() <= amount
        noise = self._draw.move(torch.zeros(shape), 0, torch.ones(shape)).to(near.device)
        equal = near if self._draw.number == 5 else near & (noise > 0)
        return equal if call.func.overloadpacket is aten.eq else ~equal

    def _size_behind(self, tensor: torch.Tensor) -> float | None:
        """Return the size of the largest number behind a tensor; None if nothing was computed."""
        entry = self._behind.get(tensor.untyped_storage()._cdata)
        return None if entry is None else entry[1]

    def _remember(self, tensor: torch.Tensor, size: float) -> None:
        storage = tensor.untyped_storage()
        entry = self._behind.get(storage._cdata)
        # The weak reference keeps another storage from the address.
        self._behind[storage._cdata] = (
            (StorageWeakRef(storage), size) if entry is None else (entry[0], max(entry[1], size))
        )


def _uncertainty(x: torch.Tensor, size: float) -> torch.Tensor:
    """Return by how much each element is moved, given the size of the largest number behind them."""
    return UNITS * torch.finfo(x.dtype).eps * x.abs().clamp_min(size)


def _is_plain(leaf: Any) -> bool:
    """Return whether a leaf is a tensor of real floating numbers in memory."""
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.is_floating_point()
        and leaf.layout == torch.strided
        and leaf.device.type != "meta"
        and leaf.untyped_storage().nbytes() > 0
    )


def _uncertain(
    func: Any,
    exact: bool,
    computed: list[tuple[float, torch.Tensor]],
    arguments: list[tuple[float | None, torch.Tensor]],
    result: torch.Tensor,
) -> float:
    """Return the size of the number whose roundings a result is uncertain by."""
    packet = getattr(func, "overloadpacket", None)
    name, size = packet.__name__ if packet is not None else "", largest(result)
    if exact:
        return max(size for size, _ in computed)
    if name in SUMS:
        return max([size, *(largest(leaf) if behind is None else behind for behind, leaf in arguments)])
    if name in PRODUCTS:
        return size * max([1.0, *(behind / largest(leaf) for behind, leaf in computed if largest(leaf))])
    return size
