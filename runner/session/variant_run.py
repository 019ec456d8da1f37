"""One variant from its first job to its event, as a generator of jobs: see ``run_variant``."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runner.builder.source import Source, build
from runner.cases.model import LAUNCH, Case, Known
from runner.cases.operator_names import calls_of
from runner.cases.walk import steps_of
from runner.contract.finding import Finding
from runner.contract.job import Isolation, Job, Record, Trust
from runner.contract.oracles import row_of
from runner.engine.caches import graphs_digest
from runner.engine.messages import Outcome
from runner.exit_codes import UsageError
from runner.record.events import FORWARD_ALONE, RED, VariantFinished, VariantPlanned
from runner.session.plan import Planned, RunContext, as_user, job, planned_event, repro, skip, unclaimed_by_run
from runner.session.scheduler import Steps, with_reference
from runner.text import one_line
from runner.verdict import explained, outcomes
from runner.verdict.operators import (
    BEFORE,
    entering_operator,
    first_step,
    first_steps,
    has_writes,
    named_part,
    observed_case,
    uncertain,
)
from runner.verdict.policy import (
    AS_USER,
    Verdict,
    applying,
    as_user_note,
    counts_as_user,
    decide,
    excuse_wavering,
    headline,
    ranked,
    shows_sometimes,
)
from runner.verdict.signature import assess, failure_signature, id_of, worst_findings
from runner.verdict.stages import below, in_order, locate, stage_of

NO_ANSWER = ("INVALID", "SKIP", "BROKEN")
"""Doubts of a job that never came to the backend."""

_STACK = 1 << 16
"""Characters of a worker's traceback that are kept, as of the stacks of one that died."""

_COUNTS = ("graphs", "graph_breaks", "recompiles", "kernels", "vectorized", "replays", "stored_graphs", "delegable",
    "delegated")  # fmt: skip
"""What a job counts and its event repeats."""

_TORCH = ("eager", "eager-again", "float64", "backend")
"""Phases of a job that are torch's own calls. The judge calls torch too, on our account."""


@dataclass(frozen=True, slots=True)
class VariantResult:
    """The event of a variant, and why the harness failed where it did: an error of ours, not of the case.

    ``unchecked`` says what the torch at hand lacks, and what is not checked therefore.
    """

    event: VariantFinished
    harness_errors: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()


def run_variant(planned: Planned, context: RunContext) -> Steps[VariantResult]:
    """Run a variant until its verdict stands: attempts, each with its ladder, its policies and its fresh processes.

    What is wrong with an answer and is noticed nowhere else costs this variant alone.

    Returns:
        One event for all attempts that the settings ask for.

    Raises:
        UsageError: no variant can run.
    """
    try:
        return (yield from _run_attempts(planned, context))
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001  a case may have written the answer, so it may be anything
        reason = f"its answer cannot be used: {type(error).__name__}: {one_line(str(error), 300)}"
        event = _Attempt(planned, context).event(Verdict("ERROR", reason))
        return VariantResult(assess(replace(event, stack=traceback.format_exc())))


def _run_attempts(planned: Planned, context: RunContext) -> Steps[VariantResult]:
    """Run a variant as ``run_variant`` does. Whatever an answer makes us raise is raised."""
    events: list[VariantFinished] = []
    harness_errors: list[str] = []
    unchecked: dict[str, None] = {}
    while not events or (
        runs_again(events, context.settings.retries, context.settings.stress) and not context.time_is_up()
    ):
        attempt = _Attempt(planned, context)
        verdict = yield from attempt.run()
        if attempt.is_stale(verdict):
            attempt = _Attempt(planned, context, bypass_cache=True)
            verdict = yield from attempt.run()
        harness_errors += attempt.harness_errors
        unchecked |= dict.fromkeys(attempt.main.record.unchecked if attempt.main is not None else ())
        events.append(attempt.event(verdict))
    finished = assess(combined(events, context.settings.stress))
    return VariantResult(finished, tuple(harness_errors), tuple(unchecked))


@dataclass(slots=True)
class _Attempt:
    """One attempt at a variant: what its processes said so far.

    ``shared`` is the outcome of a process that other jobs had used before, or that ran beside others, when a fresh
    process was asked again.
    """

    planned: Planned
    context: RunContext
    bypass_cache: bool = False  # no stored result will do
    source: Source = field(default_factory=lambda: Source("", ()))
    main: Outcome | None = None
    shared: Outcome | None = None
    findings: list[Finding] = field(default_factory=list)
    doubt: Trust | None = None
    stages: dict[str, list[Finding]] = field(default_factory=dict)  # what each stage below found
    as_user: Outcome | None = None  # of a run as a user runs the variant
    user: list[Finding] | None = None  # what that found, where it gave an answer
    policies: list[str] = field(default_factory=list)  # flags under which the findings vanish
    pinned: dict[str, tuple[list[Finding], list[Finding]]] = field(default_factory=dict)  # by a benchmark's choice
    notes: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    harness_errors: list[str] = field(default_factory=list)
    float64: bool = True  # until a process dies of the reference; then no further one computes it
    operator: str = ""  # of a wrong value, as far as a look at the steps' values told
    spent: dict[str, float] = field(default_factory=dict)
    model_runs: int = 0

    def run(self) -> Steps[Verdict]:
        """Run the variant, and return the verdict that a fresh process confirms where the settings ask for that.

        Where a value is wrong, the values of earlier steps are looked at, so that no later operator is blamed. An entry
        that pins the signature, which names the operator, is asked after that.
        """
        verdict = yield from self._run()
        if verdict.word not in CONFIRMED or not self.findings:
            return verdict
        is_asked = any(entry.signature for entry in self._entries())
        if self.context.names_operator and verdict.word == "FAIL" and (is_asked or not self.is_stale(verdict)):
            yield from self._find_operator()
        return self._decided(self._signature()) if is_asked else verdict

    def _entries(self) -> list[Known]:
        """Return the entries of the ledger that speak of this variant, where it counts."""
        no_known = self.context.settings.no_known
        return [] if no_known else applying(self.planned.variant, self.planned.environment.torch)

    def _signature(self) -> tuple[str, str]:
        """Return the names of the failure's signature."""
        worst = worst_findings(self.findings)
        text = failure_signature(worst, self.operator or named_part(self.planned.variant.case, worst))
        return text, id_of(text)

    def _decided(self, signature: Collection[str] = ()) -> Verdict:
        known, torch = not self.context.settings.no_known, self.planned.environment.torch
        return decide(self.planned.variant, torch, self.findings, self.doubt, known, signature)

    def _find_operator(self) -> Steps[None]:
        """Find at which operator the difference enters, if the worst finding is about a value of the chain."""
        variant, worst = self.planned.variant, worst_findings(self.findings)
        self.operator = uncertain(variant.case, worst, named_part(variant.case, worst))
        case = observed_case(variant.case) if self.operator.startswith(BEFORE) else None
        if case is None:
            return
        findings = None if has_writes(case) else (yield from self._findings(case, "steps"))
        self.operator = (
            entering_operator(case, findings or ()) or (yield from self._last_operator(case, worst)) or self.operator
        )

    def _last_operator(self, observed: Case, worst: list[Finding]) -> Steps[str]:
        """Return the operator of a step such that the chain's value differs after it, and agrees after the step before.

        A kernel that computes several steps may go wrong only where the values between them are no outputs.
        """
        agreeing, differing = 0, (first_step(self.planned.variant.case, worst) or 0) + 1
        while differing - agreeing > 1:
            middle = (agreeing + differing) // 2
            findings = yield from self._findings(first_steps(observed, middle), f"first-{middle}")
            if findings is None:
                return ""
            if any(row_of(finding.oracle).group == "values" for finding in findings):
                differing = middle
            else:
                agreeing = middle
        return [*steps_of(observed.chain)][agreeing].operator

    def _findings(self, case: Case, purpose: str) -> Steps[list[Finding] | None]:
        """Return what a run of the variant with another case finds; None where it gives no answer."""
        variant = replace(self.planned.variant, case=case)
        source = build(variant, limits=self.context.limits)
        if any(diagnostic.severity == "error" for diagnostic in source.diagnostics):
            return None
        attempt = replace(self, planned=replace(self.planned, variant=variant), source=source)
        (outcome,) = yield from self._outcomes([attempt._job(purpose, self._isolation())])
        findings, doubt = outcomes.read(outcome, source)
        return None if doubt or outcome.ended != "result" else findings

    def _run(self) -> Steps[Verdict]:
        """Run the variant until its verdict stands."""
        if skipped := skip(self.planned):
            return skipped
        self.source = build(self.planned.variant, limits=self.context.limits)
        errors = [diagnostic for diagnostic in self.source.diagnostics if diagnostic.severity == "error"]
        if errors:
            return Verdict("INVALID", f"{errors[0].message} ({errors[0].span})")
        (main,) = yield from self._outcomes([self._job("main", self._isolation())])
        # Graphs that it loaded, or may have loaded before it died.
        has_graphs = main.record.stored_graphs or (main.job.graphs and main.ended in ("signal", "no-result"))
        if has_graphs and self._is_suspect(main):
            self.bypass_cache = True  # only what is compiled now may fail
            (main,) = yield from self._outcomes([self._job("main", self._isolation())])
        if main.job.isolation == "living" and self._is_suspect(main):
            # What ran before it in that process may be to blame: only a process of its own is believed.
            self.shared = main
            main = yield from self._apart("main", main)
        elif main.job.isolation == "living" and self.context.sample.draws(main):
            main = yield from self._checked_pass(main)
        verdict = yield from self._judge(main)
        main = self.main or main
        is_settled = verdict.word not in CONFIRMED or self.is_stale(verdict) or main.ended == "damage"  # twice already
        if is_settled or not self.context.settings.confirm:
            return verdict
        return (yield from self._confirm(verdict, main))

    def is_stale(self, verdict: Verdict) -> bool:
        """Return whether the verdict is red by a stored result or stored graphs: only a new attempt may say so."""
        main = self.main
        return verdict.word in RED and main is not None and bool(main.cached or main.record.stored_graphs)

    # --- jobs ---

    def _isolation(self) -> Isolation:
        """Return the isolation of the first job.

        What a case's own Python leaves in a process would meet the next variant.
        """
        isolation = self.context.settings.isolation
        if isolation == "auto":
            isolation = "fork" if self.planned.variant.device in ("cpu", "meta") else "living"
        return "fork" if isolation == "living" and self.planned.variant.case.has_python else isolation

    def _fresh(self) -> Isolation:
        """Return the isolation that shares nothing. On accelerators the parent of a fork has only imported torch."""
        return "fresh" if self.planned.variant.device in ("cpu", "meta") else "fork"

    def _job(self, purpose: str, isolation: Isolation, alone: bool = False, **changes: Any) -> Job:
        context, settings = self.context, self.context.settings
        wanted = job(
            self.planned, self.source, imports=settings.imports, paths=context.paths, suffix=f" {purpose}",
            float64=self.float64, seed=settings.seed, **changes,
        )  # fmt: skip
        wanted = replace(
            wanted, isolation=isolation, alone=alone, cacheable=wanted.cacheable and not self.bypass_cache,
            coverage=settings.compiler_coverage() if purpose == "main" else "", lists_code=settings.cached,
            accuracy=settings.accuracy and purpose == "main",
        )  # fmt: skip
        fingerprint = context.fingerprints.get(wanted.environment) if purpose == "main" else None
        return replace(wanted, graphs=graphs_digest(wanted, fingerprint))

    def _apart(self, purpose: str, first: Outcome) -> Steps[Outcome]:
        """Run the variant in a process that shares nothing, after ``first`` did not. It gets the time that it needs."""
        (outcome,) = yield from self._outcomes([self._job(purpose, self._fresh(), machine_made(first))])
        if machine_made(outcome) and not machine_made(first):  # too slow or big to say what the first has said
            patient = replace(outcome.job, alone=True, timeout=PATIENCE * outcome.job.timeout)
            (outcome,) = yield from self._outcomes([patient])
        return outcome

    def _checked_pass(self, main: Outcome) -> Steps[Outcome]:
        """Return what counts of a pass after others: the answer of a process of its own, where that is another one.

        If a second process confirms that, isolation has failed. Otherwise the compiler wavers, and the usual
        confirmation decides.
        """
        self.bypass_cache = True  # nor does a stored answer say what a process of its own does
        alone = yield from self._apart("main", main)
        self.context.sample.spent += alone.busy
        if alike(main, alone) or machine_made(alone):
            return main
        if alike(alone, (yield from self._apart("main", main))):
            self.shared = main
            self.harness_errors.append(f"a process that had run other variants let it pass. {order_note(main, alone)}")
        return alone

    def _user_jobs(self) -> list[Job]:
        """Return the job that runs the variant as a user does. A launch meets none of a compiler's settings."""
        has_settings = self.findings and self.planned.variant.backend.backend != LAUNCH
        return [as_user(self._job(AS_USER, "fresh"), self.planned)] if has_settings else []

    def _outcomes(self, jobs: Sequence[Job]) -> Steps[list[Outcome]]:
        """Ask for jobs. One that somebody or the kernel killed runs again alone: a process that ends itself will do it
        again."""
        answers = yield from with_reference(jobs, self._account)
        places = [
            n for n, outcome in enumerate(answers)
            if outcome.signal == "SIGKILL" and self.context.settings.confirm and not outcome.job.alone
        ]  # fmt: skip
        if places:
            killed = [answers[n] for n in places]
            self.shared = next(filter(self._is_main, killed), self.shared)
            again = [replace(outcome.job, alone=True, isolation=self._fresh()) for outcome in killed]
            for place, outcome in zip(places, (yield from with_reference(again, self._account)), strict=True):
                answers[place] = outcome
        return answers

    def _is_main(self, outcome: Outcome) -> bool:
        return outcome.job.key == f"{self.planned.key} main"

    def _account(self, outcome: Outcome) -> None:
        """Book the seconds of a job, and remember a death of its float64 reference."""
        if outcomes.died_in_float64(outcome) and outcome.job.float64:
            self.float64 = False
            if self._is_main(outcome):
                self.notes.append(f"float64 reference dropped: {outcomes.describe(outcome)} while it ran")
        if outcome.cached:
            return
        self.model_runs += outcome.record.model_runs
        phases = outcome.record.seconds
        parts = {
            "busy": outcome.busy,
            "torch": sum(phases.get(name, 0.0) for name in _TORCH),
            "load": phases.get("load", 0.0),
            "judge": phases.get("judge", 0.0),
        }
        for name, seconds in parts.items():
            self.spent[name] = round(self.spent.get(name, 0.0) + seconds, 6)

    # --- from an outcome to a verdict ---

    def _is_suspect(self, outcome: Outcome) -> bool:
        findings, doubt = outcomes.read(outcome, self.source)
        if doubt is not None and doubt.verdict == "BROKEN":
            return outcome.ended == "worker-error"
        return bool(findings) or (doubt is not None and doubt.verdict != "SKIP")

    def _judge(self, main: Outcome) -> Steps[Verdict]:
        """Return what an outcome means: held against the shared process, located on the ladder, explained by a policy
        or not."""
        flaky = ""
        if self.shared is not None:
            main, flaky = yield from self._compare(main)
        self.main = main
        self.findings, self.doubt = outcomes.read(main, self.source)
        if need := unclaimed_by_run(self.planned.variant, main.record):
            self.findings, self.doubt = [], None
            return Verdict("SKIP", f"{self.planned.variant.backend.name} claims no {need}", unclaimed=need)
        if flaky and self.shared is not None:
            self.findings = self.findings or outcomes.read(self.shared, self.source)[0]
        located = not flaky or self._may_waver()
        if self.findings and located and not (self.doubt and self.doubt.verdict == "INVALID"):
            yield from self._locate(main)
        return self._decide(flaky)

    def _may_waver(self) -> bool:
        """Return whether the ledger expects a failure of this variant now and then."""
        return any(map(shows_sometimes, self._entries()))

    def _compare(self, main: Outcome) -> Steps[tuple[Outcome, str]]:
        """Hold fresh processes against the shared one: the last of them, and how it is flaky if it is."""
        shared, passes = self.shared, 0
        assert shared is not None
        while outcomes.read(main, self.source) == ([], None):
            passes += 1
            if passes == opinions(shared):
                break
            self.bypass_cache = True  # one stored answer, given twice, is one answer
            main = yield from self._apart("main", shared)
        else:
            if passes:
                return main, wavering(shared, passes, main)
        if alike(shared, main):
            return main, ""
        self._note_difference(shared, main)
        # Nobody else can be behind a failure of the first job of its process.
        return main, disagreement(summary(shared), main) if _failed(shared) and not shared.earlier_jobs else ""

    def _note_difference(self, shared: Outcome, alone: Outcome) -> None:
        self.labels.append(ORDER_DEPENDENT)
        self.notes.append(order_note(shared, alone))

    def _locate(self, main: Outcome) -> Steps[None]:
        """Run the stages below, once under each policy that may explain the findings, and as a user beside them."""
        variant, isolation = self.planned.variant, main.job.isolation
        rungs, stage = below(variant.backend.backend), stage_of(variant.backend.backend)
        flags = explained.candidates(
            self.findings, stage, self.source.text, variant.dtype, variant.config, main.record.drew_random
        )
        is_settled = self._entries() or main.cached or machine_made(main) or self.as_user
        will_stand = self.context.settings.confirm and not is_settled
        users = self._user_jobs() if will_stand else []  # a run as a user need not wait for the stages
        answers = yield from self._outcomes(
            [
                *users,
                *(self._job(stage, isolation, backend=lower) for stage, lower in rungs),
                *(self._job(flag, isolation, config={flag: True}) for flag in flags),
            ]
        )
        if users:
            self.as_user = answers.pop(0)
        yield from self._pin_choices(main)
        for (stage, _), outcome in zip(rungs, answers, strict=False):
            findings, doubt = outcomes.read(outcome, self.source)
            if findings or not (doubt and doubt.verdict in NO_ANSWER):
                self.stages[stage] = findings
        self.policies += [
            flag
            for flag, outcome in zip(flags, answers[len(rungs) :], strict=True)
            if outcome.ended == "result" and outcomes.read(outcome, self.source) == ([], None)
        ]

    def _pin_choices(self, main: Outcome) -> Steps[None]:
        """Run again what a benchmark of torch chose, with the choice pinned one way and the other."""
        variant = self.planned.variant
        for choice in explained.choices(main.record.benchmarked, stage_of(variant.backend.backend), variant.config):
            jobs = [self._job(f"{choice}-{way}", main.job.isolation, config=dict(flags))
                    for way, flags in enumerate(explained.PINS[choice], 1)]  # fmt: skip
            runs: list[list[Finding]] = []
            for outcome in (yield from self._outcomes(jobs)):
                findings, doubt = outcomes.read(outcome, self.source)
                runs += [findings] if findings or (outcome.ended == "result" and not doubt) else []
            if len(runs) == len(jobs):
                self.pinned[choice] = (runs[0], runs[1])

    def _located(self, findings: list[Finding]) -> list[Finding]:
        """Return findings with their stages and, where one brings them about, with a benchmark's choice."""
        located = locate(findings, self.planned.variant.backend.backend, self.stages)
        for choice, runs in self.pinned.items():
            located = explained.decided(located, choice, runs)
        return ranked(located)

    def _decide(self, flaky: str) -> Verdict:
        if self.doubt and self.doubt.verdict == "BROKEN":
            if self.main is not None and self.main.ended != "broken":  # a process had the case, which may be to blame
                return Verdict("ERROR", self.doubt.reason)
            self.harness_errors.append(self.doubt.reason)
            return Verdict("ERROR", "the harness failed; this says nothing about the backend")
        if flaky:
            self.policies = []  # what passes now and then passes under any
            return self._expected_wavering() or Verdict("FLAKY", flaky)
        self.findings = self._located(self.findings)
        chosen = {finding.choice for finding in self.findings}
        self.notes += [explained.choice_note(name, runs) for name, runs in self.pinned.items() if name in chosen]
        if self.policies:
            self.notes += [f"{headline(f)}; passes under {', '.join(self.policies)}" for f in self.findings]
            self.findings = []
        return self._decided()

    def _expected_wavering(self) -> Verdict | None:
        """Return the verdict of a variant that fails in some processes alone, where the ledger expects each of its
        failures."""
        readings = [outcomes.read(outcome, self.source) for outcome in (self.main, self.shared) if outcome is not None]
        if not self._may_waver() or any(doubt for _, doubt in readings):
            return None
        runs = [self._located(f) for f, _ in readings if f]
        verdict = excuse_wavering(self.planned.variant, self.planned.environment.torch, runs)
        if verdict is not None:
            self.findings = runs[0]
        return verdict

    def _confirm(self, verdict: Verdict, main: Outcome) -> Steps[Verdict]:
        """Run the variant as a user runs it, in a fresh process; and in another with our settings, unless the first
        says the same.

        One that had a process of its own already is not confirmed again.
        """
        if self.as_user is None and (jobs := self._user_jobs()):
            (self.as_user,) = yield from self._outcomes(jobs)
        if (user := self.as_user) is not None:
            findings = outcomes.read(user, self.source)[0]
            self.user = findings if counts_as_user(user, findings, self.findings[0]) else self.user
        is_same = user is not None and not machine_made(main) and alike(main, user)
        if self.shared is not None or is_same:
            return verdict
        alone = yield from self._apart("confirm", main)
        if alone.ended in outcomes.NO_WORD or alike(main, alone):
            return verdict
        if machine_made(main):  # too slow or too big beside others: what it does alone counts
            self.shared, self.stages, self.policies, self.pinned, self.user = main, {}, [], {}, None
            return (yield from self._judge(alone))
        self._note_difference(main, alone)
        return replace(verdict, word="FLAKY", reason=disagreement(verdict.reason, alone))

    def event(self, verdict: Verdict) -> VariantFinished:
        """Return what is reported of this attempt."""
        plain = planned_event(self.planned)
        main = self.main
        record = main.record if main is not None else Record()
        labels = [*record.labels, *(explained.label(flag) for flag in self.policies), *self.labels]
        labels += ["slow"] if main is not None and not main.cached and main.seconds > self.context.settings.slow else []
        labels += [FORWARD_ALONE] if self.planned.variant.forward_alone and verdict.word != "SKIP" else []
        notes = [*record.notes, *self.notes]
        if self.user is not None and verdict.word in CONFIRMED:
            notes += filter(None, [as_user_note(self.user, self.findings[0])])
        counts: dict[str, Any] = {name: getattr(record, name) if main and main.result else None for name in _COUNTS}
        if main is not None and main.lost:
            notes.append(f"run again elsewhere: {main.lost} node{'s' if main.lost > 1 else ''} went away while it ran")
        return VariantFinished(
            **{name: getattr(plain, name) for name in VariantPlanned.__dataclass_fields__},
            **counts,
            verdict=verdict.word,
            seconds=round(main.seconds, 3) if main and not main.cached else 0.0,
            params=dict(self.planned.variant.params),
            stage=worst_findings(self.findings)[0].stage if self.findings else None,
            oracles=tuple(dict.fromkeys(f.oracle for f in self.findings)),
            findings=tuple(self.findings),
            labels=tuple(dict.fromkeys(labels)),
            notes=tuple(notes),
            reason=verdict.reason,
            stages=self._strip(),
            break_reasons=record.break_reasons,
            reached=record.reached,
            comparisons=record.comparisons,
            compared=record.compared,
            fallbacks=record.fallbacks,
            accuracy=record.accuracy,
            known=verdict.known,
            unclaimed=verdict.unclaimed,
            operators=calls_of(self.planned.variant.case),
            entry=f"{verdict.entry.file}:{verdict.entry.line}:{verdict.entry.column}" if verdict.entry else None,
            signal=main.signal if main else None,
            stack=(main.detail[-_STACK:] if main.ended == "worker-error" else main.stack) if main else "",
            output=main.output if main and verdict.word not in ("PASS", "XFAIL", "SKIP") else "",
            repro=repro(self.planned, self.context) if verdict.word in RED else "",
            place=outcomes.place_of(self.doubt.error if self.doubt else None, self.source)
            if verdict.word == "INVALID"
            else None,
            cached=(main.cached or None) if main else None,
            host=(main.host or None) if main else None,
            spent=dict(self.spent),
            model_runs=self.model_runs or None,
            operator=self.operator
            or (named_part(self.planned.variant.case, worst_findings(self.findings)) if self.findings else ""),
        )

    def _strip(self) -> dict[str, str]:
        """The ladder as words: each stage ``ok`` or its oracles."""
        user = {} if self.user is None else {AS_USER: self.user}
        own = {stage_of(self.planned.variant.backend.backend): self.findings} if self.stages or user else {}
        stages = in_order({**self.stages, **own, **user})
        return {
            stage: " ".join(dict.fromkeys(f.oracle for f in findings)) or "ok" for stage, findings in stages.items()
        }


ORDER_DEPENDENT = "order-dependent"
"""Label of a variant that did otherwise once nothing had run before it, or nothing ran beside it."""

OPINIONS = 3
"""Processes of its own in which a variant has to pass before what ran before it is to blame for its failure. A compiler
that goes wrong every other time, as one that chooses kernels by their times may, gets through once in eight times."""

PATIENCE = 3.0
"""How many times its limit a process has that must say again what a warm one has said: it starts cold, on a busy
machine."""

CONFIRMED = ("FAIL", "ERROR")
"""Verdicts for which a variant runs again, alone and in a fresh process, before they are reported."""


def runs_again(results: Sequence[VariantFinished], retries: int = 0, stress: int = 1) -> bool:
    """Whether a variant with these results, oldest first, is run once more."""
    last = results[-1]
    if last.verdict == "SKIP":
        return False
    if stress > 1:
        return len(results) < stress
    return last.verdict in RED and len(results) <= retries


def combined(results: Sequence[VariantFinished], stress: int = 1) -> VariantFinished:
    """One result for all: theirs if they agree, else FLAKY, with the first red one's findings.

    Without a red one they agree too: a failure that the ledger expects now and then showed in some, and speaks for all.
    Under ``stress`` the verdicts are counted: none of them ends the attempts, so they show how often the variant is
    red.
    """
    verdicts = Counter[str](result.verdict for result in results)
    reds = [(number, each) for number, each in enumerate(results, 1) if each.verdict in RED]
    if len(verdicts) == 1:
        result = results[-1]
    elif reds:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
        number, result = reds[0]
        reason = f"{len(results)} runs disagree: {counts}; run {number}: {result.reason}"
        result = replace(result, verdict="FLAKY", reason=reason)
    else:
        result = next((result for result in results if result.verdict == "XFAIL"), results[-1])
    result = replace(result, attempts=len(results)) if len(results) > 1 else result
    return result if stress == 1 or result.verdict == "SKIP" else replace(result, tally=dict(verdicts))


def machine_made(outcome: Outcome) -> bool:
    """Whether a busy machine may be what ended this job: too slow, too little memory, the kernel's killer."""
    return outcome.ended in ("timeout", "memory") or outcome.signal == "SIGKILL"


def opinions(first: Outcome) -> int:
    """How many processes of its own must find nothing before that counts more than what one found after others."""
    return OPINIONS if _failed(first) and first.earlier_jobs else 1


def _failed(outcome: Outcome) -> bool:
    """Found something or died, and not for want of time or memory."""
    return (outcome.ended != "result" or bool(outcome.record.findings)) and not machine_made(outcome)


def disagreement(at_first: str, alone: Outcome) -> str:
    """Why a variant is FLAKY of which a process of its own says something else than before."""
    return f"run again in a fresh process: {summary(alone)}; at first: {at_first}"


def wavering(first: Outcome, passed: int, last: Outcome) -> str:
    """Why a variant is FLAKY that passed in ``passed`` processes of its own, and not in the last."""
    return (
        f"in {passed} of {passed + 1} fresh processes it passes, in the last: {summary(last)}; at first, after "
        f"others: {summary(first)}"
    )


def alike(one: Outcome, other: Outcome) -> bool:
    """Whether two outcomes say the same: how they ended, the kinds of findings with their exceptions, the doubt."""
    return _signature(one) == _signature(other)


def _signature(outcome: Outcome) -> tuple[Any, ...]:
    record = outcome.record
    kinds = ((row_of(finding.oracle).group, finding) for finding in record.findings)
    # A kernel that reads foreign memory finds a NaN there or a number.
    findings = frozenset(
        (group if group == "values" else finding.oracle, (finding.error or {}).get("type")) for group, finding in kinds
    )
    return outcome.ended, outcome.signal, findings, record.trust and record.trust.verdict


def summary(outcome: Outcome) -> str:
    """One line for people: what an outcome says."""
    if outcome.ended != "result":
        return outcomes.describe(outcome)
    trust = outcome.record.trust
    oracles = dict.fromkeys(finding.oracle for finding in outcome.record.findings)
    return ", ".join(oracles) or (f"{trust.verdict}: {trust.reason}" if trust else "passes")


def order_note(shared: Outcome, alone: Outcome) -> str:
    """Both orders of an order-dependent variant."""
    before = ", ".join(shared.earlier_jobs[-20:])
    more = f"{len(shared.earlier_jobs) - 20} others, then " if len(shared.earlier_jobs) > 20 else ""
    where = f"in one process after {more}{before}" if before else "beside other jobs"
    return f"{ORDER_DEPENDENT}: {where}: {summary(shared)}; alone in a fresh process: {summary(alone)}"
