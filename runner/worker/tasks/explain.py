"""The task ``explain``: what torch.compile made of a case over all its calls, under the variant's own settings.

``torch._dynamo.explain`` sees one call, under a backend of its own, and no recompile. So the compiled object itself is
called as often as the case says and captured (``dynamo_capture.py``). The report of ``explain`` on the first call is
added.
"""

from __future__ import annotations

from typing import Any

from runner.contract.job import Job
from runner.worker.program import backends
from runner.worker.program.errors import describe
from runner.worker.program.load import Source, seed_all
from runner.worker.program.observe import Settings, modes, observe
from runner.worker.program.random_numbers import settings_of_judged_run
from runner.worker.run.job import Send
from runner.worker.run.prepare import with_source
from runner.worker.tasks.dynamo_capture import Capture, Graph
from runner.worker.torch_private import counters
from runner.worker.torch_private.counters import start_counting
from runner.worker.torch_private.dynamo import EXPLAIN


def run_explain(job: Job, send: Send) -> dict[str, Any]:
    """Return the record of an explanation.

    Returns:
        ``calls``, ``compilations``, ``graphs``, ``graph_breaks``, ``guards``, ``recompiles``, ``limits``, ``counters``,
        ``first_call`` and ``raised`` (null, or the error that ended the run). ``runner.cli.debug`` describes them;
        places have ``line``. ``error`` if the case is wrong.
    """
    send({"phase": "load"})
    return with_source(job, lambda source: _explain(job, source, send))


def _explain(job: Job, source: Source, send: Send) -> dict[str, Any]:
    with settings_of_judged_run(job, source):
        return _report(job, source, send)


def _report(job: Job, source: Source, send: Send) -> dict[str, Any]:
    settings = Settings.of(job)
    compile_module = backends.build(job.backend)
    loaded = source.load(settings.seed, launching=True)
    compiled = compile_module(loaded.model)
    capture = Capture(source.path)

    def call(*args: Any) -> Any:
        capture.trace.call += 1
        return compiled(*args)

    start_counting()
    send({"phase": "backend"})
    with capture.capturing():
        observation = observe(loaded, call, settings)
    return {
        "calls": [_of_call(capture, number) for number in range(len(observation.calls))],
        "compilations": capture.compilations(),
        "graphs": [_of_graph(graph) for graph in capture.graphs],
        "graph_breaks": capture.breaks(),
        "guards": capture.guards(),
        "recompiles": _recompiles(capture),
        "limits": [{key: value for key, value in hit.items() if key != "key"} for hit in capture.limits],
        "counters": counters.everything(),
        "raised": observation.error.info if observation.error else None,
        "first_call": _first_call(source, settings),
    }


def _of_call(capture: Capture, number: int) -> dict[str, Any]:
    return {
        "call": number,
        "graphs_run": [graph.number for graph in capture.graphs if number in graph.runs],
        "compiled": [row["compile_id"] for row in capture.compilations() if row["call"] == number],
        "recompiled": [row["compile_id"] for row in _recompiles(capture) if row["call"] == number and row["compiled"]],
        "graph_breaks": sum(row["call"] == number for row in capture.breaks()),
        "eager": capture.eager_in(number),
    }


def _recompiles(capture: Capture) -> list[dict[str, Any]]:
    """Return recompiles, and whether anything was compiled: past the limit a frame is inspected and left alone."""
    compiled_ids = {row["compile_id"] for row in capture.compilations()}
    return [{**row, "compiled": row["compile_id"] in compiled_ids} for row in capture.recompiles()]


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
    """Return ``torch._dynamo.explain`` of the first call: it traces on after breaks that ``fullgraph`` forbids.

    It counts one break fewer than graphs, whatever the breaks were, so the reasons it lists are counted here.
    """
    loaded = source.load(settings.seed, launching=True)
    backends.make_operators(loaded.model)
    args = loaded.make_inputs(0, settings.seed)
    seed_all(settings.seed)
    try:
        with modes(settings):
            explanation = EXPLAIN.need()(loaded.model)(*args)
    except BaseException as error:  # noqa: BLE001  it runs the model, which may raise anything
        return {"raised": describe(error, source.path, loaded.module.__name__).info}
    breaks = [
        {"reason": str(entry.reason), "line": _line(entry.user_stack, source.path)}
        for entry in explanation.break_reasons
    ]
    return {
        "graphs": int(explanation.graph_count),
        "graph_breaks": breaks,
        "operators": int(explanation.op_count),
        "guards": len(explanation.out_guards or ()),
        "raised": None,
    }


def _line(stack: Any, path: str) -> int | None:
    """Return the innermost line of the case in a stack that Dynamo kept."""
    lines = [entry.lineno for entry in stack or () if entry.filename == path]
    return int(lines[-1]) if lines else None
