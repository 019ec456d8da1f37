"""The task ``explain``: what torch.compile made of a case over all its calls, under the variant's own settings.

``torch._dynamo.explain`` sees one call, under a backend of its own, and no recompile. So the compiled object itself is
called as often as the case says and watched (``watch.py``); what ``explain`` says of the first call stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo.utils import counters

from runner.worker.case import backends
from runner.worker.case.errors import describe
from runner.worker.case.load import Source, seed_all
from runner.worker.case.observe import Settings, modes, observe, start_counting
from runner.worker.case.prepare import with_source
from runner.worker.tasks.dynamo_capture import Graph, Watch


def run_explain(job: Mapping[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The record of an explanation.

    Returns:
        ``calls``, ``compilations``, ``graphs``, ``graph_breaks``, ``guards``, ``recompiles``, ``limits``, ``counters``,
        ``first_call`` and ``raised`` (null, or the error that ended the run), as ``runner.cli.explain`` describes
        them, with ``line`` for places; or ``error`` if the case is wrong.
    """
    send({"phase": "load"})
    return with_source(job, lambda source: _explain(job, source, send))


def _explain(job: Mapping[str, Any], source: Source, send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    settings = Settings.of(job)
    compile_module = backends.build(job["backend"])
    loaded = source.load(settings.seed, launching=True)
    compiled = compile_module(loaded.model)
    watch = Watch(source.path)

    def call(*args: Any) -> Any:
        watch.call += 1
        return compiled(*args)

    start_counting()
    send({"phase": "backend"})
    with watch.watching():
        seen = observe(loaded, call, settings)
    counted = {kind: {str(key): int(value) for key, value in found.items()} for kind, found in counters.items()}
    return {
        "calls": [_of_call(watch, number) for number in range(len(seen.calls))],
        "compilations": watch.compilations(),
        "graphs": [_of_graph(graph) for graph in watch.graphs],
        "graph_breaks": watch.breaks(),
        "guards": watch.guards(),
        "recompiles": _recompiles(watch),
        "limits": [{key: value for key, value in hit.items() if key != "key"} for hit in watch.limits],
        "counters": counted,
        "raised": seen.error.info if seen.error else None,
        "first_call": _first_call(source, settings),
    }


def _of_call(watch: Watch, number: int) -> dict[str, Any]:
    return {
        "call": number,
        "graphs_run": [graph.number for graph in watch.graphs if number in graph.runs],
        "compiled": [one["compile_id"] for one in watch.compilations() if one["call"] == number],
        "recompiled": [one["compile_id"] for one in _recompiles(watch) if one["call"] == number and one["compiled"]],
        "graph_breaks": sum(one["call"] == number for one in watch.breaks()),
        "eager": watch.eager_in(number),
    }


def _recompiles(watch: Watch) -> list[dict[str, Any]]:
    """Recompiles, and whether anything was compiled: past the limit a frame is looked at and left alone."""
    made = {one["compile_id"] for one in watch.compilations()}
    return [{**one, "compiled": one["compile_id"] in made} for one in watch.recompiles()]


def _of_graph(graph: Graph) -> dict[str, Any]:
    return {
        "graph": graph.number,
        "call": graph.call,
        "compile_id": graph.compile_id,
        "frame": graph.frame[0],
        "operators": graph.operators,
        "compiled": graph.compiled,
        "runs": graph.runs,
    }


def _first_call(source: Source, settings: Settings) -> dict[str, Any]:
    """``torch._dynamo.explain`` of the first call: it traces on after breaks that ``fullgraph`` forbids.

    It counts one break fewer than graphs, whatever the breaks were, so the reasons it lists are counted here.
    """
    loaded = source.load(settings.seed, launching=True)
    backends.make_operators(loaded.model)
    args = loaded.make_inputs(0, settings.seed)
    seed_all(settings.seed)
    try:
        with modes(settings):
            told = torch._dynamo.explain(loaded.model)(*args)
    except (Exception, SystemExit) as error:  # noqa: BLE001  it runs the model, which may raise anything
        return {"raised": describe(error, source.path, loaded.module.__name__).info}
    breaks = [{"reason": str(one.reason), "line": _line(one.user_stack, source.path)} for one in told.break_reasons]
    return {
        "graphs": int(told.graph_count),
        "graph_breaks": breaks,
        "operators": int(told.op_count),
        "guards": len(told.out_guards or ()),
        "raised": None,
    }


def _line(stack: Any, path: str) -> int | None:
    """The innermost line of the case in a stack that Dynamo kept."""
    lines = [entry.lineno for entry in stack or () if entry.filename == path]
    return int(lines[-1]) if lines else None
