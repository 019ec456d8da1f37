"""Whether a candidate fails alike: a run under the variant's stage, one below it, and the policies that may explain it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.builder.source import Source, build
from runner.cases.model import KERNEL_BACKENDS, Case, Variant
from runner.diagnose.harness import Lab
from runner.engine.messages import Outcome
from runner.record.events import Finding
from runner.reduce.cut import Facts
from runner.reduce.facts import Fact
from runner.verdict import explained, outcomes
from runner.verdict.policy import ranked
from runner.verdict.signature import Signature, signature_of
from runner.verdict.stages import LADDER, STAGES, locate, stage_of

FAINTER = 100.0
"""By how much the relative error of a wrong value may fall: below that it is likely to be rounding that is found instead.

A planted or a real bug keeps its size within a few powers of two when a case shrinks; the step from a bug to float32
rounding is 10^4 or more. An error of ``GROSS`` is no rounding however large the first one was.
"""
GROSS = 1e-2

MEASURED = frozenset({"value", "grad", "mutation"})
"""Oracles whose findings hold numbers that float64 has a say in."""

SLOW = frozenset({"timeout", "memory"})
"""Failures of a case's own limits: what a lower stage makes of these is not asked for, since it takes as long."""


def relative_error(finding: Finding) -> float:
    """The largest difference of a finding on the scale of the tensor; infinite where it has no such number."""
    numbers = finding.numbers
    error = numbers.get("abs_error_max", numbers.get("abs_error"))
    scale = numbers.get("scale")
    if not isinstance(error, int | float):
        return math.inf
    return error / scale if isinstance(scale, int | float) and scale > 1 else float(error)


def alike(finding: Finding | None, wanted: Signature, error: float) -> bool:
    """Whether a finding has the signature, its stage aside, and is no fainter than it may be. ``error`` is the first finding's."""
    if finding is None:
        return False
    found = signature_of(finding)
    if (found.oracle, found.error, found.pattern) != (wanted.oracle, wanted.error, wanted.pattern):
        return False
    return relative_error(finding) >= min(error / FAINTER, GROSS) if finding.oracle in MEASURED else True


@dataclass
class _Trial:
    """A candidate on its way: what is asked now, and what was found."""

    number: int
    variant: Variant
    source: Source
    asked: str = "main"  # "main", "below", or a flag
    findings: tuple[Finding, ...] = ()
    flags: tuple[str, ...] = ()


class LabJudge:
    """Tries candidates in a lab, as many at once as it has slots."""

    def __init__(self, lab: Lab, signature: Signature, error: float = 0.0, timeout: float | None = None) -> None:
        """Start nothing yet.

        Args:
            lab: its engine is the judge's alone while a search goes on.
            signature: the failure's, with its stage.
            error: the relative error of the finding that it is the mark of.
            timeout: seconds that a candidate may take; the case's own limit if None.
        """
        self.lab, self.signature, self.error, self.timeout = lab, signature, error, timeout
        self.slots = lab.slots
        self.backend, self.below = backends_for(signature.stage, lab.variant.backend.backend)
        self._trials: dict[str, _Trial] = {}
        self._done: list[tuple[int, bool]] = []
        self._aside: dict[str, Outcome] = {}

    def start(self, number: int, variant: Variant, source: Source) -> None:
        """Begin to try a candidate."""
        self._ask(_Trial(number, variant, source))

    def finished(self, timeout: float) -> list[tuple[int, bool]]:
        """What is known by now, after at most ``timeout`` seconds."""
        if not self._done:
            self._pump(timeout)
        done, self._done = self._done, []
        return done

    def stop(self) -> None:
        """End what runs. The lab's engine must be used by nobody else meanwhile."""
        if self._trials:
            self.lab.engine.cancel_all()
            self.lab.engine.wait(0)
        self._trials.clear()
        self._done.clear()

    def measure(self, case: Case) -> Facts:
        """What the values of a named case are in eager; nothing where that cannot be had. Candidates go on meanwhile."""
        variant = replace(self.lab.variant, case=case, params={name: values[0] for name, values in case.params.items()})
        variant = replace(variant, dtype=case.dtypes[0], device=case.devices[0], grad=case.grad[0], train=case.train[0],
                          autocast=case.autocast[0], threads=case.threads[0])  # fmt: skip
        # Names that nothing uses are errors of a case. Here they are what is asked for.
        asked = self.lab.job("shapes", variant=variant, source=build(variant, limits=self.lab.limits))
        self.lab.engine.submit(asked)
        while asked.key not in self._aside:
            self._pump(0.2)
        outcome = self._aside.pop(asked.key)
        values = outcome.result.get("values") if outcome.ended == "result" else None
        return {name: Fact.of(data) for name, data in (values or {}).items()}

    def confirm(self, variant: Variant, source: Source) -> bool:
        """Whether a case fails alike in a process of its own, under the variant's own backend."""
        asked = self.lab.job(variant=variant, source=source, isolation="fresh", float64=self._float64)
        (outcome,) = self.lab.ask([asked])
        findings, trust = outcomes.read(outcome, source)
        return alike(ranked(findings)[0] if findings and not trust else None, self.signature, self.error)

    # --- one candidate ---

    @property
    def _float64(self) -> bool:
        return self.signature.oracle in MEASURED | {"nonfinite"}

    def _ask(self, trial: _Trial) -> None:
        config = {trial.asked: True} if trial.asked in trial.flags else None
        backend = self.below if trial.asked == "below" else self.backend
        asked = self.lab.job(
            variant=trial.variant, source=trial.source, backend=backend, config=config, float64=self._float64,
            timeout=self.timeout,
        )  # fmt: skip
        self._trials[asked.key] = trial
        self.lab.engine.submit(asked)

    def _pump(self, timeout: float) -> None:
        for outcome in self.lab.engine.wait(timeout):
            trial = self._trials.pop(outcome.job.key, None)
            if trial is None:
                self._aside[outcome.job.key] = outcome
            elif outcomes.died_in_float64(outcome) and outcome.job.float64:
                again = replace(outcome.job, float64=False, key=outcome.job.key + " again")
                self._trials[again.key] = trial
                self.lab.engine.submit(again)
            else:
                self._advance(trial, outcome)

    def _advance(self, trial: _Trial, outcome: Outcome) -> None:
        findings, trust = outcomes.read(outcome, trial.source)
        if trial.asked == "main":
            first = ranked(findings)[0] if findings and not trust else None
            if not alike(first, self.signature, self.error):
                self._done.append((trial.number, False))
                return
            trial.findings = tuple(findings)
            trial.flags = tuple(self._policies(trial))
            trial.asked = "below"
            if self.below is not None and self.signature.oracle not in SLOW:
                self._ask(trial)
                return
        elif trial.asked == "below":
            stage = stage_of(str(self.below))
            first = ranked(locate(trial.findings, self.backend, {stage: findings}))[0]
            if first.stage == stage:
                self._done.append((trial.number, False))  # it fails earlier, so it is another failure
                return
        elif outcome.ended == "result" and not findings and not trust:
            self._done.append((trial.number, False))  # a policy explains it, so it is none
            return
        left = trial.flags[trial.flags.index(trial.asked) + 1 :] if trial.asked in trial.flags else trial.flags
        if not left:
            self._done.append((trial.number, True))
            return
        trial.asked = left[0]
        self._ask(trial)

    def _policies(self, trial: _Trial) -> Sequence[str]:
        stage, variant = stage_of(self.backend), trial.variant
        return explained.candidates(trial.findings, stage, trial.source.text, variant.dtype, variant.config)


def backends_for(stage: str | None, backend: str) -> tuple[str, str | None]:
    """The cheapest backend that shows a failure of ``stage``, and the one below it that must not; none is below a launch."""
    if backend in KERNEL_BACKENDS:
        return backend, None
    if stage is None or (stage_of(backend) == "backend" and stage == "backend"):
        return backend, LADDER[0][1]
    if stage == stage_of(backend):
        chosen = backend
    else:
        chosen = dict(LADDER)[stage]
    place = STAGES.index(stage)
    return chosen, LADDER[place - 1][1] if place else None
