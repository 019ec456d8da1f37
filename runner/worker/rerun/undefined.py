"""What is undefined of a case, and which definitions still hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from runner.worker import thresholds
from runner.worker.operators.choices import Call, aten
from runner.worker.operators.freedoms import Freedom
from runner.worker.program.snapshot import Leaf, Tree
from runner.worker.rerun.definitions import DEFINITIONS, JOINTS, Definition
from runner.worker.rerun.kinks import Spread
from runner.worker.rerun.picks import Picks
from runner.worker.tensors import planes, tolerance_for

STEPS = (aten.floor.default, aten.ceil.default, aten.trunc.default, aten.round.default, aten._to_copy.default)
"""Operators that step by one at each whole number, or half."""


@dataclass
class Use:
    """One call of an operator with a choice, as torch made it: copies of its arguments and results, on the CPU."""

    freedom: Freedom
    call: Call
    results: list[torch.Tensor]
    given: list[torch.Tensor] = field(repr=False)  # the results themselves
    certain: bool  # no earlier choice changes its arguments, and it has memory of its own to write to

    def reach(self) -> torch.Tensor | float:
        """Return how far outside of its legal values an element of a result may lie, in units of their range: nowhere
        where its argument is known to far less than the distance between two steps, and takes one step alone."""
        if not self.certain or self.call.func not in STEPS or self.call.uncertainty is None:
            return thresholds.BEYOND.value
        x = self.call.arguments["self"]
        tolerance = tolerance_for(x.dtype)
        amount = tolerance.atol + tolerance.rtol * x.abs() + self.call.uncertainty
        is_known = thresholds.BEYOND.value * amount < 1  # not where it is NaN: the step was taken before
        return torch.where(is_known, 0.0, thresholds.BEYOND.value).expand(x.shape)


@dataclass(frozen=True)
class Result:
    """An output of the model that is the result of a use itself: the use, and the place among its results."""

    use: Use
    place: int


@dataclass
class Range:
    """The elements of a leaf in all legal runs: from the lowest to the highest finite one, and whether all are
    finite."""

    low: float = math.inf
    high: float = -math.inf
    finite: bool = True

    def extend(self, elements: torch.Tensor) -> None:
        """Add the elements of one more run; of complex ones, both parts."""
        flat = planes(elements)
        inside = flat[flat.isfinite()]
        self.finite &= inside.numel() == flat.numel()
        if inside.numel():
            self.low, self.high = min(self.low, float(inside.min())), max(self.high, float(inside.max()))

    def breach(self, elements: torch.Tensor) -> str:
        """Return how no legal run comes near to some of the elements, or nothing."""
        flat = planes(elements)
        if self.finite and not bool(flat.isfinite().all()):
            return "an element that may hold several values is NaN or infinite, and in no legal run is any"
        reach = thresholds.BEYOND.value * max(self.high - self.low, abs(self.high), abs(self.low))
        outside = flat[flat.isfinite() & ((flat < self.low - reach) | (flat > self.high + reach))]
        if self.low > self.high or not outside.numel():
            return ""
        return (
            f"an element that may hold several values is {float(outside[0]):.6g}; legal ones lie from {self.low:.6g} "
            f"to {self.high:.6g}"
        )


@dataclass(frozen=True)
class Undefined:
    """What is undefined of a case.

    ``masks`` are bool tensors by call and path, or None where not even the shape is defined. ``results`` are outputs
    that are the result of an operator with a choice. ``operators`` had one, each with the sentence that leaves it.
    ``ranges`` say where legal elements lie; it is empty where an operator may give anything.
    """

    masks: Mapping[tuple[int, str], torch.Tensor | None]
    results: Mapping[tuple[int, str], Result]
    operators: Mapping[str, str]
    ranges: Mapping[tuple[int, str], Range] = field(default_factory=dict)
    spreads: Mapping[tuple[int, str], Spread] = field(default_factory=dict)
    """Of leaves that are undefined by steps and kinks alone: an element is undefined where it lies near its own legal
    values."""
    picks: Picks | None = None
    """What elements may be where operators pick among equal elements or several writes, and nothing else is open."""

    def mask(self, call: int, leaf: Leaf) -> torch.Tensor | None:
        """Return which elements of a leaf of eager are undefined, shaped like its copy; None for none of them."""
        mask = self.masks.get((call, leaf.path), False)
        if mask is None:
            return torch.ones(leaf.value.shape if leaf.metadata is not None else (), dtype=torch.bool)
        return mask if isinstance(mask, torch.Tensor) else None

    def reachable(self, call: int, path: str, mask: torch.Tensor, compiled: torch.Tensor) -> torch.Tensor:
        """Return which elements of a mask the compiled leaf may hold."""
        spread, result = self.spreads.get((call, path)), self.results.get((call, path))
        if spread is None:
            return mask
        return mask & (spread.reaches(compiled) if result is None else spread.reaches(compiled, result.use.reach()))

    def has_shape(self, call: int, path: str) -> bool:
        """Return whether the shape of a leaf is defined."""
        return self.masks.get((call, path), False) is not None

    def breach(self, call: int, path: str, compiled: torch.Tensor, outputs: Tree) -> str:
        """Return how a compiled leaf breaks the definition of the operator that it is the result of, or nothing.

        The operator's other results among the compiled ``outputs`` are looked at too. Where there is no definition,
        its undefined elements must lie near those of legal runs.
        """
        return self._breach_alone(call, path, compiled) or self._breach_together(call, path, outputs)

    def _breach_alone(self, call: int, path: str, compiled: torch.Tensor) -> str:
        definition = self._definition(call, path)
        if definition is None:
            mask, legal = self.masks.get((call, path), False), self.ranges.get((call, path))
            if mask is False or legal is None or not isinstance(compiled, torch.Tensor) or compiled.dtype == torch.bool:
                return ""
            if mask is None:  # not even the shape is defined
                return legal.breach(compiled)
            if mask.shape != compiled.shape:
                return ""
            reason = legal.breach(compiled[mask])
            return reason if reason or self.picks is None else self.picks.breach((call, path), mask, compiled)
        use, place = self.results[call, path].use, self.results[call, path].place
        if (use.results[place].shape, use.results[place].dtype) != (compiled.shape, compiled.dtype):
            return ""
        reason = definition(use.call, use.results, place, compiled)
        return f"breaks the definition of {use.freedom.name}: {reason}" if reason else ""

    def _breach_together(self, call: int, path: str, outputs: Tree) -> str:
        """Return how a compiled output does not fit the other results of its operator.

        Those that are wrong by themselves are left out.
        """
        result = self.results.get((call, path))
        joint = JOINTS.get(result.use.freedom.definition) if result is not None and result.use.certain else None
        if result is None or joint is None:
            return ""
        use = result.use
        paths = {other.place: key for key, other in self.results.items() if key[0] == call and other.use is use}
        values = {leaf.path: leaf.value for leaf in outputs.leaves}
        parts = {}
        for place, (_, name) in {**paths, result.place: (call, path)}.items():
            own, value = use.results[place], values.get(name)
            if not isinstance(value, torch.Tensor) or (value.dtype, value.dim()) != (own.dtype, own.dim()):
                continue
            has_size = value.shape == own.shape or not self.has_shape(call, name)
            if has_size and not self._breach_alone(call, name, value):
                parts[place] = value
        reason = joint(use.call, use.results, parts)
        return f"breaks the definition of {use.freedom.name}: {reason}" if reason else ""

    def is_checked(self, call: int, path: str) -> bool:
        """Return whether an output is held against a definition."""
        return self._definition(call, path) is not None

    def _definition(self, call: int, path: str) -> Definition | None:
        result = self.results.get((call, path))
        certain = result is not None and result.use.certain
        return DEFINITIONS.get(result.use.freedom.definition) if result is not None and certain else None
