"""The typed events of a run: the one vocabulary of the journal and of every report.

Reports are pure functions of a list of events, so each can be made again from the journal.
An event is one JSON object a line; its key ``event`` names its class.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from runner.contract.finding import Finding
from runner.record.event_schema import Unfit, event_checks

Word = Literal["PASS", "XFAIL", "SKIP", "FAIL", "ERROR", "XPASS", "VACUOUS", "FLAKY", "INVALID", "NOT-RUN"]
"""The words of verdicts."""

GREEN: tuple[Word, ...] = ("PASS", "XFAIL", "SKIP")
"""Verdicts that leave the exit code at 0. NOT-RUN is neither green nor red: a run that stops early says so itself."""

RED: tuple[Word, ...] = ("FAIL", "ERROR", "XPASS", "VACUOUS", "FLAKY", "INVALID")
"""Verdicts that make the exit code 1: a wrong answer, no answer, or an answer that proves nothing."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """First event. ``environments`` has one entry a Python: ``python``, ``torch``, ``version``.

    ``full`` says that the command line left nothing out of what its paths hold: no node id, ``-k``, backend or device.
    """

    run: str
    version: str
    argv: tuple[str, ...]
    started: str  # UTC, ISO 8601, seconds
    host: str
    folder: str
    environments: tuple[Mapping[str, Any], ...] = ()
    full: bool = False
    cwd: str = ""  # where the command ran: ``resume`` and ``rerun`` go back there
    plan: str = ""  # a hash of what is planned, all shards together
    shard: str = ""  # such as 2/4
    planned: int = 0  # how many variants are announced next
    total: int = 0  # how many all shards together announce; 0 where nobody counted
    engine: str = "local"
    schema: int = 1  # the version of ``schema/events.schema.json`` that the log fits
    signature: str = ""  # by which this user on this machine knows the command line as his own
    suites: Mapping[str, str] = field(default_factory=dict)  # each suite's name to its file


@dataclass(frozen=True, slots=True)
class RunResumed:
    """A runner took up a run that had ended before its end; ``finished`` verdicts stood already."""

    run: str
    started: str
    finished: int


FORWARD_ALONE = "forward-alone"
"""Label of a variant whose gradients its backend does not claim: its forward was judged alone."""

Key = tuple[str, str]
"""A variant's id and the torch version: unique in a run."""


@dataclass(frozen=True, slots=True)
class _Variant:
    """What events say of a variant in one environment."""

    id: str
    case: str
    suite: str
    suites: tuple[str, ...]
    backend: str
    torch: str
    python: str
    device: str
    dtype: str
    label: str  # the id without its backend
    file: str
    line: int

    @property
    def key(self) -> Key:
        """The variant under one torch."""
        return self.id, self.torch


@dataclass(frozen=True, slots=True)
class VariantPlanned(_Variant):
    """One for each variant and environment, before anything runs, in report order."""

    column: int = 1
    number: int = 0  # its place in the plan, all shards together, from 1


@dataclass(frozen=True, slots=True)
class VariantStarted:
    """The variant's first process was asked for."""

    id: str
    torch: str


@dataclass(frozen=True, slots=True)
class VariantFinished(_Variant):
    """A verdict.

    ``reason`` is one line for people. ``stages`` is the ladder: stage to ``ok`` or its oracles, and the row
    ``as-user``, which is no stage. ``labels`` are remarks that do not change the verdict, such as
    ``nearer-to-float64``.
    """

    verdict: Word
    seconds: float
    column: int = 1
    number: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    stage: str | None = None
    oracles: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""
    stages: Mapping[str, str] = field(default_factory=dict)
    graphs: int | None = None
    graph_breaks: int | None = None
    break_reasons: tuple[str, ...] = ()
    recompiles: int | None = None
    kernels: int | None = None  # that Inductor generated: C++ on the CPU, Triton on a GPU
    vectorized: int | None = None  # those of them with vector instructions, of C++
    replays: int | None = None  # of CUDA graphs
    delegable: int | None = None  # operators of the graphs; None under torch's own backends and where uncounted
    delegated: int | None = None  # those of them that the backend's own code computed
    fallbacks: Mapping[str, int] = field(default_factory=dict)  # what torch ran in the place of the others, by name
    stored_graphs: int | None = None  # that were loaded, because an earlier job had compiled them
    model_runs: int | None = None  # in all its jobs: eager, references, compiled; None where nothing ran
    reached: tuple[str, ...] = ()  # with --coverage: parts of the compiler, as KIND NAME
    comparisons: int = 0
    compared: Mapping[str, int] = field(default_factory=dict)  # kind to how many: outputs, strides, elements, ...
    accuracy: tuple[Mapping[str, Any], ...] = ()  # of outputs and gradients, under a rule for values
    known: str | None = None
    entry: str | None = None  # file:line:column of the ledger's entry that was used, the file absolute
    signal: str | None = None
    stack: str = ""
    output: str = ""
    repro: str = ""
    place: str | None = None  # file:line:column that an INVALID verdict is about, where known
    cached: str | None = None  # the run whose result this is; nothing ran
    attempts: int = 1  # how often it ran, with --retries or --stress
    tally: Mapping[str, int] = field(default_factory=dict)  # verdict to how many attempts of --stress had it
    host: str | None = None  # the cluster's node that ran it
    spent: Mapping[str, float] = field(
        default_factory=dict
    )  # seconds over all its jobs: busy (of a slot), torch, load, judge
    # Of the first step of the chain whose result its main finding is about; empty where nobody knows.
    operator: str = ""
    severity: str | None = None  # the worst of its findings'
    # What results that fail alike have in common; empty for a result without findings that is not red.
    signature: str = ""
    signature_id: str = ""  # by which people refer to that: 8 hexadecimal digits of its hash
    unclaimed: str = ""  # what the variant needs and its backend does not claim; empty for any verdict but SKIP
    operators: tuple[str, ...] = ()  # that the case calls, as it writes them


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about the run itself that a person should know, such as a full disk."""

    message: str
    severity: str = "warning"


@dataclass(frozen=True, slots=True)
class RunFinished:
    """Last event; absent when the runner itself was killed."""

    exit_code: int
    seconds: float
    interrupted: bool = False


Event = RunStarted | RunResumed | VariantPlanned | VariantStarted | VariantFinished | Notice | RunFinished


def start_of(events: Iterable[Event]) -> RunStarted | None:
    """Return how the run began; None of a log without its beginning."""
    return next((event for event in events if isinstance(event, RunStarted)), None)


def end_of(events: Iterable[Event]) -> RunFinished | None:
    """Return the end of the run; None while it goes on, also where it was resumed after an end."""
    marks = [event for event in events if isinstance(event, RunFinished | RunResumed)]
    return marks[-1] if marks and isinstance(marks[-1], RunFinished) else None


def planned_of(events: Iterable[Event]) -> dict[Key, VariantPlanned]:
    """Return what is planned, in order."""
    return {event.key: event for event in events if isinstance(event, VariantPlanned)}


def largest_error(side: Any) -> float | None:
    """Return the largest error of a side of an entry of ``accuracy``, in units in the last place from float64.

    It is infinite where special values are other ones, and None where the entry has no such side.
    """
    if not isinstance(side, Mapping) or not isinstance(side.get("largest"), int | float):
        return None
    return math.inf if side.get("other_class") else float(side["largest"])


def finished_of(events: Iterable[Event]) -> dict[Key, VariantFinished]:
    """Return the results; of a variant that has two the later one."""
    return {event.key: event for event in events if isinstance(event, VariantFinished)}


def variants_of(events: Iterable[Event]) -> list[VariantPlanned | VariantFinished]:
    """Return the result of each variant, or the plan without one, in order."""
    events = list(events)
    variants: dict[Key, VariantPlanned | VariantFinished] = {**planned_of(events), **finished_of(events)}
    return [*variants.values()]


K = TypeVar("K")
T = TypeVar("T")


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by their key, both in the order of the items."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


_CLASSES: dict[str, type] = {
    "run-started": RunStarted,
    "run-resumed": RunResumed,
    "variant-planned": VariantPlanned,
    "variant-started": VariantStarted,
    "variant-finished": VariantFinished,
    "notice": Notice,
    "run-finished": RunFinished,
}
_NAMES = {cls: name for name, cls in _CLASSES.items()}


_FIELDS = {cls: tuple(f.name for f in dataclasses.fields(cls)) for cls in _NAMES}


def to_json(event: Event) -> dict[str, Any]:
    """Return the event as a plain dict, its kind under ``event``. What it holds is the event's own, not a copy."""
    data = {"event": _NAMES[type(event)], **{name: getattr(event, name) for name in _FIELDS[type(event)]}}
    if isinstance(event, VariantFinished):
        data["findings"] = [finding.to_json() for finding in event.findings]
    return data


def from_json(data: Mapping[str, Any]) -> Event | None:
    """Return the event of a journal line; None for a kind this version does not know. Unknown keys are dropped.

    Raises:
        Unfit: the line is no event of the published schema.
    """
    kind = data.get("event") if type(data) is dict else None
    if type(kind) is not str:
        raise Unfit("expected a mapping with a text under event")
    cls = _CLASSES.get(kind)
    if cls is None:
        return None
    event_checks()[kind](data)
    values: dict[str, Any] = {key: _shared(data[key]) for key in _FIELDS[cls] if key in data}
    if cls is VariantFinished:
        values["findings"] = tuple(Finding.from_json(finding) for finding in data.get("findings", ()))
    return cls(**values)  # type: ignore[no-any-return]


def _shared(value: Any) -> Any:
    """A field's value; what a long journal says again and again is one object: ids, files, versions, keys, empty
    values."""
    if type(value) is str:
        return sys.intern(value)
    if type(value) is list:
        return tuple([_shared(item) if type(item) is str else item for item in value])
    if type(value) is dict:
        return {sys.intern(key): item for key, item in value.items()} if value else _NOTHING
    return value


_NOTHING: Mapping[str, Any] = {}
"""The value of fields that hold nothing."""
