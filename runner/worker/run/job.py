"""One job to its record: preparation, reference runs, one backend, the comparison, and whether it can be believed."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from runner.contract import loaded_code, settings
from runner.contract.finding import Finding
from runner.contract.job import Job, Record, Trust
from runner.contract.oracles import RULED, TWIN, row_of
from runner.worker import thresholds
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.judge import judge, judge_defined
from runner.worker.judge.validity import note_autocast, vacuity_reason, varied_output
from runner.worker.processes import temporary_folder
from runner.worker.program import backends, delegation
from runner.worker.program.eager import eagers_numbers, observe_eager, observe_further
from runner.worker.program.errors import InvalidCase, refutation
from runner.worker.program.graph_cache import count_loaded, stored_graphs
from runner.worker.program.load import Source, open_source
from runner.worker.program.observe import (
    Change,
    Observation,
    Settings,
    doubt_counts,
    observe,
    observe_again,
    read_counts,
)
from runner.worker.program.reach import Reach
from runner.worker.program.snapshot import Tree
from runner.worker.rerun.agreement import (
    VARIES,
    Agreement,
    find_disagreement,
    note_varying,
    traced_state,
    tree_disagreement,
    varying_state,
)
from runner.worker.rerun.legal_runs import disagreement_of_same_choices
from runner.worker.rerun.reference import Reference
from runner.worker.run.random_stream import weigh_random
from runner.worker.run.variations import batch, vary
from runner.worker.tensors import missing_place
from runner.worker.torch_private import counters
from runner.worker.torch_private.doors import absences
from runner.worker.torch_private.dynamo import CompileWatch

Send = Callable[[dict[str, Any]], None]


_KNOWN = (
    os.path.dirname(os.path.dirname(loaded_code.__file__)),  # the runner
    *(os.environ.get(name, "") for name in (settings.CACHE_FOLDER, settings.TRITON_FOLDER, "RUNNER_SCRATCH")),
)
"""Folders of code that control knows by itself, and of what is made from such code."""


class Phases:
    """Says which part of the job has begun, and how long each took in all."""

    def __init__(self, send: Send) -> None:
        """Keep ``send``, which is given ``{"phase": name}`` at each change."""
        self.seconds: dict[str, float] = {}
        self.current = ""
        self.send = send
        self._since = time.monotonic()

    def begin(self, name: str) -> None:
        """End the part that runs and begin ``name``, one of the contract's PHASES."""
        self.end()
        self.current = name
        self.send({"phase": name})

    def end(self) -> None:
        """Book the seconds since the last change."""
        now = time.monotonic()
        if self.current:
            self.seconds[self.current] = self.seconds.get(self.current, 0.0) + now - self._since
        self._since = now
        self.current = ""


def judge_job(job: Job, send: Send) -> Record:
    """Run a model in eager and under a backend, and return what the comparison says.

    A case that is wrong is INVALID.
    """
    phases = Phases(send)
    run = _Run(job, phases)
    phases.begin("load")
    try:
        with open_source(job) as source:
            run.go(source)
    except InvalidCase as error:
        run.record = replace(
            run.record, trust=Trust("INVALID", error.reason, error.error.info if error.error is not None else None)
        )
    except Unavailable as error:
        run.record = replace(run.record, trust=Trust("SKIP", str(error)))
    phases.end()
    seconds = {name: round(seconds, 6) for name, seconds in phases.seconds.items()}
    code = tuple(loaded_code.find_loaded_code(_KNOWN)) if job.lists_code else ()
    return replace(run.record, seconds=seconds, code=code, unchecked=absences())


class Unavailable(Exception):
    """Something that the case needs and this machine lacks."""


def require(job: Job) -> None:
    """Check that the device and the packages of a job are there.

    Raises:
        Unavailable: one is not; the message says which.
    """
    kind, _, index = job.device.partition(":")
    if kind not in ("cpu", "meta"):
        module = getattr(torch, kind, None)
        if module is None or not module.is_available():
            raise Unavailable(f"no device {kind} here")
        if index and hasattr(module, "device_count") and int(index) >= module.device_count():
            raise Unavailable(f"no device {kind}:{index} here: there are {module.device_count()}")
    for package in job.packages:
        if not is_installed(package):
            raise Unavailable(f"no package {package} here")


@functools.cache
def is_installed(package: str) -> bool:
    """Return whether installed packages' metadata know a name, as pip writes it or as import does. Nothing is imported.

    Of ``a.b`` the name ``a`` is enough: whether ``a`` has a ``b`` only its import can tell.
    """
    first = package.partition(".")[0]
    for name in (package, first):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError, ValueError):  # ValueError: it is no name
            importlib.metadata.distribution(name)
            return True
    return first in importlib.metadata.packages_distributions()


def validate_distributions(on: bool) -> None:
    """Set whether torch.distributions checks its arguments, as it would be in a process of its own.

    The first torch.compile of a process turns the checks off for good (``torch/_dynamo/eval_frame.py``,
    ``TorchPatcher``). Without this, eager would no longer raise what it raises for users once the process has compiled.
    """
    torch.distributions.Distribution.set_default_validate_args(on)


def observe_backend(
    job: Job,
    source: Source,
    compile_module: backends.Compile,
    eager: Observation,
    watch: contextlib.AbstractContextManager[Any] | None = None,
    change_inputs: Change | None = None,
    twin: bool = False,
) -> Observation:
    """Run the case, or its ``twin``, under its backend. The observation holds torch's counts, and what plain launches
    recorded.

    Random numbers are eager's where ``eager`` drew any. ``watch`` is entered around the calls. ``change_inputs`` may
    replace the inputs of each.

    Raises:
        InvalidCase: the case cannot be loaded, or torch.compile refuses its arguments.
        Unavailable: the interpreter cannot do what a kernel asks of it.
    """
    counters.start_counting()
    delegation.start_counting()
    settings = replace(Settings.of(job), roots=eager.roots)
    loaded = source.load(settings.seed, launching=True, twin=twin)
    validate_distributions(False)
    target = compile_module(loaded.model)
    with eagers_numbers(job, eager), backends.count_replays() as counted, watch or contextlib.nullcontext():
        compiled = observe(
            loaded,
            target,
            settings,
            change_inputs,
            packages=backends.packages(str(job.backend["backend"])),
            compile_step=None if isinstance(target, backends.PlainLaunch) else compile_module,
        )
    validate_distributions(True)
    read_counts(compiled)
    compiled.replays = counted.count
    compiled.delegation = delegation.counts()
    if isinstance(target, backends.PlainLaunch):
        compiled.launches = target.launches
        compiled.notes += target.launches.notes
        if target.launches.unable:
            raise Unavailable(target.launches.unable)
    return compiled


class _Run:
    """The parts of one job, in order; each adds to the record."""

    def __init__(self, job: Job, phases: Phases) -> None:
        self.job, self.phases, self.record = job, phases, Record()
        self.settings = Settings.of(job)
        self.agree = Agreement(self.settings.device, job.tolerance)
        self.roots: frozenset[str] = frozenset()  # beside the outputs

    def go(self, source: Source) -> None:
        """Run all parts.

        Raises:
            InvalidCase: the case is wrong.
            Unavailable: this machine lacks something.
        """
        self.source = source
        try:
            self._go()
        finally:
            self.record = replace(self.record, model_runs=source.models)

    def _go(self) -> None:
        require(self.job)
        compile_module = backends.build(self.job.backend, watch=True)
        validate_distributions(True)
        counters.start_counting()
        loaded = self.source.load(self.settings.seed)
        self.phases.begin("eager")
        eager = observe_eager(self.source, loaded, self.settings)
        self.record = replace(self.record, drew_random=eager.drew_random)
        self._check_eager(eager)

        self.phases.begin("eager-again")
        second_eager = observe_again(self.source, self.settings)
        place = self._disagreement(eager, second_eager)
        varying = self._varying_state(eager, second_eager) if place is not None else frozenset()
        note_varying(eager, second_eager)
        del second_eager  # so that its tensors are gone before the backend's run

        self.phases.begin("backend")
        watch = CompileWatch(self.phases.send) if self.job.compile_timeout is not None else None
        reach = self._reach() if self.job.coverage else None
        with reach.watch() if reach else contextlib.nullcontext(), stored_graphs(self.job) as store:
            compiled = observe_backend(self.job, self.source, compile_module, eager, watch)
        stored = count_loaded() if self.job.graphs else 0
        doubt_counts(compiled, (name for name, bound in self.job.expect.items() if bound is not None))
        self.record = replace(
            self.record, stored_graphs=stored, reached=tuple(sorted(reach.names)) if reach else (),
            graphs=compiled.graphs, graph_breaks=compiled.graph_breaks, recompiles=compiled.recompiles,
            break_reasons=tuple(compiled.break_reasons),
        )  # fmt: skip
        if self.job.backend["backend"] == "inductor":
            self.record = replace(
                self.record, kernels=compiled.kernels, vectorized=compiled.vectorized, replays=compiled.replays,
                benchmarked=counters.benchmarked(),
            )  # fmt: skip
            if not compiled.replays and backends.makes_graphs(self.job.backend, self.settings.device):
                compiled.notes.append(backends.missing_note(self.job.backend["mode"], len(compiled.calls)))

        if (counts := compiled.delegation) is not None:
            self.record = replace(
                self.record, delegable=counts.calls, delegated=counts.delegated, fallbacks=dict(counts.fallbacks)
            )

        again = self._vary(eager, compiled, compile_module) if place is None else []
        self.phases.begin("judge")
        self._judge(eager, compiled, place, varying, again, compile_module)
        if self.agree.varied:
            self.record = replace(self.record, labels=(*self.record.labels, VARIES))
        if store is not None and not self.record.findings and self.record.trust is None:
            store.keep()

    def _reach(self) -> Reach:
        return Reach(self.job.coverage == "lines", backends.packages(str(self.job.backend["backend"])))

    def _vary(self, eager: Observation, compiled: Observation, compile_module: backends.Compile) -> list[Finding]:
        """Return the findings of further runs for which a rule for values asks."""
        rule = (self.job.tolerance or {}).get("values", "")
        if rule not in RULED.values() or eager.error is not None or compiled.error is not None:
            return []
        loaded = self.source.load(self.settings.seed)
        sizes = [batch(loaded.make_inputs(call, self.settings.seed + call)) for call in range(len(loaded.makers))]
        run_eager = functools.partial(observe_again, self.source, self.settings)

        def run_compiled(change: Change | None) -> Observation:
            return observe_backend(self.job, self.source, compile_module, eager, change_inputs=change)

        findings, notes = vary(rule, eager, compiled, sizes, run_eager, run_compiled)
        compiled.notes += notes
        return findings

    def _disagreement(self, first: Observation, second: Observation) -> str | None:
        """Return where two eager runs disagree, values by the rules of the device."""
        return find_disagreement(first, second, "value" not in self.job.ignore, self.agree)

    def _varying_state(self, first: Observation, second: Observation) -> frozenset[str]:
        """Return the parts of the state that two eager runs leave differently, if they disagree nowhere else."""
        names = varying_state(first, second, self._differ)
        if names and self._disagreement(first.without_state(names), second.without_state(names)) is not None:
            return frozenset()
        return names

    def _differ(self, first: Tree, second: Tree) -> bool:
        return tree_disagreement(first, second, "value" not in self.job.ignore, self.agree) is not None

    def _check_eager(self, eager: Observation) -> None:
        """Check that eager raised what ``expect.raises`` says, and nothing else, and that it returned what the case
        names.

        Raises:
            InvalidCase: it did otherwise.
        """
        expected = self.job.expect.get("raises")
        error = eager.error
        if error is not None:
            self.record = replace(self.record, eager_error=error.info)
        if expected is None:
            if error is not None:
                raise InvalidCase(f"eager raised {error.summary}", error)
            unfit = next((call.unfit for call in eager.calls if call.unfit), "")
            if unfit:
                raise InvalidCase(f"grad: {unfit}")
            paths = [leaf.path for call in eager.calls for leaf in call.outputs.leaves]
            place = missing_place(self.job.tolerance, paths)
            if place is not None:
                raise InvalidCase(
                    f"tolerance: the model returns no {place}; it returns {', '.join(paths[:5]) or 'nothing'}"
                )
            if self.job.expect.get("constant") and (path := varied_output(eager)):
                raise InvalidCase(f"eager was to return one constant in each output, and {path} holds several numbers")
            return
        if reason := refutation(error, expected):
            raise InvalidCase(reason, error)

    def _compare(
        self,
        eager: Observation,
        compiled: Observation,
        reference: Reference,
        varies: bool,
        excluded: frozenset[str],
        again: Sequence[Finding] = (),
    ) -> tuple[Evidence, list[Finding]]:
        """Return all findings and their evidence, without the parts of the state that are ``excluded``."""
        if excluded:
            eager, compiled = eager.without_state(excluded), compiled.without_state(excluded)
        evidence = Evidence(self.job, eager, compiled, reference, again=again)
        settings = replace(self.settings, roots=eager.roots)
        return judge_defined(evidence, self.source, settings, self.phases.begin, varies)

    def _judge_further(
        self, evidence: Evidence, excluded: frozenset[str], compile_module: backends.Compile
    ) -> list[Finding]:
        """Return what a backward shows that begins at what the last call leaves in inputs and state too, if any may."""
        eager = observe_further(self.source, evidence.eager, self.settings)
        if eager is None:
            return []
        settings = replace(self.settings, roots=eager.roots)
        if self._disagreement(eager, observe_again(self.source, settings)) is not None:
            return []
        self.roots = eager.roots
        self.phases.begin("backend")
        compiled = observe_backend(self.job, self.source, compile_module, eager)
        self.phases.begin("judge")
        evidence.note(f"a second backward also begins, in the last call, at {', '.join(sorted(self.roots))}")
        reference = Reference(self.source, settings, eager, self.job.float64, self.phases.begin)
        return self._compare(eager, compiled, reference, False, excluded)[1]

    def _judge_twin(
        self, evidence: Evidence, excluded: frozenset[str], compile_module: backends.Compile
    ) -> list[Finding]:
        """Return what the compiled twin of the case shows, if it has one and may be compared with it."""
        if not self.source.has_twin or TWIN in self.job.ignore:
            return []
        self.phases.begin("judge")  # so that the seconds so far are booked
        reason = reason_against(self.job, evidence, self.phases.seconds)
        if reason:
            evidence.note(f"not compared with its twin: {reason}")
            return []
        self.phases.begin("backend")
        twin = observe_backend(self.job, self.source, compile_module, evidence.eager, twin=True)
        self.phases.begin("judge")
        twin = twin.without_state(excluded) if excluded else twin
        findings = judge_twin(evidence, twin, self.source, self.settings, self.phases.begin)
        evidence.note("compared with its twin")
        return findings

    def _judge(
        self,
        eager: Observation,
        compiled: Observation,
        place: str | None,
        varying: frozenset[str],
        again: Sequence[Finding],
        compile_module: backends.Compile,
    ) -> None:
        """Compare and fill the record.

        ``place`` is where two eager runs disagreed, if they did, and ``varying`` the parts of the state, where it was
        there alone. ``again`` are the findings of further compiled runs.
        """
        reference = Reference(self.source, self.settings, eager, self.job.float64, self.phases.begin)
        evidence, findings = self._compare(eager, compiled, reference, place is not None, frozenset(), again)
        if place is not None and evidence.undefined.operators:
            place = disagreement_of_same_choices(self.source, self.settings, place, self._disagreement)
        why, excluded = "two eager runs leave it differently", varying
        if place is None:
            why = "written while torch traces, as by a fake kernel"
            excluded = traced_state(findings, self.source, self.settings, eager, self._differ)
        if excluded:
            place = None
            evidence, findings = self._compare(eager, compiled, reference, False, excluded, again)
            evidence.note(f"{', '.join(sorted(excluded))}: not compared ({why})")
        if place is not None:
            self.record = replace(self.record, trust=Trust("FLAKY", f"two eager runs, made alike, disagree: {place}"))
            findings = [finding for finding in findings if not row_of(finding.oracle).numeric]
        elif not findings:
            replacements = self.source.replacements
            reason = vacuity_reason(evidence, self.source, self.settings) or (replacements and replacements.doubt())
            if reason:
                self.record = replace(self.record, trust=Trust("VACUOUS", reason))
            else:
                findings = self._judge_further(evidence, excluded, compile_module)
                findings = findings or self._judge_twin(evidence, excluded, compile_module)
        run = functools.partial(observe_backend, self.job, self.source, eager=eager)
        findings = weigh_random(evidence, findings, self.source, self.settings, compile_module, run, self.phases.begin)
        note_autocast(evidence, findings)
        if kept := sorted({path for call in eager.calls for path in call.graphs_kept} - self.roots):
            evidence.note(f"{', '.join(kept)}: gradients from there on are not compared (no output)")
        self.record = replace(self.record, findings=tuple(findings), labels=tuple(evidence.labels),
                  notes=(*eager.notes, *compiled.notes, *reference.notes, *evidence.notes),
                  comparisons=evidence.comparisons, compared=dict(evidence.compared),
                  accuracy=tuple(evidence.accuracy))  # fmt: skip


# --- preparation of a task about a case ---


def with_source(job: Job, work: Callable[[Source], dict[str, Any]], folder: str | None = None) -> dict[str, Any]:
    """Return the record of ``work``, which is given the case's source. A case that is wrong gives its ``error``.

    The source lies in ``folder``, to stay there, or else in a temporary one.
    """
    try:
        with open_source(job, folder) as source:
            require(job)
            return work(source)
    except InvalidCase as error:
        return {"error": {"type": "InvalidCase", "message": error.reason}}
    except Unavailable as error:
        return {"error": {"type": "Unavailable", "message": str(error)}}


@contextlib.contextmanager
def variable(name: str, value: str | None) -> Iterator[None]:
    """Set an environment variable for as long as the block lasts; None leaves it as it is."""
    original = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if value is not None:
            os.environ.pop(name, None)  # the case may have
            if original is not None:
                os.environ[name] = original


@contextlib.contextmanager
def own_cache() -> Iterator[None]:
    """Give this process a cache of compiled code of its own while the block lasts."""
    with temporary_folder() as folder, variable("TORCHINDUCTOR_CACHE_DIR", folder):
        yield


# --- the twin of a case: an equal program, compiled ---

_OF_TWINS = frozenset(
    ("compile-error", "runtime-error", "structure", "shape", "dtype", "mutation", "nonfinite", "value", "grad")
)
"""What is asked of a twin: it computes the same, and may lay it out in memory in another way."""


def reason_against(job: Job, evidence: Evidence, seconds: dict[str, float]) -> str:
    """Return why a case is not compared with its twin; empty where it is. ``seconds`` say how long each part took."""
    tolerance = job.tolerance or {}
    if evidence.eager.error is not None:
        return "eager raises"
    if any(call.drew_random for call in evidence.eager.calls):
        return "eager draws random numbers"
    if tolerance.get("exact") or tolerance.get("values"):
        return "the case asks for more than an equal program keeps"
    if not job.float64:
        return "there is no float64 reference"
    if sum(seconds.values()) + thresholds.TWIN_TIME.value * seconds.get("backend", 0.0) > job.timeout:
        return "too little time is left"
    return ""


def judge_twin(
    evidence: Evidence, twin: Observation, source: Source, settings: Settings, begin: Callable[[str], None]
) -> list[Finding]:
    """Return the findings about a compiled twin. ``evidence`` is of the case, whose compiled run has no finding.

    Both may be off by as much as roundings allow. So a finding counts only where the twin lies outside the rules
    against the compiled program, and against eager too, with all excuses that the judge knows.

    Raises:
        InvalidCase: the case cannot be loaded again.
    """
    bare = replace(evidence, compiled=twin, labels=[], notes=[], compared=Counter(), accuracy=[], again=())
    against_eager, findings = judge_defined(bare, source, settings, begin)
    findings = [finding for finding in findings if finding.oracle in _OF_TWINS]
    if not findings:
        return []
    beside = replace(against_eager, eager=evidence.compiled, labels=[], notes=[], compared=Counter(), accuracy=[])
    places = {finding.path for finding in judge(beside) if finding.oracle in _OF_TWINS}
    findings = [finding for finding in findings if finding.path in places]
    crashes = any(row_of(finding.oracle).crash for finding in findings)
    if crashes and observe_again(source, settings, twin=True).error is not None:
        evidence.note("the twin raises in eager too; it is not compared")
        return []
    return [_renamed(finding) for finding in findings]


def _renamed(finding: Finding) -> Finding:
    severity = finding.severity or row_of(finding.oracle).severity
    return replace(finding, oracle=TWIN, message=f"{finding.oracle}: {finding.message}", severity=severity)
