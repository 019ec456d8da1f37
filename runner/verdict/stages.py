"""The ladder: which part of torch.compile each backend adds, and which part first shows a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from runner.cases.model import KERNEL_BACKENDS
from runner.contract.finding import Finding
from runner.contract.oracles import row_of

T = TypeVar("T")

LADDER = (
    ("dynamo", "eager"),
    ("aot", "aot_eager"),
    ("decomposition", "aot_eager_decomp_partition"),
    ("inductor", "inductor"),
)
"""Stage, and torch's backend that runs everything up to it."""

STAGES = tuple(stage for stage, _ in LADDER)

_OF = {
    **{backend: stage for stage, backend in LADDER},
    "eager_debug": "dynamo",
    "eager_noexcept": "dynamo",
    "pre_dispatch_eager": "dynamo",
    "aot_eager_default_partitioner": "aot",
    "aot_eager_decomp_partition_with_mode": "decomposition",
    "aot_eager_decomp_partition_crossref": "decomposition",
}


def in_order(stages: Mapping[str, T]) -> dict[str, T]:
    """The same, from the bottom of the ladder up, and what is no stage of torch's last: answers come in any order."""
    return {stage: stages[stage] for stage in (*STAGES, *stages) if stage in stages}


def stage_of(backend: str) -> str:
    """The last stage that a backend runs; ``backend`` for one that is not on torch's ladder."""
    return _OF.get(backend, "backend")


def below(backend: str) -> list[tuple[str, str]]:
    """The (stage, backend) pairs to try for a failure under ``backend``, in order, without itself.

    A kernel that is launched fails by itself, and there is no ladder below it.
    """
    stage = stage_of(backend)
    if backend in KERNEL_BACKENDS:
        return []
    return [LADDER[0]] if stage == "backend" else list(LADDER[: STAGES.index(stage)])


def contains(backend: str, stage: str) -> bool:
    """Whether a failure of ``stage`` can show under ``backend``."""
    own = stage_of(backend)
    if backend in KERNEL_BACKENDS:
        return stage == "backend"
    if own == "backend" or stage == "backend":
        return stage == "dynamo" or own == stage
    return STAGES.index(stage) <= STAGES.index(own)


def locate(findings: Sequence[Finding], backend: str, seen: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """The findings with their stages: the first of the ladder that shows the same kind of failure.

    ``seen`` holds what each stage below found.
    """
    groups = {stage: {row_of(finding.oracle).group for finding in seen.get(stage, ())} for stage in STAGES}

    def first(group: str) -> str:
        return next((stage for stage in STAGES if group in groups[stage]), stage_of(backend))

    return [replace(finding, stage=first(row_of(finding.oracle).group)) for finding in findings]
