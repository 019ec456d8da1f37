"""What ``runner diagnose`` finds out about one failure: the facts that its text, its page and an issue report show.

Diagnoses are kept in ``.runner``, for the commands that go on from there. One is found again under a key of all that
decides about it: id, case, the bytes of its file, suite, torch, this machine, and the code of ``runner``. One that
anything else may decide about is not kept. It counts only with this user's signature.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import runner
from runner.contract.finding import Finding
from runner.diagnose.harness import VariantEngine
from runner.engine.cached import evict, make_cache_key, read, refusal, write
from runner.engine.fingerprint import code_digest, take_fingerprints
from runner.files import read_bytes
from runner.record.signing import NoKey
from runner.record.store import FOLDER
from runner.session.plan import job
from runner.session.shards import plan_hash
from runner.verdict.signature import FailureSignature

OUTCOMES = ("same", "gone", "other", "no answer")
"""What became of a failure under a changed setting: still there, away, replaced by another, or nothing can be said."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """The failure under one changed setting.

    ``setting`` is what to write (a flag, an argument), ``outcome`` of OUTCOMES.
    """

    name: str  # such as "without vectorization"
    setting: str  # such as "torch._inductor.config.cpp.simdlen = 1"
    outcome: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Culprit:
    """What torch's bisector found: the ``number``-th application (from 0) in ``subsystem`` of ``backend``; ``name`` is
    what it was.

    ``operator`` is the operator of the graph's node where ``name`` names a node. Without a number ``name`` is a setting
    that helps. ``step`` is the chain's step that the application comes from, such as "relu, the second of two", and
    ``place`` its file and line.
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
    ``bisect_note`` says why. ``run_seconds`` is the time of the variant's own run, ``seconds`` that of the whole
    diagnosis.
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


SIZE = 16 << 20
"""Bytes that they may take; beyond, the oldest go."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A diagnosis of an earlier command, and when it was made, such as ``2026-01-02 03:04``."""

    diagnosis: Diagnosis
    when: str


def keep(path: Path | None, diagnosis: Diagnosis) -> None:
    """Keep the whole diagnosis of a failure. A folder that cannot be written costs only time later.

    Args:
        path: what ``path_of`` said before the diagnosis began: files may have changed since. With None nothing is kept.
    """
    if path is None or diagnosis.signature is None:
        return
    with contextlib.suppress(OSError, NoKey):
        write(path, datetime.now().strftime("%Y-%m-%d %H:%M"), diagnosis.to_dict())
        evict(path.parent.parent, SIZE)


def find_kept(engine: VariantEngine) -> Kept | None:
    """Return what an earlier ``runner diagnose`` of the very same variant found; None where there is nothing that
    counts."""
    path = path_of(engine)
    entry = read(path) if path is not None else None
    return Kept(diagnosis_of(entry["outcome"]), str(entry["run"])) if entry is not None else None


def path_of(engine: VariantEngine) -> Path | None:
    """Return where the diagnosis of an engine's variant lies; None where a key cannot name all that decides about it.

    What the code of a foreign backend loads is known only after it ran.
    """
    question = job(engine.planned, engine.source, seed=engine.seed, imports=engine.imports, paths=engine.paths)
    python = engine.environment.python
    fingerprint = take_fingerprints([python])[python]
    if question.foreign or refusal(question, fingerprint):
        return None
    parts = [
        make_cache_key(question, fingerprint),
        plan_hash([engine.planned]),
        engine.variant.id,
        engine.variant.case.file,
        engine.environment.build,
        repr(engine.limits),
        hashlib.sha256(read_bytes(engine.variant.case.file)).hexdigest(),
        code_digest(Path(runner.__file__).parent),
    ]
    digest = hashlib.sha256(json.dumps(parts).encode(errors="surrogatepass")).hexdigest()
    return Path(FOLDER, "diagnoses", digest[:2], f"{digest}.json")


def diagnosis_of(data: Mapping[str, Any]) -> Diagnosis:
    """Return a diagnosis from the plain data of ``Diagnosis.to_dict``."""
    fields = {name: value for name, value in data.items() if name != "stage"}
    return Diagnosis(**{
        **fields,
        "signature": FailureSignature(**data["signature"]),
        "findings": tuple(Finding(**finding) for finding in data["findings"]),
        "culprit": Culprit(**data["culprit"]) if data["culprit"] else None,
        "ablations": tuple(Ablation(**ablation) for ablation in data["ablations"]),
        "labels": tuple(data["labels"]),
        "notes": tuple(data["notes"]),
    })  # fmt: skip
