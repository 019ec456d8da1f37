"""The two sides of a comparison: results of two runs or of one, and what pairs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.cases.versions import matches
from runner.exit_codes import UsageError
from runner.record.events import (
    Event,
    VariantFinished,
    VariantPlanned,
    end_of,
    start_of,
    variants_of,
)
from runner.text import in_line

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


@dataclass(frozen=True, slots=True)
class Log:
    """A run to take a side from: its path and its events."""

    path: str
    events: Sequence[Event]


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
        log.path,
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
