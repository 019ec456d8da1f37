"""The same case under one changed setting: which of them make a failure go away?"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.cases.model import LAUNCH, THREADS, Grad, Variant
from runner.diagnose.diagnosis import Ablation
from runner.diagnose.harness import Answer, Lab
from runner.engine.messages import Job
from runner.session.plan import Planned, skip_reason
from runner.verdict.explained import EMULATE_CASTS, RANDOM
from runner.verdict.policy import headline, ranked
from runner.verdict.signature import Signature, shows
from runner.worker.oracles import row_of

_INDUCTOR = "torch._inductor.config."
_DEVICES = ("cpu", "cuda")

_DRAWS = re.compile(r"(?i)rand|drop_?out|bernoulli|multinomial|normal_\(|uniform_\(|exponential_|rrelu|poisson")
"""Words of a model that draws random numbers."""

_MISSING = re.compile(r"^config: torch \S+ has no flag (\S+)$|^config: torch \S+ has no \S+ \(wanted (\S+)\)$")
"""How a worker says that its torch has no such flag."""


@dataclass(frozen=True, slots=True)
class Change:
    """One changed setting. ``config`` are flags, of which ``helpers`` may be missing in a torch; ``variant`` replaces the case's own."""

    name: str
    setting: str
    config: Mapping[str, Any] = field(default_factory=dict)
    helpers: Mapping[str, Any] = field(default_factory=dict)
    variant: Variant | None = None


def changes(variant: Variant, signature: Signature, source: str) -> list[Change]:
    """What is worth a try for a failure of that signature; ``source`` is the case's text."""
    config = variant.config
    made: list[Change] = []
    if signature.stage == "inductor":
        made += _of_inductor(variant, signature, source, config)
    if signature.stage == "decomposition":
        made.append(_flags("without common subexpressions", {"torch._functorch.config.cse": False}))
    launched = variant.backend.backend == LAUNCH  # no compiler, and no code of torch's that has threads
    made += [] if launched else _of_shapes(variant)
    if (
        not launched
        and variant.device == "cpu"
        and signature.stage in ("inductor", "backend")
        and not row_of(signature.oracle).compiling
    ):
        made += _threads(variant)
    if variant.grad.mode != "off" and not row_of(signature.oracle).gradients:
        other = dataclasses.replace(variant, grad=Grad("off"))
        made.append(Change("without gradients", "grad: off", variant=other))
    made += _of_devices(variant)
    return [one for one in made if not one.config or not _held(one.config, config)]


def _of_inductor(variant: Variant, signature: Signature, source: str, config: Mapping[str, Any]) -> list[Change]:
    """Inductor's own switches."""
    row = row_of(signature.oracle)
    numeric, runs = row.numeric or row.random, not row.compiling
    made = []
    if numeric:
        made.append(_flags("with eager's roundings", {EMULATE_CASTS: True}))
    if numeric and _DRAWS.search(_model_of(source)):
        own = config.get(RANDOM) is False
        name = "with eager's random numbers" if own else "with inductor's own random numbers"
        made.append(_flags(name, {RANDOM: own}))
    if variant.device == "cpu":
        if runs:
            # The one switch for the flags of every C++ kernel, in spite of its name (get_optimization_cflags in
            # torch/_inductor/cpp_builder.py). A precompiled header would take longer to make than it saves.
            made.append(
                Change(
                    "compiled with -O0",
                    f"{_INDUCTOR}aot_inductor.debug_compile = True",
                    {f"{_INDUCTOR}aot_inductor.debug_compile": True},
                    {f"{_INDUCTOR}cpp_cache_precompile_headers": False},
                )
            )
        made.append(_flags("without vectorization", {f"{_INDUCTOR}cpp.simdlen": 1}))
    made += [
        # The first keeps kernels apart, the others keep pointwise operators from being inlined into their readers.
        _flags(
            "without fusion",
            {
                f"{_INDUCTOR}max_fusion_size": 1,
                f"{_INDUCTOR}realize_acc_reads_threshold": 0,
                f"{_INDUCTOR}realize_opcount_threshold": 0,
                f"{_INDUCTOR}epilogue_fusion": False,
            },
        ),
        _flags("without pattern matching", {f"{_INDUCTOR}pattern_matcher": False}),
        _flags(
            "without layout changes",
            {f"{_INDUCTOR}layout_optimization": False, f"{_INDUCTOR}comprehensive_padding": False},
        ),
    ]
    if runs:
        made.append(
            _flags(
                "without buffer reuse", {f"{_INDUCTOR}allow_buffer_reuse": False, f"{_INDUCTOR}inplace_buffers": False}
            )
        )
    return made


def _of_shapes(variant: Variant) -> list[Change]:
    """Dynamic shapes, static ones; not what the case has anyway."""
    own = variant.dynamic if variant.dynamic is not None else variant.backend.dynamic
    made = []
    for value, name in ((True, "dynamic shapes"), (False, "static shapes")):
        # Without a word the first call is compiled for its shapes, so that with one call static is nothing new.
        if own is value or (value is False and own is None and not variant.case.calls):
            continue
        other = dataclasses.replace(variant, dynamic=value)
        made.append(Change(f"with {name}", f"dynamic={value}", variant=other))
    return made


def _threads(variant: Variant) -> list[Change]:
    own = variant.threads or THREADS
    other = 1 if own > 1 else THREADS
    name = "on one thread" if other == 1 else f"on {other} threads"
    return [Change(name, f"threads: {other}", variant=dataclasses.replace(variant, threads=other))]


def _of_devices(variant: Variant) -> list[Change]:
    """The other device. Where there is none the answer is SKIP, and it is left out."""
    if variant.device not in _DEVICES:
        return []
    other = _DEVICES[1 - _DEVICES.index(variant.device)]
    return [Change(f"on {other}", f"device: {other}", variant=dataclasses.replace(variant, device=other))]


def _flags(name: str, config: Mapping[str, Any]) -> Change:
    return Change(name, ", ".join(f"{flag} = {value}" for flag, value in config.items()), config)


def _held(config: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether the case has set all of these itself."""
    return all(flag in own and own[flag] == value for flag, value in config.items())


def _model_of(source: str) -> str:
    """The text without the functions that make inputs."""
    return source.partition("\ndef make_inputs")[0]


# --- asking ---


def jobs(lab: Lab, wanted: Sequence[Change], helpers: bool = True) -> list[Job | None]:
    """A judging job for each change; None for one that cannot be had here."""
    return [_job(lab, change, helpers) for change in wanted]


def _job(lab: Lab, change: Change, helpers: bool) -> Job | None:
    if change.variant is not None and skip_reason(Planned(change.variant, lab.environment)):
        return None
    return lab.job(variant=change.variant, config={**change.config, **(change.helpers if helpers else {})})


def read(signature: Signature, change: Change, answer: Answer) -> Ablation | None:
    """What became of the failure; None where this torch or machine has no such setting."""
    reason = str((answer.trust or {}).get("reason", ""))
    if (answer.trust or {}).get("verdict") == "SKIP" or lacks(answer, change.config):
        return None
    outcome, detail = "no answer", reason
    if answer.findings:
        outcome = "same" if shows(signature, answer.findings) else "other"
        detail = headline(ranked(answer.findings)[0])
    elif answer.sound:
        outcome, detail = "gone", ""
    return Ablation(change.name, change.setting, outcome, detail)


def lacks(answer: Answer, flags: Mapping[str, Any]) -> bool:
    """Whether the worker's torch has not got one of these flags."""
    found = _MISSING.search(str((answer.trust or {}).get("reason", "")))
    return found is not None and (found[1] or found[2]) in flags
