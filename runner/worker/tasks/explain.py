"""The task ``explain``: what torch.compile made of a case over all its calls, under the variant's own settings.

``torch._dynamo.explain`` sees one call, under a backend of its own, and no recompile. So the compiled object itself is
called as often as the case says, and what Dynamo makes of it is captured: graphs and their operators, breaks, guards,
recompiles, frames left to eager. The report of ``explain`` on the first call is added.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from torch.fx import GraphModule, Node

from runner.contract.job import Job
from runner.worker.program import backends
from runner.worker.program.eager import settings_of_judged_run
from runner.worker.program.errors import describe
from runner.worker.program.load import Source, seed_all
from runner.worker.program.observe import Settings, modes, observe
from runner.worker.run.job import Send, with_source
from runner.worker.torch_private import counters
from runner.worker.torch_private.dynamo import EXPLAIN, OPERATORS, hearing_limits, logging_breaks, wrapping_compilations
from runner.worker.torch_private.logs import Event, Trace, tracing


def run_explain(job: Job, send: Send) -> dict[str, Any]:
    """Return the record of an explanation.

    Returns:
        ``calls``, ``compilations``, ``graphs``, ``graph_breaks``, ``guards``, ``recompiles``, ``limits``, ``counters``,
        ``first_call`` and ``raised`` (null, or the error that ended the run). ``runner.cli.explain`` describes them;
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

    def call(*args: Any, **keywords: Any) -> Any:
        capture.trace.call += 1
        return compiled(*args, **keywords)

    counters.start_counting()
    send({"phase": "backend"})
    with capture.capturing():
        observation = observe(loaded, call, settings)
    return {
        "calls": [_of_call(capture, number) for number in range(len(observation.calls))],
        "compilations": capture.compilations(),
        "graphs": [{**vars(graph), "frame": graph.frame[0]} for graph in capture.graphs],
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
        "graphs_run": [graph.graph for graph in capture.graphs if number in graph.runs],
        "compiled": [row["compile_id"] for row in capture.compilations() if row["call"] == number],
        "recompiled": [row["compile_id"] for row in _recompiles(capture) if row["call"] == number and row["compiled"]],
        "graph_breaks": sum(row["call"] == number for row in capture.breaks()),
        "eager": capture.eager_in(number),
    }


def _recompiles(capture: Capture) -> list[dict[str, Any]]:
    """Return recompiles, and whether anything was compiled: past the limit a frame is inspected and left alone."""
    compiled_ids = {row["compile_id"] for row in capture.compilations()}
    return [{**row, "compiled": row["compile_id"] in compiled_ids} for row in capture.recompiles()]


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
            explanation = loaded.call(EXPLAIN.need()(loaded.model), args)
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


CAPTURED = frozenset({"dynamo_graph_break_reason", "dynamo_cpp_guards_str", "recompile_reasons", "compilation_metrics"})
REASON_LENGTH = 2000  # characters

_FUNCTION = re.compile(r"'(?P<name>.*)' \((?P<file>.*):(?P<line>\d+)\)")
_REASON = re.compile(r"Reason: (.*?)\s*(?=\nUser code traceback:|\Z)", re.DOTALL)
_EXCEPTION = re.compile(r"^torch\._dynamo\.exc\.(\w+: .*)$", re.MULTILINE)
_GUARD = re.compile(r"\+- ([A-Z][A-Z_0-9]*: .*)")  # managers are written Like: This
_TRACEBACK = "Traceback (most recent call last)"

Frame = tuple[str, str, int]
"""A function that Dynamo compiles: its name, file and first line."""


@dataclass
class Graph:
    """One graph that Dynamo gave to the backend, and in which calls it ran."""

    graph: int
    call: int
    compile_id: str
    frame: Frame
    operators: dict[str, int]
    compiled: bool = False
    runs: list[int] = field(default_factory=list)


class Capture:
    """Collects while ``capturing()``. Count ``trace.call`` up before each call of the compiled object."""

    def __init__(self, path: str) -> None:
        """Prepare for the case's own file ``path``: places elsewhere have no line here."""
        self.path = path
        self.graphs: list[Graph] = []
        self.events: list[Event] = []
        self.limits: list[dict[str, Any]] = []
        self.trace = Trace(CAPTURED.__contains__, self.events.append)

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Capture for as long as the block lasts."""
        with (
            hearing_limits(self._note_limit),
            tracing(self.trace),
            logging_breaks(),
            wrapping_compilations(self._compile),
        ):
            yield

    def _compile(
        self, graph: GraphModule, code: CodeType, compile_graph: Callable[[], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """Note a graph of the frame ``code`` before the backend, which may change it, and each run of the result."""
        compile_id = graph.meta.get("dynamo_compile_id")
        counts = Counter(operator_name(node, graph) for node in graph.graph.nodes if node.op.startswith("call_"))
        frame = (code.co_name, code.co_filename, code.co_firstlineno)
        entry = Graph(len(self.graphs), self.trace.call, str(compile_id or ""), frame, dict(counts))
        self.graphs.append(entry)  # the graph itself is not kept: it holds the example inputs
        function = compile_graph()
        entry.compiled = True

        def run(*args: Any, **kwargs: Any) -> Any:
            if self.trace.call not in entry.runs:
                entry.runs.append(self.trace.call)
            return function(*args, **kwargs)

        return run

    def breaks(self) -> list[dict[str, Any]]:
        """Return graph breaks in order, each once. torch reports some of them again when it gives up the frame."""
        unique: dict[tuple[Any, ...], dict[str, Any]] = {}
        for event in self._of("dynamo_graph_break_reason"):
            reason, line = read_break(event.payload, self.path)
            row = {"call": event.call, "compile_id": event.compile_id, "line": line, "reason": self._short(reason)}
            unique.setdefault(tuple(row.values()), row)
        return list(unique.values())

    def guards(self) -> dict[str, list[str]]:
        """Return guards by compile id: kind and a Python expression over the frame's locals ``L`` and globals ``G``."""
        return {event.compile_id: read_guards(event.payload) for event in self._of("dynamo_cpp_guards_str")}

    def recompiles(self) -> list[dict[str, Any]]:
        """Return each time that a compiled frame did not fit, with the guards that failed, the latest entry's first."""
        rows = []
        for event in self._of("recompile_reasons"):
            payload = event.loaded()
            reasons = [self._short(str(reason)) for reason in (payload if isinstance(payload, list) else [payload])]
            rows.append({"call": event.call, "compile_id": event.compile_id, "reasons": reasons})
        return rows

    def compilations(self) -> list[dict[str, Any]]:
        """Return torch's metrics of each compilation: frame, seconds, guards, and why the frame was given up, if it
        was."""
        rows = []
        broken = {row["compile_id"]: row["reason"] for row in self.breaks()}
        for event in self._of("compilation_metrics"):
            facts = event.facts
            if facts.get("co_name") is None:
                continue  # of a compilation that began and was given up at once, such as one past the limit
            compile_id = event.compile_id or str(facts.get("compile_id") or "")
            failed = None
            if facts.get("fail_type"):
                failed = self._short(f"{facts['fail_type']}: {facts.get('fail_reason') or ''}")
            elif facts.get("has_guarded_code") is False:  # skipped without an error, as 2.6 does with a break in a loop
                failed = broken.get(compile_id)  # without a break there was nothing to compile
            rows.append(
                {
                    "call": event.call,
                    "compile_id": compile_id,
                    "frame": str(facts["co_name"]),
                    "line": facts.get("co_firstlineno") if facts.get("co_filename") == self.path else None,
                    "seconds": facts.get("entire_frame_compile_time_s"),
                    "guards": facts.get("guard_count"),
                    "operators": facts.get("graph_op_count"),
                    "failed": failed,
                    "restarts": sorted(map(str, facts.get("restart_reasons") or ())),
                }
            )
        return rows

    def eager_in(self, call: int) -> list[str]:
        """Return frames past their recompile limit of which no graph ran in that call.

        The call that met the limit is certain. Later ones fit an older graph or run eagerly, and torch does not say
        which. A frame that was not reached at all looks the same.
        """
        limited = {hit["key"]: hit["frame"] for hit in self.limits if hit["call"] <= call}
        ran = {graph.frame for graph in self.graphs if call in graph.runs}
        return [name for frame, name in limited.items() if frame not in ran]

    def _of(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    def _note_limit(self, limit: Any, value: Any, function: Any, reason: Any) -> None:
        match = _FUNCTION.fullmatch(str(function))
        if match is None:
            return
        key: Frame = (match["name"], match["file"], int(match["line"]))
        self.limits.append(
            {
                "call": self.trace.call,
                "key": key,
                "frame": key[0],
                "line": key[2] if key[1] == self.path else None,
                "limit": f"torch._dynamo.config.{limit}",
                "value": value,
                "reason": self._short(str(reason)),
            }
        )

    def _short(self, text: str) -> str:
        """Return a text of torch's without the temporary folder of the case, so that it reads the same in every run."""
        return text.replace(self.path.rpartition("/")[0] + "/", "")[:REASON_LENGTH]


def read_break(text: str, path: str) -> tuple[str, int | None]:
    """Return reason and line (of the file ``path``, if it names one) in torch's text of a graph break."""
    message, _, trace = text.partition(_TRACEBACK)
    match = _REASON.search(message) or _EXCEPTION.search(trace)
    lines = re.findall(re.escape(f'File "{path}", line ') + r"(\d+)", message)
    lines = lines or re.findall(re.escape(f"in user code at {path}:") + r"(\d+)", message)
    reason = match[1] if match else message.strip().partition("\n")[0]
    return reason.strip(), int(lines[-1]) if lines else None


def read_guards(text: str) -> list[str]:
    """Return the guards in torch's print of their tree, each once, without managers and origins."""
    return list(dict.fromkeys(match[1].split("  # ")[0].strip() for match in _GUARD.finditer(text)))


def operator_name(node: Node, graph: GraphModule) -> str:
    """Return ``torch.relu``, ``operator.add``, ``Tensor.view``, or the class of a module that is called."""
    if node.op == "call_method":
        return f"Tensor.{node.target}"
    if node.op == "call_module":
        return type(graph.get_submodule(str(node.target))).__name__
    target: Any = node.target
    name = str(getattr(target, "__name__", target))
    module = str(getattr(target, "__module__", None) or "torch")
    if module.startswith(OPERATORS):
        return str(target)
    return f"{module.removeprefix('_')}.{name}"
