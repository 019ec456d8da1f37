"""What goes over the wire between control and worker: one JSON object a line, both ways.

Control to worker: a ``Job``. Worker to control: ``{"phase": name}`` whenever a new part begins, then
exactly one ``{"outcome": {...}}``. A job with a ``compile_timeout`` also says ``{"compiling": null}`` when torch begins to
compile, and ``{"compiling": seconds}``, all so far, when it has ended. A worker that ends without an outcome is an error, whatever its exit status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

PHASES = ("load", "eager", "eager-again", "float64", "backend", "judge")
"""The parts of a job in order. A death in ``eager`` is the case's own; in ``backend`` it is the compiler's."""

Ended = Literal["result", "signal", "timeout", "memory", "no-result", "broken", "damage"]
"""How a job ended: ``result`` with the worker's record, ``broken`` when the harness itself failed, ``damage`` when it removed or changed
the engine's temporary folder, else how its process died."""

Isolation = Literal["fork", "fresh", "living"]
"""Where a job runs. ``fork``: in a process forked from a warm one (imports done, one graph compiled). ``fresh``: in one forked from
a process that has imported torch and its compilers, and compiled no graph. ``living``: in a process that stays alive and takes the next job."""

ISOLATION: tuple[Isolation, ...] = get_args(Isolation)


@dataclass(frozen=True, slots=True)
class Job:
    """One process's work: the reference runs, one backend, the comparison.

    ``source`` defines ``make_model()``, ``make_inputs()`` and, for several calls, ``CALLS``, a list of functions
    like ``make_inputs``. ``timeout`` is in seconds, ``memory`` in bytes on top of what torch itself takes.
    """

    key: str
    id: str
    environment: str  # which Python runs it: a key of the engine's environments
    name: str  # a file stem for the source
    source: str
    backend: Mapping[str, Any]  # backend, dynamic, fullgraph, mode, options
    seed: int = 0
    dtype: str = "float32"
    device: str = "cpu"
    grad: Mapping[str, Any] = field(default_factory=lambda: {"mode": "forward"})
    autocast: str | None = None
    threads: int = 2
    config: Mapping[str, Any] = field(default_factory=dict)
    expect: Mapping[str, Any] = field(default_factory=dict)  # raises{type,match}, graphs, graph_breaks, recompiles
    tolerance: Mapping[str, Any] = field(default_factory=dict)  # by_dtype{"" or dtype: [rtol, atol]}, exact, by_place
    strides: str = "significant"  # or exact: also of dimensions of size one
    ignore: tuple[str, ...] = ()
    float64: bool = True
    packages: tuple[str, ...] = ()  # that must be importable, else SKIP
    imports: tuple[str, ...] = ()  # modules to import first
    paths: tuple[str, ...] = ()  # appended to sys.path
    timeout: float = 60.0
    compile_timeout: float | None = None  # seconds that torch may compile, all graphs together
    memory: int | None = None
    task: str = "judge"  # or another of ``runner/worker/job.py``'s TASKS
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of a task other than "judge"
    isolation: Isolation = "fork"
    alone: bool = False  # nothing else may run on this machine meanwhile
    variables: Mapping[str, str] = field(default_factory=dict)  # of the process, before it imports anything
    coverage: Literal["", "parts", "lines"] = (
        ""  # what of the compiler the record says was reached; lines are parts too
    )
    graphs: str = ""  # a digest of what decides about compiled graphs, where those of an earlier run may be loaded
    cacheable: bool = True  # False: code that no key can name decides too, such as a case's own Python
    foreign: bool = False  # somebody else's Python runs in it: of the case, a backend or an imported module


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    ``detail`` says how the harness failed, if it did. ``phase`` is the last one begun.
    """

    job: Job
    ended: Ended
    seconds: float
    phase: str = "load"
    result: Mapping[str, Any] = field(default_factory=dict)
    signal: str | None = None
    exit_status: int | None = None
    stack: str = ""  # faulthandler's, for a signal or a timeout
    output: str = ""  # the last of stdout and stderr
    detail: str = ""
    earlier_jobs: tuple[
        str, ...
    ] = ()  # ids of the jobs that the same process had run before, oldest first (living workers)
    host: str = ""  # the node, when it was not this machine
    lost: int = 0  # how many nodes went away while they ran it, before this one
    busy: float = 0.0  # seconds of a slot, from the order until the slot was free again
    cached: str = ""  # the run that this outcome comes from, when nothing was run


RESULT_KEYS = """
The worker's record (``Outcome.result``):

findings      list of {oracle, message, path, numbers, error{type, message, chain, trace, line}, line}
trust         null, or {verdict: FLAKY|VACUOUS|INVALID|SKIP, reason, error}
labels        list of str: nearer-to-float64, within-float64-noise, ...
notes         list of str: why the float64 reference was dropped, ...
comparisons   how many things were compared
compared      {kind: how many}: outputs, strides, aliases, gradients, elements, exceptions
graphs, graph_breaks, recompiles   int; break_reasons list of str
kernels, vectorized, replays       int, under inductor: kernels generated, those of C++ with vector instructions, replays of CUDA graphs
stored_graphs how many graphs were loaded that had been compiled before
model_runs    how many times a model was made and run: in eager, for the float64 reference, compiled, ...
reached       list of str, where the job asks for it: KIND NAME, such as "lowering aten.relu"
drew_random   whether eager's calls drew random numbers from torch's generators
eager_error   null, or an error as above (eager raised, as expected)
seconds       {phase: seconds}
"""
