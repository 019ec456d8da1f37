"""``runner diagnose --drift``: where an error enters the graphs of a case, and how it grows."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cases.suites import SPEC
from runner.cli import outputs
from runner.cli.arguments import settings_of
from runner.cli.op_by_op import record_graphs
from runner.contract.graphs import Graph
from runner.diagnose.harness import Progress, VariantEngine
from runner.diagnose.kept import INTERRUPTED, OUT_OF_TIME
from runner.diagnostics import shown_path
from runner.exit_codes import UsageError
from runner.graphs.drift import Drift, drift_of, write_exposed
from runner.record.store import output_folder
from runner.report.drift import render
from runner.text import one_line, plural


def show_drift(arguments: argparse.Namespace, variant: Variant) -> int:
    """Record the graphs of a variant, run each with all its results as outputs, and print how far they are off.

    Out of time or interrupted it prints the graphs so far.

    Raises:
        UsageError, InputError: an option is of another table; no graph can be recorded or written, or it cannot run.
    """
    end = time.monotonic() + arguments.budget
    for option, is_set in (("--html", arguments.html), ("--no-bisect", not arguments.bisect)):
        if is_set:
            raise UsageError(f"{option} goes with a diagnosis, which --drift takes the place of: leave one of them out")
    folder = output_folder(None, "drift")
    drifts: list[Drift] = []
    stopped = ""
    graphs = [graph for capture in record_graphs(arguments, [variant]) for graph in capture.graphs]
    if not graphs:
        raise UsageError("Dynamo captures no graph of it", exit_codes.NOTHING)
    folder.mkdir(parents=True, exist_ok=True)
    with Progress() as progress:
        try:
            for number, graph in enumerate(graphs, 1):
                if drifts and time.monotonic() > end:
                    stopped = OUT_OF_TIME
                    break
                progress.say(f"running graph {number} of {len(graphs)} with all its results")
                drifts.append(_measure(arguments, graph, folder / f"graph_{number}{SPEC}", variant))
        except KeyboardInterrupt:
            stopped = INTERRUPTED
    width = shutil.get_terminal_size((120, 24)).columns
    text = json.dumps([drift.to_json() for drift in drifts], indent=2)
    outputs.show(arguments, text, render(drifts, width))
    console.message(f"runner: the cases with all results are kept in {shown_path(str(folder))}")
    if stopped:
        console.message(f"runner: {stopped}: {len(drifts)} of {plural(len(graphs), 'graph')}")
    return exit_codes.INTERRUPTED if stopped == INTERRUPTED else exit_codes.OK


def _measure(arguments: argparse.Namespace, graph: Graph, path: Path, variant: Variant) -> Drift:
    """Run a graph with all its results under the variant's backend. What is raised is said, and has no rows."""
    written, each = write_exposed(graph, path, variant)
    with VariantEngine.of(settings_of(arguments), each) as engine:
        event = engine.verdict(accuracy=True)
    if event.verdict not in ("PASS", "FAIL") or not event.accuracy:
        console.message(f"runner: {one_line(graph.name)}: {event.verdict}: {one_line(event.reason, 300)}")
    return drift_of(graph, written, event.accuracy)
