"""One variant, an engine, and questions to it: what every command about a single failure begins with."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner import console, interrupts
from runner.builder.source import Source, build
from runner.cases.limits import Limits
from runner.cases.model import COMPILED_LAUNCH, LAUNCH, Variant
from runner.contract.finding import Finding
from runner.contract.job import Isolation, Job, Trust
from runner.diagnostics import InputError
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome
from runner.exit_codes import UsageError
from runner.record.events import VariantFinished
from runner.session.plan import (
    Environment,
    Planned,
    RunContext,
    checked_environments,
    job,
    skip_reason,
    warmth,
    worker_paths,
)
from runner.session.preflight import import_code
from runner.session.scheduler import drive, with_reference
from runner.session.settings import RunSettings
from runner.session.variant_run import run_variant
from runner.text import in_line
from runner.verdict import outcomes


@dataclass(frozen=True, slots=True)
class Answer:
    """What one judged run said: its findings, and its doubt if there was one."""

    findings: tuple[Finding, ...]
    trust: Trust | None

    @property
    def sound(self) -> bool:
        """Whether it says something about the backend: the case was valid and the harness whole."""
        return self.trust is None or self.trust.verdict == "VACUOUS"


class VariantEngine(contextlib.AbstractContextManager["VariantEngine"]):
    """An engine for one variant in one environment. Use it in a ``with``; leaving it ends its processes.

    Each job gets a key of its own, so that many may be asked at once.
    """

    def __init__(
        self,
        variant: Variant,
        environment: Environment,
        *,
        slots: int = 1,
        seed: int = 0,
        imports: Sequence[str] = (),
        paths: Sequence[str] = (),
        limits: Limits | None = None,
        named: RunSettings | None = None,
    ) -> None:
        """Start nothing yet. Code that the settings ``named`` name is imported before anything runs.

        Raises:
            UsageError: the variant cannot run under this environment.
            InputError: the case is wrong.
        """
        self.planned = Planned(variant, environment)
        self.limits = limits or Limits()
        self.slots, self.seed, self.imports, self.paths = slots, seed, tuple(imports), tuple(paths)
        if reason := skip_reason(self.planned):
            raise UsageError(f"{variant.id} cannot run here: {reason}")
        self.source = self.write(variant)
        warm = {environment.key: warmth([variant])}
        self.local_engine = LocalEngine({environment.key: environment.python}, slots, warm=warm)
        self._number, self._named = 0, named

    @staticmethod
    def of(settings: RunSettings, variant: Variant, **changes: Any) -> VariantEngine:
        """Return the engine that the settings ask for; of several Pythons the first.

        Raises:
            UsageError, InputError: as in ``__init__``; no such Python.
        """
        values: dict[str, Any] = {
            "slots": settings.slots(),
            "seed": settings.seed,
            "imports": settings.imports,
            "paths": worker_paths(settings, [variant]),
            "limits": settings.limits(),
            "named": settings,
        }
        return VariantEngine(variant, checked_environments(settings, [variant])[0], **{**values, **changes})

    def __enter__(self) -> VariantEngine:
        """Look for the code that the settings name.

        Raises:
            UsageError, InputError: it cannot be had.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self.local_engine.close)
            if self._named is not None:
                import_code(self.local_engine, [self.planned], self._named)
            stack.pop_all()
        return self

    def __exit__(self, *about: object) -> None:
        """End its processes."""
        self.local_engine.close()

    @property
    def variant(self) -> Variant:
        """The variant that it is about."""
        return self.planned.variant

    @property
    def environment(self) -> Environment:
        """Where it runs."""
        return self.planned.environment

    def write(self, variant: Variant) -> Source:
        """The source of a variant.

        Raises:
            InputError: the case is wrong.
        """
        source = build(variant, limits=self.limits)
        if errors := [diagnostic for diagnostic in source.diagnostics if diagnostic.severity == "error"]:
            raise InputError(errors)
        return source

    def job(
        self,
        task: str = "judge",
        arguments: Mapping[str, Any] | None = None,
        *,
        variant: Variant | None = None,
        source: Source | None = None,
        timeout: float | None = None,
        isolation: Isolation = "fork",
        **changes: Any,
    ) -> Job:
        """A job about the variant (or another); ``changes`` are those of ``plan.job``: backend, config, float64."""
        planned = self.planned if variant is None else Planned(variant, self.environment)
        if source is None:
            source = self.source if variant is None else self.write(variant)
        self._number += 1
        base = job(planned, source, seed=self.seed, imports=self.imports, paths=self.paths,
                   suffix=f" {task} {self._number}", **changes)  # fmt: skip
        return dataclasses.replace(
            base,
            task=task,
            arguments=dict(arguments or {}),
            isolation=isolation,
            cacheable=False,
            timeout=base.timeout if timeout is None else timeout,
        )

    def ask(self, jobs: Sequence[Job], tick: Callable[[], None] | None = None) -> list[Outcome]:
        """Run jobs and wait for all; return their outcomes in order. ``tick`` is called several times a second."""
        return drive(self.local_engine, with_reference(jobs), tick)

    def cancel(self) -> None:
        """End what runs, so that something else may be asked."""
        self.local_engine.cancel_all()
        self.local_engine.wait(0)

    def read(self, outcome: Outcome) -> Answer:
        """Return what a judging job said; without stages, which only a ladder can tell."""
        findings, doubt = outcomes.read(outcome, self.source)
        return Answer(tuple(findings), doubt)

    def verdict(
        self, tick: Callable[[], None] | None = None, accuracy: bool = False, names_operator: bool = True
    ) -> VariantFinished:
        """Run the variant as ``runner run --no-known`` would; return its verdict, findings with stages, labels.

        With ``accuracy`` it says of each output how far it is from float64. Without ``names_operator`` no further runs
        look for the operator of its signature: on a chain of 1,000 steps they take minutes.
        """
        context = RunContext(
            RunSettings(no_known=True, confirm=False, seed=self.seed, imports=self.imports, accuracy=accuracy),
            slots=self.slots, paths=self.paths, default_python=self.environment.python, limits=self.limits,
            names_operator=names_operator,
        )  # fmt: skip
        return drive(self.local_engine, run_variant(self.planned, context), tick).event


def result_of(outcome: Outcome) -> Mapping[str, Any]:
    """The record of a task other than judging.

    Raises:
        UsageError: the process died or the case is wrong (``record["error"]``); the message says how.
    """
    if outcome.ended != "result":
        lines = outcome.output.strip().splitlines()
        raise UsageError(": ".join([outcome.job.task, outcomes.describe(outcome), *lines[-1:]]))
    if error := outcome.result.get("error"):
        raise UsageError(f"{outcome.job.task}: {error['type']}: {str(error['message']).strip().splitlines()[0]}")
    return outcome.result


def ask_environment(
    environment: Environment,
    task: str,
    arguments: Mapping[str, Any],
    tick: Callable[[], None] | None = None,
    **fields: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """Return the record of a task that is about no variant; ``fields`` are those of its job.

    Raises:
        UsageError: as ``result_of``.
    """
    job = Job(**{
        "key": task, "id": task, "environment": environment.key, "name": task, "source": "", "backend": {},
        "task": task, "arguments": arguments, "cacheable": False, **fields,
    })  # fmt: skip
    engine = LocalEngine({environment.key: environment.python}, 1, warm={environment.key: "import"})
    try:
        return result_of(drive(engine, with_reference([job]), tick)[0])
    finally:
        with interrupts.held():
            engine.close()


def telling_line(raised: Mapping[str, Any]) -> str:
    """An error's class and first telling line: ``backend='x' raised:`` says nothing by itself, so the next follows."""
    lines = str(raised["message"]).strip().split("\n")
    line = " ".join(lines[:2]) if lines[0].endswith("raised:") else lines[0]
    return f"{raised['type']}: {line}" if line else str(raised["type"])


def refuse_launches(variant: Variant, command: str) -> None:
    """Refuse a command about what the compiler did to a variant whose kernels are launched without one.

    Raises:
        UsageError: it is one; the message names what can be done instead.
    """
    if variant.backend.backend == LAUNCH:
        raise UsageError(
            f"{command}: backend {LAUNCH} launches kernels and compiles nothing; runner diagnose and runner reduce "
            "say more "
            f"of it, and --backend {COMPILED_LAUNCH} --device cuda is a compiled launch"
        )


def refuse_kernels(variant: Variant, command: str) -> None:
    """As ``refuse_launches``, for what torch writes into scripts and recordings: these know no operators of a case's
    own.

    Raises:
        UsageError: the case launches kernels.
    """
    refuse_launches(variant, command)
    if variant.case.kernels:
        raise UsageError(
            f"{command}: {variant.id} launches Triton kernels as operators of its own, which torch's scripts and "
            "recordings "
            "do not hold; runner reduce shrinks the case, and runner repro writes a script with the kernels in it"
        )


class Progress(contextlib.AbstractContextManager["Progress"]):
    """A line on standard error that says what is being done; rewritten in a terminal, one line a text elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._last, self._begun = "", time.monotonic()

    def say(self, text: str) -> None:
        """Show ``text``; the same text again only moves the clock of a terminal."""
        if self._live:
            seconds = int(time.monotonic() - self._begun)
            console.status(f"[{seconds // 60}:{seconds % 60:02}] {in_line(text)}"[:160])
        elif text != self._last:
            console.message(text)
        self._last = text

    def __exit__(self, *about: object) -> None:
        """Clear the line."""
        self.end()

    def end(self) -> None:
        """Clear the line until something is said again."""
        if self._live and self._last:
            console.status("")


def run_heat_map(engine: VariantEngine, tick: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run the variant once more and return the record of ``runner.worker.tasks.heatmap.run_picture``; ``tick`` as of
    ``ask``.

    A process that dies leaves no heat map: ``picture`` is None then, and ``reason`` says how it ended.

    Raises:
        UsageError: the case is wrong.
    """
    (outcome,) = engine.ask([engine.job("picture")], tick)
    if outcome.ended != "result":
        return {"picture": None, "reason": outcomes.describe(outcome), "inputs": []}
    return dict(result_of(outcome))
