"""What the judge's functions take and give: the runs of a job, and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.worker.case.observe import CallRecord, Observation
from runner.worker.judge.reference import Reference


@dataclass(frozen=True)
class Finding:
    """One disagreement. ``path`` says where, such as ``call 1, output[0]``; ``numbers`` are JSON-safe."""

    oracle: str
    message: str
    path: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    line: int | None = None  # of the case's source, where no error names it


@dataclass
class Evidence:
    """What the oracles look at, and what they note on the way."""

    job: Mapping[str, Any]
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

    def pairs(self) -> Iterator[tuple[int, CallRecord, CallRecord]]:
        """Yield (call, eager's record, compiled record) of every call in which both returned."""
        for call, (eager, compiled) in enumerate(zip(self.eager.calls, self.compiled.calls)):  # noqa: B905  either may have raised
            if eager.error is None and compiled.error is None:
                yield call, eager, compiled

    def where(self, call: int, path: str = "") -> str:
        """Return the path, with the call's number if there are several."""
        several = max(len(self.eager.calls), len(self.compiled.calls)) > 1
        return ", ".join(part for part in (f"call {call}" if several else "", path) if part)

    def count(self, kind: str, oracle: str = "", number: int = 1) -> None:
        """Count what was compared, unless the case ignores the oracle that would speak of it."""
        if oracle not in (self.job.get("ignore") or ()):
            self.compared[kind] += number

    def note(self, text: str) -> None:
        """Add a note unless it is there already."""
        if text not in self.notes:
            self.notes.append(text)
