"""What to run: variants times environments, what these are called, and each as the job that a worker understands.

``RunContext`` is what one run knows beside its settings, and ``Sample`` draws the passes that it asks again.

A variant whose backend does not claim what it needs is skipped, as far as the case's own text says so: nothing is
guessed. Dtypes and devices that a value comes to have on the way, dynamic shapes that torch chooses by itself, and
writes through views are not known before a run. Such variants run.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from runner.builder.source import Source
from runner.cases.limits import Limits
from runner.cases.model import (
    KERNEL_BACKENDS,
    LAUNCH,
    THREADS,
    Backend,
    Constant,
    Node,
    Suite,
    Tolerance,
    Unclaimed,
    Variant,
)
from runner.cases.operator_names import operators_like
from runner.cases.torch_names import GROUP, PRECISION, hint_for, own_names
from runner.cases.versions import matches
from runner.cases.walk import inputs_of, values_of
from runner.contract.job import Job, Record
from runner.contract.mutant import Mutant
from runner.contract.oracles import INDUCTOR, POLICIES
from runner.contract.settings import AS_USER, HASH_SEED
from runner.diagnostics import Diagnostic, InputError, shown_path, source_line
from runner.engine.fingerprint import Fingerprint
from runner.engine.gpus import count_gpus
from runner.engine.interpreters import find_python, inspect_packages, probe
from runner.engine.messages import Outcome
from runner.exit_codes import UsageError
from runner.quote import operand, shell_words
from runner.record.events import VariantPlanned
from runner.session.settings import RunSettings
from runner.verdict.operators import written_input
from runner.verdict.policy import Verdict
from runner.verdict.stages import stage_of

INTERPRET = {"TRITON_INTERPRET": "1"}
"""What makes Triton run kernels in its interpreter. It is read while Triton is imported, and so is set before."""

_LATER_BOUNDS = ("kernels", "vectorized", "delegated")  # left out of a job where not set, so that older keys stay
TIMEOUT = 120.0
"""Seconds that one process may take unless the case says otherwise."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python that holds torch. ``build`` is torch's whole version (2.13.0+cpu), ``torch`` its public part."""

    key: str
    python: str
    torch: str
    build: str
    version: str  # Python's


@dataclass(frozen=True, slots=True)
class Planned:
    """One variant in one environment."""

    variant: Variant
    environment: Environment
    number: int = 0  # its place in the plan, from 1; a shard keeps it
    mutant: Mutant | None = None  # of the compiler that it runs under

    @property
    def key(self) -> str:
        """Unique in a run."""
        own = f"{self.variant.id} {self.environment.key}"
        return f"{own} {self.mutant.id}" if self.mutant is not None else own


def plan(variants: Sequence[Variant], environments: Sequence[Environment]) -> list[Planned]:
    """Variants in report order, each under every environment."""
    return [Planned(*pair, number) for number, pair in enumerate(itertools.product(variants, environments), start=1)]


def skip(planned: Planned) -> Verdict | None:
    """The verdict of a variant that is not to run here, as far as control can tell; None when it is.

    What the backend does not claim comes before what this machine lacks, so that a claim is the same on every machine.
    """
    if reason := _unfit(planned):
        return Verdict("SKIP", reason)
    variant, environment = planned.variant, planned.environment
    if need := unclaimed_need(variant):
        return Verdict("SKIP", f"{variant.backend.name} claims no {need}", unclaimed=need)
    if variant.device.split(":")[0] == "cuda" and environment.build.endswith("+cpu"):
        return Verdict("SKIP", f"no device cuda: torch {environment.build} is built for the CPU alone")
    return None


def skip_reason(planned: Planned) -> str:
    """Why a variant is not to run here, as far as control can tell; empty when it is."""
    verdict = skip(planned)
    return verdict.reason if verdict else ""


def _unfit(planned: Planned) -> str:
    """Why a variant does not fit this torch, its device or its backend; empty when it does."""
    variant, torch = planned.variant, planned.environment.torch
    requires, kind = variant.case.requires, variant.device.split(":")[0]
    if not matches(requires.torch, torch):
        return f"needs torch {requires.torch}, this is {torch}"
    if requires.device and kind not in requires.device:
        return f"needs device {' or '.join(requires.device)}, this variant is on {variant.device}"
    if variant.backend.backend in KERNEL_BACKENDS and not variant.case.kernels:
        return "this case launches no Triton kernel"
    if kind == "cpu" and variant.case.kernels and variant.backend.backend != LAUNCH:
        return "on the CPU Triton kernels are interpreted, and the interpreter cannot run inside a compiled graph"
    return ""


def job(
    planned: Planned,
    source: Source,
    *,
    backend: str | None = None,
    config: Mapping[str, Any] | None = None,
    float64: bool = True,
    seed: int = 0,
    imports: Sequence[str] = (),
    paths: Sequence[str] = (),
    suffix: str = "",
) -> Job:
    """The job of a planned variant; ``backend`` and ``config`` replace and add to its own for the ladder and for
    probes.

    ``seed`` is the run's, for cases without one of their own.
    """
    variant, case, expect = planned.variant, planned.variant.case, planned.variant.case.expect
    chosen = variant.backend if backend is None else replace(variant.backend, backend=backend)
    # A kernel's outputs have the strides that are declared for them; those of its reference are torch's choice.
    # A backend that claims no gradients may forget which outputs have one.
    silent = {"stride": bool(case.kernels), "requires-grad": chosen.unclaimed.gradients}
    return Job(
        key=planned.key + suffix,
        id=variant.id,
        environment=planned.environment.key,
        name=re.sub(r"\W+", "_", variant.label.rpartition("::")[2]).strip("_")[:80],
        source=source.text,
        backend=_backend(chosen, planned),
        seed=seed if case.seed is None else case.seed,
        dtype=variant.dtype,
        device=variant.device,
        grad={name: getattr(variant.grad, name) for name in ("mode", "cotangent", "order")},
        autocast=variant.autocast,
        threads=variant.threads or THREADS,
        config={
            **precision_flags(variant.device),
            **_rule_config(planned, chosen),
            **variant.config,
            **(config or {}),
        },
        expect={
            "raises": asdict(expect.raises) if expect.raises else None,
            "graphs": expect.graphs,
            "graph_breaks": expect.graph_breaks,
            "recompiles": expect.recompiles,
            **{key: bound for key in _LATER_BOUNDS if (bound := getattr(expect, key)) is not None},
            **({"constant": True} if expect.constant else {}),
        },
        tolerance=_tolerance(case.tolerance, chosen.unclaimed.precision),
        strides=case.strides,
        ignore=tuple(dict.fromkeys((*case.ignore, *(oracle for oracle, is_so in silent.items() if is_so)))),
        float64=float64,
        packages=(*case.requires.package, *(["triton"] if case.kernels else [])),
        imports=tuple(imports),
        paths=tuple(paths),
        timeout=case.timeout or TIMEOUT,
        compile_timeout=case.compile.timeout,
        memory=case.memory,
        cacheable=not case.has_python,
        mutant=planned.mutant.to_json() if planned.mutant is not None else {},
        foreign=case.has_python or bool(imports) or stage_of(chosen.backend) == "backend",
        variables=variables_of(variant, chosen.backend),
    )


USER_VARIABLES: Mapping[str, str] = MappingProxyType({AS_USER: "1"})
"""Variables of a process whose jobs run as a user runs them."""


def as_user(job: Job, planned: Planned) -> Job:
    """Return a judging job as a user runs its variant, in a process of its own: with the case's own settings and
    torch's defaults.

    Only what ``docs/judging.md`` says to be set as a user too is set beside them.
    """
    return replace(
        job,
        threads=planned.variant.threads or 0,
        config={**_rule_config(planned, planned.variant.backend), **planned.variant.config},
        variables={**job.variables, **USER_VARIABLES},
        isolation="fresh",
    )


def _tolerance(tolerance: Tolerance, precision: Mapping[str, str]) -> dict[str, Any]:
    """A case's tolerance as the worker reads it, and what precision the backend claims."""
    return {
        "by_dtype": {dtype: list(bounds) for dtype, bounds in tolerance.by_dtype.items()},
        "exact": tolerance.exact or tolerance.values == "bitwise",
        **({"values": tolerance.values, "bound": tolerance.bound} if tolerance.values else {}),
        **({"by_place": {p: list(bounds) for p, bounds in tolerance.by_place.items()}} if tolerance.by_place else {}),
        **({"precision": dict(precision)} if precision else {}),
    }


def _rule_flags(planned: Planned, backend: Backend) -> dict[str, bool]:
    """Flags that torch has for the case's rule for values, without those that the case sets. Inductor reads them."""
    policy, own = POLICIES.get(planned.variant.case.tolerance.values), planned.variant.config
    if policy is None or stage_of(backend.backend) != "inductor":
        return {}
    return {name: value for name, value in policy.flags_of(planned.environment.torch).items() if name not in own}


def _rule_config(planned: Planned, backend: Backend) -> dict[str, bool]:
    """Those flags where they cannot be options: torch.compile takes none beside a mode."""
    return _rule_flags(planned, backend) if _mode(planned, backend) else {}


def precision_flags(device: str) -> dict[str, bool]:
    """Switches that every case on a device has, unless it sets them itself.

    What cuDNN and cuBLAS may round away by default (https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html)
    is a thousand times torch's tolerance for float32, and whether they are asked depends on the backend.
    """
    return dict.fromkeys(PRECISION, False) if device.partition(":")[0] == "cuda" else {}


def variables_of(variant: Variant, backend: str | None = None) -> Mapping[str, str]:
    """What must stand in the environment of a process before it runs a variant."""
    return INTERPRET if (backend or variant.backend.backend) == LAUNCH and variant.device == "cpu" else {}


def _mode(planned: Planned, backend: Backend) -> str | None:
    custom = stage_of(backend.backend) in ("inductor", "backend")
    return (planned.variant.case.compile.mode or backend.mode) if custom else None


def _backend(backend: Backend, planned: Planned) -> dict[str, Any]:
    """What torch.compile is given. Modes and options are inductor's; other backends are not asked to know them.

    The flags of a rule for values are options: Dynamo turns the flag ``deterministic`` off after a compilation.
    """
    case, mode, dynamic = planned.variant.case.compile, _mode(planned, backend), planned.variant.dynamic
    custom = stage_of(backend.backend) in ("inductor", "backend")
    flags = {} if mode else _rule_flags(planned, backend)
    rule = {name.removeprefix(INDUCTOR): value for name, value in flags.items()}
    return {
        "backend": backend.backend,
        "dynamic": dynamic if isinstance(dynamic, bool) else backend.dynamic,
        "fullgraph": case.fullgraph or bool(backend.fullgraph),
        "mode": mode,
        "options": {**rule, **case.options, **backend.options} if custom else {},
    }


def warmth(variants: Sequence[Variant]) -> str:
    """How far the CPU server should go before it forks: as far as any variant on the CPU will, and no further."""
    on_cpu = [variant for variant in variants if variant.device == "cpu"]
    stages = {stage_of(variant.backend.backend) for variant in on_cpu}
    if "inductor" in stages:
        return "inductor"
    if "backend" in stages:
        return "import"  # nobody knows what a backend of somebody else's brings along
    if not stages & {"aot", "decomposition"}:
        return "dynamo"
    return "backward" if any(variant.grad.mode == "backward" for variant in on_cpu) else "aot"


def find_environments(pythons: Sequence[str]) -> list[Environment]:
    """The interpreters of ``--python``, or this one. Raises UsageError for one that cannot serve."""
    found: list[Environment] = []
    for number, python in enumerate(pythons or [sys.executable]):
        facts = probe(python)
        if error := facts.get("error"):
            raise UsageError(
                f"--python {python}: {error}" if pythons else f"{error}; give one that has torch with --python PATH"
            )
        path = find_python(python) or python
        same = [e for e in found if e.torch == facts["torch"]]
        if any(e.python == path for e in same):
            continue
        # one name a column: the build tells two of one version apart
        shown = facts["torch"] if not same else f"{facts['build']} ({python})"
        found.append(Environment(str(number), path, shown, facts["build"], facts["python"]))
    return found


def checked_environments(settings: RunSettings, variants: Sequence[Variant] | None) -> list[Environment]:
    """``find_environments`` of ``--python``, and each has the modules and backends that are asked for.

    Where variants are still to be drawn (None), the backends are those of the command line.

    Raises:
        UsageError: no such Python, or a Python without a module or backend that the command line names.
        InputError: no Python has a backend that a file names.
    """
    environments = find_environments(settings.python)
    _refuse_missing_gpus(settings)
    modules = {name: f"--import {name}" for name in settings.imports}
    modules |= {name.partition(":")[0]: f"--backend {name}" for name in settings.backend if ":" in name}
    used = [v.backend for v in variants] if variants is not None else [Backend(name, name) for name in settings.backend]
    unknown = [] if settings.imports else _unknown(used)  # what is imported may register any name
    for name, option in modules.items():
        if not all(part.isidentifier() for part in name.split(".")):
            raise UsageError(f"{option}: {name!r} is no name of a module")
    if not modules and not unknown:
        return environments
    options = {name.partition(".")[0]: option for name, option in modules.items()}
    try:
        answers = [
            inspect_packages(e.python, GROUP, [*options], worker_paths(settings, variants or ())) for e in environments
        ]
    except OSError as error:
        raise UsageError(str(error)) from None
    for environment, (_, missing) in zip(environments, answers, strict=True):
        for module, near in missing.items():
            hint = f"; did you mean {near!r}?" if near else ""
            raise UsageError(f"{options[module]}: {environment.python} has no module {module!r}{hint}")
    backends = [*dict.fromkeys(name for names, _ in answers for name in names)]
    _refuse_unknown([b for b in unknown if b.backend not in backends], backends)
    return environments


def _refuse_missing_gpus(settings: RunSettings) -> None:
    """Raise UsageError for a GPU that was typed and is not among those of this machine.

    Without any, a variant for one is SKIP.
    """
    count = count_gpus() if settings.engine == "local" else 0
    for device in settings.device if count else ():
        kind, _, index = device.partition(":")
        if kind == "cuda" and index and int(index) >= count:
            present = ", ".join(f"cuda:{number}" for number in range(count))
            raise UsageError(f"--device {device}: no such GPU here; there is {present}")


def _unknown(backends: Iterable[Backend]) -> list[Backend]:
    """Plain names that only an installed package can have registered."""
    used = {(backend.name, backend.backend): backend for backend in backends}
    return [backend for backend in used.values() if ":" not in backend.backend and backend.backend not in own_names()]


def _refuse_unknown(unknown: Sequence[Backend], backends: Sequence[str]) -> None:
    """Raises UsageError for a name that was typed, InputError for those of files."""
    diagnostics = []
    for backend in unknown:
        span, hint = backend.span, hint_for(backend.backend, backends)
        if span is None:
            raise UsageError(f"--backend {backend.name}: no such backend; {hint}")
        message = f"no installed package registers backend {backend.backend!r}, and it is not torch's own"
        diagnostics.append(Diagnostic(span, message, hint, text=source_line(span.file, span.line)))
    if diagnostics:
        raise InputError(diagnostics)


def worker_paths(settings: RunSettings, variants: Sequence[Variant] = ()) -> tuple[str, ...]:
    """Folders at the end of the workers' path: this one where the person named a backend or a module to import, and
    those of suites which name a backend that is code, where Python of files is allowed."""
    named = any(":" in backend for backend in settings.backend) or settings.imports
    spans = {v.backend.span for v in variants if ":" in v.backend.backend} if settings.allow_python else set()
    folders = sorted({os.path.dirname(os.path.abspath(span.file)) for span in spans if span})
    return (*dict.fromkeys([os.getcwd()] * bool(named or folders) + folders),)


def unclaimed_need(variant: Variant) -> str:
    """Return the first thing that a variant needs and its backend does not claim, such as ``gradients``; empty without
    one."""
    unclaimed, case = variant.backend.unclaimed, variant.case
    dynamic = variant.backend.dynamic if variant.dynamic is None else variant.dynamic
    devices = (variant.device, *(item.device for item in inputs_of(case) if item.device)) if unclaimed.devices else ()
    needs = itertools.chain(
        ["gradients"] if unclaimed.gradients and variant.grad.mode == "backward" else [],
        ["dynamic shapes"] if unclaimed.dynamic and dynamic else [],
        ["mutation of inputs"] if unclaimed.mutation and written_input(case) else [],
        (dtype for dtype in (_dtypes(variant) if unclaimed.dtypes else ()) if dtype in unclaimed.dtypes),
        (f"device {n}" for name in devices for n in (name, name.partition(":")[0]) if n in unclaimed.devices),
        (f"operator {name}" for name in operators_like(case, unclaimed.operators)),
    )
    return next(needs, "")


def unclaimed_by_run(variant: Variant, record: Record) -> str:
    """Return what only a run's record tells that the variant needs and its backend does not claim; empty if there is
    nothing.

    Precision is such a need if every finding is a value that lies within the tolerance of the dtype that is claimed.
    """
    if variant.backend.unclaimed.random and record.drew_random:
        return "random numbers of eager"
    is_certain = variant.backend.unclaimed.precision and record.trust is None
    needs = [finding.numbers.get("precision") for finding in record.findings] if is_certain else []
    return f"precision of {needs[0]}" if needs and all(needs) else ""


def _dtypes(variant: Variant) -> Iterator[str]:
    """The dtype of a variant, and those that its case names: of inputs, state, parameters, autocast and casts."""
    case = variant.case
    yield variant.dtype
    yield from filter(None, (variant.param_dtype, variant.autocast))
    layouts: list[tuple[Node, ...]] = []
    for item in inputs_of(case):
        yield from filter(None, [item.dtype])
        layouts.append(item.layout)
    for value in values_of((case.chain, *layouts)):
        if isinstance(value, Constant):
            yield value.name.removeprefix("torch.")


EVERY = 50
"""Of so many passes about one is asked again: a living process runs as many variants, so that each is looked at once on
average.

If every process is spoilt halfway, half of these looks show it. Ten looks then miss it once in a thousand runs.
"""

SHARE = 0.03
"""Part of the seconds of living processes that these looks may take, beyond the first one: the throughput falls by as
much.

A process of its own takes 5 to 50 times as long as a variant in a living one, so that in long runs this bound decides.
A run of 40,000 variants of 0.3 s then has a minute for each 2000 seconds: 40 to 200 looks.
"""


class Sample:
    """Draws passes at random, and counts what that costs: ``spent`` are the seconds of processes that were asked."""

    def __init__(self, seed: int = 0, planned: int = 0) -> None:
        """Draw the first within the first half of ``planned`` variants, so that small runs have one too."""
        self._random = random.Random(seed)
        self._due = self._random.randint(1, max(1, min(EVERY, planned // 2)))
        self._living = self.spent = 0.0

    def draws(self, outcome: Outcome) -> bool:
        """Count a pass of a living process, and return whether to ask again.

        One that had run nothing before needs no look.
        """
        self._living += outcome.busy
        if not outcome.earlier_jobs:
            return False
        self._due -= 1
        if self._due > 0 or self.spent > SHARE * self._living:
            return False
        self._due = self._random.randint(1, 2 * EVERY - 1)
        return True


@dataclass(frozen=True, slots=True)
class RunContext:
    """Settings, and what follows from the machine, the files and the command line.

    Attributes:
        slots: processes at once.
        paths: folders at the end of the workers' path.
        suites: by name, for commands that reproduce a variant.
        default_python: the Python that needs no ``--python`` in such a command.
        deadline: when the run ends, on ``time.monotonic``'s clock.
        limits: of the settings, which are read once.
        fingerprints: by environment, where graphs that an earlier run compiled may be loaded; else none.
        sample: which passes of living processes are asked again.
        names_operator: whether runs with the values of all steps find where a wrong value enters, for the signature.
    """

    settings: RunSettings = field(default_factory=RunSettings)
    slots: int = 1
    paths: tuple[str, ...] = ()
    suites: Mapping[str, Suite] = field(default_factory=dict)
    default_python: str = ""
    deadline: float | None = None
    limits: Limits = field(default_factory=Limits)
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    sample: Sample = field(default_factory=Sample)
    names_operator: bool = True

    @property
    def most_failures(self) -> int | None:
        """After how many red verdicts nothing more begins; None for no bound."""
        return 1 if self.settings.exitfirst else self.settings.max_fail

    def time_is_up(self) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline


def planned_event(planned: Planned) -> VariantPlanned:
    """The event that announces a planned variant."""
    variant = planned.variant
    return VariantPlanned(
        id=variant.id,
        case=sys.intern(variant.case_id),  # one text for all variants of a case
        suite=variant.suites[0],
        suites=variant.suites,
        backend=variant.backend.name,
        torch=planned.environment.torch,
        python=planned.environment.python,
        device=variant.device,
        dtype=variant.dtype,
        label=variant.label,
        file=variant.case.file,
        line=variant.case.span.line,
        column=variant.case.span.column,
        number=planned.number,
    )


def repro(planned: Planned, context: RunContext) -> str:
    """The command that runs this variant alone.

    A profile and a suite stand before the id where the id alone would mean another thing.
    """
    variant, name = planned.variant, planned.variant.backend.name
    files = _files_of_settings(variant, context.suites.get(variant.suites[0]))
    python = planned.environment.python
    words = [
        *order_words(),
        "runner",
        "run",
        operand("::".join([*map(shown_path, files), variant.id])),
        *context.settings.flags(),
        *(["--backend", name] if ":" in name else []),  # code runs for who types it
        *(["--python", python] if python != context.default_python else []),
    ]
    return shell_words(words)


def _files_of_settings(variant: Variant, suite: Suite | None) -> list[str]:
    """Return the files without which an id means another backend or other settings: a profile before a suite."""
    backend, span = variant.backend, variant.backend.span
    # Gradients and precision that are not claimed say how a variant is judged, and the others which variants run.
    judged = Unclaimed(gradients=backend.unclaimed.gradients, precision=backend.unclaimed.precision)
    is_plain = replace(backend, unclaimed=judged) == Backend(backend.name, backend.name)
    files = [] if is_plain or span is None else [span.file]
    files += [suite.file] if suite is not None and suite.has_defaults else []
    return [file for file in dict.fromkeys(files) if file != variant.case.file]


def order_words() -> list[str]:
    """Return what stands before a command so that it runs under the order of sets that somebody chose for this
    process."""
    order = os.environ.get(HASH_SEED)
    return [f"{HASH_SEED}={order}"] if order else []
