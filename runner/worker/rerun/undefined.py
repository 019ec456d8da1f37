"""What is undefined of a case: where legal runs of eager differ, what still holds there, and what elements may be.

Operators may pick one of some equal elements, or one of several writes to one place. Such an element has a finite
number of legal values: eager runs once for each position that may be the first, and every value of an element that
depends on one pick is among these runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import torch

from runner.worker import thresholds
from runner.worker.comparison.compare import same_python
from runner.worker.operators.choices import FIRST_MOVED, Call, Draw, aten
from runner.worker.operators.freedoms import FREEDOMS, ROUNDED, Freedom
from runner.worker.program.observe import Observation
from runner.worker.program.snapshot import Leaf, Tree, elements
from runner.worker.rerun.definitions import DEFINITIONS, JOINTS, Definition, Joint
from runner.worker.rerun.reference import Key, run_leaves
from runner.worker.rounding import sensitivity
from runner.worker.tensors import classes, finite_difference, finite_part, largest, norm, planes, tolerance_for

D = TypeVar("D", Definition, Joint)

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
        amount = tolerance_for(x.dtype).allowed(x.abs()) + self.call.uncertainty
        is_known = thresholds.BEYOND.value * amount < 1  # not where it is NaN: the step was taken before
        return torch.where(is_known, 0.0, thresholds.BEYOND.value).expand(x.shape)


class Result(NamedTuple):
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
class Spread:
    """The lowest and the highest of each element of a leaf in several runs, as planes; without bounds where one is not
    finite."""

    shape: torch.Size
    low: torch.Tensor
    high: torch.Tensor

    def open_elements(self) -> torch.Tensor:
        """Return which elements were not the same in all runs, in the leaf's shape."""
        return (self.low != self.high).any(dim=1).view(self.shape)

    def reaches(self, compiled: torch.Tensor, beyond: torch.Tensor | float = thresholds.BEYOND.value) -> torch.Tensor:
        """Return which elements lie among those of the runs, or ``beyond`` by so many times their range, in the leaf's
        shape."""
        if compiled.shape != self.shape:
            return torch.zeros(self.shape, dtype=torch.bool)
        reach, flat = torch.as_tensor(beyond).reshape(-1, 1) * (self.high - self.low), planes(compiled)
        near = (flat >= self.low - reach) & (flat <= self.high + reach)
        return (near | (self.high.isinf() & self.low.isinf())).all(dim=1).view(self.shape)

    def joined(self, other: Spread | None) -> Spread:
        """Return the spread of the runs of both."""
        if other is None or other.shape != self.shape:
            return self
        return Spread(self.shape, torch.minimum(self.low, other.low), torch.maximum(self.high, other.high))


def spread_of(values: torch.Tensor) -> Spread:
    """Return the spread of one run's elements."""
    flat = planes(values)
    return Spread(values.shape, *(torch.where(flat.isfinite(), flat, bound) for bound in (-torch.inf, torch.inf)))


def spreads_of(eager: Observation, runs: Sequence[Observation]) -> dict[Key, Spread]:
    """Return the spreads of the gradients that are not the same in all runs, by call and path. A call that raised in
    one has none.

    NaN and infinity of a moved run say nothing: the gradient of a maximum divides by the number of elements that equal
    it, and none of the moved ones may.
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
            flat = [planes(each) for each in (first, *moved_elements) if each is not None and each.shape == first.shape]
            runs_of_leaf = torch.stack([torch.where(plane.isfinite(), plane, flat[0]) for plane in flat])
            moved = runs_of_leaf[1:]  # these alone: eager itself may have run before a function was replaced
            is_open = (moved != moved[:1]).any(dim=0)
            sides = (torch.where(is_open, side, flat[0]) for side in (runs_of_leaf.amin(0), runs_of_leaf.amax(0)))
            spread = Spread(first.shape, *sides)
            if bool(spread.open_elements().any()):
                spreads[call, path] = spread
    return spreads


def is_pick(name: str, sentence: str) -> bool:
    """Return whether an operator that is free by a sentence of torch's documentation chooses among given elements."""
    return sentence != ROUNDED and FREEDOMS[name].definition in ("indices", "set", "writes")


class Picks:
    """The legal values of elements, from further runs of eager, which are made when a value is asked about."""

    def __init__(self, run: Callable[[Draw], Observation], positions: int) -> None:
        """Keep the function that runs eager under a draw, and among how many ``positions`` an operator picks at
        most."""
        self._run, self._positions = run, positions
        self._turned: list[dict[Key, torch.Tensor]] | None = None
        self._drawn: list[dict[Key, torch.Tensor]] = []

    def breach(self, key: Key, mask: torch.Tensor, compiled: torch.Tensor) -> str:
        """Return which element of a mask no operator may pick, or nothing; also where the runs do not show all values.

        Runs at random tell that: an element that depends on several picks has more values than turns show.
        """
        if self._turned is None:
            self._make_runs()
        turned, drawn = ([run[key] for run in runs if key in run] for runs in (self._turned or (), self._drawn))
        if not drawn or any(each.shape != compiled.shape for each in (*turned, *drawn)):
            return ""
        outside = mask & ~_is_among(compiled, turned)
        for each in drawn if bool(outside.any()) else ():
            outside &= _is_among(each, turned)
        if not bool(outside.any()):
            return ""
        legal = sorted({str(each[outside][0].item()) for each in turned})
        return f"an element that may hold several values is {compiled[outside][0].item():.6g}; legal ones are " + (
            ", ".join(legal[:5]) + (" and others" if legal[5:] else "")
        )

    def _make_runs(self) -> None:
        """Run eager with each turn, then at random; not at all where that would take too long, or a run raises."""
        self._turned, first = [], self._run(Draw(1))
        turns, draws = range(1, self._positions), range(thresholds.PICK_RUNS.value)
        size = sum(values.numel() for values in elements_of(first).values()) * (len(turns) + len(draws))
        if len(turns) >= thresholds.PICK_TURNS.value or size > thresholds.MOST_PAIRS.value:
            return
        turned = [first, *(self._run(Draw(1, turn)) for turn in turns)]
        drawn = [self._run(Draw(FIRST_MOVED + thresholds.LEGAL_RUNS.value + draw)) for draw in draws]
        if not any(run.error for run in (*turned, *drawn)):
            self._turned, self._drawn = ([elements_of(run) for run in runs] for runs in (turned, drawn))


def _is_among(values: torch.Tensor, legal: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return which elements are those of one of ``legal``, up to a rounding of the largest."""
    near = torch.zeros(values.numel(), dtype=torch.bool)
    for each in legal:
        first, second = planes(each), planes(values)
        bound = torch.zeros(())
        if each.is_floating_point() or each.is_complex():
            size = torch.where(first.isfinite(), first, 0)
            bound = tolerance_for(each.dtype).allowed(norm(size)) + sensitivity.small(each.dtype) * largest(size)
        same_class = (classes(first) == classes(second)).all(dim=1)
        near |= same_class & (norm(finite_difference(first, second)) <= bound)
    return near.view(values.shape)


@dataclass(frozen=True)
class Undefined:
    """What is undefined of a case; nothing where no operator has a choice.

    ``masks`` are bool tensors by call and path, or None where not even the shape is defined. ``results`` are outputs
    that are the result of an operator with a choice. ``operators`` had one, each with the sentence that leaves it.
    ``ranges`` say where legal elements lie; it is empty where an operator may give anything.
    """

    masks: Mapping[Key, torch.Tensor | None] = field(default_factory=dict)
    results: Mapping[Key, Result] = field(default_factory=dict)
    operators: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[Key, Range] = field(default_factory=dict)
    spreads: Mapping[Key, Spread] = field(default_factory=dict)
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
        beyond = thresholds.BEYOND.value if result is None else result.use.reach()
        return mask if spread is None else mask & spread.reaches(compiled, beyond)

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
        definition = self._certain(DEFINITIONS, call, path)
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
        use, place = self.results[call, path]
        if (use.results[place].shape, use.results[place].dtype) != (compiled.shape, compiled.dtype):
            return ""
        reason = definition(use.call, use.results, place, compiled)
        return f"breaks the definition of {use.freedom.name}: {reason}" if reason else ""

    def _breach_together(self, call: int, path: str, outputs: Tree) -> str:
        """Return how a compiled output does not fit the other results of its operator.

        Those that are wrong by themselves are left out.
        """
        joint = self._certain(JOINTS, call, path)
        if joint is None:
            return ""
        use, own_place = self.results[call, path]
        paths = {other.place: key for key, other in self.results.items() if key[0] == call and other.use is use}
        values = {leaf.path: leaf.value for leaf in outputs.leaves}
        parts = {}
        for place, (_, name) in {**paths, own_place: (call, path)}.items():
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
        return self._certain(DEFINITIONS, call, path) is not None

    def _certain(self, definitions: Mapping[str, D], call: int, path: str) -> D | None:
        """Return the one of the operator that an output surely is the result of."""
        result = self.results.get((call, path))
        return None if result is None or not result.use.certain else definitions.get(result.use.freedom.definition)


def mark(masks: dict[Key, torch.Tensor | None], eager: Observation, legal: Observation) -> None:
    """Add to ``masks`` where a legal run differs from eager. One that raised says nothing from that call on."""
    others = run_leaves(legal)
    for key, leaf in run_leaves(eager).items():
        if key in others:
            difference = _difference(leaf, others[key])
            known = masks.get(key, difference)
            if difference is None or known is None:
                masks[key] = None
            elif bool(difference.any()):
                masks[key] = known | difference


def elements_of(run: Observation) -> dict[Key, torch.Tensor]:
    """Return the elements of each leaf of a run, by call and path."""
    return {key: values for key, leaf in run_leaves(run).items() if (values := elements(leaf)) is not None}


def _difference(first: Leaf, second: Leaf) -> torch.Tensor | None:
    """Return which elements differ, beyond the tolerance of the dtype; None where the leaves cannot be paired."""
    if first.kind != second.kind or first.type != second.type:
        return None
    one, other = elements(first), elements(second)
    if one is None or other is None:
        is_same = first.problem is not None or same_python(first.value, second.value)
        return torch.tensor(False) if is_same else None
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return None
    if not (one.is_floating_point() or one.is_complex()):
        return one != other
    sides = planes(one), planes(other)
    far = norm(finite_difference(*sides)) > tolerance_for(one.dtype).allowed(norm(finite_part(*sides)))
    return (far | (classes(sides[0]) != classes(sides[1])).any(dim=1)).view(one.shape)
