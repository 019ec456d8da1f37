"""A record: what the worker answers to a job that compares."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runner.contract.finding import Finding


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
    accuracy: tuple[Mapping[str, Any], ...] = ()  # of each output and gradient, where a rule for values asks for it
    graphs: int | None = 0  # this count, and each of those below, is None where this torch does not have it
    graph_breaks: int | None = 0
    recompiles: int | None = 0
    break_reasons: tuple[str, ...] = ()
    kernels: int | None = None  # that Inductor generated; None under another backend
    vectorized: int | None = None  # those of C++ with vector instructions
    replays: int | None = None  # of CUDA graphs
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
        values = {name: getattr(self, name) for name in _FIELDS}
        data = {name: list(value) if type(value) is tuple else value for name, value in values.items()}
        trust = dataclasses.asdict(self.trust) if self.trust is not None else None
        return {**data, "findings": [finding.to_json() for finding in self.findings], "trust": trust}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Record:
        """Return the record of a plain dict, such as a stored one.

        Missing keys have their defaults; unknown ones are dropped.
        """
        values: dict[str, Any] = {name: data[name] for name in _FIELDS if name in data}
        values.update({name: tuple(value) for name, value in values.items() if type(value) is list})
        values["findings"] = tuple(Finding.from_json(finding) for finding in data.get("findings", ()))
        trust = data.get("trust")
        values["trust"] = Trust(trust["verdict"], trust["reason"], trust.get("error")) if trust else None
        return Record(**values)


_FIELDS = tuple(item.name for item in dataclasses.fields(Record))
