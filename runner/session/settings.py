"""Every setting of a run: its default, its bounds, its option on the command line and its help, each in one place."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from runner.cases.limits import Limits
from runner.contract.job import ISOLATION, Isolation
from runner.contract.oracles import STRICT
from runner.engine.processors import usable_processors
from runner.exit_codes import UsageError

JOBS = 1024
"""Processes at once, at most."""
COUNT = 100_000
"""How often one thing may be repeated, at most."""
MANY = 1_000_000_000
YEAR = 366 * 86400.0
"""Seconds that an option may name, at most."""
SEED = (-(1 << 63), (1 << 63) - 1)
"""Any signed integer of 64 bits, which every torch takes as a seed."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``index`` (from 1) of ``count``."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


def parse_shard(text: str) -> Shard:
    """The shard that ``text`` names, such as ``2/4``. Raises ValueError, which says what is wrong with it."""
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no shard; write which of how many, such as 2/4")
    shard = Shard(int(found[1]), int(found[2]))
    if shard.count == 0:
        raise ValueError(f"{text!r}: there must be at least one shard, such as 1/1")
    if not 1 <= shard.index <= shard.count:
        raise ValueError(
            f"{text!r}: shards are counted from 1, so this must be one of 1/{shard.count} to "
            f"{shard.count}/{shard.count}"
        )
    return shard


@dataclass(frozen=True, slots=True)
class Option:
    """How a setting is written on the command line, and which values it may have.

    Args:
        flags: the words, such as ``-j --jobs``.
        help: one sentence or less.
        kind: ``switch`` (there or not), ``yes-no`` (``--x`` or ``--no-x``), ``text``, ``list`` (given again for each
        value), ``number``,
            ``seconds``, ``choice`` or ``shard``.
        metavar: what stands for the value in the help.
        choices: the values of a ``choice``.
        least, most: bounds of a ``number``.
    """

    flags: str
    help: str
    kind: str = "text"
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = MANY


def _setting(default: Any, flags: str, help: str, **more: Any) -> Any:
    return field(default=default, metadata={"option": Option(flags, help, **more)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a person may say of a run. Unset, each is as on the plain command line.

    Raises:
        UsageError: a value is out of its bounds.
    """

    allow_python: bool = _setting(
        False, "--allow-python", "allow cases that bring Python of their own (module:)", kind="switch"
    )
    no_known: bool = _setting(False, "--no-known", "ignore the ledger: known failures are failures", kind="switch")
    ledger: tuple[str, ...] = _setting(
        (), "--ledger", "known failures in a file of their own (*.ledger.yaml), for any case",
        kind="list", metavar="FILE",
    )  # fmt: skip
    seed: int = _setting(
        0, "--seed", "of models, inputs and random operators, in cases without a seed of their own (default: 0)",
        kind="number", metavar="N", least=SEED[0], most=SEED[1],
    )  # fmt: skip
    values: str | None = _setting(
        None, "--values", "a rule for values that holds in every case beside or above its own tolerance",
        kind="choice", choices=STRICT,
    )  # fmt: skip
    imports: tuple[str, ...] = _setting(
        (), "--import", "import this in every worker first (registers operators and backends)",
        kind="list", metavar="MODULE",
    )  # fmt: skip
    limit: tuple[str, ...] = _setting(
        (), "--limit", "change a limit on what files may ask for, such as tensor_bytes=8GiB",
        kind="list", metavar="NAME=VALUE",
    )  # fmt: skip
    backend: tuple[str, ...] = _setting(
        (), "--backend", "instead of the suites' own: a name torch.compile knows, a suite's, or package:function",
        kind="list", metavar="NAME",
    )  # fmt: skip
    device: tuple[str, ...] = _setting((), "--device", "only on this device", kind="list", metavar="NAME")
    select: str | None = _setting(
        None,
        "-k",
        "words of ids with and, or, not; tag:x, case:x, file:x*, dtype:x, backend:x, device:x, op:x, e.g. "
        '"tag:numeric and not op:aten.addmm"',
        metavar="EXPR",
    )
    python: tuple[str, ...] = _setting(
        (), "--python", "a Python that has torch; repeat for a column each", kind="list", metavar="PATH"
    )
    jobs: int | None = _setting(
        None,
        "-j --jobs",
        f"processes at once, at most {JOBS} (default: the cores)",
        kind="number",
        metavar="N",
        least=1,
        most=JOBS,
    )
    exitfirst: bool = _setting(False, "-x --exitfirst", "stop at the first failure", kind="switch")
    max_fail: int | None = _setting(
        None, "--max-fail --maxfail", "stop after N failures", kind="number", metavar="N", least=1
    )
    last_failed: bool = _setting(
        False,
        "--lf --last-failed",
        "only what failed the last time it ran here; everything if nothing did",
        kind="switch",
    )
    failed_first: bool = _setting(
        False, "--ff --failed-first", "everything, what failed the last time first", kind="switch"
    )
    order: str = _setting(
        "plan",
        "--order",
        "smart: failed first, then the longest first by what earlier runs took",
        kind="choice",
        choices=("plan", "smart"),
    )
    retries: int = _setting(
        0, "--retries", "run a red variant again up to N times; one that then differs is FLAKY, which is red",
        kind="number", metavar="N", most=COUNT,
    )  # fmt: skip
    stress: int = _setting(
        1, "--stress", "run every variant N times; one that does not always do the same is FLAKY",
        kind="number", metavar="N", least=1, most=COUNT,
    )  # fmt: skip
    confirm: bool = _setting(
        True,
        "--confirm",
        "run what fails once more, in a fresh process, before it is reported (default: yes)",
        kind="yes-no",
    )
    shard: Shard | str | None = _setting(
        None, "--shard", "only the M-th of N parts; runner merge joins them", kind="shard", metavar="M/N"
    )
    durations: str | None = _setting(
        None,
        "--durations",
        "make shards take equally long by the times of this run (the same file for all shards)",
        metavar="RUN",
    )
    budget: float | None = _setting(
        None,
        "--budget",
        "end after this long, such as 10m, with exit code 2; runner resume goes on",
        kind="seconds",
        metavar="TIME",
    )
    cached: bool = _setting(
        False,
        "--cached",
        "take results from earlier --cached runs where nothing has changed, and say so",
        kind="switch",
    )
    recompile: bool = _setting(
        False, "--recompile", "compile every graph, also those that an earlier run compiled under the same "
            "torch", kind="switch"
    )  # fmt: skip
    fail_on_skip: bool = _setting(
        False, "--fail-on-skip", "exit with 1 when a variant is skipped, as when one fails", kind="switch"
    )
    isolation: Literal["auto"] | Isolation = _setting(
        "auto", "--isolation",
        "a process for each variant, forked from a warm one or a cold one, or processes that live on. "
        "Auto is fork on the CPU, and living on accelerators",
        kind="choice", choices=("auto", *ISOLATION),
    )  # fmt: skip
    kernel_cache: str = _setting(
        "shared", "--kernel-cache", "compiled kernels are kept for later runs, or for this run alone",
        kind="choice", choices=("shared", "private"),
    )  # fmt: skip
    keep_warm: bool = _setting(
        False, "--keep-warm",
        "begin in processes that an earlier run with this option has left warm, and leave them for 10 minutes",
        kind="switch",
    )  # fmt: skip
    engine: str = _setting(
        "local", "--engine", "this machine, or a Ray cluster (a local one unless --address names another)",
        kind="choice", choices=("local", "ray"),
    )  # fmt: skip
    address: str | None = _setting(
        None, "--address", "with --engine ray: the cluster, as ray.init takes it", metavar="ADDRESS"
    )
    coverage: bool = _setting(
        False, "--coverage", "record which decompositions, lowerings and passes each variant reaches", kind="switch"
    )
    coverage_lines: bool = _setting(
        False, "--coverage-lines",
        "the same, and which lines of torch's compiler and of the backend's package run; compiling takes longer",
        kind="switch",
    )  # fmt: skip
    accuracy: bool = _setting(
        False, "--accuracy", "measure how far each output and gradient is from float64, in eager and compiled",
        kind="switch",
    )  # fmt: skip
    slow: float = _setting(
        60.0,
        "--slow",
        "say so when a variant runs longer than this, and label it (default: 60s)",
        kind="seconds",
        metavar="TIME",
    )
    no_project: bool = _setting(False, "--no-project", "leave the project file out", kind="switch")

    def __post_init__(self) -> None:
        """Hold every value against its bounds."""
        for name, option in options().items():
            value = getattr(self, name)
            if value is not None and (problem := _problem(option, value)):
                raise UsageError(f"{name}: {problem}")

    def limits(self) -> Limits:
        """Return the limits on files: the defaults, changed by the environment and then by ``limit``.

        Raises:
            UsageError: one is no limit.
        """
        try:
            return Limits.from_environment().with_overrides(self.limit)
        except ValueError as error:
            raise UsageError(str(error)) from None

    def compiler_coverage(self) -> Literal["", "parts", "lines"]:
        """Return what variants record of the compiler."""
        return "lines" if self.coverage_lines else "parts" if self.coverage else ""

    def loads_graphs(self) -> bool:
        """Return whether variants may load graphs that an earlier run compiled.

        What repeats variants compiles each time.
        """
        repeats = self.stress > 1 or self.retries > 0
        return not (self.recompile or repeats or self.compiler_coverage() or self.engine != "local")

    def slots(self) -> int:
        """Return how many processes run at once: ``jobs``, or the processors that this process may use."""
        return self.jobs or usable_processors()

    def flags(self, *names: str) -> tuple[str, ...]:
        """Return these settings as words of a command line; without names those that a command for one variant
        repeats."""
        words: list[str] = []
        usual = ("allow_python", "no_known", "ledger", "seed", "values", "imports", "limit", "no_project")
        for name in names or usual:
            value, flag = getattr(self, name), options()[name].flags.split()[-1]
            if value != RunSettings.__dataclass_fields__[name].default:
                values = value if isinstance(value, tuple) else (value,)
                words += [flag] if value is True else [word for value in values for word in (flag, str(value))]
        return tuple(words)

    def refuse_contradictions(self) -> None:
        """Raise UsageError for settings that undo each other."""
        for contradicts, why in (
            (self.stress > 1, "--stress runs everything"),
            (self.kernel_cache == "private", "--kernel-cache private starts from nothing"),
            (self.engine != "local", f"results of --engine {self.engine} are not kept"),
        ):
            if self.cached and contradicts:
                raise UsageError(f"--cached takes what earlier runs have found, and {why}: leave one of them out")
        if self.keep_warm and self.engine != "local":
            raise UsageError(f"--keep-warm is about this machine, and --engine {self.engine} about others")
        if self.keep_warm and self.kernel_cache == "private":
            raise UsageError("--keep-warm begins with what is there, and --kernel-cache private with nothing")
        if self.address and self.engine != "ray":
            raise UsageError("--address names a Ray cluster: add --engine ray")
        if self.durations and not self.shard:
            raise UsageError("--durations says how to cut shards: add --shard M/N")


def _problem(option: Option, value: Any) -> str:
    """Return what is wrong with a value, or nothing."""
    match option.kind:
        case "choice" if value not in option.choices:
            return f"{value!r} is not one of {', '.join(option.choices)}"
        case "number" if not (type(value) is int and option.least <= value <= option.most):
            return f"{value!r} is no whole number from {option.least} to {option.most}"
        case "seconds" if not (type(value) in (int, float) and 0 < value <= YEAR):
            return f"{value!r} s is no time longer than 0 and at most a year"
        case "switch" | "yes-no" if type(value) is not bool:
            return f"{value!r} is neither True nor False"
        case "list" if not (isinstance(value, (tuple, list)) and all(isinstance(each, str) for each in value)):
            return f"{value!r} is no tuple of texts"
        case "text" if not isinstance(value, str):
            return f"{value!r} is no text"
        case "shard":
            try:
                parse_shard(str(value))
            except ValueError as error:
                return str(error)
    return ""


@functools.cache
def options() -> Mapping[str, Option]:
    """Return the option of each setting by its name, in the order of the fields."""
    return {each.name: each.metadata["option"] for each in fields(RunSettings)}
