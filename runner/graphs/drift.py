"""Where an error enters a graph and how it grows: each call's result of the compiled graph, beside eager's and float64.

All results of a graph are returned at once, so the backend compiles one graph. That changes what it may fuse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runner.cases.model import FLOATING as REAL
from runner.cases.model import Variant
from runner.contract.graphs import Call, Graph
from runner.exit_codes import UsageError
from runner.graphs.cases import WrittenGraph, write_graph
from runner.graphs.stand_in import graph_variant
from runner.quote import QuoteError
from runner.record.events import largest_error

FLOATING = (*REAL, "complex64", "complex128")

LEAP = 4.0
"""An error enters where the compiled result is this many times as far from float64 as eager's and as those before."""


@dataclass(frozen=True, slots=True)
class DriftRow:
    """One result. Errors are the largest of its elements, in units in the last place from float64; None where unknown.

    ``noise`` is the ratio of eager's signal to the difference of the compiled result, in decibels; None where unknown.
    """

    name: str
    operator: str
    source: str
    elements: int
    different: int
    eager: float | None
    compiled: float | None
    noise: float | None


@dataclass(frozen=True, slots=True)
class Drift:
    """The results of a graph, in the order of its calls."""

    graph: str
    rows: tuple[DriftRow, ...]

    @property
    def enters(self) -> int | None:
        """Return the first row whose compiled error leaps: over eager's own, and over those of the rows before."""
        before = 1.0
        for place, row in enumerate(self.rows):
            if row.compiled is None:
                continue
            if row.compiled > LEAP * max(before, row.eager or 0.0):
                return place
            before = max(before, row.compiled)
        return None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, as ``runner diagnose --drift --json`` writes it."""
        rows = [{key: _finite(value) for key, value in asdict(row).items()} for row in self.rows]
        return {"graph": self.graph, "enters": self.enters, "rows": rows}


def _finite(value: Any) -> Any:
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def exposed(graph: Graph) -> Graph:
    """Return a graph that gives all floating results of its calls, and no gradients."""
    results = [f"${call.name}" for call in graph.calls if _is_floating(call)]
    return replace(graph, result=results, grad=False)


def _is_floating(call: Call) -> bool:
    return len(call.results) == 1 and not call.several and call.results[0].dtype in FLOATING


def write_exposed(graph: Graph, path: Path, model: Variant) -> tuple[WrittenGraph, Variant]:
    """Write a graph that gives all results into a spec file, and return it with its variant, as that of the model.

    Raises:
        UsageError: no call of the graph can be a step of a case.
    """
    written = write_graph(exposed(graph), "drift", "Every result of the graph of a model.")
    if written.case is None:
        raise UsageError("no call of the graph can be written as a step of a case")
    try:
        variant = graph_variant(model, written, path)
    except QuoteError as error:
        raise UsageError(f"the graph cannot be written: {error}") from error
    if variant is None:
        raise UsageError("the graph gives no case that can run")
    return written, variant


def drift_of(graph: Graph, written: WrittenGraph, accuracy: Iterable[Mapping[str, Any]]) -> Drift:
    """Return the rows of what a job measured of such a graph. ``accuracy`` is that of its record."""
    calls = {call.name: call for call in graph.calls}
    returned = written.case["return"] if written.case is not None else []
    names = [returned] if isinstance(returned, str) else returned
    paths = {"output": 0} if len(names) == 1 else {f"output[{place}]": place for place in range(len(names))}
    rows = []
    for entry in accuracy:
        if (place := paths.get(str(entry.get("path")))) is not None:
            name = str(names[place]).removeprefix("$")
            call = calls.get(name)
            rows.append((place, _row(name, call, entry)))
    return Drift(graph.name, tuple(row for _, row in sorted(rows, key=lambda pair: pair[0])))


def _row(name: str, call: Call | None, entry: Mapping[str, Any]) -> DriftRow:
    operator = "" if call is None else call.operator
    return DriftRow(
        name, operator, "" if call is None else call.source, int(entry.get("elements", 0)),
        int(entry.get("different", 0)), largest_error(entry.get("eager")), largest_error(entry.get("compiled")),
        _number(entry.get("sqnr")),
    )  # fmt: skip


def _number(value: Any) -> float | None:
    """Return a number as a record has it: those that JSON lacks are texts."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
