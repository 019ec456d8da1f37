"""What differs between two sets of results: two runs, or two versions of torch or two backends of one run.

What counts is whether a variant fails, and how; a verdict that the ledger expects is as good as a pass. Only what
passed on the old side, or failed as the ledger expects, can be broken on the new one.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from runner.cases.versions import matches
from runner.exit_codes import UsageError
from runner.record.events import (
    RED,
    VariantFinished,
    VariantPlanned,
    end_of,
    start_of,
    variants_of,
)
from runner.record.store import Log
from runner.text import duration, in_line
from runner.verdict.signature import assess, result_signature

Pairing = tuple[str, str]
"""What both sides call a variant: its id, or its label where backends differ; and its torch where a side has
several."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side. ``unfinished`` variants were planned and have no result; ``whole`` says that the run came to its
    end."""

    run: str
    log: str
    torches: tuple[str, ...]
    backends: tuple[str, ...]
    results: dict[Pairing, VariantFinished] = field(default_factory=dict)
    unfinished: int = 0
    whole: bool = True


def sides(
    old: Log, new: Log, torch: Sequence[str] | None = None, backend: Sequence[str] | None = None
) -> tuple[Side, Side, dict[Pairing, str]]:
    """Return both sides, and the name of each variant by what pairs it.

    Args:
        old: the run of the old side.
        new: that of the new side; the same object for two sides of one run.
        torch: the version of each side, old and new, at any precision; None takes all.
        backend: the backend of each side; None takes all, and pairs each with itself.

    Raises:
        UsageError: a side has no such version or backend, or nothing tells which version pairs with which.
    """
    versions = [_version(log, torch[place]) if torch else "" for place, log in enumerate((old, new))]
    backends = [_backend(log, backend[place]) if backend else "" for place, log in enumerate((old, new))]
    if old is new and len({*versions}) == len({*backends}) == 1:
        raise UsageError(
            f"both sides are one: name a second run, or two versions or backends of this one: {_content(old)}; "
            "such as --torch OLD NEW or --backend OLD NEW"
        )
    baseline, candidate = (
        _of(log, version, name) for log, version, name in zip((old, new), versions, backends, strict=True)
    )
    several = len({e.torch for e in baseline}) > 1 or len({e.torch for e in candidate}) > 1
    if several and {e.torch for e in baseline} != {e.torch for e in candidate}:
        raise UsageError(
            f"nothing says which torch pairs with which: {_content(old)}; {_content(new)}; name them: --torch OLD NEW"
        )
    names: dict[Pairing, str] = {}
    for event in (*candidate, *baseline):
        name = event.label if backend else event.id
        names.setdefault(_pairing(event, bool(backend), several), f"{name} torch {event.torch}" if several else name)
    pair = (
        _side(log, events, bool(backend), several)
        for log, events in zip((old, new), (baseline, candidate), strict=True)
    )
    return (*pair, names)  # type: ignore[return-value]


def _pairing(event: VariantPlanned | VariantFinished, by_label: bool, several: bool) -> Pairing:
    return (event.label if by_label else event.id), (event.torch if several else "")


def _of(log: Log, version: str, backend: str) -> list[VariantPlanned | VariantFinished]:
    return [e for e in variants_of(log.events) if version in ("", e.torch) and backend in ("", e.backend)]


def _side(log: Log, events: Sequence[VariantPlanned | VariantFinished], by_label: bool, several: bool) -> Side:
    results = {_pairing(e, by_label, several): e for e in events if isinstance(e, VariantFinished)}
    start, end = start_of(log.events), end_of(log.events)
    return Side(
        start.run if start else "",
        str(log.path),
        tuple(dict.fromkeys(event.torch for event in events)),
        tuple(dict.fromkeys(event.backend for event in events)),
        results,
        sum(isinstance(event, VariantPlanned) for event in events),
        end is not None and not end.interrupted,
    )


def _version(log: Log, text: str) -> str:
    """Return the one version of a log that ``text`` means: written the same, or the only one at its precision."""
    present = [*dict.fromkeys(event.torch for event in variants_of(log.events))]
    if text in present:
        return text
    try:
        fitting = [version for version in present if matches(f"=={text}", version)]
    except ValueError:
        fitting = []
    if len(fitting) == 1:
        return fitting[0]
    problem = f"{' and '.join(fitting)} both fit" if fitting else "no such version here"
    raise UsageError(f"--torch {text}: {problem}: {_content(log)}")


def _backend(log: Log, name: str) -> str:
    if name in {event.backend for event in variants_of(log.events)}:
        return name
    raise UsageError(f"--backend {name}: no such backend here: {_content(log)}")


_NAMED = 10  # backends or versions of a log that a message names


def _content(log: Log) -> str:
    """Return what a log can be divided by."""
    events = variants_of(log.events)
    parts = [
        f"{word} {', '.join(values[:_NAMED])}" + (", ..." if len(values) > _NAMED else "")
        for word, values in (
            ("torch", [*dict.fromkeys(event.torch for event in events)]),
            ("backend", [*dict.fromkeys(event.backend for event in events)]),
        )
    ]
    return in_line(f"{log.path} has {' and '.join(parts)}" if events else f"{log.path} has no variant")


SECTIONS: dict[str, str] = {
    "broken": "passed, or failed as the ledger expects, and is red now",
    "changed": "fails in another way, or is no longer expected to",
    "expected": "passed, and fails now as the ledger expects",
    "fixed": "was red or failed as expected, and passes now",
    "slower": "passes on both sides, and takes far longer",
    "new": "has a verdict on the new side alone",
    "gone": "has a verdict on the old side alone",
}
"""The sections in their order, with what a variant there has in common."""

RATIO = 2.0
"""How many times the seconds of the old side the new one takes at least, to be slower."""
GROWTH = 2.0
"""How many seconds more, too.

Two pairs of runs of one torch on one machine, 142 variants that pass, compared in both directions: no growth reached
both. The largest ratio was 5.9, of 0.7 seconds; the largest growth 2.5 seconds, of a ratio of 1.4.
"""
SHIFT = 1.5
"""A median ratio of a backend from which on the machine, its load or the kernel cache differs; then no single variant
is slower.

The medians of the runs above lay between 0.99 and 1.01; a run beside others on the same machine had 2.3.
"""
PAIRS = 10
"""Fewer pairs have no median worth speaking of."""

_FAILING = ("FAIL", "ERROR", "XFAIL")
_PASSING = ("PASS", "XPASS")
_WITHOUT = ("SKIP", "NOT-RUN")


@dataclass(frozen=True, slots=True)
class Change:
    """A variant that differs.

    ``id`` is what both sides call it; ``reason`` is one phrase, empty where the verdicts say it all.
    """

    section: str
    id: str
    old: VariantFinished | None
    new: VariantFinished | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds in torch of variants of one backend that pass on both sides: how many pairs, and the median of new by
    old."""

    backend: str
    pairs: int
    ratio: float

    @property
    def shifted(self) -> bool:
        """Return whether all of the backend is so much slower on the new side that a single variant says nothing."""
        return self.pairs >= PAIRS and self.ratio >= SHIFT


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs, in the order of the results.

    ``pairs`` variants are on both sides, of which ``same`` do not differ.
    """

    changes: tuple[Change, ...]
    pairs: int
    same: int
    times: tuple[Times, ...]

    def section(self, name: str) -> list[Change]:
        """Return the changes of one section."""
        return [change for change in self.changes if change.section == name]

    @property
    def counts(self) -> dict[str, int]:
        """Return how many variants each section has, in order."""
        counts = Counter(change.section for change in self.changes)
        return {name: counts[name] for name in SECTIONS}


def compare(
    old: Mapping[Pairing, VariantFinished], new: Mapping[Pairing, VariantFinished], names: Mapping[Pairing, str]
) -> Difference:
    """Return the difference of two sets of results.

    Args:
        old: the results of the old side, by what pairs them.
        new: those of the new side.
        names: what to call each variant, in order; one that has no result on either side is left out.
    """
    times = _times(old, new)
    shifted = frozenset(entry.backend for entry in times if entry.shifted)
    changes, pairs, same = [], 0, 0
    for key, name in names.items():
        baseline, candidate = _judged(old.get(key)), _judged(new.get(key))
        if baseline is None and candidate is None:
            continue
        paired = baseline is not None and candidate is not None
        pairs += paired
        section, reason = _section(old.get(key), new.get(key), shifted)
        if section:
            changes.append(Change(section, name, _full(old.get(key)), _full(new.get(key)), reason))
        same += paired and not section
    return Difference(tuple(changes), pairs, same, times)


def fails_alike(old: VariantFinished, new: VariantFinished) -> bool:
    """Return whether two failures have one signature.

    Signatures are made anew from the findings: another version of the runner may have written them otherwise. A log of
    a version that had none lacks a part of what they are made of. Then both are made of what every log holds.
    """
    events = (old, new) if old.signature and new.signature else (_common(old), _common(new))
    return len({result_signature(event) for event in events}) == 1


def _judged(event: VariantFinished | None) -> VariantFinished | None:
    """Return the result if it is a verdict on the variant: what was skipped has none."""
    return None if event is None or event.verdict in _WITHOUT else event


def _section(old: VariantFinished | None, new: VariantFinished | None, shifted: Collection[str]) -> tuple[str, str]:
    """Return the section of a variant, empty if it does not differ, and the reason."""
    baseline, candidate = _judged(old), _judged(new)
    if baseline is None:
        return "new", _absence(old)
    if candidate is None:
        return "gone", _absence(new)
    if candidate.verdict in _PASSING:
        if baseline.verdict not in _PASSING:
            return "fixed", ""
        growth = "" if candidate.backend in shifted else _growth(baseline, candidate)
        return ("slower" if growth else ""), growth
    if baseline.verdict in _PASSING:
        return ("expected" if candidate.verdict == "XFAIL" else "broken"), ""
    expected = baseline.verdict == "XFAIL"
    # The verdict of a failure may change between FAIL, ERROR and XFAIL; a result that proves nothing is something else.
    if (baseline.verdict in _FAILING) == (candidate.verdict in _FAILING) and fails_alike(baseline, candidate):
        return ("changed", "no longer expected") if expected and candidate.verdict in RED else ("", "")
    return ("broken" if expected and candidate.verdict in RED else "changed"), "other signature"


def _absence(event: VariantFinished | None) -> str:
    """Return why a side has no verdict."""
    if event is None:
        return "no verdict on this side"
    return f"{event.verdict}: {event.reason}" if event.reason else event.verdict


def _times(old: Mapping[Pairing, VariantFinished], new: Mapping[Pairing, VariantFinished]) -> tuple[Times, ...]:
    """Return the times of each backend, in the order of the results."""
    ratios: dict[str, list[float]] = {}
    for key, event in old.items():
        for baseline, candidate in _seconds(event, new[key]) if key in new else ():
            ratios.setdefault(event.backend, []).append(candidate / baseline)
    return tuple(Times(backend, len(values), statistics.median(values)) for backend, values in ratios.items())


def _seconds(old: VariantFinished, new: VariantFinished) -> list[tuple[float, float]]:
    """Return the seconds that both spent in torch; nothing where they say nothing about compiling.

    What fails runs again, alone and under the stages; what is cached did not run; two backends compile two things.
    """
    events = (old, new)
    if any(event.verdict != "PASS" or event.cached or event.attempts != 1 for event in events):
        return []
    baseline, candidate = (event.spent.get("torch", 0.0) for event in events)
    return [(baseline, candidate)] if old.backend == new.backend and baseline > 0 and candidate > 0 else []


def _growth(old: VariantFinished, new: VariantFinished) -> str:
    """Return by how much the new side is slower; empty if it is not."""
    for baseline, candidate in _seconds(old, new):
        if candidate >= RATIO * baseline and candidate - baseline >= GROWTH:
            return f"{duration(baseline)} to {duration(candidate)} in torch, {candidate / baseline:.1f} times"
    return ""


def _common(event: VariantFinished) -> VariantFinished:
    """Return the result without what early logs lack: the operator, the severities, and where an exception began."""
    findings = tuple(
        replace(
            finding,
            severity=None,
            error={name: value for name, value in finding.error.items() if name != "origin"} if finding.error else None,
        )
        for finding in event.findings
    )
    return replace(event, operator="", findings=findings)


def _full(event: VariantFinished | None) -> VariantFinished | None:
    """Return the result with its signature as this version writes it."""
    return None if event is None else assess(event)
