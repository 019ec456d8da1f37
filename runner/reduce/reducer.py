"""The reduction of a failing variant, from its verdict to the confirmed result."""

from __future__ import annotations

import contextlib
import filecmp
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.builder.source import Source
from runner.cases.expand import expand
from runner.cases.model import Backend, Case, Suite, Variant
from runner.cases.serialize import plain, resolve_axes, text_of_plain
from runner.cases.suites import SPEC, Reader
from runner.contract.finding import Finding
from runner.diagnose.diagnosis import Culprit, Diagnosis
from runner.diagnose.harness import VariantEngine
from runner.diagnostics import InputError, Span
from runner.engine import scratch
from runner.exit_codes import NO_RESULT, UsageError
from runner.files import read_text, write_anew
from runner.record.events import RED, VariantFinished
from runner.reduce import passes, shrink
from runner.reduce.judge import EngineJudge, relative_error
from runner.reduce.names import named
from runner.reduce.remove_steps import steps_of, with_first_names
from runner.reduce.state import Candidate, Pass, Search, Size, State, size_of
from runner.reduce.value_info import references
from runner.verdict.signature import FailureSignature, signature_of

PASSES: tuple[Pass, ...] = (
    passes.calls,
    passes.chunks,
    passes.blocks,
    passes.outputs,
    shrink.sizes,
    shrink.settings,
    passes.plain_inputs,
    passes.merged_inputs,
    passes.functions,
    shrink.single_sizes,
    shrink.inputs,
    shrink.arguments,
    shrink.values,
)
"""The passes, those that take most away first."""

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
    """Callbacks of a reduction while it runs, and what an earlier one left: the best text and its verdicts (by digest)."""

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
        tick("running the case as it is")
        event = failing(engine)
        failure = Failure(event.findings[0], event.seconds)
    else:
        failure = Failure(diagnosis.findings[0], diagnosis.run_seconds, diagnosis.culprit)
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(scratch.folder())
        return _Reduction(engine, failure, folder, began, budget, tick, memory or Memory()).run()


@dataclass(frozen=True, slots=True)
class Failure:
    """What is to be kept: the main finding of a run, the seconds that the run took, and what is to blame, where that is known."""

    finding: Finding
    seconds: float
    culprit: Culprit | None = None


def failing(engine: VariantEngine) -> VariantFinished:
    """Return the verdict of a variant that fails.

    Raises:
        UsageError: it does not; the message says its verdict.
    """
    event = engine.verdict()
    if event.verdict not in RED or not event.findings:
        reason = f": {event.reason}" if event.reason else ""
        raise UsageError(f"{event.id} does not fail: {event.verdict}{reason}", NO_RESULT)
    return event


class _Reduction:
    """One reduction. ``history`` holds the accepted states; the first one is the original case."""

    def __init__(
        self, engine: VariantEngine, failure: Failure, folder: Path, began: float, budget: float,
        tick: Callable[[str], None], memory: Memory,
    ) -> None:  # fmt: skip
        self.engine, self.folder, self.memory = engine, folder, memory
        self.began, self.tick = began, tick
        self.finding, self.culprit = failure.finding, failure.culprit
        self.signature = signature_of(self.finding)
        slow = self.signature.oracle == "timeout"
        timeout = None if slow else min(engine.job().timeout, max(20.0, 6 * failure.seconds))
        self.judge = EngineJudge(engine, self.signature, relative_error(self.finding), timeout)
        backend = engine.variant.backend.backend
        self.backend = Backend(backend, backend)
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
        kernels = []
        for kernel in case.kernels:
            copy = _copy(kernel.file, self.folder / os.path.relpath(kernel.file, origin))
            kernels.append(replace(kernel, file=str(copy.resolve())))
        return replace(case, kernels=tuple(kernels))

    def _initial_state(self, original: Case) -> State:
        """Return the best state of an earlier search, or the case with the suspects of its failure."""
        if self.memory.best is not None:
            parsed = self._read(self.memory.best)
            if parsed is not None:
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
        step = Step(candidate.attempt.change, candidate.size, seconds, self.search.runs, candidate.text)
        self.steps.append(step)
        self.memory.on_step(step)
        return State(candidate.variant.case, self.signature, self.judge.measure)

    def _report_progress(self) -> None:
        size = self.history[-1][1]
        self.tick(f"{size.operators} operators, {size.elements} elements after {self.search.runs} runs")

    def _result(self, complete: bool, interrupted: bool) -> Reduced:
        """Confirm, in a process of its own, the last state that is no larger than the original; return the result."""
        limit = self.original_size
        smaller_states = [
            (text, size)
            for text, size in self.history
            if size.operators <= limit.operators and size.elements <= limit.elements
        ]
        text, size = smaller_states[-1]
        findings: tuple[Finding, ...] = ()
        for place in [] if interrupted else dict.fromkeys((len(smaller_states) - 1, len(smaller_states) // 2, 0)):
            self.tick("confirming in a process of its own")
            final = self._final_case(smaller_states[place][0])
            findings = self.judge.confirm(*final) if final is not None else ()
            if findings:
                text, size = smaller_states[place]
                complete = complete and place == len(smaller_states) - 1
                break
            tried_size = smaller_states[place][1]
            self.notes.append(
                f"alone in a process of its own, {tried_size.operators} operators and {tried_size.elements} elements do not fail alike"
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
    """Copy a case's Python, unless it is there already; return ``target``. Raises UsageError where another file is in its place."""
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
    if len(variants) != 1:
        return None
    try:
        return variants[0], engine.write(variants[0])
    except InputError:
        return None


def suspects(case: Case, finding: Finding, culprit: Culprit | None = None) -> tuple[int, ...]:
    """Return the numbers of the steps that a finding points to.

    These are the step that a diagnosis blames, the step on the line of the error, and the one that made the wrong output of several.
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
    numbers += [number for number, step in enumerate(steps) if finding.place and _place(step.span) == finding.place]
    refs = references(chain.result)
    place = re.search(r"output\[(\d+)\]", finding.path)
    if place is not None and len(refs) > 1 and int(place[1]) < len(refs):
        numbers += [number for number, step in enumerate(steps) if refs[int(place[1])].name in step.out]
    return tuple(dict.fromkeys(numbers))


def _place(span: Span) -> str:
    return f"{span.file}:{span.line}:{span.column}"
