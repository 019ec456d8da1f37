"""What ``runner diagnose`` finds out about one failure: the facts that its text, its page and an issue report show."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.contract.finding import Finding
from runner.verdict.signature import FailureSignature

OUTCOMES = ("same", "gone", "other", "no answer")
"""What became of a failure under a changed setting: still there, away, replaced by another, or nothing can be said."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """The failure under one changed setting. ``setting`` is what to write (a flag, an argument), ``outcome`` of OUTCOMES."""

    name: str  # such as "without vectorization"
    setting: str  # such as "torch._inductor.config.cpp.simdlen = 1"
    outcome: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Culprit:
    """What torch's bisector found: the ``number``-th application (from 0) in ``subsystem`` of ``backend``; ``name`` is what it was.

    ``operator`` is the operator of the graph's node where ``name`` names a node. Without a number ``name`` is a setting that helps.
    ``step`` is the chain's step that the application comes from, such as "relu, the second of two", and ``place`` its file and line.
    """

    backend: str
    subsystem: str | None = None
    number: int | None = None
    name: str | None = None
    operator: str | None = None
    step: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything found out. ``stages`` is the ladder (stage to ``ok`` or oracles); ``culprit`` is None where
    ``bisect_note`` says why. ``run_seconds`` is the time of the variant's own run, ``seconds`` that of the whole diagnosis.
    """

    id: str
    torch: str
    verdict: str
    reason: str = ""
    signature: FailureSignature | None = None
    findings: tuple[Finding, ...] = ()
    stages: Mapping[str, str] = field(default_factory=dict)
    culprit: Culprit | None = None
    bisect_note: str = ""
    ablations: tuple[Ablation, ...] = ()
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    run_seconds: float = 0.0

    @property
    def stage(self) -> str | None:
        """Return the first stage that shows the failure; None if unknown."""
        return self.signature.stage if self.signature else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {"stage": self.stage, **dataclasses.asdict(self)}
