"""The material of a bug report about torch.compile or backends, and what upstream asks of one that a machine has found.

The material is a diagnosis, fresh runs, the environment, the inputs, and the script run alone. A report holds no names
and folders of this machine and of its user.

Sources of the rules: pytorch's ``.github/ISSUE_TEMPLATE/pt2-bug-report.yml`` (default tolerances, no indices of max and
min, a float64 baseline through ``torch._dynamo.utils.same``, ``fallback_random`` and a generator seeded anew), its page
"Reporting Issues" (a minimal reproducer, the ablation, the newest release), and what maintainers answer: no extreme
inputs, no differences that a documented policy explains, one issue for one cause.

To add a rule, write one function, and put it into ``RULES`` with its requirement.
"""

from __future__ import annotations

import ast
import contextlib
import getpass
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.builder.stored_tensors import tensor_files
from runner.cases.model import Step, Variant
from runner.cases.torch_names import is_of_package
from runner.cases.versions import release_of
from runner.cases.walk import all_steps
from runner.contract.finding import Finding
from runner.contract.oracles import NUMERIC, row_of
from runner.diagnose.diagnosis import BUDGET, Diagnosis, diagnose
from runner.diagnose.harness import VariantEngine, result_of, run_heat_map
from runner.diagnose.repro import script
from runner.diagnose.similar import Match, operator_name
from runner.engine import interpreters, scratch
from runner.files import write_anew
from runner.session.plan import TIMEOUT
from runner.verdict.explained import (
    EMULATE_CASTS,
    RANDOM,
    as_float,
    gross_part,
    is_evident,
    is_rounded,
    is_small,
    low_precision,
)
from runner.verdict.operators import INDICES, INDICES_BY_DIMENSION
from runner.verdict.policy import applies, explains, ranked
from runner.verdict.signature import shows

_NAME = r"[\w.+@-]"
_START = rf"(?<!{_NAME})(?<!:/)"
"""A place where a path may begin. The host of an address is no such place."""
_FOLDERS = re.compile(
    rf"{_START}(?:/|(?<!/))(?:{_NAME}+/)+(?:(?:site|dist)-packages|lib/python3\.\d+)/|"
    rf"{_START}(?:/var)?/tmp/(?:{_NAME}+/)*"
)
"""Folders that say nothing about the bug. Those of packages may be written from the current folder."""

_COMMON_NAMES = frozenset({"root", "user", "runner", "localhost", "ubuntu", "admin", "main", "torch", "python"})
"""Names of users and machines that are words of any report."""


def redact(text: str) -> str:
    """Return ``text`` without the folders of this machine: packages, temporary files, home, the working folder."""
    folders = {os.getcwd(), _home(), tempfile.gettempdir()} - {"", "/", "/tmp", "/var/tmp"}  # the last with all below
    for folder in sorted(folders, key=len, reverse=True):  # one may lie in another
        # A dot may end the sentence.
        text = re.sub(rf"{_START}{re.escape(folder)}(?:/|(?![\w+@-]|\.\w))", "", text)
    return _FOLDERS.sub("", text)


def _home() -> str:
    """Return the home folder; empty for a user who has no home."""
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) else ""


def private_texts() -> list[tuple[str, str]]:
    """Return (what it is, the text) of everything that would tell where a report was made."""
    names = [("the machine's name", socket.gethostname())]
    with contextlib.suppress(OSError, KeyError):  # a user without a name
        names.insert(0, ("the user's name", getpass.getuser()))
    folders = [("the home folder", _home()), ("the working folder", os.getcwd())]
    return [
        *((kind, folder) for kind, folder in folders if folder not in ("", "/")),
        *((kind, name) for kind, name in names if len(name) > 2 and name.lower() not in _COMMON_NAMES),
    ]


NEWEST = "2.13"
"""The newest release of torch when this was written: a report must show that it fails there, or on a later one."""

LINES = 60
"""Lines of model and inputs that a maintainer reads without asking for less."""

ORDINARY = 1e6
"""The largest input by magnitude that a report about values may use. Activations and weights stay below 1e3; from here
on sums and products of float32 cancel and overflow by themselves, and reports are closed for it."""


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """The end of the exported script in a process of its own: exit status (negative: a signal) and output; and its
    ``text``."""

    code: int
    output: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class VersionVerdict:
    """A version of torch and the verdict of the case under it."""

    torch: str
    verdict: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Package:
    """The package of a backend that is not torch's own; ``version`` and ``url`` are empty where it does not say them.

    ``url`` is its tracker's, or the nearest to it.
    """

    name: str
    version: str = ""
    url: str = ""

    def __str__(self) -> str:
        """Return its name and version."""
        return f"{self.name} {self.version}".rstrip()


@dataclass(frozen=True, slots=True)
class ReportInput:
    """The content of a report, besides its checks, and the input of the rules.

    ``fresh_findings`` are those of runs in fresh processes, None for an unsound run.

    ``variant`` is what the report is about. ``origin`` is what it was reduced from, whose ledger counts. With a
    ``package`` the report is for that package's tracker; else for torch's.
    """

    variant: Variant
    diagnosis: Diagnosis
    source: str
    fresh_findings: tuple[tuple[Finding, ...] | None, ...]
    script: ScriptRun
    inputs: tuple[Mapping[str, Any], ...] = ()  # as the worker measures them with the heat map
    versions: tuple[VersionVerdict, ...] = ()
    yaml: str = ""
    environment: str = ""  # as torch.utils.collect_env prints it
    matches: tuple[Match, ...] = ()
    steps: str = ""  # what reducing came to
    text: str = ""  # the report, for what it may not hold
    origin: Variant | None = None
    package: Package | None = None

    @property
    def declined_by(self) -> str:
        """Return the package that raised NotImplementedError itself; empty where none did."""
        finding = self.main_finding
        origin = ((finding.error if finding is not None else None) or {}).get("origin") or {}
        by = str(origin.get("raised_by") or "")
        return by if origin.get("type") == "NotImplementedError" and by != "torch" else ""

    @property
    def main_finding(self) -> Finding | None:
        """Return the highest-ranked finding; None without findings."""
        return ranked(self.diagnosis.findings)[0] if self.diagnosis.findings else None

    @property
    def about_values(self) -> bool:
        """Return whether the report is about elements of tensors.

        A ``mutation`` may be a lost write instead, which has no ``elements``.
        """
        finding = self.main_finding
        return finding is not None and finding.oracle in NUMERIC and "elements" in finding.numbers

    @property
    def about_rounding(self) -> bool:
        """Return whether it is about finite floating elements, for which tolerances count."""
        return self.about_values and self.main_finding is not None and is_rounded(self.main_finding)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one rule: whether it is met, the deciding fact, advice where it is not met, and the requirement."""

    met: bool
    fact: str
    advice: str = ""
    rule: str = ""


Rule = Callable[[ReportInput], Check]


def check(report: ReportInput) -> list[Check]:
    """Apply the rules, in order: all of upstream's, or those that tell any reader what to trust."""
    rules = {text: rule for text, rule in RULES.items() if report.package is None or rule in OF_ANY_TRACKER}
    return [replace(rule(report), rule=requirement) for requirement, rule in rules.items()]


def fails_alike(report: ReportInput) -> Check:
    """Require that it fails now, and twice more in fresh processes, with one signature."""
    if report.diagnosis.verdict not in ("FAIL", "ERROR") or report.diagnosis.signature is None:
        reason = f": {report.diagnosis.reason}" if report.diagnosis.reason else ""
        why = f"the verdict is {report.diagnosis.verdict}{reason}"
        return Check(False, why, "report what fails; `runner run` says what does")
    alike = [findings is not None and shows(report.diagnosis.signature, findings) for findings in report.fresh_findings]
    return Check(
        len(alike) > 1 and all(alike),
        f"{sum(alike)} of {len(alike)} runs in fresh processes show {report.diagnosis.signature}",
        "find what it depends on (threads, memory, the order of runs) with `runner run --stress 20`",
    )


def deterministic(report: ReportInput) -> Check:
    """Require that eager agrees with itself bit for bit."""
    flaky = report.diagnosis.verdict == "FLAKY" or None in report.fresh_findings
    return Check(
        not flaky,
        "two eager runs disagree" if flaky else "two eager runs agree bit for bit",
        "seed what is random, or leave out the operator that is not deterministic",
    )


def default_tolerances(report: ReportInput) -> Check:
    """Require rtol and atol of ``torch.testing.assert_close`` for values."""
    tolerance = report.variant.case.tolerance
    custom = bool(tolerance.by_dtype or tolerance.by_place) or tolerance.exact
    return Check(
        not (custom and report.about_values),
        "the case sets a tolerance of its own" if custom else "as torch.testing.assert_close has them",
        "take `tolerance:` out of the case",
    )


def worse_than_eager(report: ReportInput) -> Check:
    """Require that compiled is farther from a float64 run than eager, and that ``same`` does not accept it."""
    finding = report.main_finding
    if finding is None or not report.about_values:
        return Check(True, "the failure is not about values")
    if not report.about_rounding:
        return Check(True, "NaN, infinities, signs and integers are compared exactly")
    numbers = finding.numbers
    eager_error = as_float(numbers.get("eager_error_max"))
    compiled_error = as_float(numbers.get("compiled_error_max"))
    if eager_error is None or compiled_error is None:
        return _without_float64(report, finding)
    fact = f"largest error against float64: eager {eager_error:.3g}, compiled {compiled_error:.3g}"
    if numbers.get("same") is True:
        return Check(False, f"{fact}; torch._dynamo.utils.same(eager, compiled, float64) calls them equal",
                     "upstream accepts such a difference, and would close a report of it")  # fmt: skip
    return Check(is_evident(finding, 0.0), fact, "compiled is the nearer one: this is no bug of the compiler")


def _without_float64(report: ReportInput, finding: Finding) -> Check:
    """Require a gross difference where no float64 run can be had (an operator has no float64 form)."""
    difference, scale = (as_float(finding.numbers.get(name)) for name in ("abs_error_max", "scale"))
    epsilon = low_precision(report.source, report.variant.dtype)
    bound, gross = gross_part(epsilon), is_evident(finding, epsilon)
    why = next((note for note in report.diagnosis.notes if "float64" in note), "there is no float64 run")
    ending = ", which is no rounding" if gross else ""
    return Check(
        gross,
        f"{why}; the largest difference is {difference} in a tensor that reaches {scale}{ending}",
        f"make a case whose float64 run can be had, or one that is off by more than {bound:.2g} of the largest value",
    )


def seeded(report: ReportInput) -> Check:
    """Require that random operators draw eager's numbers."""
    off = report.variant.case.config.get(RANDOM) is False or report.variant.backend.config.get(RANDOM) is False
    return Check(
        not off,
        f"the case sets {RANDOM} to false" if off else "both are so in the script",
        "take that flag out of `config:`",
    )


def not_explained(report: ReportInput) -> Check:
    """Require that no documented policy of the compiler makes the difference."""
    explanations = [label for label in report.diagnosis.labels if label.startswith("explained-by-")]
    finding = report.main_finding
    if finding is not None and report.about_values:
        small = is_small(finding, low_precision(report.source, report.variant.dtype))
        flags = [f"{RANDOM} = True", *([f"{EMULATE_CASTS} = True"] if small else [])]  # a gross difference stays a bug
        gone = (row.setting for row in report.diagnosis.ablations if row.outcome == "gone")
        explanations += [f"gone with {setting}" for setting in gone if setting in flags]
    return Check(
        not explanations,
        "; ".join(explanations) or "neither makes it go away",
        "upstream keeps this difference by design",
    )


def no_indices(report: ReportInput) -> Check:
    """Require that no indices of max, min and the like are compared, since ties may be broken otherwise."""
    finding = report.main_finding
    used = sorted({step.operator for step in all_steps(report.variant.case.chain) if _gives_indices(step)})
    whole = finding is not None and finding.oracle == "value" and not report.about_rounding
    compared = bool(used) and report.about_values and whole
    return Check(
        not compared,
        f"integers differ, and the case uses {', '.join(used)}" if compared else "none is",
        "return the values that these indices point to (torch.gather)",
    )


def _gives_indices(step: Step) -> bool:
    name, (positional, keywords) = operator_name(step.operator), (step.arguments.positional, step.arguments.keywords)
    by_dimension = name in INDICES_BY_DIMENSION and len(positional) + len(keywords) > 1
    return name in INDICES or by_dimension or any(key == "return_indices" for key, _ in keywords)


def ordinary_inputs(report: ReportInput) -> Check:
    """Require finite inputs of ordinary magnitude for a report about values."""
    finding = report.main_finding
    if finding is None or not report.about_values:
        return Check(True, "the failure is not about values")
    remarks = []
    for entry in report.inputs:
        nonfinite = entry["nonfinite"] if finding.oracle != "nonfinite" else 0
        kinds = [f"{nonfinite} NaN or infinite"] if nonfinite else []
        kinds += [f"{entry['denormal']} denormal"] if entry["denormal"] else []
        kinds += [f"up to {entry['largest']:.3g}"] if entry["largest"] > ORDINARY else []
        remarks += [f"input {entry['index']}: {', '.join(kinds)}"] if kinds else []
    largest = max((float(entry["largest"]) for entry in report.inputs), default=0.0)
    return Check(
        not remarks,
        "; ".join(remarks) or f"the largest is {largest:.3g}",
        f"show it with numbers below {ORDINARY:g} in magnitude (`init: normal`)",
    )


def one_cause(report: ReportInput) -> Check:
    """Require findings of one stage, so that the report is about one failure."""
    stages = sorted({finding.stage for finding in report.diagnosis.findings if finding.stage})
    return Check(
        len(stages) < 2,
        f"findings at {', '.join(stages)}" if stages else "one",
        "ignore the other oracle in the case (`ignore:`), reduce, and report each by itself",
    )


def script_alone(report: ReportInput) -> Check:
    """Require that the script fails by itself, with torch alone, for the same reason."""
    code, output = report.script.code, report.script.output
    lines = [line for line in output.strip().splitlines() if line.strip()] or ["nothing was printed"]
    return Check(
        report.diagnosis.signature is not None and script_shows(ranked(report.diagnosis.findings)[0], code, output),
        f"exit status {code}: {next((line for line in lines if _RAISED.match(line)), lines[-1])}"[:300],
        "run what `runner repro` prints; what only `--import` brings must stand in the script",
    )


_RAISED = re.compile(r"(?:[\w.]+\.)?(\w+)(?::|$)")
"""The last line of a traceback."""


def script_shows(finding: Finding, code: int | None, output: str) -> bool:
    """Return whether a script's end is the finding that it aims at.

    ``code`` is negative for a signal, None for a script that hangs.
    """
    oracle, error = finding.oracle, str((finding.error or {}).get("type", ""))
    if oracle == "signal":
        return code is not None and code < 0
    if oracle == "timeout":
        return code is None or (code != 0 and ("Timeout (" in output or "compiling took" in output))
    if code != 1:
        return False
    raises = row_of(oracle).raised and error not in ("", "NoResult", "SystemExit", "Memory")
    classes = {match[1] for line in output.splitlines() if (match := _RAISED.match(line))}
    return (error if raises else "AssertionError") in classes


def short(report: ReportInput) -> Check:
    """Require a model and inputs short enough to be read."""
    count = code_lines(report.source)
    return Check(count <= LINES, f"{count} lines", "reduce it: leave out --no-reduce, or give it more --budget")


def code_lines(source: str) -> int:
    """Return the number of lines without blank lines, comments, imports and the docstring at the head."""
    head = {
        number
        for node in ast.parse(source).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for number in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return sum(bool(line) and not line.startswith("#") and number not in head for number, line in lines)


def nothing_private(report: ReportInput) -> Check:
    """Require that the report names neither this machine, nor its user, nor their folders."""
    leaks = [
        description
        for description, text in private_texts()
        if re.search(rf"(?<![\w.-]){re.escape(text)}(?![\w-])", report.text)
    ]
    return Check(
        not leaks,
        f"it holds {', '.join(leaks)}" if leaks else "none found",
        "rename what the case says of them (names, `doc:`, `config:`)",
    )


def not_intended(report: ReportInput) -> Check:
    """Require that no ledger entry calls the failure by-design or noise."""
    variant = report.origin or report.variant
    entries = [
        entry
        for entry in variant.known
        if entry.why != "bug"
        and applies(entry, variant, report.diagnosis.torch)
        and any(explains(entry, finding) for finding in report.diagnosis.findings)
    ]
    return Check(
        not entries,
        "; ".join(f"{e.why} since {e.reason or e.issue or f'line {e.span.line}'}" for e in entries) or "no such entry",
        "if the ledger is wrong, correct its entry (`why:`) first",
    )


def newest(report: ReportInput) -> Check:
    """Require that it fails with the newest torch tried, and that this is ``NEWEST`` or later."""
    versions: Sequence[VersionVerdict] = report.versions or [
        VersionVerdict(report.diagnosis.torch, report.diagnosis.verdict)
    ]
    newest_version = max(versions, key=lambda version: release_of(version.torch))
    recent = release_of(newest_version.torch)[:2] >= release_of(NEWEST)[:2]
    return Check(
        recent and newest_version.verdict in ("FAIL", "ERROR"),
        f"the newest tried is {newest_version.torch}: {newest_version.verdict}",
        "it is fixed there; no report is needed" if recent else f"give --python a torch {NEWEST} or newer",
    )


RULES: Mapping[str, Rule] = {
    "fails every time, in fresh processes, in the same way": fails_alike,
    "eager is deterministic": deterministic,
    "default rtol and atol": default_tolerances,
    "a float64 run says that compiled is worse than eager": worse_than_eager,
    "the generator is seeded before each run, and fallback_random is on where eager draws": seeded,
    "not explained by emulate_precision_casts or fallback_random": not_explained,
    "no indices of max, min, sort or topk are compared": no_indices,
    "inputs are finite and of ordinary magnitude": ordinary_inputs,
    "one cause": one_cause,
    "the script alone shows it": script_alone,
    f"at most {LINES} lines of model and inputs": short,
    "no names or paths of this machine": nothing_private,
    "not known as by-design or noise": not_intended,
    f"fails with torch {NEWEST} or newer": newest,
}
"""The requirements, in order, and what decides on each."""

OF_ANY_TRACKER = (fails_alike, deterministic, script_alone, nothing_private)
"""The rules that hold for a report to another package too, where they refuse nothing."""


FRESH = 2
"""Runs in fresh processes that must fail alike."""

START = 120.0
"""Seconds that a script may take besides the case's own limit: importing torch, building Inductor's first kernel."""

Say = Callable[[str], None]
"""Takes several times a second what is being done. What it raises ends the work."""


def find_blame(engine: VariantEngine, say: Say, budget: float = BUDGET) -> Diagnosis:
    """Return the diagnosis of the engine's variant: ``say`` may end it by OutOfTime, and a person may interrupt it.

    ``budget`` are the seconds of torch's bisector, or of the cut.
    """
    say("looking for what is to blame")
    return diagnose(engine, tick=lambda part: say(f"looking for what is to blame: {part}"), budget=budget)


def gather(engine: VariantEngine, diagnosis: Diagnosis, yaml: str, say: Say) -> ReportInput:
    """Return everything that a report of the engine's variant needs. ``diagnosis`` is of this very variant, ``yaml``
    its case.

    Raises:
        UsageError: torch does not describe this machine, or the case is wrong.
        InputError: the case cannot be written as a script.
    """

    def begin(text: str) -> Callable[[], None]:
        say(text)
        return lambda: say(text)

    backend = engine.variant.backend.backend
    asked = {"backend": backend} if is_of_package(backend) else {}
    jobs = [*(engine.job(isolation="fresh") for _ in range(FRESH)), engine.job("environment", asked)]
    *fresh, described = engine.ask(jobs, begin("running it in fresh processes, and asking torch about this machine"))
    answer = result_of(described)
    inputs = run_heat_map(engine, begin("measuring its inputs")).get("inputs", ())
    answers = [engine.read(outcome) for outcome in fresh]
    return ReportInput(
        variant=engine.variant,
        diagnosis=diagnosis,
        source=engine.source.text,
        fresh_findings=tuple(answer.findings if answer.sound else None for answer in answers),
        script=run_script(
            script(engine.variant, diagnosis, engine.seed, engine.imports), engine, begin("running the script alone")
        ),
        inputs=tuple(inputs),
        versions=(VersionVerdict(engine.environment.torch, diagnosis.verdict, diagnosis.reason),),
        yaml=yaml,
        environment=str(answer["text"]),
        package=Package(**answer["package"]) if asked else None,
    )


def run_script(text: str, engine: VariantEngine, tick: Callable[[], None] | None = None) -> ScriptRun:
    """Run a script in a folder of its own, under the engine's Python, as a maintainer would.

    ``tick`` may end it by raising.
    """
    limit = (engine.variant.case.timeout or TIMEOUT) + START
    variables = scratch.compile_environment(os.environ)
    environment = {name: value for name, value in variables.items() if not name.startswith(("PYTHONPATH", "RUNNER_"))}
    if engine.paths:
        environment["PYTHONPATH"] = os.pathsep.join(engine.paths)
    with scratch.folder() as folder:
        write_anew(folder / "repro.py", text)
        for file in tensor_files(engine.variant.case):
            (folder / file.name).symlink_to(file)
        try:
            done = interpreters.run_process_tree(
                [engine.environment.python, "repro.py"], cwd=folder, env=environment, timeout=limit, tick=tick,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            return ScriptRun(1, f"{_text(error.stdout)}\nTimeout ({limit:g} s)", text)
    return ScriptRun(done.returncode, _text(done.stdout), text)


def _text(output: bytes | None) -> str:
    return (output or b"").decode("utf-8", "replace")
