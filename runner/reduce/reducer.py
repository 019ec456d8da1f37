"""The reduction of a failing variant, from its verdict to the confirmed result.

A candidate fails alike by a run under the variant's stage, one below it, and the policies that may explain it.
"""

from __future__ import annotations

import contextlib
import filecmp
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.builder.source import Source, build
from runner.cases.expand import expand
from runner.cases.model import KERNEL_BACKENDS, Backend, Case, Suite, Unclaimed, Variant
from runner.cases.serialize import plain, resolve_axes, text_of_plain
from runner.cases.suites import SPEC, Reader
from runner.cases.walk import steps_of
from runner.contract.finding import Finding
from runner.contract.job import Job, Trust
from runner.contract.oracles import row_of
from runner.diagnose.diagnosis import Culprit, Diagnosis, bisection_job, read_bisection
from runner.diagnose.harness import VariantEngine
from runner.diagnose.kept import INTERRUPTED, gather
from runner.diagnostics import InputError
from runner.engine import scratch
from runner.engine.messages import Outcome
from runner.exit_codes import NO_RESULT, UsageError
from runner.files import read_text, write_anew
from runner.record.events import RED, VariantFinished
from runner.reduce import passes
from runner.reduce.chains import ValueInfos, named, with_first_names
from runner.reduce.state import Attempt, Pass, Size, State, digest, size_of
from runner.reduce.value_info import ValueInfo, references
from runner.session.scheduler import Scheduler, Steps, with_reference
from runner.verdict import explained, outcomes
from runner.verdict.policy import ranked
from runner.verdict.signature import FailureSignature, severity_of, signature_of
from runner.verdict.stages import LADDER, STAGES, locate, stage_of

FAINTER = 100.0
"""By how much the relative error of a wrong value may fall: below that it is likely to be rounding that is found
instead.

A planted or a real bug keeps its size within a few powers of two when a case shrinks; the step from a bug to float32
rounding is 10^4 or more. An error of ``explained.GROSS`` is no rounding however large the first one was.
"""


def relative_error(finding: Finding) -> float:
    """The largest difference of a finding on the scale of the tensor; infinite where it has no such number.

    It is zero where no element differs, but something that weighs less, such as the version of a tensor.
    """
    numbers = finding.numbers
    error = numbers.get("abs_error_max", numbers.get("abs_error"))
    scale = numbers.get("scale")
    if error is None and severity_of(finding) != row_of(finding.oracle).severity:
        return 0.0
    if not isinstance(error, int | float):
        return math.inf
    return error / scale if isinstance(scale, int | float) and scale > 1 else float(error)


def alike(finding: Finding | None, expected: FailureSignature, error: float) -> bool:
    """Whether a finding has the signature, its stage aside, and is no fainter than it may be.

    ``error`` is the first finding's.
    """
    if finding is None or signature_of(finding).kind != expected.kind:
        return False
    return relative_error(finding) >= min(error / FAINTER, explained.GROSS) if row_of(finding.oracle).measured else True


def _fails_alike(findings: Sequence[Finding], doubt: Trust | None, expected: tuple[FailureSignature, float]) -> bool:
    return alike(ranked(findings)[0] if findings and not doubt else None, *expected)


_MEASURE = "measure"
"""The name of what is no candidate."""


class EngineJudge:
    """Tries candidates on an engine, as many at once as it has slots."""

    def __init__(
        self, engine: VariantEngine, signature: FailureSignature, error: float = 0.0, timeout: float | None = None,
        tick: Callable[[], None] = lambda: None, evident: bool = False,
    ) -> None:  # fmt: skip
        """Start nothing yet.

        Args:
            engine: the judge's alone while a search goes on.
            signature: the failure's, with its stage.
            error: the relative error of the finding that it is the mark of.
            timeout: seconds that a candidate may take; the case's own limit if None.
            tick: called several times a second while it waits by itself.
            evident: candidates count only if they are as ``runner.verdict.explained.is_evident`` says.
        """
        self.engine, self.signature, self.error, self.timeout, self.tick = engine, signature, error, timeout, tick
        self._expected = signature, error  # of candidates, under the stage's backend
        self._evident = evident
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
        findings, doubt = outcomes.read(self.engine.ask([job], self.tick)[0], source)
        if not findings or doubt or self._is_faint(findings, variant, source):
            self.backend = own
        elif not _fails_alike(findings, doubt, self._expected):
            first = ranked(findings)[0]
            self._expected = signature_of(first), relative_error(first)

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
        variant = replace(
            self.engine.variant, case=case, params={name: values[0] for name, values in case.params.items()},
            dtype=case.dtypes[0], device=case.devices[0], grad=case.grad[0], train=case.train[0],
            autocast=case.autocast[0], threads=case.threads[0],
        )  # fmt: skip
        # Names that nothing uses are errors of a case. Here they are what is asked for.
        source = build(variant, limits=self.engine.limits)
        self._scheduler.start(_MEASURE, self._values(self.engine.job("shapes", variant=variant, source=source)))
        values = self._wait(0.0)
        while values is None:
            values = self._wait(0.2)
            self.tick()
        return values

    def confirm(self, variant: Variant, source: Source) -> tuple[Finding, ...]:
        """Return the findings of a case in a process of its own, under the variant's own backend; none where it does
        not fail alike."""
        job = self.engine.job(variant=variant, source=source, isolation="fresh", float64=self._float64)
        findings, doubt = outcomes.read(self.engine.ask([job], self.tick)[0], source)
        is_alike = _fails_alike(findings, doubt, (self.signature, self.error))
        return tuple(ranked(findings)) if is_alike and not self._is_faint(findings, variant, source) else ()

    # --- one candidate ---

    def _is_faint(self, findings: Sequence[Finding], variant: Variant, source: Source) -> bool:
        """Return whether a wrong value could be told from rounding in the whole case, and no longer in this one."""
        epsilon = explained.low_precision(source.text, variant.dtype)
        return self._evident and not explained.is_evident(ranked(findings)[0], epsilon)

    @property
    def _float64(self) -> bool:
        return row_of(self.signature.oracle).float64 or row_of(self._expected[0].oracle).float64

    def _try(self, variant: Variant, source: Source) -> Steps[bool]:
        """Run a candidate under the stage's backend, under the one below, and under each policy that may explain it."""

        def answer(
            backend: str, config: Mapping[str, Any] | None = None
        ) -> Steps[tuple[Outcome, list[Finding], Trust | None]]:
            job = self.engine.job(
                variant=variant, source=source, backend=backend, config=config, float64=self._float64,
                timeout=self.timeout,
            )  # fmt: skip
            (outcome,) = yield from with_reference([job])
            return outcome, *outcomes.read(outcome, source)

        outcome, findings, doubt = yield from answer(self.backend)
        drew_random = outcome.record.drew_random
        if not _fails_alike(findings, doubt, self._expected) or self._is_faint(findings, variant, source):
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
    place = STAGES.index(stage)
    return backend if stage == stage_of(backend) else dict(LADDER)[stage], LADDER[place - 1][1] if place else None


Read = Callable[[str], tuple[Variant, Source] | None]
"""The variant and the source of a text; None for one that is no valid case."""


@dataclass(frozen=True)
class Candidate:
    """An attempt that is a valid, smaller case. ``place`` is that of the pass that proposed it."""

    attempt: Attempt
    text: str
    variant: Variant
    source: Source
    size: Size
    place: int


@dataclass
class Search:
    """Goes through the passes until no attempt fails alike any more, or ``deadline`` (monotonic seconds) has come.

    ``verdicts`` maps digests of texts to whether they fail alike; it may hold those of an earlier search.
    ``on_verdict`` gets each tried candidate. ``accept`` gets each success, and returns the state to go on from.
    """

    judge: EngineJudge
    read: Read
    passes: Sequence[Pass]
    accept: Callable[[Candidate], State]
    deadline: float
    verdicts: dict[str, bool] = field(default_factory=dict)
    on_verdict: Callable[[Candidate, bool], None] = lambda candidate, same: None
    tick: Callable[[], None] = lambda: None
    runs: int = 0

    def run(self, state: State) -> bool:
        """Search from ``state``; return whether the search ended by itself."""
        start = 0
        while time.monotonic() < self.deadline:
            candidate = self._first(self._attempts(state, start))
            if candidate is None:
                return time.monotonic() < self.deadline
            state = self.accept(candidate)
            start = candidate.place
        return False

    def _attempts(self, state: State, start: int) -> Iterator[Candidate]:
        """Yield the valid, smaller attempts that are not known to fail in another way, all passes once, from pass
        ``start`` on.
        """
        size_limit = size_of(state.data)
        proposed: set[str] = set()
        for place in (*range(start, len(self.passes)), *range(start)):
            for attempt in self.passes[place](state):
                size = size_of(attempt.data)
                if size >= size_limit:
                    continue
                text = text_of_plain(attempt.data)
                key = digest(text)
                if key in proposed or self.verdicts.get(key) is False:
                    continue
                proposed.add(key)
                if parsed := self.read(text):
                    yield Candidate(attempt, text, *parsed, size, place)
                else:
                    self.verdicts[key] = False

    def _first(self, attempts: Iterable[Candidate]) -> Candidate | None:
        """Return the first attempt in order that fails alike. Later ones run at the same time, and are dropped then."""
        source = iter(attempts)
        running: dict[int, Candidate] = {}
        started = 0
        first_success: int | None = None
        while True:
            while first_success is None and len(running) < self.judge.slots and time.monotonic() < self.deadline:
                candidate = next(source, None)
                if candidate is None:
                    break
                started += 1
                running[started] = candidate
                if self.verdicts.get(digest(candidate.text)):  # an earlier search knows
                    first_success = started
                    break
                self.runs += 1
                self.judge.start(started, candidate.variant, candidate.source)
            if first_success is not None and not any(number < first_success for number in running):
                self.judge.stop()
                return running[first_success]
            if not running or time.monotonic() >= self.deadline:
                self.judge.stop()
                return None
            for number, fails_alike in self.judge.finished(0.2):
                candidate = running[number]
                self.verdicts[digest(candidate.text)] = fails_alike
                self.on_verdict(candidate, fails_alike)
                if fails_alike:
                    first_success = min(number, first_success or number)
                else:
                    del running[number]
            self.tick()


PASSES: tuple[Pass, ...] = (
    passes.calls,
    passes.callers,
    passes.chunks,
    passes.blocks,
    passes.outputs,
    passes.sizes,
    passes.settings,
    passes.plain_inputs,
    passes.merged_inputs,
    passes.functions,
    passes.single_sizes,
    passes.inputs,
    passes.arguments,
    passes.values,
)
"""The passes, those that take most away first."""

LONG = 16
"""Steps of a chain from which on a cut of the graphs, log2 of their number of runs, is worth its time."""

CUTTING = 0.75
"""Part of the budget that has passed when the cut ends. The search without its answer takes a run for each step."""

CONFIRMING = 0.15
"""Part of the budget that is left for the confirmation in a process of its own."""


@dataclass(frozen=True)
class Step:
    """An accepted step: the change, the size after it, seconds since the beginning, and runs so far."""

    change: str
    size: Size
    seconds: float
    runs: int
    text: str = field(repr=False, default="")


@dataclass(frozen=True)
class Reduced:
    """The result. ``complete``: nothing more could be removed; else the budget or a person ended the search.

    ``confirmed``: the final case failed alike in a process of its own.
    """

    variant: Variant
    text: str
    steps: tuple[Step, ...]
    signature: FailureSignature
    size_before: Size
    size_after: Size
    complete: bool
    confirmed: bool
    runs: int
    seconds: float
    interrupted: bool = False
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()  # of the confirming run; of a case that is not confirmed those before


@dataclass
class Memory:
    """Callbacks of a reduction while it runs, and what an earlier one left: the best text and its verdicts (by
    digest)."""

    best: str | None = None
    verdicts: dict[str, bool] = field(default_factory=dict)
    on_start: Callable[[FailureSignature, str, Size], None] = lambda signature, text, size: None
    on_step: Callable[[Step], None] = lambda step: None
    on_verdict: Callable[[Candidate, bool], None] = lambda candidate, same: None
    on_case: Callable[[str], None] = lambda text: None
    """Told of a text before it becomes that of the case's file."""


def candidate_path(folder: Path) -> Path:
    """Return the file of this process's candidates: one by a plain name may be a person's own."""
    return folder / f"candidate-{os.getpid()}{SPEC}"


def reduce_variant(
    engine: VariantEngine,
    *,
    budget: float = 120.0,
    tick: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
    memory: Memory | None = None,
    diagnosis: Diagnosis | None = None,
) -> Reduced:
    """Shrink the engine's variant while it fails with the same signature.

    Args:
        engine: of the variant, entered; nobody else may use it meanwhile.
        budget: seconds, counted from now; the first verdict and the last confirmation take part in it.
        tick: told several times a second what is being done.
        folder: where candidates are written (a temporary one if None); a case's own Python is copied there.
        diagnosis: of this failure, whose verdict then counts; the step that it blames is tried first.
        memory: for going on from an earlier reduction, and for being told of steps as they are accepted.

    Returns:
        The smallest case found. When interrupted (Ctrl-C) or out of time the best so far, not confirmed.

    Raises:
        UsageError: the variant does not fail.
    """
    began = time.monotonic()
    if diagnosis is None:
        event = failing(engine.verdict(lambda: tick("running the case as it is"), names_operator=False))
        diagnosis = Diagnosis(event.id, event.torch, event.verdict, findings=event.findings, run_seconds=event.seconds)
    if diagnosis.culprit is None and (memory is None or memory.best is None):
        share = began + CUTTING * budget - time.monotonic()
        diagnosis = replace(diagnosis, culprit=_guilty(engine, diagnosis.findings[0], share, tick))
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(scratch.folder())
        return _Reduction(engine, diagnosis, folder, began, budget, tick, memory or Memory()).run()


def _guilty(engine: VariantEngine, finding: Finding, budget: float, tick: Callable[[str], None]) -> Culprit | None:
    """Return the operator of a long chain that a cut of its graphs finds within ``budget`` seconds; None where there is
    nothing to cut, or the chain is short enough for a search of its own."""
    case, signature = engine.variant.case, signature_of(finding)
    if budget <= 0 or signature.stage != "backend" or len([*steps_of(named(case).chain)]) < LONG:
        return None
    task = bisection_job(engine, signature, {}, budget)
    if not isinstance(task, Job):
        return None

    def say() -> None:
        phases = (phase for _, _, phase in engine.local_engine.running() if phase.startswith("cutting"))
        tick(next(phases, "cutting its graphs"))

    gathered = gather(engine, [task], say)
    if gathered.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    (outcome,) = gathered.outcomes
    return read_bisection(outcome, case, engine.source).culprit if outcome is not None else None


def failing(event: VariantFinished) -> VariantFinished:
    """Return the verdict of a variant that fails.

    Raises:
        UsageError: it does not; the message says its verdict.
    """
    if event.verdict not in RED or not event.findings:
        reason = f": {event.reason}" if event.reason else ""
        raise UsageError(f"{event.id} does not fail: {event.verdict}{reason}", NO_RESULT)
    return event


class _Reduction:
    """One reduction. ``history`` holds the accepted states; the first one is the original case."""

    def __init__(
        self, engine: VariantEngine, diagnosis: Diagnosis, folder: Path, began: float, budget: float,
        tick: Callable[[str], None], memory: Memory,
    ) -> None:  # fmt: skip
        self.engine, self.folder, self.memory = engine, folder, memory
        self.began, self.tick, self._said = began, tick, "running it under the backend of its stage"
        self.finding, self.culprit = diagnosis.findings[0], diagnosis.culprit
        self.signature = signature_of(self.finding)
        timeout = min(engine.job().timeout, max(20.0, 6 * diagnosis.run_seconds))
        self.judge = EngineJudge(
            engine, self.signature, relative_error(self.finding),
            None if self.signature.oracle == "timeout" else timeout,
            lambda: self.tick(self._said),
            explained.is_evident(
                self.finding, explained.low_precision(engine.source.text, engine.variant.dtype)
            ),
        )  # fmt: skip
        own = engine.variant.backend
        self.backend = Backend(own.backend, own.backend, unclaimed=Unclaimed(precision=own.unclaimed.precision))
        self.file = folder / f"case{SPEC}"
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self.search = Search(
            self.judge,
            self._read,
            PASSES,
            self._accept,
            began + budget * (1 - CONFIRMING),
            memory.verdicts,
            memory.on_verdict,
            self._report_progress,
        )

    def run(self) -> Reduced:
        original = self._original()
        self.original_size = size_of(plain(original, self.folder))
        text = text_of_plain(plain(original, self.folder))
        self.memory.on_start(self.signature, text, self.original_size)
        self.history: list[tuple[str, Size]] = [(text, self.original_size)]
        whole = self._read(text)
        complete = interrupted = False
        state = self._initial_state(original)
        try:
            if whole is not None:
                self.judge.adapt(*whole)
            complete = self.search.run(state)
        except KeyboardInterrupt:
            interrupted = True
            self.judge.stop()
        return self._result(complete, interrupted)

    def _original(self) -> Case:
        """Return the variant as a case of its own beside its Python, without what says nothing about the failure."""
        case = replace(resolve_axes(self.engine.variant), doc="", tags=(), links=(), file=str(self.file))
        if case.module is not None:
            copy = _copy(case.module.file, self.folder / Path(case.module.file).name)
            case = replace(case, module=replace(case.module, file=str(copy)))
        origin = Path(self.engine.variant.case.file).resolve().parent
        copies = [_copy(kernel.file, self.folder / os.path.relpath(kernel.file, origin)) for kernel in case.kernels]
        pairs = zip(case.kernels, copies, strict=True)
        return replace(case, kernels=tuple(replace(kernel, file=str(copy.resolve())) for kernel, copy in pairs))

    def _initial_state(self, original: Case) -> State:
        """Return the best state of an earlier search, or the case with the suspects of its failure."""
        if self.memory.best is not None and (parsed := self._read(self.memory.best)):
            self.history.append((self.memory.best, size_of(plain(parsed[0].case))))
            return State(parsed[0].case, self.signature, self.judge.measure)
        return State(original, self.signature, self.judge.measure, suspects(original, self.finding, self.culprit))

    def _read(self, text: str) -> tuple[Variant, Source] | None:
        """Return variant and source of a candidate; None where the reader or the builder finds an error."""
        path = candidate_path(self.folder)
        write_anew(path, text)
        return read_case(path, self.backend, self.engine)

    def _accept(self, candidate: Candidate) -> State:
        self.history.append((candidate.text, candidate.size))
        seconds = round(time.monotonic() - self.began, 3)
        self.steps.append(Step(candidate.attempt.change, candidate.size, seconds, self.search.runs, candidate.text))
        self.memory.on_step(self.steps[-1])
        return State(candidate.variant.case, self.signature, self.judge.measure)

    def _report_progress(self) -> None:
        size = self.history[-1][1]
        self._said = f"{size.operators} operators, {size.elements} elements after {self.search.runs} runs"
        self.tick(self._said)

    def _result(self, complete: bool, interrupted: bool) -> Reduced:
        """Confirm, in a process of its own, the last state that is no larger than the original; return the result."""
        limit = self.original_size
        states = [
            (text, size)
            for text, size in self.history
            if size.operators <= limit.operators and size.elements <= limit.elements
        ]
        text, size = states[-1]
        findings: tuple[Finding, ...] = ()
        for candidate in [] if interrupted else dict.fromkeys((states[-1], states[len(states) // 2], states[0])):
            self._said = "confirming in a process of its own"
            final = self._final_case(candidate[0])
            findings = self.judge.confirm(*final) if final is not None else ()
            if findings:
                text, size = candidate
                complete = complete and candidate == states[-1]
                break
            self.notes.append(
                f"alone in a process of its own, {candidate[1].operators} operators and {candidate[1].elements} "
                "elements do not fail alike"
            )
        final = self._final_case(text)
        assert final is not None, text
        return Reduced(
            variant=final[0],
            text=read_text(self.file),
            steps=tuple(self.steps),
            signature=self.signature,
            size_before=self.original_size,
            size_after=size,
            complete=complete,
            confirmed=bool(findings),
            runs=self.search.runs,
            seconds=round(time.monotonic() - self.began, 3),
            interrupted=interrupted,
            notes=tuple(self.notes),
            findings=findings or (self.finding,),
        )

    def _final_case(self, text: str) -> tuple[Variant, Source] | None:
        """Write the case as the output file's own, with keys and names as usual; return variant and source."""
        read = self._read(text)
        if read is None:
            return None
        case = with_first_names(read[0].case, {item.name for item in self.engine.variant.case.inputs})
        final = text_of_plain(plain(case, self.folder))
        self.memory.on_case(final)
        write_anew(self.file, final)
        return read_case(self.file, self.backend, self.engine)


def _copy(file: str, target: Path) -> Path:
    """Copy a case's Python, unless it is there already; return ``target``.

    Raises UsageError where another file is in its place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copyfile(file, target)
    elif not (target.is_file() and filecmp.cmp(file, target, shallow=False)):
        raise UsageError(f"{target} is there already, and is not a copy of {file}; name another folder")
    return target


def read_case(path: Path, backend: Backend, engine: VariantEngine) -> tuple[Variant, Source] | None:
    """Return the only variant of a file, and its source; None where the file has an error."""
    reader = Reader(engine.limits, any_device=bool(engine.imports))
    cases = reader.spec(path, None)
    if len(cases) != 1 or any(problem.severity == "error" for problem in reader.problems):
        return None
    variants = expand([Suite(path.name, str(path), cases=cases, backends=(backend,))], limits=engine.limits)
    try:
        return (variants[0], engine.write(variants[0])) if len(variants) == 1 else None
    except InputError:
        return None


def suspects(case: Case, finding: Finding, culprit: Culprit | None = None) -> tuple[int, ...]:
    """Return the numbers of the steps that a finding points to.

    These are the step that a diagnosis blames, the step on the line of the error, and the one that made the wrong
    output of several.
    """
    chain = named(case)
    steps = list(steps_of(chain.chain))
    blamed = (
        (culprit.step.partition(",")[0], culprit.place.rpartition(":")[2])
        if culprit and culprit.step and culprit.place
        else None
    )
    numbers = [
        number for number, step in enumerate(steps) if (step.operator.rpartition(".")[2], str(step.span.line)) == blamed
    ]
    places = (f"{step.span.file}:{step.span.line}:{step.span.column}" for step in steps)
    numbers += [number for number, place in enumerate(places) if place == finding.place]
    refs = references(chain.result)
    output = re.search(r"output\[(\d+)\]", finding.path)
    if output is not None and len(refs) > 1 and int(output[1]) < len(refs):
        numbers += [number for number, step in enumerate(steps) if refs[int(output[1])].name in step.out]
    return tuple(dict.fromkeys(numbers))
