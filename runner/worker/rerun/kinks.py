"""Gradients at a kink: of relu, abs, clamp and their like, where a rounding decides on which side a computed argument
lies.

Eager's backward runs again, and each such operator sees its argument moved by a rounding. Elements of gradients that
move with it are open between the gradients of these runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runner.worker import thresholds
from runner.worker.operators.choices import Call, Draw, aten
from runner.worker.operators.table import kink_of, row_of
from runner.worker.rounding.uncertainty import Uncertainties, fitting


class Kinks(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Follows in a forward how large the numbers behind each tensor are, and moves arguments of kinks in its
    ``backward``."""

    supports_higher_order_operators = True  # of torch 2.7 and later

    def __init__(self, draw: Draw, amounts: list[torch.Tensor | None] | None = None) -> None:
        """Keep the draw, which says where arguments are moved to, and the ``amounts`` of an earlier run; None for the
        first."""
        super().__init__()
        self.has_kinks = False
        """Whether a gradient depends on the side of a kink on which a computed argument lies."""
        self.kink_names: set[str] = set()
        """Operators whose result was another one for the moved argument."""
        self.amounts: list[torch.Tensor | None] = []
        """What a unit roundoff moves the argument of each kink by, in their order; None where it is exact."""
        self._draw, self._known = draw, amounts
        self._in_backward = False
        self._results: set[int] = set()  # memory of the results that their backward asks for
        self._uncertainties = Uncertainties()

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
        if self._in_backward and kink_of(func):
            return self._cross(Call.bind(func, args, kwargs))
        record = self._uncertainties.follow(func, args, kwargs) if self._known is None else None
        by_result = row_of(func).by_result
        is_moved = by_result == "moves" and not kwargs and _is_plain(args[0])
        result = self._relu(func, *args) if is_moved else func(*args, **kwargs)
        if by_result and _is_plain(result):
            self._results.add(result.untyped_storage()._cdata)
        if record is not None:
            record(result)
        return result

    def _amount(self, x: Any, other: Any = None) -> torch.Tensor | None:
        """Return what a unit roundoff moves the argument of the next kink by; None where it is exact."""
        amount = self._uncertainties.of_compared({"self": x, "other": other}) if self._known is None else None
        if self._known is not None and len(self.amounts) < len(self._known):
            amount = fitting(self._known[len(self.amounts)], x)
        self.amounts.append(amount)
        return amount

    def _cross(self, call: Call) -> Any:
        own, name = call.run(), kink_of(call.func)
        x, other = call.arguments[name], call.arguments.get("other", call.arguments.get("threshold", 0))
        amount = self._amount(x, other)
        if amount is None or not _is_plain(x) or isinstance(other, complex):
            return own
        if x.untyped_storage()._cdata in self._results:  # a result that its backward asks for
            return own
        self.has_kinks = True
        reach = _reach(x, amount)
        moved = (
            self._equal(call, own, reach)
            if call.func.overloadpacket in (aten.eq, aten.ne)
            else call.run(**{name: self._draw.move(x, other, reach)})
        )
        if not all(map(torch.equal, tree_leaves(own), tree_leaves(moved))):
            self.kink_names.add(call.func.overloadpacket.__name__)
        return moved

    def _relu(self, func: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the result for the moved argument, where it may lie on either side of zero."""
        amount = self._amount(x)
        if amount is None:
            return func(x)
        self.has_kinks = True
        reach = _reach(x, amount)
        moved, near = self._draw.move(x, 0, reach).clamp_min(0), x.abs() <= reach
        result: torch.Tensor = func(x)
        if bool((near & ((moved > 0) != (result > 0))).any()):
            self.kink_names.add("relu")
        return result.copy_(torch.where(near, moved, result))

    def _equal(self, call: Call, own: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        """Return which elements may equal what they are compared with: all, none, or some at random.

        No moved one would.
        """
        equal = (call.arguments["self"] - call.arguments["other"]).abs() <= amount
        if self._draw.number != 5:
            equal &= self._draw.move(torch.zeros(own.shape), 0, torch.ones(own.shape)).to(own.device) > 0
        return torch.where(amount.isnan(), own, equal if call.func.overloadpacket is aten.eq else ~equal)


def _reach(x: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
    """Return by how much each element is moved, given what a unit roundoff moves it by."""
    amount = amount.to(x.device, x.dtype)
    return thresholds.KINK_FACTOR.value * torch.maximum(torch.finfo(x.dtype).eps * x.abs(), amount)


def _is_plain(leaf: Any) -> bool:
    """Return whether a leaf is a tensor of real floating numbers in memory."""
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.is_floating_point()
        and leaf.layout == torch.strided
        and leaf.device.type != "meta"
        and leaf.untyped_storage().nbytes() > 0
    )
