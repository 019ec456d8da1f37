"""The same case under one changed setting: which of them make a failure go away?"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.cases.model import LAUNCH, THREADS, Grad, Variant
from runner.contract.job import Job
from runner.contract.operators import DRAWING
from runner.contract.oracles import row_of
from runner.diagnose.diagnosis import Ablation
from runner.diagnose.harness import Answer, VariantEngine
from runner.session.plan import Planned, skip_reason
from runner.verdict.explained import EMULATE_CASTS, RANDOM
from runner.verdict.policy import headline, ranked
from runner.verdict.signature import FailureSignature, shows

_INDUCTOR = "torch._inductor.config."
_DEVICES = ("cpu", "cuda")

_MISSING = re.compile(r"^config: torch \S+ has no flag (\S+)$|^config: torch \S+ has no \S+ \(wanted (\S+)\)$")
"""How a worker says that its torch has no such flag."""


@dataclass(frozen=True, slots=True)
class Change:
    """One changed setting. ``config`` are flags, of which ``helpers`` may be missing in a torch; ``variant`` replaces
    the case's own."""

    name: str
    setting: str
    config: Mapping[str, Any] = field(default_factory=dict)
    helpers: Mapping[str, Any] = field(default_factory=dict)
    variant: Variant | None = None


def changes(variant: Variant, signature: FailureSignature, source: str) -> list[Change]:
    """Return the changes worth trying for a failure of that signature. ``source`` is the case's text."""
    candidates: list[Change] = []
    if signature.stage == "inductor":
        candidates += _of_inductor(variant, signature, source)
    if signature.stage == "decomposition":
        candidates.append(_of_flags("without common subexpressions", {"torch._functorch.config.cse": False}))
    launched = variant.backend.backend == LAUNCH  # no compiler, and no code of torch's that has threads
    candidates += [] if launched else _of_shapes(variant)
    if (
        not launched
        and variant.device == "cpu"
        and signature.stage in ("inductor", "backend")
        and not row_of(signature.oracle).compiling
    ):
        candidates += _threads(variant)
    if variant.grad.mode != "off" and signature.oracle not in ("grad", "requires-grad"):
        altered = dataclasses.replace(variant, grad=Grad("off"))
        candidates.append(Change("without gradients", "grad: off", variant=altered))
    candidates += _of_devices(variant)
    return [change for change in candidates if not change.config or not change.config.items() <= variant.config.items()]


def _of_inductor(variant: Variant, signature: FailureSignature, source: str) -> list[Change]:
    """Return the changes of Inductor's own switches."""
    row = row_of(signature.oracle)
    numeric, executes = row.numeric or row.random, not row.compiling
    switches = []
    if numeric:
        switches.append(_of_flags("with eager's roundings", {EMULATE_CASTS: True}))
    if numeric and DRAWING.search(source.partition("\ndef make_inputs")[0]):  # not what makes inputs
        inductor_draws = variant.config.get(RANDOM) is False
        name = "with eager's random numbers" if inductor_draws else "with inductor's own random numbers"
        switches.append(_of_flags(name, {RANDOM: inductor_draws}))
    if variant.device == "cpu":
        if executes:
            # The one switch for the flags of every C++ kernel, in spite of its name (get_optimization_cflags in
            # torch/_inductor/cpp_builder.py). A precompiled header would take longer to make than it saves.
            unoptimized = _of_flags("compiled with -O0", {f"{_INDUCTOR}aot_inductor.debug_compile": True})
            helpers = {f"{_INDUCTOR}cpp_cache_precompile_headers": False}
            switches.append(dataclasses.replace(unoptimized, helpers=helpers))
        switches.append(_of_flags("without vectorization", {f"{_INDUCTOR}cpp.simdlen": 1}))
    switches += [
        # The first keeps kernels apart, the others keep pointwise operators from being inlined into their readers.
        _of_flags(
            "without fusion",
            {
                f"{_INDUCTOR}max_fusion_size": 1,
                f"{_INDUCTOR}realize_acc_reads_threshold": 0,
                f"{_INDUCTOR}realize_opcount_threshold": 0,
                f"{_INDUCTOR}epilogue_fusion": False,
            },
        ),
        _of_flags("without pattern matching", {f"{_INDUCTOR}pattern_matcher": False}),
        _of_flags(
            "without layout changes",
            {f"{_INDUCTOR}layout_optimization": False, f"{_INDUCTOR}comprehensive_padding": False},
        ),
    ]
    if executes:
        switches.append(
            _of_flags(
                "without buffer reuse", {f"{_INDUCTOR}allow_buffer_reuse": False, f"{_INDUCTOR}inplace_buffers": False}
            )
        )
    return switches


def _of_shapes(variant: Variant) -> list[Change]:
    """Return dynamic and static shapes, without what the case has anyway."""
    dynamic = variant.dynamic if variant.dynamic is not None else variant.backend.dynamic
    variations = []
    for value, name in ((True, "dynamic shapes"), (False, "static shapes")):
        # Without a word the first call is compiled for its shapes, so that with one call static is nothing new.
        if dynamic is value or (value is False and dynamic is None and not variant.case.calls):
            continue
        altered = dataclasses.replace(variant, dynamic=value)
        variations.append(Change(f"with {name}", f"dynamic={value}", variant=altered))
    return variations


def _threads(variant: Variant) -> list[Change]:
    count = variant.threads or THREADS
    threads = 1 if count > 1 else THREADS
    name = "on one thread" if threads == 1 else f"on {threads} threads"
    return [Change(name, f"threads: {threads}", variant=dataclasses.replace(variant, threads=threads))]


def _of_devices(variant: Variant) -> list[Change]:
    """Return the other device. Where the machine lacks it the answer is SKIP, and ``read`` leaves it out."""
    if variant.device not in _DEVICES:
        return []
    device = _DEVICES[1 - _DEVICES.index(variant.device)]
    return [Change(f"on {device}", f"device: {device}", variant=dataclasses.replace(variant, device=device))]


def _of_flags(name: str, config: Mapping[str, Any]) -> Change:
    return Change(name, ", ".join(f"{flag} = {value}" for flag, value in config.items()), config)


# --- asking ---


def jobs(engine: VariantEngine, candidates: Sequence[Change], helpers: bool = True) -> list[Job | None]:
    """Return a judging job for each change; None for a change that cannot be run here."""
    return [
        engine.job(variant=change.variant, config={**change.config, **(change.helpers if helpers else {})})
        if change.variant is None or not skip_reason(Planned(change.variant, engine.environment))
        else None
        for change in candidates
    ]


def read(signature: FailureSignature, change: Change, answer: Answer) -> Ablation | None:
    """Return what became of the failure; None where this torch or machine lacks the setting."""
    trust = answer.trust
    if (trust and trust.verdict == "SKIP") or lacks(answer, change.config):
        return None
    outcome, detail = "no answer", trust.reason if trust else ""
    if answer.findings:
        outcome = "same" if shows(signature, answer.findings) else "other"
        detail = headline(ranked(answer.findings)[0])
    elif answer.sound:
        outcome, detail = "gone", ""
    return Ablation(change.name, change.setting, outcome, detail)


def lacks(answer: Answer, flags: Mapping[str, Any]) -> bool:
    """Return whether the worker's torch lacks one of these flags."""
    match = _MISSING.search(answer.trust.reason) if answer.trust else None
    return match is not None and (match[1] or match[2]) in flags
