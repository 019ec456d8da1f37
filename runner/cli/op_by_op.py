"""Op by op: each operator call of a model alone under the backends, and a table of what is right.

The graphs of each case are recorded as ``runner capture`` records them, cut into single calls, and run as cases. What
each call takes is drawn like the values that it takes in the model. ``runner ops`` and ``runner run --op-by-op`` do it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.builder.source import build
from runner.cases.model import Backend, Unclaimed, Variant
from runner.cli.arguments import settings_of
from runner.cli.outputs import show
from runner.contract.graphs import Capture
from runner.diagnose.harness import Progress, result_of
from runner.diagnostics import InputError, shown_path
from runner.engine.local import LocalEngine
from runner.exit_codes import UsageError
from runner.files import replace_text
from runner.graphs.folder import Folder, open_folder
from runner.record.events import finished_of
from runner.record.store import output_folder, read_log
from runner.report.readiness import Readiness, Use, page, readiness, red_calls, render
from runner.session.plan import Planned, checked_environments, job, worker_paths
from runner.session.scheduler import drive, with_reference
from runner.text import one_line, plural

PAGE, DATA = "ops.md", "ops.json"


def op_by_op(arguments: argparse.Namespace, variants: Sequence[Variant], run: Callable[[list[str]], int]) -> int:
    """Record the graphs of variants, run their calls under the variants' backends, and print the tables.

    Args:
        arguments: of a command that has those of ``runner ops``, ``--output`` and ``--json`` aside.
        variants: whose graphs are recorded.
        run: runs a command line of ``runner run``, and returns its exit code.

    Raises:
        UsageError: no graph could be recorded, or the folder cannot be used.
    """
    captures = record_graphs(arguments, variants)
    folder = open_folder(output_folder(getattr(arguments, "output", None), "ops"))
    for capture in captures:
        folder.add(capture, "operator", "op-by-op")
    if not folder.cases:
        raise UsageError("no operator call could be written as a case", exit_codes.NOTHING)
    typed = {*(arguments.backend or ())}
    backends = {variant.backend.name: variant.backend for variant in variants}
    named = [_plain(backend) for name, backend in backends.items() if name not in typed or ":" not in name]
    folder.save(named or ["eager"])
    code = run(_words(arguments, folder.suite, [name for name in arguments.backend or () if name in backends]))
    events = finished_of(read_log("latest").events).values()
    report = readiness(events, _uses(folder), _lost(folder))
    data = report.to_json()
    replace_text(folder.path / DATA, json.dumps(data, indent=1) + "\n")
    replace_text(folder.path / PAGE, page(report))
    if hasattr(arguments, "json"):
        show(arguments, json.dumps(data, indent=1), f"\n{render(report)}")
    else:
        console.output(f"\n{render(report)}")
    console.message(f"runner: kept in {shown_path(str(folder.path))}")
    _next(report)
    return code


def record_graphs(arguments: argparse.Namespace, variants: Sequence[Variant]) -> list[Capture]:
    """Return what Dynamo makes of each variant, once for all backends."""
    settings = settings_of(arguments)
    environments = checked_environments(settings, variants)
    different = {variant.label: variant for variant in variants}
    settings_of_case: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    eager = Backend("eager", "eager")
    jobs = []
    for variant in (replace(v, backend=replace(eager, dynamic=v.backend.dynamic)) for v in different.values()):
        source = build(variant, limits=settings.limits())
        if errors := [diagnostic for diagnostic in source.diagnostics if diagnostic.severity == "error"]:
            raise InputError(errors)
        base = job(
            Planned(variant, environments[0]), source, seed=settings.seed, imports=settings.imports,
            paths=worker_paths(settings, variants), suffix=" capture",
        )  # fmt: skip
        model = variant.label.rpartition("::")[2]
        jobs.append(replace(base, task="capture", arguments={"model": model}, cacheable=False))
        compiling = {"mode": variant.case.compile.mode, "options": {**variant.case.compile.options}}
        own = {key: value for key, value in compiling.items() if value}
        settings_of_case[jobs[-1].key] = (own, {**variant.case.config})
    engine = LocalEngine({e.key: e.python for e in environments[:1]}, settings.slots(), warm={})
    captures = []
    with Progress() as progress:
        try:
            tick = lambda: progress.say(f"recording the graphs of {plural(len(jobs), 'case')}")  # noqa: E731
            for outcome in drive(engine, with_reference(jobs), tick):
                compiling, config = settings_of_case[outcome.job.key]
                captures += [
                    replace(capture, graphs=tuple(replace(g, compile=compiling, config=config) for g in capture.graphs))
                    for capture in _capture_of(outcome)
                ]
        finally:
            engine.close()
    return captures


def _capture_of(outcome: Any) -> list[Capture]:
    """Return the capture that a job gives; none, with a message, where the case gives none."""
    try:
        result = result_of(outcome)
    except UsageError as error:
        console.message(f"runner: {one_line(outcome.job.id)}: {one_line(str(error), 300)}")
        return []
    if result["raised"]:
        message = f"{result['raised']['type']}: {result['raised']['message']}"
        console.message(f"runner: {one_line(outcome.job.id)}, while it was recorded: {one_line(message, 300)}")
    return [Capture.from_json(result["capture"])]


def _words(arguments: argparse.Namespace, suite: Path, backends: Sequence[str]) -> list[str]:
    """Return the command line that runs the calls, under these backends where any were typed."""
    words = ["run", str(suite), "--accuracy", "--seed", str(settings_of(arguments).seed), "--no-project"]
    words += [f"--backend={name}" for name in backends]
    words += [f"--python={python}" for python in arguments.python or ()]
    words += [f"--import={name}" for name in arguments.imports or ()]
    words += [f"--limit={limit}" for limit in arguments.limit or ()]
    words += [f"--jobs={arguments.jobs}"] if arguments.jobs else []
    words += ["--allow-python"] if arguments.allow_python else []
    return words + {"quiet": ["-q"], "verbose": ["-v"]}.get(arguments.detail, [])


def _plain(backend: Backend) -> Any:
    """Return a backend as a suite file has it."""
    keys = {
        "dynamic": backend.dynamic, "fullgraph": backend.fullgraph, "mode": backend.mode,
        "options": {**backend.options}, "config": {**backend.config},
        "unclaimed": {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(backend.unclaimed).items() if value
        } if backend.unclaimed != Unclaimed() else None,
    }  # fmt: skip
    kept = {key: value for key, value in keys.items() if value}
    if not kept and backend.name == backend.backend:
        return backend.name
    return {"name": backend.name, "backend": backend.backend, **kept}


def _uses(folder: Folder) -> dict[str, Use]:
    return {c["name"]: Use(c["name"], c["operator"], c["call"], c["uses"]) for c in folder.cases.values()}


def _lost(folder: Folder) -> Mapping[str, int]:
    """Return how many calls of each model no case holds."""
    return {model["model"]: sum(fault["count"] for fault in model["faults"]) for model in folder.models}


def _next(report: Readiness) -> None:
    """Say how to go on with the worst call."""
    for result in red_calls(report)[:1]:
        console.output(f"next: {result.command.replace('runner run', 'runner why', 1)}")
