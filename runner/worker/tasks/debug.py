"""The task ``debug``: one run of a case with everything that torch's compiler can be made to write, in a folder.

Files are written as it happens, so that a compiler that crashes leaves what there was. Nothing is taken from a cache:
on a hit torch would write neither kernels nor graphs.
"""

from __future__ import annotations

import contextlib
import functools
import re
from pathlib import Path
from typing import Any

import torch

from runner.contract.job import Job
from runner.worker.program import backends
from runner.worker.program.eager import settings_of_judged_run
from runner.worker.program.load import Source, configured
from runner.worker.program.observe import Settings, observe, read_counts
from runner.worker.run.job import Send, own_cache, variable, with_source
from runner.worker.torch_private import counters
from runner.worker.torch_private.logs import Event, Trace, log_files, trace_file, tracing

FILTER = "TORCHDYNAMO_DEBUG_FUNCTION"
_GRAPH = re.compile(r"graph|output_code")
_NO_GRAPH = re.compile(r"break_reason|cache|failed|metadata|bytecode")
_SUFFIX = {"json": ".json", "string": ".py"}


def run_debug(job: Job, send: Send) -> dict[str, Any]:
    """Return the record of a debugging run.

    ``job.arguments``: ``folder`` (of the bundle; the case's source goes there too), ``function`` (a frame's name, or
    null for all), ``artifacts`` (of ``TORCH_LOGS``).

    Returns:
        ``raised``: null, or the error that ended the run. ``graphs``. ``frames``: names that Dynamo compiled.
        ``times``: phase, count, seconds. ``compilations``. ``counters``. ``kernels``: Inductor's counts. ``missing``:
        artifacts that this torch does not know. ``error`` if the case is wrong.
    """
    send({"phase": "load"})
    # In the bundle, so that the paths in its logs and graphs lead somewhere.
    return with_source(job, lambda source: _debug(job, source, send), job.arguments["folder"])


def _debug(job: Job, source: Source, send: Send) -> dict[str, Any]:
    arguments = job.arguments
    folder = Path(arguments["folder"])
    settings = Settings.of(job)
    compile_module = backends.build(job.backend)
    loaded = source.load(settings.seed, launching=True)
    events: list[Event] = []
    graphs = _GraphFiles(folder / "graphs")

    def sort(event: Event) -> None:
        if is_graph(event.name):
            graphs.write(event)
        else:
            events.append(event)

    trace = Trace(lambda name: is_graph(name) or name in _KEPT, sort)
    with (
        settings_of_judged_run(job, source),
        own_cache(),
        configured(flags(folder).items()),
        variable(FILTER, arguments.get("function")),  # Dynamo asks it at each frame
        log_files(folder / "logs", arguments["artifacts"]) as missing,
        tracing(trace, trace_file(folder / "trace")),
    ):
        counters.start_counting()
        send({"phase": "backend"})
        observation = observe(loaded, compile_module(loaded.model), settings)
        read_counts(observation)
        return {
            "raised": observation.error.info if observation.error else None,
            "graphs": observation.graphs,
            "frames": _frames(events),
            "times": _times(),
            "compilations": [_metrics(event) for event in events if event.name.endswith("compilation_metrics")],
            "counters": counters.everything(),
            "kernels": counters.kernel_counts(),
            "missing": missing,
        }


def flags(folder: Path) -> dict[str, Any]:
    """Return the flags of such a run, as far as this torch has them."""
    inductor = "torch._inductor.config."
    values = {
        f"{inductor}force_disable_caches": True,
        f"{inductor}trace.enabled": True,
        f"{inductor}trace.debug_dir": str(folder),
        # Pictures need pydot and graphviz; without pydot one of the formats ends the compilation with an error.
        f"{inductor}trace.graph_diagram": False,
        f"{inductor}trace.draw_orig_fx_graph": False,
        "torch._dynamo.config.debug_dir_root": str(folder),
    }
    return {name: value for name, value in values.items() if _exists(name)}


def _exists(flag: str) -> bool:
    try:
        functools.reduce(getattr, flag.split(".")[1:], torch)
    except AttributeError:
        return False
    return True


def is_graph(name: str) -> bool:
    """Return whether a record of the trace holds a graph or generated code."""
    return _GRAPH.search(name) is not None and _NO_GRAPH.search(name) is None


_KEPT = frozenset({"compilation_metrics", "bwd_compilation_metrics", "dynamo_start"})


class _GraphFiles:
    """The graphs that torch traces, a file each: ``0_1.aot_forward_graph.py`` is of frame 0, compiled again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[str, int] = {}

    def write(self, event: Event) -> None:
        """Write one graph. A full disk is no reason for a compilation to fail."""
        if not event.payload:
            return
        stem = f"{event.compile_id.replace('/', '_') or 'none'}.{re.sub(r'[^A-Za-z0-9_.-]', '_', event.name)}"
        number = self._numbers[stem] = self._numbers.get(stem, 0) + 1
        suffix = _SUFFIX.get(str(event.facts.get("encoding", "string")), ".txt")
        path = self._folder / f"{stem}{f'.{number}' if number > 1 else ''}{suffix}"
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            path.write_text(event.payload, encoding="utf-8", errors="backslashreplace")


def _frames(events: list[Event]) -> list[str]:
    """Return the names of the functions that Dynamo compiled, each once."""
    stacks = [event.facts.get("stack") or [] for event in events if event.name == "dynamo_start"]
    return list(dict.fromkeys(str(stack[-1].get("name")) for stack in stacks if stack))


def _metrics(event: Event) -> dict[str, Any]:
    """Return CompilationMetrics without what torch did not fill in, and without whole configurations as text."""
    return {key: value for key, value in event.facts.items() if value is not None and not key.endswith("_config")}


def _times() -> list[dict[str, Any]]:
    """Return seconds by phase, the longest first. Phases contain each other, so they do not add up."""
    times = counters.times().items()
    rows = [{"phase": name, "count": len(seconds), "seconds": round(sum(seconds), 6)} for name, seconds in times]
    return sorted(rows, key=lambda row: -row["seconds"])
