"""What the judge's functions take and give: the runs of a job, and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.contract.oracles import UNCOMPARED, UNCOMPARED_NOTE, UNSPECIFIED
from runner.worker.program.observe import CallRecord, Observation
from runner.worker.program.snapshot import WITHOUT_ELEMENTS, Leaf
from runner.worker.rerun.reference import Reference
from runner.worker.rerun.undefined import Undefined


@dataclass
class Evidence:
    """What the oracles look at, and what they note on the way."""

    job: Job
    eager: Observation
    compiled: Observation
    reference: Reference
    labels: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    comparisons: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    """What was compared, of each kind how many: outputs, strides, aliases, gradients, elements, exceptions.

    A Python value counts as one element.
    """
    accuracy: list[dict[str, Any]] = field(default_factory=list)
    """The numbers of outputs and gradients, where the job asks for them or has a rule for values."""
    again: Sequence[Finding] = ()
    """What further compiled runs showed, where a rule for values asks for them."""
    undefined: Undefined = field(default_factory=Undefined)
    defined: int = 0
    """Elements with a defined value, or a definition to hold against, among outputs, gradients and what was mutated."""

    def pairs(self) -> Iterator[tuple[int, CallRecord, CallRecord]]:
        """Yield (call, eager's record, compiled record) of every call in which both returned."""
        # Either may have raised.
        for call, (eager, compiled) in enumerate(zip(self.eager.calls, self.compiled.calls)):  # noqa: B905
            if eager.error is None and compiled.error is None:
                yield call, eager, compiled

    def where(self, call: int, path: str = "") -> str:
        """Return the path, with the call's number if there are several."""
        several = max(len(self.eager.calls), len(self.compiled.calls)) > 1
        return ", ".join(filter(None, (f"call {call}" if several else "", path)))

    def count(self, kind: str, oracle: str = "", number: int = 1) -> None:
        """Count what was compared, unless the case ignores the oracle that would speak of it."""
        if oracle not in self.job.ignore:
            self.compared[kind] += number

    def undefined_elements(self, call: int, eager: Leaf, oracle: str) -> torch.Tensor | None:
        """Return which elements of a leaf are undefined, None for none, and count the others."""
        mask = self.undefined.mask(call, eager)
        number = eager.value.numel() if eager.metadata is not None else 1
        if mask is not None and not self.undefined.is_checked(call, eager.path):
            number -= int(mask.sum())
        self.count("elements", oracle, number)
        if oracle != "mutation" or self.eager.calls[call].mutated:
            self.defined += number
        return mask

    def excuse(self, where: str, count: int, number: int) -> None:
        """Note that ``count`` of ``number`` elements differ at a place, and are undefined; no elements at all: an
        error."""
        if not count and number:
            return
        if UNSPECIFIED not in self.labels:
            self.labels.append(UNSPECIFIED)
        reasons = "; ".join(f"{name}: {sentence}" for name, sentence in self.undefined.operators.items())
        what = f"{count} of {number} elements differ and have" if number else "whether it raises has"
        self.note(f"{where}: {what} no defined value ({reasons}): {UNSPECIFIED}")

    def pass_outside(self, where: str, label: str, excess: str) -> None:
        """Add the label that excuses a place outside the tolerance, and note how far outside it is."""
        if label not in self.labels:
            self.labels.append(label)
        if excess:
            self.note(f"{where}: {excess}: {label}")

    def leave_out(self, where: str, problem: str, oracle: str) -> None:
        """Note that a place is not compared. It has a label too, unless it has no elements or the case ignores them."""
        self.note(f"{where}: {problem}{UNCOMPARED_NOTE}")
        if problem not in WITHOUT_ELEMENTS and oracle not in self.job.ignore and UNCOMPARED not in self.labels:
            self.labels.append(UNCOMPARED)

    def note(self, text: str) -> None:
        """Add a note unless it is there already."""
        if text not in self.notes:
            self.notes.append(text)
