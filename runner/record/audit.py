"""What the events of a log say together: each thing once, and what cannot be true of one run.

A log carries no signature but its command line's, so that a careful edit cannot be noticed; a careless one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from runner.record.events import (
    RED,
    Event,
    RunStarted,
    VariantFinished,
    VariantPlanned,
    end_of,
    start_of,
)
from runner.record.journal import Problems, Weight
from runner.text import plural

_BADNESS = ("PASS", "XFAIL", "SKIP", "NOT-RUN", "VACUOUS", "FLAKY", "INVALID", "XPASS", "ERROR", "FAIL")
"""Verdicts, the worst last: of two contradictory ones it counts."""

_CLEAN = frozenset({"PASS", "XPASS", "VACUOUS", "NOT-RUN"})
"""Verdicts that no finding goes with."""

SUITES = 1000
"""How many suites a log may name: each is a table and a part of the JUnit file."""

_EDITED = "this log was edited, or written by another program"


def audit(events: Iterable[Event], problems: Problems) -> list[Event]:
    """Return the events with one start, one plan and one verdict a variant; add what was wrong to ``problems``."""
    events = _one_start(list(events), problems)
    events = _one_plan(events, problems)
    events = _one_verdict(events, problems)
    for text in (*_counts(events), *_verdicts(events), *_end(events)):
        problems.add(text)
    return events


def excess(events: Iterable[Event]) -> str:
    """Return why no report can be made of a log whose events are few, but would fill a report; empty when one can."""
    names: set[str] = set()
    variants = entries = 0
    for event in events:
        if isinstance(event, VariantPlanned | VariantFinished):
            names.update(event.suites)
            variants += 1
            entries += len(event.suites)
    if len(names) > SUITES:
        return f"its variants are of {len(names):,} suites; at most {SUITES:,} are read"
    if entries > SUITES + 50 * variants:
        return f"its {variants:,} variants are in {entries:,} places of suites; at most 50 for each are read"
    return ""


def _one_start(events: list[Event], problems: Problems) -> list[Event]:
    places = [number for number, event in enumerate(events) if isinstance(event, RunStarted)]
    if places and places[0] > 0:
        problems.add(f"{plural(places[0], 'event')} before run-started: {_EDITED}", Weight.REFUSED)
    if len(places) > 1:
        problems.add(
            f"run-started stands there {len(places)} times: several runs, of which the first counts", Weight.REFUSED
        )
    others = [event for event in events if not isinstance(event, RunStarted)]
    return [*(events[place] for place in places[:1]), *others]  # first, as every reader expects it


def _one_plan(events: list[Event], problems: Problems) -> list[Event]:
    planned: dict[tuple[str, str], VariantPlanned] = {}
    kept_events: list[Event] = []
    for event in events:
        if isinstance(event, VariantPlanned):
            first = planned.get(event.key)
            if first == event:
                problems.add(f"{_name(event)} is planned twice; it counts once", Weight.USUAL)
            elif first is not None:
                problems.add(f"{_name(event)} is planned twice, in different words; the first counts: {_EDITED}")
            if first is not None:
                continue
            planned[event.key] = event
        kept_events.append(event)
    return kept_events


def _one_verdict(events: list[Event], problems: Problems) -> list[Event]:
    results: dict[tuple[str, str], tuple[int, VariantFinished]] = {}  # with their places
    doubled: set[int] = set()
    for place, event in enumerate(events):
        if not isinstance(event, VariantFinished):
            continue
        earlier, first = results.setdefault(event.key, (place, event))
        if earlier == place:
            continue
        later_counts = _BADNESS.index(event.verdict) > _BADNESS.index(first.verdict)
        if first.verdict == event.verdict:
            problems.add(f"{_name(event)} finished twice, both times {event.verdict}; it counts once", Weight.USUAL)
        elif first.verdict == "NOT-RUN":  # it ran later
            later_counts = True
        else:
            worse = event.verdict if later_counts else first.verdict
            problems.add(f"{_name(event)} finished twice, {first.verdict} and {event.verdict}; {worse} counts")
        doubled.add(earlier if later_counts else place)
        if later_counts:
            results[event.key] = place, event
    return [event for place, event in enumerate(events) if place not in doubled]


def _counts(events: Sequence[Event]) -> Iterator[str]:
    """Whether what was announced is there."""
    planned = {event.key for event in events if isinstance(event, VariantPlanned)}
    for event in events:
        if isinstance(event, VariantFinished) and event.key not in planned:
            yield f"{_name(event)} has the verdict {event.verdict} and was never planned: {_EDITED}"
    start = start_of(events)
    end = end_of(events)
    whole = end is not None and not end.interrupted
    if start and start.planned and (len(planned) > start.planned or (whole and len(planned) < start.planned)):
        yield f"run-started announces {plural(start.planned, 'variant')}, and {len(planned)} are planned: {_EDITED}"


def _verdicts(events: Sequence[Event]) -> Iterator[str]:
    """Whether verdicts fit their findings."""
    for event in events:
        if not isinstance(event, VariantFinished):
            continue
        if event.findings and event.verdict in _CLEAN:
            yield (
                f"{_name(event)} has the verdict {event.verdict}, and {plural(len(event.findings), 'finding')}: "
                f"{_EDITED}"
            )
        elif event.verdict in ("FAIL", "XFAIL") and not event.findings:
            yield f"{_name(event)} has the verdict {event.verdict}, and no finding: {_EDITED}"


def _end(events: Sequence[Event]) -> Iterator[str]:
    """Whether the exit code fits the verdicts."""
    end = end_of(events)
    if end is None or end.interrupted or end.exit_code not in (0, 1):
        return
    results = [event for event in events if isinstance(event, VariantFinished)]
    bad = any(event.verdict in (*RED, "SKIP") for event in results)  # --fail-on-skip
    if end.exit_code == 1 and not bad:
        yield f"the run ended with exit code 1, and none of {plural(len(results), 'verdict')} is red: {_EDITED}"
    missing = {event.key for event in events if isinstance(event, VariantPlanned)} - {event.key for event in results}
    if end.exit_code == 0 and missing:
        yield f"the run ended with exit code 0, and {len(missing)} of its variants have no verdict: {_EDITED}"


def _name(event: VariantPlanned | VariantFinished) -> str:
    return f"{event.id} (torch {event.torch})"
