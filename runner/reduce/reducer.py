"""Reduce a failing variant: what commands and other code call."""

from __future__ import annotations

import contextlib
import hashlib
import math
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
from runner.diagnose.harness import Lab
from runner.diagnostics import InputError, Span
from runner.engine import scratch
from runner.exit_codes import UsageError
from runner.record.events import RED, Finding, VariantFinished
from runner.reduce import passes, shrink
from runner.reduce.facts import references
from runner.reduce.judge import LabJudge, relative_error
from runner.reduce.names import named
from runner.reduce.remove_steps import steps_of, with_first_names
from runner.reduce.search import Found, Search
from runner.reduce.state import Size, State, size_of
from runner.verdict.signature import FailureSignature, signature_of

PASSES: tuple[passes.Pass, ...] = (
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
    """An accepted step: what was changed, the size after it, seconds since the beginning, and runs so far."""

    what: str
    size: Size
    seconds: float
    runs: int
    text: str = field(repr=False, default="")


@dataclass(frozen=True)
class Reduced:
    """What became of it. ``complete``: nothing more could be taken away; else the budget or a person ended the search.

    ``confirmed``: the final case failed alike in a process of its own.
    """

    variant: Variant
    text: str
    steps: tuple[Step, ...]
    signature: FailureSignature
    before: Size
    after: Size
    complete: bool
    confirmed: bool
    runs: int
    seconds: float
    interrupted: bool = False
    notes: tuple[str, ...] = ()


@dataclass
class Memory:
    """What a reduction tells while it goes, and what an earlier one knew: the best text and what was tried (hashes)."""

    best: str | None = None
    tried: dict[str, bool] = field(default_factory=dict)
    begun: Callable[[FailureSignature, str, Size], None] = lambda signature, text, size: None
    stepped: Callable[[Step], None] = lambda step: None
    told: Callable[[Found, bool], None] = lambda found, same: None


def digest(text: str) -> str:
    """A short name of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def reduce_variant(
    lab: Lab,
    *,
    budget: float = 120.0,
    tick: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
    memory: Memory | None = None,
) -> Reduced:
    """Shrink the lab's variant while it fails with the same signature.

    Args:
        lab: an open lab; nobody else may use its engine meanwhile.
        budget: seconds, counted from now; the first verdict and the last confirmation take part in it.
        tick: told several times a second what is being done.
        folder: where candidates are written (a temporary one if None); a case's own Python is copied there.
        memory: for going on from an earlier reduction, and for being told of steps as they are accepted.

    Returns:
        The smallest case found. When interrupted (Ctrl-C) or out of time the best so far, not confirmed.

    Raises:
        UsageError: the variant does not fail.
    """
    began = time.monotonic()
    tick("running the case as it is")
    failure = failing(lab)
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(scratch.folder())
        return _Reduction(lab, failure, folder, began, budget, tick, memory or Memory()).run()


def failing(lab: Lab) -> VariantFinished:
    """The verdict of a variant that fails.

    Raises:
        UsageError: it does not; the message says its verdict.
    """
    event = lab.verdict()
    if event.verdict not in RED or not event.findings:
        reason = f": {event.reason}" if event.reason else ""
        raise UsageError(f"{event.id} does not fail: {event.verdict}{reason}")
    return event


class _Reduction:
    """One reduction. ``history`` holds the states accepted so far, the first being the case as it was."""

    def __init__(
        self, lab: Lab, failure: VariantFinished, folder: Path, began: float, budget: float,
        tick: Callable[[str], None], memory: Memory,
    ) -> None:  # fmt: skip
        self.lab, self.folder, self.began, self.budget, self.tick, self.memory = (
            lab,
            folder,
            began,
            budget,
            tick,
            memory,
        )
        self.finding: Finding = failure.findings[0]
        self.signature = signature_of(self.finding)
        slow = self.signature.oracle == "timeout"
        timeout = None if slow else min(lab.job().timeout, max(20.0, 6 * failure.seconds))
        self.judge = LabJudge(lab, self.signature, _finite(relative_error(self.finding)), timeout)
        backend = lab.variant.backend.backend
        self.backend = Backend(backend, backend)
        self.file = folder / f"case{SPEC}"
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self.search: Search | None = None

    def run(self) -> Reduced:
        original = self._original()
        self.before = size_of(plain(original, self.folder))
        first = text_of_plain(plain(original, self.folder))
        self.memory.begun(self.signature, first, self.before)
        self.history: list[tuple[str, Size]] = [(first, self.before)]
        state = self._beginning(original)
        left = self.budget * (1 - CONFIRMING)
        self.search = Search(
            self.judge,
            self._read,
            PASSES,
            self._accept,
            self.began + left,
            _Tried(self.memory.tried),
            self.memory.told,
            self._tell,
        )
        complete = interrupted = False
        try:
            complete = self.search.run(state)
        except KeyboardInterrupt:
            interrupted = True
            self.judge.stop()
        return self._end(complete, interrupted)

    def _original(self) -> Case:
        """The variant as a case of its own beside its Python, without what says nothing about the failure."""
        case = replace(resolve_axes(self.lab.variant), doc="", tags=(), links=(), file=str(self.file))
        if case.module is not None:
            copied = self.folder / Path(case.module.file).name
            if copied.resolve() != Path(case.module.file).resolve():
                shutil.copyfile(case.module.file, copied)
            case = replace(case, module=replace(case.module, file=str(copied)))
        beside = Path(self.lab.variant.case.file).resolve().parent
        kernels = []
        for kernel in case.kernels:
            copied = self.folder / os.path.relpath(kernel.file, beside)
            copied.parent.mkdir(parents=True, exist_ok=True)
            if copied.resolve() != Path(kernel.file).resolve():
                shutil.copyfile(kernel.file, copied)
            kernels.append(replace(kernel, file=str(copied.resolve())))
        return replace(case, kernels=tuple(kernels))

    def _beginning(self, original: Case) -> State:
        """Where the search starts: the best of an earlier one, or the case with what its failure points to."""
        if self.memory.best is not None:
            read = self._read(self.memory.best)
            if read is not None:
                self.history.append((self.memory.best, size_of(plain(read[0].case))))
                return State(read[0].case, self.signature, self.judge.measure)
        return State(original, self.signature, self.judge.measure, suspects(original, self.finding))

    def _read(self, text: str) -> tuple[Variant, Source] | None:
        """The variant and source of a candidate; None where the reader or the builder finds an error."""
        path = self.folder / f"candidate{SPEC}"
        path.write_text(text, encoding="utf-8")
        return read_case(path, self.backend, self.lab)

    def _accept(self, found: Found) -> State:
        self.history.append((found.text, found.size))
        runs = self.search.runs if self.search else 0
        step = Step(found.attempt.what, found.size, round(time.monotonic() - self.began, 3), runs, found.text)
        self.steps.append(step)
        self.memory.stepped(step)
        return State(found.variant.case, self.signature, self.judge.measure)

    def _tell(self) -> None:
        size = self.history[-1][1]
        runs = self.search.runs if self.search else 0
        self.tick(f"{size.operators} operators, {size.elements} elements after {runs} runs")

    def _end(self, complete: bool, interrupted: bool) -> Reduced:
        """The last state that is no larger than the first and fails alike by itself, in a process of its own."""
        sound = [one for one in self.history if _no_larger(one[1], self.before)]
        text, size = sound[-1]
        confirmed = False
        for place in [] if interrupted else dict.fromkeys((len(sound) - 1, len(sound) // 2, 0)):
            self.tick("confirming in a process of its own")
            read = self._final(sound[place][0])
            confirmed = read is not None and self.judge.confirm(*read)
            if confirmed:
                text, size = sound[place]
                complete = complete and place == len(sound) - 1
                break
            told = sound[place][1]
            self.notes.append(
                f"alone in a process of its own, {told.operators} operators and {told.elements} elements do not fail alike"
            )
        read = self._final(text)
        assert read is not None, text
        return Reduced(
            variant=read[0],
            text=self.file.read_text(encoding="utf-8"),
            steps=tuple(self.steps),
            signature=self.signature,
            before=self.before,
            after=size,
            complete=complete,
            confirmed=confirmed,
            runs=self.search.runs if self.search else 0,
            seconds=round(time.monotonic() - self.began, 3),
            interrupted=interrupted,
            notes=tuple(self.notes),
        )

    def _final(self, text: str) -> tuple[Variant, Source] | None:
        """The case as the output file's own, its keys and its names as usual."""
        read = self._read(text)
        if read is None:
            return None
        case = with_first_names(read[0].case, {item.name for item in self.lab.variant.case.inputs})
        self.file.write_text(text_of_plain(plain(case, self.folder)), encoding="utf-8")
        return read_case(self.file, self.backend, self.lab)


class _Tried(dict[str, bool]):
    """What was tried, also by an earlier search, which left hashes."""

    def __init__(self, earlier: dict[str, bool]) -> None:
        super().__init__()
        self.earlier = earlier

    def get(self, text: str, default: bool | None = None) -> bool | None:  # type: ignore[override]
        """Whether the text failed alike; None where it was not tried."""
        return self[text] if text in self else self.earlier.get(digest(text), default)


def read_case(path: Path, backend: Backend, lab: Lab) -> tuple[Variant, Source] | None:
    """The only variant of a file, and its source; None where the file has an error."""
    reader = Reader(lab.limits, any_device=bool(lab.imports))
    cases = reader.spec(path, None)
    if len(cases) != 1 or any(found.severity == "error" for found in reader.problems):
        return None
    variants = expand([Suite(path.name, str(path), cases=cases, backends=(backend,))], limits=lab.limits)
    if len(variants) != 1:
        return None
    try:
        return variants[0], lab.write(variants[0])
    except InputError:
        return None


def suspects(case: Case, finding: Finding) -> tuple[int, ...]:
    """Numbers of the steps that a finding points to: by the line of its error, or by which of several outputs is wrong."""
    chain = named(case)
    every = list(steps_of(chain.chain))
    found = [number for number, step in enumerate(every) if finding.place and _place(step.span) == finding.place]
    refs = references(chain.result)
    place = re.search(r"output\[(\d+)\]", finding.path)
    if place is not None and len(refs) > 1 and int(place[1]) < len(refs):
        found += [number for number, step in enumerate(every) if refs[int(place[1])].name in step.out]
    return tuple(dict.fromkeys(found))


def _place(span: Span) -> str:
    return f"{span.file}:{span.line}:{span.column}"


def _no_larger(size: Size, before: Size) -> bool:
    return size.operators <= before.operators and size.elements <= before.elements


def _finite(error: float) -> float:
    return error if math.isfinite(error) else 1.0
