"""The page of times: which variants were slow, and on what each backend spent its time."""

from __future__ import annotations

from collections import defaultdict

from runner.report.html import render
from runner.report.site.results import Results
from runner.text import duration, in_line, one_line, plural, seconds

_SLOWEST = 100
_COLUMNS = 200
_PARTS = (("busy", "busy"), ("torch", "in torch"), ("load", "loading"), ("judge", "comparing"))


def render_times(results: Results) -> str:
    """Return the page."""
    finished = [event for event in results.finished if not event.cached]
    slowest = sorted(finished, key=lambda event: -seconds(event.seconds))[:_SLOWEST]
    longest = max((seconds(event.seconds) for event in slowest), default=0.0) or 1.0
    totals: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for event in finished:
        total = totals[event.backend, event.torch]
        total["results"] += 1
        total["seconds"] += seconds(event.seconds)
        for name, _ in _PARTS:
            value = event.spent.get(name, 0.0)
            total[name] += seconds(value) if isinstance(value, int | float) else 0.0
    return render(
        "times.html.j2",
        measured=plural(len(finished), "result"),
        cached=len(results.finished) - len(finished),
        parts=[meaning for _, meaning in _PARTS],
        totals=[
            (
                one_line(backend, 100), in_line(torch), int(total["results"]), duration(total["seconds"]),
                duration(total["seconds"] / total["results"]), [duration(total[name]) for name, _ in _PARTS],
            )
            for (backend, torch), total in [*totals.items()][:_COLUMNS]
        ],
        slowest=[
            (
                duration(event.seconds), f"{100 * seconds(event.seconds) / longest:.2f}", one_line(event.id, 400),
                in_line(event.torch), in_line(event.verdict), results.pages.get(event.key, ""),
            )
            for event in slowest
        ],
    )  # fmt: skip
