"""How ready backends are for models, operator by operator: which distinct calls are right, and how often they are used.

Each case of the folder is one distinct call of an operator. A call counts once under ``distinct``, and as often as the
models make it under ``use``. Of the calls of a model under a backend::

    right        PASS and XPASS
    wrong        FAIL, and XFAIL where the backend answers
    unsupported  ERROR, and SKIP because the backend does not claim what the call needs
    other        FLAKY, INVALID, VACUOUS and NOT-RUN
    by use       uses of right calls / uses of all calls
    itself       the same of right calls of which the code of a backend outside torch computed something
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tabulate import tabulate

from runner.contract.oracles import SEVERITIES, rank_of
from runner.quote import markdown_text
from runner.record.events import VariantFinished, largest_error
from runner.text import one_line, plural

State = Literal["right", "wrong", "unsupported", "other"]
STATES: tuple[State, ...] = ("right", "wrong", "unsupported", "other")
_WORST: tuple[State, ...] = ("wrong", "unsupported", "other", "right")
_BESIDE = 2.0
"""Times eager's error, beyond which eager's stands beside it."""
_OF_GRADIENTS = ("requires-grad", "grad")
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
    oracle: str = ""
    severity: str | None = None
    delegated: int | None = None  # operators that the backend's own code computed; None where not counted

    @property
    def rank(self) -> tuple[int, int]:
        """Return its place by harm, the worst first: by severity, then by state."""
        known = len(SEVERITIES) if self.severity is None else rank_of(self.severity)
        return (len(SEVERITIES) + 1 if self.state == "right" else known), _WORST.index(self.state)


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
        given_back = [row for row in rows if row.state == "right" and row.delegated == 0]
        itself = right - sum(row.use.uses[model] for row in given_back)
        shares = {"by_use": right / uses if uses else 0.0, "itself": itself / uses if uses else 0.0}
        counted: dict[str, int] = {state: sum(row.state == state for row in rows) for state in STATES}
        return {"distinct": len(rows), **counted, "by_torch": len(given_back), "lost": lost, "uses": uses, **shares}

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
            results.append(
                CallResult(
                    use, backend, event.id, state_of(event), event.verdict, one_line(reason, 200), event.repro,
                    _largest(event, "compiled"), _largest(event, "eager"),
                    event.oracles[0] if event.oracles else "", event.severity, event.delegated,
                )
            )  # fmt: skip
    return Readiness(results, lost)


def _largest(event: VariantFinished, side: str) -> float | None:
    """Return the largest error of a side, over outputs and gradients; infinite where special values are other ones."""
    errors = (largest_error(entry.get(side)) for entry in event.accuracy)
    return max((error for error in errors if error is not None), default=None)


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator. ``cells`` have a text for each backend, and ``rank`` is that of its worst call."""

    operator: str
    distinct: int
    uses: int
    cells: tuple[str, ...]
    rank: tuple[int, int]


def operator_rows(report: Readiness) -> list[OperatorRow]:
    """Return a row for each operator: by the harm of its worst call, then by use."""
    grouped: dict[str, dict[str, list[CallResult]]] = defaultdict(lambda: defaultdict(list))
    for result in report.results:
        grouped[result.use.operator][result.backend].append(result)
    rows = []
    for operator, columns in grouped.items():
        calls = {r.use.case: r.use for results in columns.values() for r in results}
        cells = tuple(_cell(columns.get(backend, [])) for backend in report.backends())
        uses = sum(sum(use.uses.values()) for use in calls.values())
        rank = min(result.rank for results in columns.values() for result in results)
        rows.append(OperatorRow(operator, len(calls), uses, cells, rank))
    return sorted(rows, key=lambda row: (row.rank, -row.uses, row.operator))


def _cell(results: Sequence[CallResult]) -> str:
    """Return what a cell says: how many calls are right, what others are and by which oracle, and the largest error."""
    if not results:
        return "-"
    words = []
    for state in STATES:
        calls = [result for result in results if result.state == state]
        kinds = dict.fromkeys(result.oracle for result in sorted(calls, key=lambda call: call.rank) if result.oracle)
        if calls:
            words.append(f"{len(calls)} {state}" + (f" ({', '.join(kinds)})" if kinds and state != "right" else ""))
    errors = [(result.ulp, result.eager_ulp or 0.0) for result in results if result.ulp is not None]
    worst, eager = max(errors, default=(0.0, 0.0))
    error = f", {worst:.3g} ulp" + (f" (eager {eager:.3g})" if worst > _BESIDE * eager else "") if errors else ""
    return ", ".join(words) + error


def render(report: Readiness) -> str:
    """Return the tables as text: each model, each operator, and the calls that are not right."""
    lines = [model_line(report, model, backend) for model in report.models() for backend in report.backends()]
    headers = ["operator", "calls", "uses", *report.backends()]
    rows = [[row.operator, row.distinct, row.uses, *row.cells] for row in operator_rows(report)]
    red = red_calls(report)
    lines += ["", tabulate(rows, headers=headers), ""]
    lines += [f"{r.verdict} {r.use.call} under {r.backend}: {r.reason}\n  {r.id}" for r in red[:_RED_SHOWN]]
    lines += [f"and {len(red) - _RED_SHOWN} more"] if len(red) > _RED_SHOWN else []
    lines += [f"note: {note}" for note in notes(report)]
    return "\n".join(lines).rstrip()


def notes(report: Readiness) -> list[str]:
    """Return what a reader of the table should know of each backend: which calls say little about it, and why."""
    lines = []
    for backend in report.backends():
        rows = [result for result in report.results if result.backend == backend]
        right = [result for result in rows if result.state == "right"]
        given_back = sum(result.delegated == 0 for result in right)
        if 2 * given_back > len(right):
            lines.append(
                f"{backend} gave {given_back} of {plural(len(right), 'right call')} back to torch, so they say little "
                "about it. A backend may leave graphs of one operator to torch: look for its option, or run the whole "
                "model"
            )
        gradients = sum(result.state == "wrong" and result.oracle in _OF_GRADIENTS for result in rows)
        if gradients:
            are = "is" if gradients == 1 else "are"
            lines.append(
                f"{plural(gradients, 'call')} of {backend} {are} wrong in gradients alone: for a backend that has none "
                "`unclaimed: {gradients: true}` in a suite leaves them out"
            )
    return [one_line(line) for line in lines]


def red_calls(report: Readiness) -> list[CallResult]:
    """Return the calls that are not right, the worst first: by harm, then by use and by error."""
    red = [result for result in report.results if result.state != "right"]
    return sorted(red, key=lambda r: (r.rank, -sum(r.use.uses.values()), -(r.ulp or 0.0), r.id))


def model_line(report: Readiness, model: str, backend: str) -> str:
    """Return how ready a backend is for a model, in a sentence."""
    counts = report.counts(model, backend)
    states = [f"{counts[state]} {state}" for state in STATES if counts[state] or state == "right"]
    states[0] += f" ({counts['by_torch']} computed by torch)" if counts["by_torch"] else ""
    states += [f"{counts['lost']} that no case can hold"] if counts["lost"] else []
    itself = f", {100 * counts['itself']:.1f} % by its own code" if counts["by_torch"] else ""
    return (
        f"{one_line(model)} under {one_line(backend)}: of {plural(counts['distinct'], 'distinct call')} "
        f"{', '.join(states)}; {100 * counts['by_use']:.1f} % by use are right{itself}"
    )


def page(report: Readiness) -> str:
    """Return the tables in Markdown."""
    pairs = ((model, backend) for model in report.models() for backend in report.backends())
    lines = ["# Op by op", "", *(f"* {markdown_text(model_line(report, *pair))}" for pair in pairs), ""]
    rows = [(row.operator, row.distinct, row.uses, *row.cells) for row in operator_rows(report)]
    lines += _markdown_table(("operator", "calls", "uses", *report.backends()), rows)
    red = [
        (r.verdict, r.use.call, r.backend, "" if r.ulp is None else f"{r.ulp:.3g}", sum(r.use.uses.values()), r.id)
        for r in red_calls(report)
    ]
    if red:
        lines += ["", *_markdown_table(("verdict", "call", "backend", "ulp", "uses", "id"), red)]
    if texts := notes(report):
        lines += ["", *(f"* {markdown_text(text)}" for text in texts)]
    return "\n".join(lines) + "\n"


def _markdown_table(headers: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table."""
    lines = [f"| {' | '.join(map(markdown_text, row))} |" for row in (headers, *rows)]
    return [lines[0], f"|{' --- |' * len(headers)}", *lines[1:]]
