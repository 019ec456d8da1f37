"""A job, which is what control asks of a worker, with all that decides about the answer; and a record, which is the
answer to a job that compares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from runner.contract.finding import Finding

PHASES = ("load", "eager", "eager-again", "float64", "backend", "judge")
"""The parts of a job in order. A death in ``eager`` is the case's own; in ``backend`` it is the compiler's."""

Isolation = Literal["fork", "fresh", "living"]
"""Where a job runs. ``fork``: in a process forked from a warm one (imports done, one graph compiled). ``fresh``: in one
forked from a process that has imported torch and its compilers, and compiled no graph. ``living``: in a process that
stays alive and takes the next job."""

ISOLATION: tuple[Isolation, ...] = get_args(Isolation)


@dataclass(frozen=True, slots=True)
class Job:
    """One process's work: the reference runs, one backend, the comparison.

    ``source`` defines ``make_model()``, ``make_inputs()`` and, for several calls, ``CALLS``, a list of functions
    like ``make_inputs``. Lists beside it say what the caller does for each call, and ``KEYWORD_INPUTS`` may name
    keywords, by which the last inputs go to the model. ``timeout`` is in seconds, ``memory`` in bytes on top of what
    torch itself takes.
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
    expect: Mapping[str, Any] = field(default_factory=dict)  # raises{type,match}, bounds, constant
    # by_dtype{"" or dtype: [rtol, atol]}, exact, by_place; values, bound: a rule of ``oracles.py`` and its number
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    strides: str = "significant"  # or exact: also of dimensions of size one
    ignore: tuple[str, ...] = ()
    float64: bool = True
    packages: tuple[str, ...] = ()  # that must be importable, else SKIP
    imports: tuple[str, ...] = ()  # modules to import first
    paths: tuple[str, ...] = ()  # appended to sys.path
    timeout: float = 60.0
    compile_timeout: float | None = None  # seconds that torch may compile, all graphs together
    memory: int | None = None
    task: str = "judge"  # or another of ``runner/worker/tasks/registry.py``'s TASKS
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of a task other than "judge"
    isolation: Isolation = "fork"
    alone: bool = False  # nothing else may run on this machine meanwhile
    variables: Mapping[str, str] = field(default_factory=dict)  # of the process, before it imports anything
    # What of the compiler the record says was reached; lines are parts too.
    coverage: Literal["", "parts", "lines"] = ""
    graphs: str = ""  # a digest of what decides about compiled graphs, where those of an earlier run may be loaded
    cacheable: bool = True  # False: code that no key can name decides too, such as a case's own Python
    accuracy: bool = False  # the record has that of each output and gradient, also without a rule for values
    lists_code: bool = False  # the record says where the code of its process came from: it may answer a later run
    mutant: Mapping[str, Any] = field(default_factory=dict)  # of the compiler, as ``mutant.py`` has it, to be planted
    foreign: bool = False  # somebody else's Python runs in it: of the case, a backend or an imported module

    def to_json(self) -> dict[str, Any]:
        """Return the job as a plain dict."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Job:
        """Return the job of a plain dict. What is missing has its default.

        Raises:
            TypeError: a key is not one of a job's, or one without a default is missing.
        """
        values: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in data.items()}
        return Job(**values)


_MAKE_MODEL = "\ndef make_model():"


def defines(source: str, name: str) -> bool:
    """Return whether the source of a job itself defines a function or variable, at its top.

    Before ``make_model`` there may be the file of a person, who may use any name.
    """
    own = source[max(0, source.rfind(_MAKE_MODEL)) :]
    return re.search(rf"^(?:def {name}\(|{name} = )", own, re.MULTILINE) is not None


# --- the answer ---


@dataclass(frozen=True, slots=True)
class Trust:
    """Why a comparison proves nothing, or was not made. ``error`` is that of the case, where one is behind it.

    Control says BROKEN where the harness itself failed.
    """

    verdict: Literal["FLAKY", "VACUOUS", "INVALID", "SKIP", "BROKEN"]
    reason: str
    error: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The answer. ``trust`` is None where the comparison is to be believed.

    ``labels`` are remarks such as ``nearer-to-float64``; ``notes`` say, for instance, why the float64 reference was
    dropped.
    """

    findings: tuple[Finding, ...] = ()
    trust: Trust | None = None
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    comparisons: int = 0
    compared: Mapping[str, int] = field(
        default_factory=dict
    )  # outputs, strides, aliases, gradients, elements, exceptions
    accuracy: tuple[
        Mapping[str, Any], ...
    ] = ()  # of each output and gradient, where the job or a rule for values asks for it
    graphs: int | None = 0  # this count, and each of those below, is None where this torch does not have it
    graph_breaks: int | None = 0
    recompiles: int | None = 0
    break_reasons: tuple[str, ...] = ()
    kernels: int | None = None  # that Inductor generated; None under another backend
    vectorized: int | None = None  # those of C++ with vector instructions
    replays: int | None = None  # of CUDA graphs
    delegable: int | None = None  # operators of the graphs; None under torch's own backends and where uncounted
    delegated: int | None = None  # those of them that the backend's own code computed
    fallbacks: Mapping[str, int] = field(default_factory=dict)  # what torch ran in the place of the others, by name
    benchmarked: tuple[str, ...] = ()  # what a benchmark of torch chose, of ``oracles.CHOICES``
    stored_graphs: int = 0  # that were loaded: an earlier job had compiled them
    model_runs: int = 0  # how often a model was made and run: in eager, for the float64 reference, compiled
    reached: tuple[str, ...] = ()  # where the job asks for it: KIND NAME, such as "lowering aten.relu"
    drew_random: bool = False  # eager's calls drew from torch's generators
    eager_error: Mapping[str, Any] | None = None  # eager raised, as expected
    seconds: Mapping[str, float] = field(default_factory=dict)  # by phase
    code: tuple[str, ...] = ()  # if the job asks: where the process's code came from (``loaded_code.py``)
    unchecked: tuple[str, ...] = ()  # what this torch lacks, and what its processes do not check therefore

    def to_json(self) -> dict[str, Any]:
        """Return the record as a plain dict."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        data = {name: list(value) if type(value) is tuple else value for name, value in values.items()}
        trust = asdict(self.trust) if self.trust is not None else None
        return {**data, "findings": [finding.to_json() for finding in self.findings], "trust": trust}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Record:
        """Return the record of a plain dict, such as a stored one.

        Missing keys have their defaults; unknown ones are dropped.
        """
        values: dict[str, Any] = {item.name: data[item.name] for item in fields(Record) if item.name in data}
        values.update({name: tuple(value) for name, value in values.items() if type(value) is list})
        values["findings"] = tuple(Finding.from_json(finding) for finding in data.get("findings", ()))
        trust = data.get("trust")
        values["trust"] = Trust(trust["verdict"], trust["reason"], trust.get("error")) if trust else None
        return Record(**values)
