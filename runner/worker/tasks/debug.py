"""What torch's compiler did to one case, for a person who looks for a defect in it: the tasks ``debug``, ``explain``,
``record`` and ``replay``.

``debug`` is one run with everything that the compiler can be made to write, in a folder. Files are written as it
happens, so that a compiler that crashes leaves what there was. Nothing is taken from a cache: on a hit torch would
write neither kernels nor graphs.

``explain`` tells what torch.compile made of a case over all its calls, under the variant's own settings.
``torch._dynamo.explain`` sees one call, under a backend of its own, and no recompile. So the compiled object itself is
called as often as the case says, and what Dynamo makes of it is captured: graphs and their operators, breaks, guards,
recompiles, frames left to eager. The report of ``explain`` on the first call is added.

``record`` and ``replay`` are Dynamo's own: an internal error with the frame that it was in, into a file and out again.
Torch pickles the frame with dill, which writes a class of ``__main__`` by value and any other by its module's name. A
case's module exists only while it runs. So it takes the place of ``__main__`` here, and the file needs nothing but
torch and dill.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from runner.contract.job import Job
from runner.worker.processes import temporary_folder
from runner.worker.program import backends
from runner.worker.program.eager import settings_of_judged_run
from runner.worker.program.errors import InvalidCase, describe
from runner.worker.program.load import LoadedCase, Source, configured, environment, seed_all
from runner.worker.program.observe import Settings, modes, observe, read_counts
from runner.worker.run.job import Send, own_cache, variable, with_source
from runner.worker.torch_private import counters, dynamo
from runner.worker.torch_private.dynamo import EXPLAIN, OPERATORS, hearing_limits, logging_breaks, wrapping_compilations
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
    # In the bundle, so that the paths in its logs and graphs lead somewhere.
    return with_source(job, lambda source: _debug(job, source, send), job.arguments["folder"])


def _debug(job: Job, source: Source, send: Send) -> dict[str, Any]:
    folder = Path(job.arguments["folder"])
    compile_module = backends.build(job.backend)
    loaded = source.load(job.seed, launching=True)
    events: list[Event] = []
    numbers: Counter[str] = Counter()

    def sort(event: Event) -> None:
        if is_graph(event.name):
            _write_graph(folder / "graphs", numbers, event)
        else:
            events.append(event)

    trace = Trace(lambda name: is_graph(name) or name in _KEPT, sort)
    with (
        settings_of_judged_run(job, source),
        own_cache(),
        configured(flags(folder).items()),
        variable(FILTER, job.arguments.get("function")),  # Dynamo asks it at each frame
        log_files(folder / "logs", job.arguments["artifacts"]) as missing,
        tracing(trace, trace_file(folder / "trace")),
    ):
        counters.start_counting()
        send({"phase": "backend"})
        observation = observe(loaded, compile_module(loaded.model), Settings.of(job))
        read_counts(observation)
        metrics = [event.facts for event in events if event.name.endswith("compilation_metrics")]
        stacks = [event.facts.get("stack") or [] for event in events if event.name == "dynamo_start"]
        return {
            "raised": observation.error.info if observation.error else None,
            "graphs": observation.graphs,
            "frames": list(dict.fromkeys(str(stack[-1].get("name")) for stack in stacks if stack)),
            "times": _times(),
            # Without what torch did not fill in, and without whole configurations as text.
            "compilations": [
                {key: value for key, value in facts.items() if value is not None and not key.endswith("_config")}
                for facts in metrics
            ],
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


def _write_graph(folder: Path, numbers: Counter[str], event: Event) -> None:
    """Write a graph that torch traces: ``0_1.aot_forward_graph.py`` is of frame 0, compiled again.

    ``numbers`` count the graphs of one name. A full disk is no reason for a compilation to fail.
    """
    if not event.payload:
        return
    stem = f"{event.compile_id.replace('/', '_') or 'none'}.{re.sub(r'[^A-Za-z0-9_.-]', '_', event.name)}"
    numbers[stem] += 1
    number = f".{numbers[stem]}" if numbers[stem] > 1 else ""
    suffix = _SUFFIX.get(str(event.facts.get("encoding", "string")), ".txt")
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{stem}{number}{suffix}").write_text(event.payload, encoding="utf-8", errors="backslashreplace")


def _times() -> list[dict[str, Any]]:
    """Return seconds by phase, the longest first. Phases contain each other, so they do not add up."""
    rows = [
        {"phase": name, "count": len(seconds), "seconds": round(sum(seconds), 6)}
        for name, seconds in counters.times().items()
    ]
    return sorted(rows, key=lambda row: -row["seconds"])


def run_explain(job: Job, send: Send) -> dict[str, Any]:
    """Return the record of an explanation.

    Returns:
        ``calls``, ``compilations``, ``graphs``, ``graph_breaks``, ``guards``, ``recompiles``, ``limits``, ``counters``,
        ``first_call`` and ``raised`` (null, or the error that ended the run). ``runner.cli.explain`` describes them;
        places have ``line``. ``error`` if the case is wrong.
    """
    return with_source(job, lambda source: _explain(job, source, send))


def _explain(job: Job, source: Source, send: Send) -> dict[str, Any]:
    with settings_of_judged_run(job, source):
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
            "calls": capture.calls(len(observation.calls)),
            "compilations": capture.compilations(),
            "graphs": [{**vars(graph), "frame": graph.frame[0]} for graph in capture.graphs],
            "graph_breaks": capture.breaks(),
            "guards": capture.guards(),
            "recompiles": capture.recompiles(),
            "limits": [{key: value for key, value in hit.items() if key != "key"} for hit in capture.limits],
            "counters": counters.everything(),
            "raised": observation.error.info if observation.error else None,
            "first_call": _first_call(source, settings),
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
        """Return each time that a compiled frame did not fit, with the guards that failed, the latest entry's first.

        ``compiled`` says whether anything was: past the limit a frame is inspected and left alone.
        """
        compiled_ids = {row["compile_id"] for row in self.compilations()}
        rows = []
        for event in self._of("recompile_reasons"):
            payload = event.loaded()
            reasons = [self._short(str(reason)) for reason in (payload if isinstance(payload, list) else [payload])]
            row = {"call": event.call, "compile_id": event.compile_id, "reasons": reasons}
            rows.append({**row, "compiled": event.compile_id in compiled_ids})
        return rows

    def calls(self, count: int) -> list[dict[str, Any]]:
        """Return what was compiled and what ran in each of so many calls."""
        compilations, recompiles, breaks = self.compilations(), self.recompiles(), self.breaks()
        return [
            {
                "call": call,
                "graphs_run": [graph.graph for graph in self.graphs if call in graph.runs],
                "compiled": [row["compile_id"] for row in compilations if row["call"] == call],
                "recompiled": [row["compile_id"] for row in recompiles if row["call"] == call and row["compiled"]],
                "graph_breaks": sum(row["call"] == call for row in breaks),
                "eager": self.eager_in(call),
            }
            for call in range(count)
        ]

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
    target: Any = node.target
    if node.op == "call_method":
        return f"Tensor.{target}"
    if node.op == "call_module":
        return type(graph.get_submodule(str(target))).__name__
    module = str(getattr(target, "__module__", None) or "torch")
    if module.startswith(OPERATORS):
        return str(target)
    return f"{module.removeprefix('_')}.{getattr(target, '__name__', target)}"


LIMIT = 100_000
"""Compilations of a frame that a replay may claim: ``torch._dynamo.replay`` calls its own the 999th, far above the
default."""


def run_dynamo_record(job: Job, send: Send) -> dict[str, Any]:
    """Run the case with recording on. Return ``files``, absolute, and ``raised``, the facts of the error, or None.

    ``job.arguments["folder"]`` is where torch makes its folder for them.
    """
    missing = _missing()
    if missing is not None:
        return {"error": missing}
    send({"phase": "backend"})
    root = Path(job.arguments["folder"])
    flags = {"torch._dynamo.config.replay_record_enabled": True, "torch._dynamo.config.debug_dir_root": str(root)}
    try:
        with temporary_folder() as folder, environment(job), configured(flags.items()):
            settings = Settings.of(job)
            source = Source(job.source, job.name, folder)
            with settings_of_judged_run(job, source):
                loaded = source.load(settings.seed)
                _as_main(loaded)
                counters.start_counting()
                error = observe(loaded, backends.build(job.backend)(loaded.model), settings).error
    except InvalidCase as wrong:
        return {"error": {"type": type(wrong).__name__, "message": wrong.reason}}
    files = sorted(str(path) for path in root.glob("run_*/error_recordings/*.rec") if path.stat().st_size)
    return {"files": files, "raised": error.info if error is not None else None}


def run_dynamo_replay(job: Job, send: Send) -> dict[str, Any]:
    """Run Dynamo over the frame of ``job.arguments["file"]``. Return ``raised``, the facts of the error, or None.

    The file is a pickle, and reading one runs what it says.
    """
    missing = _missing()
    if missing is not None:
        return {"error": missing}
    send({"phase": "backend"})
    file, recording_class, replay = job.arguments["file"], dynamo.RECORDING.need(), dynamo.REPLAY.need()
    try:
        with environment(job), configured((name, LIMIT) for name in dynamo.compilation_limits()):
            unreadable = _unreadable(file, recording_class)
            if unreadable is not None:
                return {"error": unreadable}
            replay(file)
    except InvalidCase as wrong:  # a module of --import
        return {"error": {"type": type(wrong).__name__, "message": wrong.reason}}
    except Exception as error:  # noqa: BLE001  whatever Dynamo raises is what is asked for
        return {"raised": describe(error).info}
    return {"raised": None}


def _missing() -> dict[str, str] | None:
    """Return the error of a Python without dill; None if it has one."""
    if importlib.util.find_spec("dill") is not None:
        return None
    return {"type": "ModuleNotFoundError", "message": f"torch records with dill: {sys.executable} -m pip install dill"}


def _unreadable(file: str, recording_class: Any) -> dict[str, str] | None:
    """Return the error of a file that is no recording, or one that another torch or Python made; None if it is
    readable."""
    try:
        with open(file, "rb") as stream:
            recording = recording_class.load(stream)
    except Exception as error:  # noqa: BLE001  a pickle may raise anything
        return {
            "type": type(error).__name__,
            "message": f"{file} is no recording that torch {torch.__version__} reads: {error}",
        }
    if not isinstance(recording, recording_class):
        return {"type": type(recording).__name__, "message": f"{file} is no recording of Dynamo's"}
    return None


def _as_main(loaded: LoadedCase) -> None:
    """Make the case's module ``__main__``. This process runs nothing else."""
    for value in vars(loaded.module).values():
        if getattr(value, "__module__", None) == loaded.module.__name__:
            value.__module__ = "__main__"
    loaded.module.__name__ = "__main__"
    sys.modules["__main__"] = loaded.module
