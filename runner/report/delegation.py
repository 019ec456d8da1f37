"""Which passes the code of a backend outside torch computed, and in which it gave its graphs back to torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from runner.record.events import Event, VariantFinished, grouped
from runner.text import one_line, plural

_NAMES = 5  # of operators in a line


def delegation_of(event: VariantFinished) -> str:
    """Return how many operators the backend's own code computed, and what torch ran for it; empty where not counted."""
    if event.delegated is None or not event.delegable:
        return ""
    names = ", ".join(name for name, _ in Counter(event.fallbacks).most_common(_NAMES))
    return f"{event.delegated} of {plural(event.delegable, 'operator')}" + (f"; torch ran {names}" if names else "")


def delegated_passes(events: Iterable[Event]) -> tuple[int, int]:
    """Return of how many variants the backend's own code computed an operator, and of how many this was counted."""
    counts = [event.delegated for event in events if isinstance(event, VariantFinished) and event.delegated is not None]
    return sum(count > 0 for count in counts), len(counts)


def delegation_lines(events: Iterable[VariantFinished]) -> list[str]:
    """Return a line for each backend that gave all operators of a passing variant back to torch."""
    passes = (event for event in events if event.verdict in ("PASS", "XPASS"))
    lines = []
    for backend, members in grouped(passes, lambda event: event.backend).items():
        part, whole = delegated_passes(members)
        if part < whole:
            lines.append(
                f"{backend}: its own code computed something in {part} of {plural(whole, 'pass', 'passes')}; "
                "in the others torch computed all"
            )
    return [one_line(line) for line in lines]
