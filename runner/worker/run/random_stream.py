"""Whether only the stream of random numbers differs: both sides run again with numbers that depend on their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from runner.contract.finding import Finding
from runner.contract.oracles import OTHER_NUMBERS, row_of
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.judge import judge
from runner.worker.program.backends import Compile
from runner.worker.program.load import Source
from runner.worker.program.observe import Observation, Settings, observe
from runner.worker.program.pinned_numbers import Draws, pinned_numbers
from runner.worker.rerun.reference import Reference

NOTE = "where each random number depends on its place alone, both agree: only the stream of random numbers differs"

Run = Callable[[Compile], Observation]
"""Runs the case under its backend, by a function that compiles a module."""

_DEVICES = ("cpu", "cuda")


def weigh_random(
    evidence: Evidence, findings: list[Finding], source: Source, settings: Settings, compile_module: Compile, run: Run,
    begin: Callable[[str], None],
) -> list[Finding]:  # fmt: skip
    """Return the findings; those that come of other random numbers alone have that severity, and a note says so.

    Both sides must make as many draws of each size: two draws that were joined to one are a wrong result. A process
    that dies meanwhile is asked again without, as in ``judge_defined``.

    Raises:
        InvalidCase: the case cannot be loaded again.
    """
    random = [finding for finding in findings if _may_come_of_draws(finding)]
    is_drawn = evidence.eager.drew_random and settings.device.partition(":")[0] in _DEVICES
    if not random or not is_drawn or not evidence.job.float64:
        return findings
    begin("float64")
    try:
        agree = any(
            _agree(evidence, source, settings, compile_module, run, begin, counted) for counted in (True, False)
        )
    except ImportError:  # a torch whose kernels cannot be replaced
        agree = False
    begin("judge")
    if not agree:
        return findings
    evidence.note(NOTE)
    return [replace(finding, severity=OTHER_NUMBERS) if finding in random else finding for finding in findings]


def _may_come_of_draws(finding: Finding) -> bool:
    row = row_of(finding.oracle)
    return row.random and row.numeric and finding.severity is None


def _agree(
    evidence: Evidence, source: Source, settings: Settings, compile_module: Compile, run: Run,
    begin: Callable[[str], None], counted: bool,
) -> bool:  # fmt: skip
    """Return whether both sides make the same draws, and agree on all that random numbers may change."""
    eagers, others = Draws(counted), Draws(counted)

    def pinned(target: Callable[..., Any], draws: Draws) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with pinned_numbers(settings.device, draws):
                return target(*args)

        return call

    loaded = source.load(settings.seed)
    eager = observe(loaded, pinned(loaded.model, eagers), settings)
    compiled = run(lambda model: pinned(compile_module(model), others))
    if eager.error is not None or eagers.counts != others.counts:
        return False
    reference = Reference(source, settings, eager, False, begin)
    again = judge(Evidence(evidence.job, eager, compiled, reference))
    return not any(_may_come_of_draws(finding) for finding in again)
