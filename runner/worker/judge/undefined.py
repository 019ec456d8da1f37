"""What is undefined of a case, and which definitions hold all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from runner.worker.case.snapshot import Leaf
from runner.worker.judge.choices import Call
from runner.worker.judge.definitions import DEFINITIONS, Definition
from runner.worker.judge.freedoms import Freedom


@dataclass
class Use:
    """One call of an operator with a choice, as torch made it: copies of its arguments and results, on the CPU."""

    freedom: Freedom
    call: Call
    results: list[torch.Tensor]
    given: list[torch.Tensor] = field(repr=False)  # the results themselves
    certain: bool  # no earlier choice changes its arguments, and it has memory of its own to write to


@dataclass(frozen=True)
class Result:
    """An output of the model that is the result of a use itself: the use, and the place among its results."""

    use: Use
    place: int


@dataclass(frozen=True)
class Undefined:
    """What is undefined of a case.

    ``masks`` are bool tensors by call and path, or None where not even the shape is defined. ``results`` are outputs that
    are the result of an operator with a choice. ``operators`` had one, each with the sentence that leaves it.
    """

    masks: Mapping[tuple[int, str], torch.Tensor | None]
    results: Mapping[tuple[int, str], Result]
    operators: Mapping[str, str]

    def mask(self, call: int, leaf: Leaf) -> torch.Tensor | None:
        """Return which elements of a leaf of eager are undefined, shaped like its copy; None for none of them."""
        mask = self.masks.get((call, leaf.path), False)
        if mask is None:
            return torch.ones(leaf.value.shape if leaf.metadata is not None else (), dtype=torch.bool)
        return mask if isinstance(mask, torch.Tensor) else None

    def has_shape(self, call: int, path: str) -> bool:
        """Return whether the shape of a leaf is defined."""
        return self.masks.get((call, path), False) is not None

    def breach(self, call: int, path: str, compiled: torch.Tensor) -> str:
        """Return how the compiled output breaks the definition of the operator that it is the result of, or nothing."""
        definition = self._definition(call, path)
        if definition is None:
            return ""
        use, place = self.results[call, path].use, self.results[call, path].place
        if (use.results[place].shape, use.results[place].dtype) != (compiled.shape, compiled.dtype):
            return ""
        reason = definition(use.call, use.results, place, compiled)
        return f"breaks the definition of {use.freedom.name}: {reason}" if reason else ""

    def is_checked(self, call: int, path: str) -> bool:
        """Return whether an output is held against a definition."""
        return self._definition(call, path) is not None

    def _definition(self, call: int, path: str) -> Definition | None:
        result = self.results.get((call, path))
        certain = result is not None and result.use.certain
        return DEFINITIONS.get(result.use.freedom.name) if result is not None and certain else None
