"""How ready backends are for models, operator by operator: which distinct calls are right, and how often they are used.

Each case of the folder is one distinct call of an operator. A call counts once under ``distinct``, and as often as the
models make it under ``use``. Of the calls of a model under a backend::

    right        PASS and XPASS
    wrong        FAIL, and XFAIL where the backend answers
    unsupported  ERROR, and SKIP because the backend does not claim what the call needs
    other        FLAKY, INVALID, VACUOUS and NOT-RUN
    by use       uses of right calls / uses of all calls
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tabulate import tabulate

from runner.quote import markdown_text
from runner.record.events import VariantFinished, largest_error
from runner.text import one_line, plural

State = Literal["right", "wrong", "unsupported", "other"]
STATES: tuple[State, ...] = ("right", "wrong", "unsupported", "other")
_WORST: tuple[State, ...] = ("wrong", "unsupported", "other", "right")
_BESIDE = 2.0
"""Times eager's error, beyond which eager's stands beside it."""
_RED_SHOWN = 20
"""Calls that are not right which the table lists; the JSON has all."""


@dataclass(frozen=True, slots=True)
class Use:
    """One distinct call: the case that has it, its operator, its text, and how often each model makes it."""

    case: str
    operator: str
    call: str
    uses: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call under one backend. ``ulp`` is the largest error against float64, in units in the last place.

    ``eager_ulp`` is eager's own. Both are None where nothing was measured.
    """

    use: Use
    backend: str
    id: str
    state: State
    verdict: str
    reason: str
    command: str  # that repeats it
    ulp: float | None = None
    eager_ulp: float | None = None


@dataclass(slots=True)
class Readiness:
    """All calls of the models under all backends, and how many calls of each model no case can hold."""

    results: list[CallResult]
    lost: Mapping[str, int] = field(default_factory=dict)

    def backends(self) -> list[str]:
        """Return the backends in the order in which they were run."""
        return list(dict.fromkeys(result.backend for result in self.results))

    def models(self) -> list[str]:
        """Return the models."""
        return list(dict.fromkeys(model for result in self.results for model in result.use.uses))

    def counts(self, model: str, backend: str) -> dict[str, Any]:
        """Return how many distinct calls are in each state, how many were not written, and the share by use."""
        rows = [r for r in self.results if r.backend == backend and model in r.use.uses]
        lost = self.lost.get(model, 0)
        uses = sum(row.use.uses[model] for row in rows) + lost
        right = sum(row.use.uses[model] for row in rows if row.state == "right")
        counted: dict[str, int] = {state: sum(row.state == state for row in rows) for state in STATES}
        return {"distinct": len(rows), **counted, "lost": lost, "uses": uses, "by_use": right / uses if uses else 0.0}

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "version": 1,
            "models": [
                {"model": model, "backend": backend, **self.counts(model, backend)}
                for model in self.models() for backend in self.backends()
            ],
            "calls": [asdict(result) for result in self.results],
        }  # fmt: skip


def state_of(event: VariantFinished) -> State:
    """Return how a call fares."""
    if event.verdict in ("PASS", "XPASS"):
        return "right"
    if event.verdict == "ERROR" or (event.verdict == "SKIP" and event.unclaimed):
        return "unsupported"
    if event.verdict == "XFAIL":
        return "unsupported" if event.oracles and event.oracles[0].endswith("error") else "wrong"
    return "wrong" if event.verdict == "FAIL" else "other"


def readiness(events: Iterable[VariantFinished], uses: Mapping[str, Use], lost: Mapping[str, int]) -> Readiness:
    """Return how the calls fare.

    Args:
        events: of the run of the cases.
        uses: each distinct call, by the name of its case.
        lost: how many calls of each model are no cases.
    """
    results = []
    events = [*events]
    several = len({event.torch for event in events}) > 1
    for event in events:
        use = uses.get(event.case.rpartition("::")[2])
        if use is not None:
            reason = event.reason or (event.findings[0].message if event.findings else "")
            backend = f"{event.backend} {event.torch}" if several else event.backend
            measured = _largest(event, "compiled"), _largest(event, "eager")
            outcome = state_of(event), event.verdict, one_line(reason, 200)
            results.append(CallResult(use, backend, event.id, *outcome, event.repro, *measured))
    return Readiness(results, lost)


def _largest(event: VariantFinished, side: str) -> float | None:
    """Return the largest error of a side, over outputs and gradients; infinite where special values are other ones."""
    errors = (largest_error(entry.get(side)) for entry in event.accuracy)
    return max((error for error in errors if error is not None), default=None)


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator under all backends. ``cells`` have a text and the worst state for each backend."""

    operator: str
    distinct: int
    uses: int
    cells: tuple[tuple[str, State], ...]


def operator_rows(report: Readiness) -> list[OperatorRow]:
    """Return a row for each operator: those that are wrong first, then by use."""
    grouped: dict[str, dict[str, list[CallResult]]] = defaultdict(lambda: defaultdict(list))
    for result in report.results:
        grouped[result.use.operator][result.backend].append(result)
    rows = []
    for operator, columns in grouped.items():
        calls = {r.use.case: r.use for results in columns.values() for r in results}
        cells = tuple(_cell(columns.get(backend, [])) for backend in report.backends())
        rows.append(OperatorRow(operator, len(calls), sum(sum(u.uses.values()) for u in calls.values()), cells))
    return sorted(rows, key=lambda row: (min(_WORST.index(state) for _, state in row.cells), -row.uses, row.operator))


def _cell(results: Sequence[CallResult]) -> tuple[str, State]:
    """Return what a cell says: how many calls are right, what others are, and the largest error."""
    if not results:
        return "-", "right"
    words = [f"{sum(r.state == state for r in results)} {state}" for state in STATES
             if any(r.state == state for r in results)]  # fmt: skip
    errors = [(result.ulp, result.eager_ulp or 0.0) for result in results if result.ulp is not None]
    worst, eager = max(errors, default=(0.0, 0.0))
    error = f", {worst:.3g} ulp" + (f" (eager {eager:.3g})" if worst > _BESIDE * eager else "") if errors else ""
    return ", ".join(words) + error, min((result.state for result in results), key=_WORST.index)


def render(report: Readiness) -> str:
    """Return the tables as text: each model, each operator, and the calls that are not right."""
    lines = [model_line(report, model, backend) for model in report.models() for backend in report.backends()]
    headers = ["operator", "calls", "uses", *report.backends()]
    rows = [[row.operator, row.distinct, row.uses, *(text for text, _ in row.cells)] for row in operator_rows(report)]
    red = red_calls(report)
    lines += ["", tabulate(rows, headers=headers), ""]
    lines += [f"{r.verdict} {r.use.call} under {r.backend}: {r.reason}\n  {r.id}" for r in red[:_RED_SHOWN]]
    lines += [f"and {len(red) - _RED_SHOWN} more"] if len(red) > _RED_SHOWN else []
    return "\n".join(lines).rstrip()


def red_calls(report: Readiness) -> list[CallResult]:
    """Return the calls that are not right, the worst first: wrong ones before others, then by use and by error."""
    red = [result for result in report.results if result.state != "right"]
    return sorted(red, key=lambda r: (_WORST.index(r.state), -sum(r.use.uses.values()), -(r.ulp or 0.0), r.id))


def model_line(report: Readiness, model: str, backend: str) -> str:
    """Return how ready a backend is for a model, in a sentence."""
    counts = report.counts(model, backend)
    states = [f"{counts[state]} {state}" for state in STATES if counts[state] or state == "right"]
    states += [f"{counts['lost']} that no case can hold"] if counts["lost"] else []
    return (
        f"{one_line(model)} under {one_line(backend)}: of {plural(counts['distinct'], 'distinct call')} "
        f"{', '.join(states)}; {100 * counts['by_use']:.1f} % by use are right"
    )


def page(report: Readiness) -> str:
    """Return the tables in Markdown."""
    pairs = ((model, backend) for model in report.models() for backend in report.backends())
    lines = ["# Op by op", "", *(f"* {markdown_text(model_line(report, *pair))}" for pair in pairs), ""]
    rows = [(row.operator, row.distinct, row.uses, *(text for text, _ in row.cells)) for row in operator_rows(report)]
    lines += _markdown_table(("operator", "calls", "uses", *report.backends()), rows)
    red = [
        (r.verdict, r.use.call, r.backend, "" if r.ulp is None else f"{r.ulp:.3g}", sum(r.use.uses.values()), r.id)
        for r in red_calls(report)
    ]
    if red:
        lines += ["", *_markdown_table(("verdict", "call", "backend", "ulp", "uses", "id"), red)]
    return "\n".join(lines) + "\n"


def _markdown_table(headers: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table."""
    lines = [f"| {' | '.join(map(markdown_text, row))} |" for row in (headers, *rows)]
    return [lines[0], f"|{' --- |' * len(headers)}", *lines[1:]]
