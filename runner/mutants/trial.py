"""One mutant against the cases that reach it: killed by the first verdict that is another one, or alive after the last.

A finding kills unless a rule of the verdict may excuse it: then the whole run of the variant decides. A timeout kills
when the process had the machine for itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from runner.builder.source import build
from runner.contract.finding import Finding
from runner.contract.job import Job, Trust
from runner.contract.mutant import NOT_PLANTED, Mutant
from runner.contract.oracles import row_of
from runner.engine.messages import Outcome
from runner.record.events import RED
from runner.session.plan import Planned, RunContext, job
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
    notes: tuple[str, ...] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Return the trial as a plain dict."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trial:
        """Return the trial of a plain dict.

        Raises:
            TypeError: a key is missing or unknown.
        """
        values: dict[str, Any] = {key: tuple(value) if type(value) is list else value for key, value in data.items()}
        return Trial(**{**values, "mutant": Mutant.from_json(values["mutant"])})


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
        attempt = _Attempt(replace(planned, mutant=mutant), usual, context)
        yield from attempt.run()
        trial = replace(
            trial, tried=(*trial.tried, planned.variant.id), seconds=round(trial.seconds + attempt.seconds, 3),
            notes=(*trial.notes, *attempt.notes),
        )  # fmt: skip
        if attempt.fate != "survived":
            return replace(
                trial, fate=attempt.fate, case=planned.variant.id, oracle=attempt.oracle, reason=attempt.reason,
                plainly=attempt.plainly,
            )  # fmt: skip
    return trial


@dataclass(slots=True)
class _Attempt:
    """One case under a mutant, and what it says."""

    planned: Planned
    usual: float
    context: RunContext
    fate: Fate = "survived"
    oracle: str = ""
    reason: str = ""
    plainly: bool = False
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def run(self) -> Steps[None]:
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
            self.fate, self.reason = "invalid", doubt.reason.removeprefix(NOT_PLANTED)
        elif findings and self._may_be_excused(findings, base, outcome):
            yield from self._run_whole()
        elif findings:
            self._die(ranked(findings)[0].oracle, ranked(findings)[0].message, is_plain(findings))
        elif doubt is not None and doubt.verdict != "SKIP":
            self._doubt(doubt)

    def _account(self, outcome: Outcome) -> None:
        self.seconds += outcome.busy

    def _may_be_excused(self, findings: Sequence[Finding], base: Job, outcome: Outcome) -> bool:
        variant = self.planned.variant
        stage, drew = stage_of(variant.backend.backend), outcome.ended == "result" and outcome.record.drew_random
        return bool(explained.candidates(findings, stage, base.source, variant.dtype, variant.config, drew))

    def _run_whole(self) -> Steps[None]:
        event = (yield from run_variant(self.planned, self.context)).event
        self.seconds += event.spent.get("busy", 0.0)
        if event.verdict in RED:
            self._die(event.oracles[0] if event.oracles else event.verdict, event.reason, is_plain(event.findings))
        else:
            self.notes = (f"{self.planned.variant.id}: {event.verdict} {event.reason}",)

    def _doubt(self, doubt: Trust) -> None:
        """A broken process of ours kills nothing."""
        if doubt.verdict == "BROKEN":
            self.notes = (f"{self.planned.variant.id}: {doubt.reason}",)
        else:
            self._die(doubt.verdict, doubt.reason, doubt.verdict == "INVALID")

    def _die(self, oracle: str, reason: str, plainly: bool) -> None:
        self.fate, self.oracle, self.reason, self.plainly = "killed", oracle, reason, plainly


_PLAIN = ("structure", "shape", "dtype", "device", "value", "nonfinite")


def is_plain(findings: Sequence[Finding]) -> bool:
    """Return whether a test that calls the function and compares outputs by ``assert_close`` sees one of the findings.

    It sees an exception, a death, and values, shapes and dtypes of outputs.
    """
    return any(row_of(each.oracle).crash or (each.oracle in _PLAIN and "output" in each.path) for each in findings)
