"""Whether a candidate fails alike: a run under the variant's stage, one below it, and the policies that may explain
it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.builder.source import Source, build
from runner.cases.model import KERNEL_BACKENDS, Case, Variant
from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.contract.oracles import row_of
from runner.contract.record import Trust
from runner.diagnose.harness import VariantEngine
from runner.engine.messages import Outcome
from runner.reduce.remove_steps import ValueInfos
from runner.reduce.value_info import ValueInfo
from runner.session.scheduler import Scheduler, Steps, with_reference
from runner.verdict import explained, outcomes
from runner.verdict.policy import ranked
from runner.verdict.signature import FailureSignature, signature_of
from runner.verdict.stages import LADDER, STAGES, locate, stage_of

FAINTER = 100.0
"""By how much the relative error of a wrong value may fall: below that it is likely to be rounding that is found
instead.

A planted or a real bug keeps its size within a few powers of two when a case shrinks; the step from a bug to float32
rounding is 10^4 or more. An error of ``GROSS`` is no rounding however large the first one was.
"""
GROSS = 1e-2


def relative_error(finding: Finding) -> float:
    """The largest difference of a finding on the scale of the tensor; infinite where it has no such number."""
    numbers = finding.numbers
    error = numbers.get("abs_error_max", numbers.get("abs_error"))
    scale = numbers.get("scale")
    if not isinstance(error, int | float):
        return math.inf
    return error / scale if isinstance(scale, int | float) and scale > 1 else float(error)


def alike(finding: Finding | None, expected: FailureSignature, error: float) -> bool:
    """Whether a finding has the signature, its stage aside, and is no fainter than it may be.

    ``error`` is the first finding's.
    """
    if finding is None:
        return False
    signature = signature_of(finding)
    if signature.kind != expected.kind:
        return False
    return relative_error(finding) >= min(error / FAINTER, GROSS) if row_of(finding.oracle).measured else True


def _fails_alike(findings: Sequence[Finding], doubt: Trust | None, expected: tuple[FailureSignature, float]) -> bool:
    return alike(ranked(findings)[0] if findings and not doubt else None, *expected)


_MEASURE = "measure"
"""The name of what is no candidate."""


class EngineJudge:
    """Tries candidates on an engine, as many at once as it has slots."""

    def __init__(
        self, engine: VariantEngine, signature: FailureSignature, error: float = 0.0, timeout: float | None = None
    ) -> None:
        """Start nothing yet.

        Args:
            engine: the judge's alone while a search goes on.
            signature: the failure's, with its stage.
            error: the relative error of the finding that it is the mark of.
            timeout: seconds that a candidate may take; the case's own limit if None.
        """
        self.engine, self.signature, self.error, self.timeout = engine, signature, error, timeout
        self._expected = signature, error  # of candidates, under the stage's backend
        self.slots = engine.slots
        self.backend, self.below = backends_for(signature.stage, engine.variant.backend.backend)
        self._scheduler: Scheduler[Any] = Scheduler(engine.local_engine)
        self._verdicts: list[tuple[int, bool]] = []

    def adapt(self, variant: Variant, source: Source) -> None:
        """Learn from the whole case how it fails under the stage's backend, which may raise later and something else.

        Where it shows nothing there, candidates run under the variant's own backend. Call it before candidates start.
        """
        own = self.engine.variant.backend.backend
        if self.backend == own:
            return
        job = self.engine.job(variant=variant, source=source, backend=self.backend, timeout=self.timeout)
        (outcome,) = self.engine.ask([job])
        findings, doubt = outcomes.read(outcome, source)
        if _fails_alike(findings, doubt, self._expected):
            return
        if findings and not doubt:
            first = ranked(findings)[0]
            self._expected = signature_of(first), relative_error(first)
        else:
            self.backend = own

    def start(self, number: int, variant: Variant, source: Source) -> None:
        """Begin to try a candidate."""
        self._scheduler.start(str(number), self._try(variant, source))

    def finished(self, timeout: float) -> list[tuple[int, bool]]:
        """Return the candidates that are decided by now, after at most ``timeout`` seconds."""
        if not self._verdicts:
            self._wait(timeout)
        verdicts, self._verdicts = self._verdicts, []
        return verdicts

    def stop(self) -> None:
        """End what runs. Nobody else may use the engine meanwhile."""
        self._scheduler.cancel()
        self._verdicts.clear()

    def measure(self, case: Case) -> ValueInfos:
        """What the values of a named case are in eager; nothing where that cannot be had.

        Candidates go on meanwhile.
        """
        params = {name: values[0] for name, values in case.params.items()}
        variant = replace(self.engine.variant, case=case, params=params)
        variant = replace(variant, dtype=case.dtypes[0], device=case.devices[0], grad=case.grad[0], train=case.train[0],
                          autocast=case.autocast[0], threads=case.threads[0])  # fmt: skip
        # Names that nothing uses are errors of a case. Here they are what is asked for.
        self._scheduler.start(
            _MEASURE,
            self._values(self.engine.job("shapes", variant=variant, source=build(variant, limits=self.engine.limits))),
        )
        values = self._wait(0.0)
        while values is None:
            values = self._wait(0.2)
        return values

    def confirm(self, variant: Variant, source: Source) -> tuple[Finding, ...]:
        """Return the findings of a case in a process of its own, under the variant's own backend; none where it does
        not fail alike."""
        job = self.engine.job(variant=variant, source=source, isolation="fresh", float64=self._float64)
        (outcome,) = self.engine.ask([job])
        findings, doubt = outcomes.read(outcome, source)
        return tuple(ranked(findings)) if _fails_alike(findings, doubt, (self.signature, self.error)) else ()

    # --- one candidate ---

    @property
    def _float64(self) -> bool:
        return row_of(self.signature.oracle).float64 or row_of(self._expected[0].oracle).float64

    def _try(self, variant: Variant, source: Source) -> Steps[bool]:
        """Run a candidate under the stage's backend, under the one below, and under each policy that may explain it."""

        def answer(
            backend: str, config: Mapping[str, Any] | None = None
        ) -> Steps[tuple[Outcome, list[Finding], Trust | None]]:
            job = self.engine.job(
                variant=variant,
                source=source,
                backend=backend,
                config=config,
                float64=self._float64,
                timeout=self.timeout,
            )
            (outcome,) = yield from with_reference([job])
            return outcome, *outcomes.read(outcome, source)

        outcome, findings, doubt = yield from answer(self.backend)
        drew_random = outcome.record.drew_random
        if not _fails_alike(findings, doubt, self._expected):
            return False
        if self.below is not None and not row_of(self._expected[0].oracle).limit:  # that takes as long
            stage = stage_of(self.below)
            _, lower, _ = yield from answer(self.below)
            if ranked(locate(findings, self.backend, {stage: lower}))[0].stage == stage:
                return False  # it fails earlier, so it is another failure
        stage = stage_of(self.backend)
        for flag in explained.candidates(findings, stage, source.text, variant.dtype, variant.config, drew_random):
            outcome, remaining, doubt = yield from answer(self.backend, {flag: True})
            if outcome.ended == "result" and not remaining and not doubt:
                return False  # a policy explains it, so it is no failure
        return True

    def _values(self, job: Job) -> Steps[ValueInfos]:
        (outcome,) = yield [job]
        values = outcome.result.get("values") if outcome.ended == "result" else None
        return {name: ValueInfo.of(data) for name, data in (values or {}).items()}

    def _wait(self, timeout: float) -> ValueInfos | None:
        """Let jobs run; what was measured, if that has ended."""
        self._scheduler.wait(timeout)
        values: ValueInfos | None = None
        for name, result in self._scheduler.results():
            if name == _MEASURE:
                values = result
            else:
                self._verdicts.append((int(name), result))
        return values


def backends_for(stage: str | None, backend: str) -> tuple[str, str | None]:
    """The cheapest backend that shows a failure of ``stage``, and the one below it that must not; none is below a
    launch."""
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
