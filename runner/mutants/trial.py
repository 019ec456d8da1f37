"""One mutant against the cases that reach it: killed by the first verdict that is another one, or alive after the last.

A finding kills unless a rule of the verdict may excuse it: then the whole run of the variant decides. A timeout kills
when the process had the machine for itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from runner.builder.source import build
from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.contract.mutant import NOT_PLANTED, Mutant
from runner.contract.oracles import row_of
from runner.engine.messages import Outcome
from runner.record.events import RED
from runner.session.plan import Planned, RunContext, job, unclaimed_by_run
from runner.session.scheduler import Steps, with_reference
from runner.session.variant_run import run_variant
from runner.verdict import explained, outcomes
from runner.verdict.policy import ranked
from runner.verdict.stages import stage_of

Fate = Literal["killed", "survived", "invalid"]

SLACK, FACTOR = 20.0, 6.0
"""A case may take so many seconds, and this many times its recorded time on top: a mutant may hang."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a mutant.

    ``case`` killed it, by ``oracle``, and ``plainly`` says whether ``torch.testing.assert_close`` of the outputs would
    have too. ``tried`` are the cases that ran, of ``reaching`` that reach the line. An invalid mutant changes no code.
    """

    mutant: Mutant
    fate: Fate
    case: str = ""
    oracle: str = ""
    reason: str = ""
    plainly: bool = False
    tried: tuple[str, ...] = ()
    reaching: int = 0
    seconds: float = 0.0  # of processes
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the trial as a plain dict."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trial:
        """Return the trial of a plain dict, which a stranger may have written.

        Raises:
            TypeError: a key is missing or unknown, or a value is of another type.
        """
        values: dict[str, Any] = {key: tuple(value) if type(value) is list else value for key, value in data.items()}
        trial = Trial(**{**values, "mutant": Mutant.from_json(values["mutant"])})
        texts = (trial.case, trial.oracle, trial.reason, *trial.tried, *trial.notes)
        numbers = (trial.plainly, trial.reaching, trial.seconds)
        is_whole = trial.fate in get_args(Fate) and all(isinstance(text, str) for text in texts)
        if not (is_whole and all(isinstance(number, int | float) for number in numbers)):
            raise TypeError("a value is of another type")
        return trial


def try_mutant(
    mutant: Mutant, cases: Sequence[tuple[Planned, float]], reaching: int, context: RunContext
) -> Steps[Trial]:
    """Run cases under a mutant until one kills it.

    Args:
        mutant: the change.
        cases: in the order in which they run, each with the seconds that it took without the mutant.
        reaching: how many cases reach the line.
        context: of the run that found the cases passing.
    """
    trial = Trial(mutant, "survived", reaching=reaching)
    for planned, usual in cases:
        trial = replace(trial, tried=(*trial.tried, planned.variant.id))
        trial = yield from _Attempt(replace(planned, mutant=mutant), usual, context).run(trial)
        if trial.fate != "survived":
            break
    return trial


@dataclass(slots=True)
class _Attempt:
    """One case under a mutant. ``seconds`` are those of its processes."""

    planned: Planned
    usual: float
    context: RunContext
    seconds: float = 0.0

    def run(self, trial: Trial) -> Steps[Trial]:
        """Return the trial with what the case says."""
        trial = yield from self._run(trial)
        return replace(trial, seconds=round(trial.seconds + self.seconds, 3))

    def _run(self, trial: Trial) -> Steps[Trial]:
        source = build(self.planned.variant, limits=self.context.limits)
        base = job(
            self.planned, source, imports=self.context.settings.imports, paths=self.context.paths,
            seed=self.context.settings.seed,
        )  # fmt: skip
        base = replace(base, cacheable=False, timeout=min(base.timeout, SLACK + FACTOR * self.usual))
        (outcome,) = yield from with_reference([base], self._account)
        if outcome.ended == "timeout":
            (outcome,) = yield from with_reference([replace(base, alone=True)], self._account)
        findings, doubt = outcomes.read(outcome, source)
        if doubt is not None and doubt.reason.startswith(NOT_PLANTED):
            return replace(trial, fate="invalid", case=self.id, reason=doubt.reason.removeprefix(NOT_PLANTED))
        if findings and self._may_be_excused(findings, base, outcome):
            return (yield from self._run_whole(trial))
        if findings:
            worst = ranked(findings)[0]
            return self._killed(trial, worst.oracle, worst.message, is_plain(findings))
        if doubt is None or doubt.verdict == "SKIP":
            return trial
        if doubt.verdict == "BROKEN":  # a process of ours, which kills nothing
            return self._noted(trial, doubt.reason)
        return self._killed(trial, doubt.verdict, doubt.reason, doubt.verdict == "INVALID")

    @property
    def id(self) -> str:
        """The case's."""
        return self.planned.variant.id

    def _account(self, outcome: Outcome) -> None:
        self.seconds += outcome.busy

    def _may_be_excused(self, findings: Sequence[Finding], base: Job, outcome: Outcome) -> bool:
        """Return whether a flag may explain the findings, or the backend claims no such precision."""
        variant, record = self.planned.variant, outcome.record
        stage = stage_of(variant.backend.backend)
        flags = explained.candidates(
            findings, stage, base.source, variant.dtype, variant.config, record.drew_random
        )  # fmt: skip
        return bool(flags or unclaimed_by_run(variant, record))

    def _run_whole(self, trial: Trial) -> Steps[Trial]:
        event = (yield from run_variant(self.planned, self.context)).event
        self.seconds += event.spent.get("busy", 0.0)
        if event.verdict in RED:
            oracle = event.oracles[0] if event.oracles else event.verdict
            return self._killed(trial, oracle, event.reason, is_plain(event.findings))
        return self._noted(trial, f"{event.verdict} {event.reason}")

    def _killed(self, trial: Trial, oracle: str, reason: str, plainly: bool) -> Trial:
        return replace(trial, fate="killed", case=self.id, oracle=oracle, reason=reason, plainly=plainly)

    def _noted(self, trial: Trial, text: str) -> Trial:
        return replace(trial, notes=(*trial.notes, f"{self.id}: {text}"))


_PLAIN = ("structure", "shape", "dtype", "device", "value", "nonfinite")


def is_plain(findings: Sequence[Finding]) -> bool:
    """Return whether a test that calls the function and compares outputs by ``assert_close`` sees one of the findings.

    It sees an exception, a death, and values, shapes and dtypes of outputs.
    """
    return any(
        row_of(finding.oracle).crash or (finding.oracle in _PLAIN and "output" in finding.path) for finding in findings
    )
