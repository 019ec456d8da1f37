"""The results of a run as its pages show them: in the order of the plan, by signature, and which have a page of their
own."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runner.record.events import RED, Event, Key, VariantFinished, VariantPlanned, finished_of, planned_of
from runner.report.groups import Group, groups_of
from runner.verdict.signature import assess

PAGES = 500
"""Failures that have a page of their own."""


GROUPS = 200
"""Groups that the first page shows, the worst."""

_ID = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Results:
    """What a run made of its plan.

    ``variants`` holds the result of each variant, or its plan where it has no result. ``groups`` are the red results,
    the worst first. ``pages`` maps the variants that have a page to its address from the index.
    """

    variants: Mapping[Key, VariantFinished | VariantPlanned]
    groups: Sequence[Group]
    pages: dict[Key, str] = field(default_factory=dict)
    by_signature: dict[str, Group] = field(default_factory=dict)

    @property
    def finished(self) -> list[VariantFinished]:
        """The results alone."""
        return [event for event in self.variants.values() if isinstance(event, VariantFinished)]

    def group(self, event: VariantFinished) -> Group | None:
        """Return the group of a red result."""
        return self.by_signature.get(event.signature) if event.verdict in RED else None

    def anchor(self, event: VariantFinished) -> str:
        """Return the name of its group's place on the first page; empty if it has none."""
        group = self.group(event)
        shown = any(group is each for each in self.groups[:GROUPS])
        return f"group-{event.signature_id}" if shown and _ID.fullmatch(event.signature_id) else ""


def results_of(events: Sequence[Event]) -> Results:
    """Return the results of a run, with signatures where its log is older than these."""
    finished = {
        key: assess(event) if event.verdict in RED and not event.signature else event
        for key, event in finished_of(events).items()
    }
    variants: dict[Key, VariantFinished | VariantPlanned] = {**planned_of(events)}
    variants.update(finished)
    groups = groups_of(
        event for event in variants.values() if isinstance(event, VariantFinished) and event.verdict in RED
    )
    results = Results(variants, groups, by_signature={group.members[0].signature: group for group in groups})
    places = {key: place for place, key in enumerate(variants, 1)}
    for event in itertools.islice(_wanted(results), PAGES):
        results.pages[event.key] = f"failures/{places[event.key]:05d}.html"
    return results


def _wanted(results: Results) -> itertools.chain[VariantFinished]:
    """The results that should have a page: of each group the first member, then the second ones, and so on; then known
    failures."""
    rounds = itertools.zip_longest(*(group.members for group in results.groups))
    red = (event for members in rounds for event in members if event is not None)
    return itertools.chain(red, (event for event in results.finished if event.verdict == "XFAIL"))
