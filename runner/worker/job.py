"""One job from its dict to its record: reference runs, one backend, the comparison, and whether it can be believed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import pkgutil
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from runner.contract.oracles import row_of
from runner.worker.case import backends, replays
from runner.worker.case.compiling import CompileWatch
from runner.worker.case.errors import ErrorRecord, InvalidCase, refutation
from runner.worker.case.graph_cache import count_loaded, stored_graphs
from runner.worker.case.load import Source, open_source
from runner.worker.case.observe import Observation, Settings, observe, read_counts, start_counting
from runner.worker.case.random_numbers import eagers_numbers
from runner.worker.case.reach import Reach
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.legal_runs import disagreement_of_same_choices, judge_defined
from runner.worker.judge.reference import Reference
from runner.worker.judge.tolerance import missing_place
from runner.worker.judge.validity import VARIES, Agreement, find_disagreement, note_autocast, vacuity_reason

Send = Callable[[dict[str, Any]], None]

TASKS = {
    "bench": "runner.worker.tasks.benchmark:run_bench",
    "build": "runner.worker.tasks.build:run_build",
    "bisect": "runner.worker.tasks.bisect:run_bisect",
    "database": "runner.worker.tasks.database:run_database",
    "debug": "runner.worker.tasks.debug:run_debug",
    "draw": "runner.worker.tasks.generate:run_draw",
    "environment": "runner.worker.tasks.describe:run_environment",
    "explain": "runner.worker.tasks.explain:run_explain",
    "minify": "runner.worker.tasks.minify:run_minify",
    "operators": "runner.worker.tasks.generate:run_operators",
    "picture": "runner.worker.tasks.heatmap:run_picture",
    "record": "runner.worker.tasks.dynamo_replay:run_dynamo_record",
    "replay": "runner.worker.tasks.dynamo_replay:run_dynamo_replay",
    "shapes": "runner.worker.tasks.shapes:run_shapes",
    "try": "runner.worker.tasks.generate:run_try",
}
"""What a job may ask for besides being judged: each a function of ``job`` and ``send`` that returns a record of its own."""


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


def run_job(job: Mapping[str, Any], send: Send) -> dict[str, Any]:
    """Run one job in this process.

    Args:
        job: the contract's Job as a plain dict.
        send: is given ``{"phase": name}`` whenever a part begins.

    Returns:
        The record that the contract's RESULT_KEYS describe. A case that is wrong gives a record with trust INVALID;
        only a defect of the harness raises.
    """
    task = str(job.get("task", "judge"))
    if task != "judge":
        return pkgutil.resolve_name(TASKS[task])(job, send)  # type: ignore[no-any-return]
    phases = Phases(send)
    record: dict[str, Any] = {
        "findings": [],
        "trust": None,
        "labels": [],
        "notes": [],
        "comparisons": 0,
        "compared": {},
        "graphs": 0,
        "graph_breaks": 0,
        "recompiles": 0,
        "break_reasons": [],
        "eager_error": None,
    }
    phases.begin("load")
    try:
        with open_source(job) as source:
            try:
                _Run(job, source, phases, record).go()
            finally:
                record["model_runs"] = source.models
    except InvalidCase as error:
        record["trust"] = _trust("INVALID", error.reason, error.error)
    except Unavailable as error:
        record["trust"] = _trust("SKIP", str(error))
    phases.end()
    record["seconds"] = {name: round(seconds, 6) for name, seconds in phases.seconds.items()}
    return record


class Unavailable(Exception):
    """Something that the case needs and this machine lacks."""


def require(job: Mapping[str, Any]) -> None:
    """Check that the device and the packages of a job are there.

    Raises:
        Unavailable: one is not; the message says which.
    """
    kind, _, index = str(job.get("device", "cpu")).partition(":")
    if kind not in ("cpu", "meta"):
        module = getattr(torch, kind, None)
        if module is None or not module.is_available():
            raise Unavailable(f"no device {kind} here")
        if index and hasattr(module, "device_count") and int(index) >= module.device_count():
            raise Unavailable(f"no device {kind}:{index} here: there are {module.device_count()}")
    for package in job.get("packages", ()):
        if not is_installed(package):
            raise Unavailable(f"no package {package} here")


@cache
def is_installed(package: str) -> bool:
    """Return whether installed packages' metadata know a name, as pip writes it or as import does. Nothing is imported.

    Of ``a.b`` the name ``a`` is enough: whether ``a`` has a ``b`` only its import can tell.
    """
    first = package.partition(".")[0]
    for name in (package, first):
        try:
            importlib.metadata.distribution(name)
            return True
        except (importlib.metadata.PackageNotFoundError, ValueError):  # ValueError: it is no name at all
            continue
    return first in importlib.metadata.packages_distributions()


def validate_distributions(on: bool) -> None:
    """Set whether torch.distributions checks its arguments, as it would be in a process of its own.

    The first torch.compile of a process turns the checks off for good (``torch/_dynamo/eval_frame.py``, ``TorchPatcher``).
    Without this, eager would no longer raise what it raises for users once the process has compiled.
    """
    torch.distributions.Distribution.set_default_validate_args(on)


def observe_backend(
    job: Mapping[str, Any],
    source: Source,
    compile_module: backends.Compile,
    eager: Observation,
    watch: contextlib.AbstractContextManager[Any] | None = None,
) -> Observation:
    """Run the case under its backend. The observation holds torch's counts, and what plain launches recorded.

    Random numbers are eager's where ``eager`` drew any. ``watch`` is entered around the calls.

    Raises:
        InvalidCase: the case cannot be loaded, or torch.compile refuses its arguments.
        Unavailable: the interpreter cannot do what a kernel asks of it.
    """
    start_counting()
    settings = Settings.of(job)
    loaded = source.load(settings.seed, launching=True)
    validate_distributions(False)
    target = compile_module(loaded.model)
    with eagers_numbers(job, eager), replays.count_replays() as counted, watch or contextlib.nullcontext():
        compiled = observe(loaded, target, settings, packages=backends.packages(str(job["backend"]["backend"])))
    validate_distributions(True)
    read_counts(compiled)
    compiled.replays = counted.count
    if isinstance(target, backends.PlainLaunch):
        compiled.launches = target.launches
        compiled.notes += target.launches.notes
        if target.launches.unable:
            raise Unavailable(target.launches.unable)
    return compiled


class _Run:
    """The parts of one job, in order; each fills its keys of the record."""

    def __init__(self, job: Mapping[str, Any], source: Source, phases: Phases, record: dict[str, Any]) -> None:
        self.job, self.source, self.phases, self.record = job, source, phases, record
        self.settings = Settings.of(job)
        self.agree = Agreement(self.settings.device, job.get("tolerance"))

    def go(self) -> None:
        """Run all parts.

        Raises:
            InvalidCase: the case is wrong.
        """
        require(self.job)
        compile_module = backends.build(self.job["backend"])
        validate_distributions(True)
        loaded = self.source.load(self.settings.seed)
        self.phases.begin("eager")
        eager = observe(loaded, loaded.model, self.settings)
        self.record["drew_random"] = eager.drew_random
        self._check_eager(eager)

        self.phases.begin("eager-again")
        loaded = self.source.load(self.settings.seed)
        second_eager = observe(loaded, loaded.model, self.settings)
        place = self._disagreement(eager, second_eager)
        del second_eager  # so that its tensors are gone before the backend's run

        self.phases.begin("backend")
        watch = CompileWatch(self.phases.send) if self.job.get("compile_timeout") is not None else None
        reach = Reach(self.job["coverage"] == "lines") if self.job.get("coverage") else None
        with reach.watch() if reach else contextlib.nullcontext(), stored_graphs(self.job) as store:
            compiled = observe_backend(self.job, self.source, compile_module, eager, watch)
            self.record["stored_graphs"] = count_loaded() if self.job.get("graphs") else 0
        if reach:
            self.record["reached"] = sorted(reach.names)
        for key in ("graphs", "graph_breaks", "recompiles", "break_reasons"):
            self.record[key] = getattr(compiled, key)
        if self.job["backend"]["backend"] == "inductor":
            self.record.update({key: getattr(compiled, key) for key in ("kernels", "vectorized", "replays")})
            if not compiled.replays and replays.makes_graphs(self.job["backend"], self.settings.device):
                compiled.notes.append(replays.missing_note(self.job["backend"]["mode"], len(compiled.calls)))

        self.phases.begin("judge")
        self._judge(eager, compiled, place)
        if self.agree.varied:
            self.record["labels"].append(VARIES)
        if store is not None and not self.record["findings"] and self.record["trust"] is None:
            store.keep()

    def _disagreement(self, first: Observation, second: Observation) -> str | None:
        """Return where two eager runs disagree, values by the rules of the device."""
        return find_disagreement(first, second, "value" not in (self.job.get("ignore") or ()), self.agree)

    def _check_eager(self, eager: Observation) -> None:
        """Check that eager raised what ``expect.raises`` says, and nothing else, and that it returned what the case names.

        Raises:
            InvalidCase: it did otherwise.
        """
        expected = (self.job.get("expect") or {}).get("raises")
        error = eager.error
        if error is not None:
            self.record["eager_error"] = error.info
        if expected is None:
            if error is not None:
                raise InvalidCase(f"eager raised {error.summary}", error)
            unfit = next((call.unfit for call in eager.calls if call.unfit), "")
            if unfit:
                raise InvalidCase(f"grad: {unfit}")
            paths = [leaf.path for call in eager.calls for leaf in call.outputs.leaves]
            place = missing_place(self.job.get("tolerance"), paths)
            if place is not None:
                raise InvalidCase(
                    f"tolerance: the model returns no {place}; it returns {', '.join(paths[:5]) or 'nothing'}"
                )
            return
        if reason := refutation(error, expected):
            raise InvalidCase(reason, error)

    def _judge(self, eager: Observation, compiled: Observation, place: str | None) -> None:
        """Compare and fill the record; ``place`` is where two eager runs disagreed, if they did."""
        enabled = bool(self.job.get("float64", True))
        reference = Reference(self.source, self.settings, eager, enabled, self.phases.begin)
        evidence = Evidence(self.job, eager, compiled, reference)
        evidence, findings = judge_defined(evidence, self.source, self.settings, self.phases.begin, place is not None)
        if place is not None and evidence.undefined is not None:
            place = disagreement_of_same_choices(self.source, self.settings, place, self._disagreement)
        if place is not None:
            self.record["trust"] = _trust("FLAKY", f"two eager runs, made alike, disagree: {place}")
            findings = [finding for finding in findings if not row_of(finding.oracle).numeric]
        elif not findings:
            replacements = self.source.replacements
            reason = vacuity_reason(evidence, self.source, self.settings) or (replacements and replacements.doubt())
            if reason:
                self.record["trust"] = _trust("VACUOUS", reason)
        self.record["findings"] = [dict(vars(finding)) for finding in findings]
        self.record["labels"] = evidence.labels
        note_autocast(evidence, findings)
        self.record["notes"] = [*compiled.notes, *reference.notes, *evidence.notes]
        self.record["comparisons"] = evidence.comparisons
        self.record["compared"] = dict(evidence.compared)


def _trust(verdict: str, reason: str, error: ErrorRecord | None = None) -> dict[str, Any]:
    return {"verdict": verdict, "reason": reason, "error": error.info if error is not None else None}
