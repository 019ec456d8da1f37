"""What ``runner diagnose`` finds out about one failure: the ladder, the bisector and the ablations, put together.

An ablation is the same case under one changed setting: which of them make a failure go away? The bisector is told what
to look for, and its answer becomes the step of the chain.

Diagnoses are kept in ``.runner``, for the commands that go on from there (``kept.py``). One that the key does not name
the whole of is not kept.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.builder.source import Source
from runner.cases.model import LAUNCH, THREADS, Case, Grad, Variant
from runner.cases.walk import all_steps
from runner.contract.finding import Finding
from runner.contract.job import Job
from runner.contract.oracles import row_of
from runner.diagnose import kept
from runner.diagnose.harness import Answer, VariantEngine
from runner.diagnostics import Span, shown_file
from runner.engine.caches import read_answer
from runner.engine.messages import Outcome
from runner.record.events import VariantFinished
from runner.session.plan import Planned, skip_reason
from runner.text import of_several, plural
from runner.verdict import outcomes
from runner.verdict.explained import EMULATE_CASTS, RANDOM
from runner.verdict.operators import DRAWING
from runner.verdict.policy import headline, ranked
from runner.verdict.signature import FailureSignature, main_signature, shows, signature_of
from runner.verdict.stages import LADDER, below, stage_of

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

    Where the graphs of a foreign backend were cut, ``calls`` counts the calls in them, and ``number`` is the place of
    the guilty one. ``beside`` are the operators without which it is right.
    """

    backend: str
    subsystem: str | None = None
    number: int | None = None
    name: str | None = None
    operator: str | None = None
    step: str | None = None
    place: str | None = None
    calls: int | None = None
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything found out. ``stages`` is the ladder (stage to ``ok`` or oracles); ``culprit`` is None where
    ``bisect_note`` says why. ``run_seconds`` is the time of the variant's own run, ``seconds`` that of the whole
    diagnosis. ``stopped`` says why it was ended before its time, empty where it was not.
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
    stopped: str = ""

    @property
    def stage(self) -> str | None:
        """Return the first stage that shows the failure; None if unknown."""
        return self.signature.stage if self.signature else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {"stage": self.stage, **dataclasses.asdict(self)}


@dataclass(frozen=True, slots=True)
class Kept:
    """A diagnosis of an earlier command, and when it was made, such as ``2026-01-02 03:04``."""

    diagnosis: Diagnosis
    when: str


def keep(path: Path | None, diagnosis: Diagnosis) -> None:
    """Keep the whole diagnosis of a failure.

    Args:
        path: what ``path_of`` said before the diagnosis began: files may have changed since. With None nothing is kept.
    """
    if path is not None and diagnosis.signature is not None and not diagnosis.stopped:
        kept.write(path, diagnosis.to_dict())


def find_kept(engine: VariantEngine) -> Kept | None:
    """Return what an earlier ``runner diagnose`` of the very same variant found; None where there is nothing that
    counts."""
    path = path_of(engine)
    entry = read_answer(path) if path is not None else None
    return Kept(diagnosis_of(entry["outcome"]), str(entry["run"])) if entry is not None else None


def path_of(engine: VariantEngine) -> Path | None:
    """Return where the diagnosis of an engine's variant lies; None where a key cannot name all that decides about
    it."""
    return kept.whole_path(engine, "diagnoses")


def diagnosis_of(data: Mapping[str, Any]) -> Diagnosis:
    """Return a diagnosis from the plain data of ``Diagnosis.to_dict``."""
    return Diagnosis(**{
        **{name: value for name, value in data.items() if name != "stage"},
        "signature": FailureSignature(**data["signature"]),
        "findings": tuple(Finding(**finding) for finding in data["findings"]),
        "culprit": Culprit(**{**data["culprit"], "beside": tuple(data["culprit"].get("beside", ()))})
        if data["culprit"] else None,
        "ablations": tuple(Ablation(**ablation) for ablation in data["ablations"]),
        "labels": tuple(data["labels"]),
        "notes": tuple(data["notes"]),
    })  # fmt: skip


_INDUCTOR = "torch._inductor.config."
_CSE = "torch._functorch.config.cse"

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


def changes_for(variant: Variant, signature: FailureSignature, source: str) -> list[Change]:
    """Return the changes worth trying for a failure of that signature. ``source`` is the case's text."""
    rows = _of_inductor(variant, signature, source) if signature.stage == "inductor" else []
    rows += [(signature.stage == "decomposition", _flags("without common subexpressions", {_CSE: False}))]
    rows += _of_the_case(variant, signature)
    return [change for is_wanted, change in rows if is_wanted and not _is_own(change, variant)]


def _is_own(change: Change, variant: Variant) -> bool:
    return bool(change.config) and change.config.items() <= variant.config.items()


def _flags(name: str, config: Mapping[str, Any]) -> Change:
    """Return the change of these flags, of which those of Inductor are named without its module."""
    full = {flag if flag.startswith("torch.") else f"{_INDUCTOR}{flag}": value for flag, value in config.items()}
    return Change(name, ", ".join(f"{flag} = {value}" for flag, value in full.items()), full)


def _of_inductor(variant: Variant, signature: FailureSignature, source: str) -> list[tuple[bool, Change]]:
    """Return the changes of Inductor's own switches, each with whether it is worth trying."""
    row = row_of(signature.oracle)
    numeric, executes, on_cpu = row.numeric or row.random, not row.compiling, variant.device == "cpu"
    draws = DRAWING.search(source.partition("\ndef make_inputs")[0]) is not None  # not what makes inputs
    inductor_draws = variant.config.get(RANDOM) is False
    drawing = "with eager's random numbers" if inductor_draws else "with inductor's own random numbers"
    # The one switch for the flags of every C++ kernel, in spite of its name (get_optimization_cflags in
    # torch/_inductor/cpp_builder.py). A precompiled header would take longer to make than it saves.
    unoptimized = _flags("compiled with -O0", {"aot_inductor.debug_compile": True})
    unoptimized = replace(unoptimized, helpers={f"{_INDUCTOR}cpp_cache_precompile_headers": False})
    return [
        (numeric, _flags("with eager's roundings", {EMULATE_CASTS: True})),
        (numeric and draws, _flags(drawing, {RANDOM: inductor_draws})),
        (on_cpu and executes, unoptimized),
        (on_cpu, _flags("without vectorization", {"cpp.simdlen": 1})),
        (
            True,
            # The first keeps kernels apart, the others keep pointwise operators from being inlined into their readers.
            _flags(
                "without fusion",
                {
                    "max_fusion_size": 1,
                    "realize_acc_reads_threshold": 0,
                    "realize_opcount_threshold": 0,
                    "epilogue_fusion": False,
                },
            ),
        ),
        (True, _flags("without pattern matching", {"pattern_matcher": False})),
        (True, _flags("without layout changes", {"layout_optimization": False, "comprehensive_padding": False})),
        (executes, _flags("without buffer reuse", {"allow_buffer_reuse": False, "inplace_buffers": False})),
    ]


def _of_the_case(variant: Variant, signature: FailureSignature) -> list[tuple[bool, Change]]:
    """Return other shapes, threads, gradients and devices, without what the case has anyway, each with whether it is
    worth trying."""
    compiled = variant.backend.backend != LAUNCH  # else there is no compiler, and no code of torch's that has threads
    dynamic = variant.dynamic if variant.dynamic is not None else variant.backend.dynamic
    # Without a word the first call is compiled for its shapes, so that with one call static is nothing new.
    is_static = dynamic is False or (dynamic is None and not variant.case.calls)
    threads = 1 if (variant.threads or THREADS) > 1 else THREADS
    on_threads = "on one thread" if threads == 1 else f"on {threads} threads"
    threaded = variant.device == "cpu" and signature.stage in ("inductor", "backend")

    def changed(name: str, setting: str, **fields: Any) -> Change:
        return Change(name, setting, variant=replace(variant, **fields))

    return [
        (compiled and dynamic is not True, changed("with dynamic shapes", "dynamic=True", dynamic=True)),
        (compiled and not is_static, changed("with static shapes", "dynamic=False", dynamic=False)),
        (
            compiled and threaded and not row_of(signature.oracle).compiling,
            changed(on_threads, f"threads: {threads}", threads=threads),
        ),
        (
            variant.grad.mode != "off" and signature.oracle not in ("grad", "requires-grad"),
            changed("without gradients", "grad: off", grad=Grad("off")),
        ),
        # Where the machine lacks it the answer is SKIP, and ``read_ablation`` leaves it out.
        (variant.device == "cuda", changed("on cpu", "device: cpu", device="cpu")),
        (variant.device == "cpu", changed("on cuda", "device: cuda", device="cuda")),
    ]


# --- asking ---


def ablation_jobs(engine: VariantEngine, candidates: Sequence[Change], helpers: bool = True) -> list[Job | None]:
    """Return a judging job for each change; None for a change that cannot be run here."""
    return [
        engine.job(variant=change.variant, config={**change.config, **(change.helpers if helpers else {})})
        if change.variant is None or not skip_reason(Planned(change.variant, engine.environment))
        else None
        for change in candidates
    ]


def read_ablation(signature: FailureSignature, change: Change, answer: Answer) -> Ablation | None:
    """Return what became of the failure; None where this torch or machine lacks the setting."""
    trust = answer.trust
    if (trust and trust.verdict == "SKIP") or lacks(answer, change.config):
        return None
    if answer.findings:
        outcome = "same" if shows(signature, answer.findings) else "other"
        return Ablation(change.name, change.setting, outcome, headline(ranked(answer.findings)[0]))
    if answer.sound:
        return Ablation(change.name, change.setting, "gone")
    return Ablation(change.name, change.setting, "no answer", trust.reason if trust else "")


def lacks(answer: Answer, flags: Mapping[str, Any]) -> bool:
    """Return whether the worker's torch lacks one of these flags."""
    match = _MISSING.search(answer.trust.reason) if answer.trust else None
    return match is not None and (match[1] or match[2]) in flags


SECONDS = 60.0
"""One judgement of the bisector's may take so long, on top of which it is a timeout; up to 30 of them are made."""

HANG_SECONDS = 30.0
"""The same for a failure that is a hang, which each wrong answer takes in full."""

BUDGET = 300.0
"""Seconds for all of them; then what is known so far is the answer."""

_WHOLE = {"dynamo": "Dynamo", "aot": "AOT autograd"}
_BACKENDS = dict(LADDER)


@dataclass(frozen=True, slots=True)
class Bisected:
    """What came out: a culprit, a note why it is missing or incomplete, or both."""

    culprit: Culprit | None = None
    note: str = ""


def whole_stage(signature: FailureSignature) -> Bisected | None:
    """Return the answer for a stage in which there is nothing to bisect; None for the others."""
    stage = str(signature.stage)
    if name := _WHOLE.get(stage):
        return Bisected(Culprit(_BACKENDS[stage]), f"torch's bisector cannot switch off parts of {name}")
    return None


def bisection_job(
    engine: VariantEngine,
    signature: FailureSignature,
    findings_by_stage: Mapping[str, Sequence[Finding]],
    budget: float = BUDGET,
) -> Job | Bisected:
    """Return the job that bisects a failure, or the reason why it cannot be bisected.

    torch's bisector knows torch's own backends alone. For any other one the graphs are cut.

    Args:
        engine: of the failing variant.
        signature: of the failure, with its stage.
        findings_by_stage: what the backends below showed; its own stage's is needed where that is below the variant's.
        budget: seconds for all judgements.
    """
    if engine.variant.backend.backend == LAUNCH:
        return Bisected(note="a launch compiles nothing that could be bisected")
    if answer := whole_stage(signature):
        return answer
    if signature.stage not in _BACKENDS:
        seconds = min(budget / 2, HANG_SECONDS if signature.oracle == "timeout" else SECONDS)
        arguments = {"wanted": [[*signature.kind]], "seconds": seconds, "budget": budget}
        return engine.job("cut", arguments, timeout=budget + 2 * SECONDS)
    stage = str(signature.stage)
    backend, targets = _BACKENDS[stage], [signature]
    if backend != engine.variant.backend.backend:
        group = row_of(signature.oracle).group
        alike = (finding for finding in findings_by_stage.get(stage, ()) if row_of(finding.oracle).group == group)
        targets = [*map(signature_of, alike)]
        if not targets:
            return Bisected(note=f"the failure does not show under {backend}, which the bisector would have to use")
    seconds = min(budget / 2, HANG_SECONDS if any(target.oracle == "timeout" for target in targets) else SECONDS)
    arguments = {"wanted": [[*target.kind] for target in targets], "seconds": seconds, "budget": budget}
    return engine.job("bisect", arguments, timeout=budget + 2 * SECONDS, backend=backend)


def read_bisection(outcome: Outcome, case: Case, source: Source) -> Bisected:
    """Return what a bisecting job answered, with the step of the chain, of which ``source`` was written."""
    if outcome.ended != "result":
        return Bisected(note=f"bisecting failed: {outcomes.describe(outcome)}")
    note = str(outcome.result.get("note") or "")
    if outcome.job.task == "cut":
        return _read_cut(outcome, note, case, source)
    if not outcome.result.get("culprit"):
        return Bisected(note=note)
    fields = dict(outcome.result["culprit"])
    span = source.place(fields.pop("line", None))
    place = f"{shown_file(span.file)}:{span.line}" if span else None
    return Bisected(Culprit(**fields, step=step_at(case, span) if span else None, place=place), note)


def _read_cut(outcome: Outcome, note: str, case: Case, source: Source) -> Bisected:
    """Return what the cutting of graphs answered."""
    result = outcome.result
    backend, runs = str(outcome.job.backend["backend"]), plural(result["runs"], "run")
    if not result["operators"]:
        if within := result["within"]:
            note += f"; the last call that it needs is one of {within[0] + 1} to {within[1]} of {result['calls']}"
        return Bisected(note=note)
    *others, last = result["operators"]
    span = source.place(last["line"])
    culprit = Culprit(
        backend, "graph", last["number"], last["name"], last["target"],
        step_at(case, span) if span else None, f"{shown_file(span.file)}:{span.line}" if span else None,
        result["calls"], tuple(other["target"] for other in others),
    )  # fmt: skip
    facts = ["as a graph of its own too" if result["alone"] else "only in one graph with what is before it"]
    if result["confirmed"] is not None:
        facts.append(f"without it all others are {'right' if result['confirmed'] else 'still wrong'}")
    return Bisected(culprit, "; ".join(filter(None, [", ".join(facts), runs, note])))


def step_at(case: Case, span: Span) -> str | None:
    """Return the step that is written at a place, by its last name and its number among those of that name."""
    names = {step.span: step.operator.rpartition(".")[2] for step in all_steps(case.chain)}
    if span not in names:
        return None
    alike = [place for place, name in names.items() if name == names[span]]
    ending = f", {of_several(alike.index(span) + 1, len(alike))}" if len(alike) > 1 else ""
    return f"{names[span]}{ending}"


CROSSREF = "aot_eager_decomp_partition_crossref"
"""Runs every operator beside its fake twin: a kernel and its meta function that disagree show here."""


PARTS = ("the stages", "torch's bisector and changed settings")
"""The parts of a diagnosis, in order."""


def diagnose(
    engine: VariantEngine,
    bisect: bool = True,
    tick: Callable[[str], None] = lambda part: None,
    ablations: bool = True,
    event: VariantFinished | None = None,
    budget: float = BUDGET,
) -> Diagnosis:
    """Return everything that can be found out about the variant's failure; of one that does not fail its verdict alone.

    Args:
        engine: of the variant, entered.
        bisect: ask torch's bisector too, which takes up to some minutes.
        tick: told several times a second which of ``PARTS`` is done. Once the verdict is there it may raise OutOfTime,
            and a person may interrupt: what is known by then is returned.
        ablations: try changed settings too.
        event: the variant's verdict where it is known; else the variant runs first.
        budget: seconds of torch's bisector.
    """
    begun = time.monotonic()
    plain = of_verdict(event or engine.verdict(lambda: tick(PARTS[0]), names_operator=False), engine.variant)
    signature = plain.signature
    if signature is None:
        return replace(plain, seconds=round(time.monotonic() - begun, 1))
    changes = changes_for(engine.variant, signature, engine.source.text) if ablations else []
    lower = kept.gather(engine, _jobs_below(engine, signature) if bisect else [], lambda: tick(PARTS[0]))
    task: Job | Bisected = Bisected(note="not asked for")
    if bisect and not lower.stopped:
        findings = {str(signature.stage): engine.read(outcome).findings for outcome in lower.outcomes if outcome}
        task = bisection_job(engine, signature, findings, budget)
    cross = engine.job(backend=CROSSREF) if stage_of(engine.variant.backend.backend) == "inductor" else None
    trials = ablation_jobs(engine, changes)
    # The bisector first, which takes longest.
    jobs = [*([] if isinstance(task, Bisected) else [task]), *([cross] if cross else []), *filter(None, trials)]
    gathered = lower if lower.stopped else kept.gather(engine, jobs, lambda: tick(PARTS[1]))
    answered = {outcome.job.key: outcome for outcome in gathered.outcomes if outcome is not None}
    bisected = task if isinstance(task, Bisected) else Bisected(note=f"not answered: {gathered.stopped}")
    if isinstance(task, Job) and task.key in answered:
        bisected = read_bisection(answered[task.key], engine.variant.case, engine.source)
    crossed = engine.read(answered[cross.key]) if cross and cross.key in answered else None
    answers = [
        (change, engine.read(answered[job.key]))
        for change, job in zip(changes, trials, strict=True)
        if job is not None and job.key in answered
    ]
    return replace(
        plain,
        stages=_with_crossref(plain.stages, crossed),
        culprit=bisected.culprit,
        bisect_note=bisected.note,
        ablations=tuple(_ablations(engine, signature, answers, lambda: tick(PARTS[1]), bool(gathered.stopped))),
        notes=(*plain.notes, *_crossref_notes(plain.stages, crossed)),
        seconds=round(time.monotonic() - begun, 1),
        stopped=gathered.stopped,
    )


def of_verdict(event: VariantFinished, variant: Variant) -> Diagnosis:
    """Return what a verdict alone says: the ladder and its findings."""
    return Diagnosis(
        id=event.id,
        torch=event.torch,
        verdict=event.verdict,
        reason=event.reason,
        signature=main_signature(event.findings) if event.verdict in ("FAIL", "ERROR") else None,
        findings=tuple(event.findings),
        stages=_strip(event, variant),
        labels=tuple(event.labels),
        notes=tuple(event.notes),
        run_seconds=event.seconds,
    )


def _jobs_below(engine: VariantEngine, signature: FailureSignature) -> list[Job]:
    """Return the job under the guilty stage's own backend, where that is not the variant's."""
    backend = dict(below(engine.variant.backend.backend)).get(str(signature.stage))
    return [engine.job(backend=backend)] if backend is not None and whole_stage(signature) is None else []


def _ablations(
    engine: VariantEngine,
    signature: FailureSignature,
    answers: Sequence[tuple[Change, Answer]],
    tick: Callable[[], None],
    is_stopped: bool,
) -> list[Ablation]:
    """What became of the failure; what failed for want of a helping flag is run again without it, unless stopped."""
    repeated = [change for change, answer in answers if lacks(answer, change.helpers)]
    answers = [(change, answer) for change, answer in answers if not is_stopped or change not in repeated]
    repeated = [] if is_stopped else repeated
    jobs = [job for job in ablation_jobs(engine, repeated, helpers=False) if job is not None]
    later = map(engine.read, engine.ask(jobs, tick) if jobs else ())
    ablations = (
        read_ablation(signature, change, next(later) if change in repeated else answer) for change, answer in answers
    )
    return [ablation for ablation in ablations if ablation is not None]


def _strip(event: VariantFinished, variant: Variant) -> Mapping[str, str]:
    """The ladder; of a backend with nothing below it, its own stage."""
    own = " ".join(event.oracles) or ("ok" if event.verdict == "PASS" else "")
    return event.stages or ({stage_of(variant.backend.backend): own} if own else {})


def _with_crossref(stages: Mapping[str, str], crossed: Answer | None) -> Mapping[str, str]:
    """The strip with what crossref says, after the stage that it repeats."""
    if crossed is None or not (crossed.findings or crossed.sound) or "decomposition" not in stages:
        return stages
    words = " ".join(dict.fromkeys(finding.oracle for finding in crossed.findings)) or "ok"
    pairs = [*stages.items()]
    pairs.insert([*stages].index("decomposition") + 1, ("crossref", words))
    return dict(pairs)


def _crossref_notes(stages: Mapping[str, str], crossed: Answer | None) -> list[str]:
    """A failure that only crossref shows."""
    findings = crossed.findings if crossed is not None and stages.get("decomposition") == "ok" else ()
    text = f"under {CROSSREF}, which runs each operator beside its fake twin"
    return [f"{text}: {headline(finding)}" for finding in ranked(findings)[:1]]
