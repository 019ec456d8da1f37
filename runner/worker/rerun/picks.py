"""What elements may be where operators pick: one of some equal elements, or one of several writes to one place.

Such an element has a finite number of legal values. Eager runs once for each position that may be the first, and every
value of an element that depends on one pick is among these runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from runner.worker import thresholds
from runner.worker.operators.choices import FIRST_MOVED, Draw
from runner.worker.operators.freedoms import FREEDOMS, ROUNDED
from runner.worker.program.observe import Observation
from runner.worker.rerun.differences import elements_of
from runner.worker.rounding import sensitivity
from runner.worker.tensors import classes, finite_difference, largest, norm, planes, tolerance_for

Key = tuple[int, str]


def is_pick(name: str, sentence: str) -> bool:
    """Return whether an operator that is free by a sentence of torch's documentation chooses among given elements."""
    return sentence != ROUNDED and FREEDOMS[name].definition in ("indices", "set", "writes")


class Picks:
    """The legal values of elements, from further runs of eager, which are made when a value is asked about."""

    def __init__(self, run: Callable[[Draw], Observation], positions: int) -> None:
        """Keep the function that runs eager under a draw, and among how many ``positions`` an operator picks at
        most."""
        self._run, self._positions = run, positions
        self._turned: dict[Key, list[torch.Tensor]] | None = None
        self._drawn: dict[Key, list[torch.Tensor]] = {}

    def breach(self, key: Key, mask: torch.Tensor, compiled: torch.Tensor) -> str:
        """Return which element of a mask no operator may pick, or nothing; also where the runs do not show all values.

        Runs at random tell that: an element that depends on several picks has more values than turns show.
        """
        if self._turned is None:
            self._make_runs()
        turned, drawn = (runs.get(key, ()) for runs in (self._turned or {}, self._drawn))
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
        self._turned, first = {}, self._run(Draw(1))
        turns = range(1, self._positions)
        number = len(turns) + thresholds.PICK_RUNS.value
        size = sum(values.numel() for _, values in elements_of(first))
        if len(turns) >= thresholds.PICK_TURNS.value or number * size > thresholds.MOST_PAIRS.value:
            return
        turned = [first, *(self._run(Draw(1, turn)) for turn in turns)]
        after = FIRST_MOVED + thresholds.LEGAL_RUNS.value
        drawn = [self._run(Draw(after + draw)) for draw in range(thresholds.PICK_RUNS.value)]
        if not any(run.error for run in (*turned, *drawn)):
            self._turned, self._drawn = _by_key(turned), _by_key(drawn)


def _by_key(runs: Sequence[Observation]) -> dict[Key, list[torch.Tensor]]:
    tables: dict[Key, list[torch.Tensor]] = {}
    for run in runs:
        for key, values in elements_of(run):
            tables.setdefault(key, []).append(values)
    return tables


def _is_among(values: torch.Tensor, legal: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return which elements are those of one of ``legal``, up to a rounding of the largest."""
    near = torch.zeros(values.numel(), dtype=torch.bool)
    for each in legal:
        first, second = planes(each), planes(values)
        bound = torch.zeros(())
        if each.is_floating_point() or each.is_complex():
            tolerance = tolerance_for(each.dtype)
            size = torch.where(first.isfinite(), first, 0)
            bound = tolerance.atol + tolerance.rtol * norm(size) + sensitivity.small(each.dtype) * largest(size)
        same_class = (classes(first) == classes(second)).all(dim=1)
        near |= same_class & (norm(finite_difference(first, second)) <= bound)
    return near.view(values.shape)
