"""Red results by what they have in common: one group for each signature, the worst first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runner.contract.oracles import rank_of
from runner.record.events import VariantFinished
from runner.text import one_line
from runner.verdict.signature import assess

_HEADERS = ("results", "severity", "signature")


@dataclass(frozen=True, slots=True)
class Group:
    """Results that fail alike. The first member speaks for all."""

    members: tuple[VariantFinished, ...]

    @property
    def severity(self) -> str:
        """Return what the findings are worth; empty for results that rest on none, such as INVALID."""
        return self.members[0].severity or ""

    @property
    def title(self) -> str:
        """Return the signature with its id."""
        first = self.members[0]
        return one_line(f"{first.signature_id} {first.signature}", 400)


def groups_of(results: Iterable[VariantFinished]) -> list[Group]:
    """Return the groups: the worst severity first, then the largest, then the one that came first.

    A result of a log without signatures gets its own.
    """
    groups: dict[str, list[VariantFinished]] = {}
    for result in results:
        result = result if result.signature else assess(result)
        groups.setdefault(result.signature, []).append(result)
    ordered = sorted(groups.values(), key=lambda members: (rank_of(members[0].severity or ""), -len(members)))
    return [Group(tuple(members)) for members in ordered]


def render_groups(groups: Iterable[Group], width: int) -> str:
    """Return a table with a line for each group. Signatures are cut where they pass ``width`` columns."""
    rows = [(str(len(group.members)), group.severity or "-", group.title) for group in groups]
    counts, severities = (max(len(row[column]) for row in [_HEADERS, *rows]) for column in (0, 1))
    room = max(24, width - counts - severities - 4)
    lines = [
        f"{count:>{counts}}  {severity:<{severities}}  {one_line(title, room)}"
        for count, severity, title in [_HEADERS, *rows]
    ]
    return "\n".join(lines)
