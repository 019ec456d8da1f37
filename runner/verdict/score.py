"""How far the backends of a run conform: which share of their variants computes what eager computes.

Of the variants of a backend, or of one family or dtype of them::

    passed       PASS and XPASS
    judged       passed, XFAIL, FAIL, ERROR, VACUOUS, FLAKY and INVALID
    conformance  passed / judged
    weighed      (passed + the credit of each failure) / judged
    claim        (planned - unclaimed) / planned
    overall      passed / (judged + unclaimed)

``unclaimed`` variants are SKIP because the backend does not claim what they need. Other SKIP and NOT-RUN variants, and
those without a result, are in ``planned`` alone. A known failure (XFAIL) is a failure. A result that proves nothing
(VACUOUS, FLAKY, INVALID) is not a pass.

The credit of a failure (XFAIL, FAIL, ERROR) is the place of its severity, from 0, by the number of severities: a wrong
result has none, a bound on graphs 6/7. What proves nothing has none. Shares are kept as whole numbers, so no rounding
enters them.
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar

from runner.cases.suites import SPEC, SUITE
from runner.contract.oracles import METADATA, OTHER_NUMBERS, SEVERITIES
from runner.exit_codes import UsageError
from runner.record.events import Event, VariantFinished, VariantPlanned, end_of, start_of, variants_of
from runner.text import in_line
from runner.verdict.signature import severity_of, worst_findings

K = TypeVar("K")
T = TypeVar("T")

UNCLAIMED = "unclaimed"

OUTCOMES: Mapping[str, str] = {
    "PASS": "computes what eager computes",
    "XPASS": "passes, and the ledger says that it fails",
    "XFAIL": "a known failure: the ledger expects it",
    "FAIL": "a wrong answer",
    "ERROR": "no answer",
    "VACUOUS": "proves nothing: nothing was compared",
    "FLAKY": "proves nothing: results differ from run to run",
    "INVALID": "proves nothing: eager itself fails",
    UNCLAIMED: "the backend does not claim what it needs",
    "SKIP": "cannot run here",
    "NOT-RUN": "has no result",
}
"""What becomes of a variant, with its meaning."""

_NAMED = 10  # backends of a log that a message names

PASSED = ("PASS", "XPASS")
FAILED = ("XFAIL", "FAIL", "ERROR")
UNPROVEN = ("VACUOUS", "FLAKY", "INVALID")
JUDGED = (*PASSED, *FAILED, *UNPROVEN)

_STEPS = [severity for severity in SEVERITIES if severity != OTHER_NUMBERS]

CREDITS: Mapping[str, int] = {
    severity: _STEPS.index(METADATA if severity == OTHER_NUMBERS else severity) for severity in SEVERITIES
}
"""What a failure of a severity keeps of a pass, in parts of ``UNIT``: of other random numbers, what metadata keep."""

UNIT = len(_STEPS)
"""The credit of a pass."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, both counted."""

    part: int
    whole: int

    @property
    def percent(self) -> float | None:
        """Return the share in per cent, rounded down to one digit: only all of it is 100. None of nothing."""
        return self.part * 1000 // self.whole / 10 if self.whole else None

    def __str__(self) -> str:
        """Return ``97.2%``; a dash of nothing."""
        return "-" if self.percent is None else f"{self.percent:.1f}%"


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of a set of variants: how many have each outcome, and the credit of their failures in parts of
    ``UNIT``."""

    outcomes: Mapping[str, int]
    credit: int = 0

    def count(self, *outcomes: str) -> int:
        """Return how many variants have one of these outcomes."""
        return sum(self.outcomes.get(outcome, 0) for outcome in outcomes)

    @property
    def planned(self) -> int:
        """Return how many variants there are."""
        return sum(self.outcomes.values())

    @property
    def judged(self) -> int:
        """Return how many variants have a verdict on the backend."""
        return self.count(*JUDGED)

    @property
    def conformance(self) -> Share:
        """Return what passes of what was judged."""
        return Share(self.count(*PASSED), self.judged)

    @property
    def weighed(self) -> Share:
        """Return the same with the credit of failures."""
        return Share(UNIT * self.count(*PASSED) + self.credit, UNIT * self.judged)

    @property
    def claim(self) -> Share:
        """Return what the backend claims of all that was planned."""
        return Share(self.planned - self.count(UNCLAIMED), self.planned)

    @property
    def overall(self) -> Share:
        """Return what passes of what was judged or is not claimed."""
        return Share(self.count(*PASSED), self.judged + self.count(UNCLAIMED))


@dataclass(frozen=True, slots=True)
class Failures:
    """How many variants fail in one way, and how many of them the ledger knows."""

    variants: int
    known: int


@dataclass(frozen=True, slots=True)
class Column:
    """One backend under one torch in one run. ``run`` counts from 1. ``unclaimed`` says what is needed, and by how many
    variants.

    ``labels`` are the ids of its variants without the backend.
    """

    run: int
    backend: str
    torch: str
    total: Tally
    families: Mapping[str, Tally]
    dtypes: Mapping[str, Tally]
    devices: Mapping[str, Tally]
    oracles: Mapping[str, Failures]
    severities: Mapping[str, Failures]
    unclaimed: Mapping[str, int]
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run. ``unannounced`` variants were to be planned, and its log does not name them."""

    run: str
    log: str
    started: str
    version: str  # runner's
    argv: tuple[str, ...]
    shard: str
    whole: bool  # whether it came to its end
    missing: int  # planned variants without a verdict
    unannounced: int


@dataclass(frozen=True, slots=True)
class Score:
    """The conformance of each backend of one or two runs."""

    runs: tuple[ScoredRun, ...]
    columns: tuple[Column, ...]

    @property
    def shared(self) -> Share:
        """Return how many variants all columns have, of those that any has."""
        labels = [column.labels for column in self.columns]
        return Share(len(frozenset.intersection(*labels)), len(frozenset.union(*labels))) if labels else Share(0, 0)


def score(logs: Sequence[tuple[str, Sequence[Event]]], backends: Collection[str] = ()) -> Score:
    """Return the score of runs; a backend of two runs has its columns side by side.

    Args:
        logs: the path and the events of each run.
        backends: only these; all if empty.

    Raises:
        UsageError: no run has such a backend.
    """
    groups = _grouped(
        ((event.backend, event.torch, number), event)
        for number, (_, events) in enumerate(logs, start=1)
        for event in variants_of(events)
    )
    present = list(dict.fromkeys(backend for backend, _, _ in groups))
    if absent := [name for name in backends if name not in present]:
        known = ", ".join(present[:_NAMED]) + (", ..." if len(present) > _NAMED else "")
        raise UsageError(in_line(f"--backend {absent[0]}: no such backend here: {known or 'there are no backends'}"))
    order = sorted(
        (key for key in groups if not backends or key[0] in backends), key=lambda key: (present.index(key[0]), key[2])
    )
    names = _families({_file(event) for key in order for event in groups[key]})
    columns = tuple(_column(*key, groups[key], names) for key in order)
    runs = tuple(_run(path, events, columns, number) for number, (path, events) in enumerate(logs, start=1))
    return Score(runs, columns)


def outcome_of(event: VariantPlanned | VariantFinished) -> str:
    """Return what became of a variant."""
    if isinstance(event, VariantPlanned):
        return "NOT-RUN"
    return UNCLAIMED if event.verdict == "SKIP" and event.unclaimed else event.verdict


def _file(event: VariantPlanned | VariantFinished) -> str:
    """The file of the case, as ids show it."""
    return event.case.rpartition("::")[0]


def _families(files: Iterable[str]) -> dict[str, str]:
    """Return what to call the family of each file of cases: its path below the folder that all share, without the
    suffix."""
    paths = {file: file.removesuffix(SPEC).removesuffix(SUITE) for file in files}
    shared = (
        os.path.commonpath([os.path.dirname(path) for path in paths.values()]) if _has_folder(paths.values()) else ""
    )
    return {file: PurePath(path).relative_to(shared).as_posix() if shared else path for file, path in paths.items()}


def _has_folder(paths: Iterable[str]) -> bool:
    """Whether paths can share a folder: ``commonpath`` takes no mixture of absolute and relative ones."""
    return len({os.path.isabs(path) for path in paths}) == 1


def _column(
    backend: str, torch: str, run: int, events: Sequence[VariantPlanned | VariantFinished], names: Mapping[str, str]
) -> Column:
    failures = [event for event in events if isinstance(event, VariantFinished) and event.verdict in FAILED]
    return Column(
        run,
        backend,
        torch,
        _tally(events),
        _tallies((names[_file(event)], event) for event in events),
        _tallies((event.dtype, event) for event in events),
        _tallies((event.device, event) for event in events),
        _failures((oracle, event) for event in failures for oracle in dict.fromkeys(event.oracles)),
        _failures((_severity(event), event) for event in failures),
        Counter(e.unclaimed for e in events if isinstance(e, VariantFinished) and outcome_of(e) == UNCLAIMED),
        frozenset(event.label for event in events),
    )


def _grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = {}
    for key, item in pairs:
        groups.setdefault(key, []).append(item)
    return groups


def _tallies(pairs: Iterable[tuple[str, VariantPlanned | VariantFinished]]) -> dict[str, Tally]:
    return {name: _tally(events) for name, events in _grouped(pairs).items()}


def _tally(events: Iterable[VariantPlanned | VariantFinished]) -> Tally:
    counts: Counter[str] = Counter()
    credit = 0
    for event in events:
        counts[outcome_of(event)] += 1
        if isinstance(event, VariantFinished) and event.verdict in FAILED:
            credit += CREDITS.get(_severity(event), 0)
    return Tally(dict(counts), credit)


def _severity(event: VariantFinished) -> str:
    """The worst severity of the findings; empty where a log has none, which earns no credit."""
    return severity_of(worst_findings(event.findings)[0]) if event.findings else ""


def _failures(pairs: Iterable[tuple[str, VariantFinished]]) -> dict[str, Failures]:
    return {
        name: Failures(len(events), sum(event.verdict == "XFAIL" for event in events))
        for name, events in _grouped(pairs).items()
    }


def _run(path: str, events: Sequence[Event], columns: Iterable[Column], number: int) -> ScoredRun:
    start, end = start_of(events), end_of(events)
    return ScoredRun(
        start.run if start else "",
        path,
        start.started if start else "",
        start.version if start else "",
        start.argv if start else (),
        start.shard if start else "",
        end is not None and not end.interrupted,
        sum(column.total.count("NOT-RUN") for column in columns if column.run == number),
        max(0, start.planned - len(variants_of(events))) if start else 0,
    )
