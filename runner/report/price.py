"""What an operator costs that a backend does not claim: the variants that are left out for it, and what goes with them.

A chain with one such operator is left out as a whole. Its other operators may then be tried nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runner.cases.operator_names import shared_name
from runner.record.events import VariantFinished, VariantPlanned, grouped
from runner.text import in_line, plural

_NEED = "operator "
"""How ``unclaimed`` of an event begins where an operator is not claimed."""

_NAMED = 4
"""Operators that a sentence names."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one unclaimed operator costs under one backend.

    ``combined`` of the ``variants`` have further operators, and ``lost`` are those of them that nothing else tries.
    """

    operator: str
    variants: int
    combined: int
    lost: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as a sentence: ``F.conv2d: 12 variants are left out, 9 of them for a part of what they try``."""
        text = f"{in_line(self.operator)}: {plural(self.variants, 'variant')} left out"
        text += f", {self.combined} of them with other operators" if self.combined else ""
        if not self.lost:
            return text
        names = ", ".join(map(in_line, self.lost[:_NAMED])) + ", ..." * (len(self.lost) > _NAMED)
        return f"{text}; nothing else tries {len(self.lost)} of these: {names}"


def tried_operators(events: Iterable[VariantPlanned | VariantFinished]) -> dict[str, str]:
    """Return the operators of the variants that came to a verdict, each by what its names share, as a case writes
    it."""
    judged = (e for e in events if isinstance(e, VariantFinished) and e.verdict not in ("SKIP", "NOT-RUN"))
    return {shared_name(name): name for event in judged for name in event.operators}


MOST = 5
"""Sentences for one backend, at most."""


def price_lines(events: Iterable[VariantPlanned | VariantFinished]) -> list[str]:
    """Return a sentence for each of the dearest operators that a backend does not claim, where chains go with it."""
    by_backend = grouped(events, lambda event: (event.backend, event.torch))
    lines = [
        f"{in_line(backend)} claims no {price}"
        for (backend, _), members in by_backend.items()
        for price in prices(members)[:MOST]
        if price.combined
    ]
    return [*dict.fromkeys(lines)]


def prices(events: Iterable[VariantPlanned | VariantFinished]) -> list[Price]:
    """Return the price of each unclaimed operator for which variants of one backend are left out, the highest first."""
    events = [*events]
    tried = tried_operators(events)
    left_out = [e for e in events if isinstance(e, VariantFinished) and e.unclaimed.startswith(_NEED)]
    groups = grouped(left_out, lambda event: event.unclaimed.removeprefix(_NEED))
    unclaimed = {shared_name(operator) for operator in groups}
    results = []
    for operator, members in groups.items():
        further = {shared_name(name): name for e in members for name in e.operators}
        combined = sum(bool({*map(shared_name, e.operators)} - {shared_name(operator)}) for e in members)
        lost = sorted(further[key] for key in further.keys() - tried.keys() - unclaimed)
        results.append(Price(operator, len(members), combined, tuple(lost)))
    return sorted(results, key=lambda price: (-price.variants, price.operator))
