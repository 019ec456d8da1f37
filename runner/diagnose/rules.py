"""What upstream asks of a bug report about torch.compile, and in particular of one that a machine has found.

Sources: pytorch's ``.github/ISSUE_TEMPLATE/pt2-bug-report.yml`` (default tolerances, no indices of max and min, a float64
baseline through ``torch._dynamo.utils.same``, ``fallback_random`` and a generator seeded anew), its page "Reporting Issues"
(a minimal reproducer, the ablation, the newest release), and what maintainers answer: no extreme inputs, no differences that
a documented policy explains, one issue for one cause.

To add a rule, write one function and put it into ``RULES``.
"""

from __future__ import annotations

import ast
import getpass
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.cases.chain_nodes import Step
from runner.cases.model import Variant
from runner.cases.versions import release_of
from runner.cases.walk import all_steps
from runner.diagnose.diagnosis import Diagnosis
from runner.diagnose.similar import plain
from runner.record.events import Finding
from runner.verdict.explained import EMULATE_CASTS, RANDOM, ULPS, is_small, low_precision
from runner.verdict.policy import applies, explains, ranked
from runner.verdict.signature import shows
from runner.worker.oracles import NUMERIC, row_of

NEWEST = "2.13"
"""The newest release of torch when this was written: a report must show that it fails there, or on a later one."""

LINES = 60
"""Lines of model and inputs that a maintainer reads without asking for less."""

ORDINARY = 1e6
"""The largest input by magnitude that a report about values may use. Activations and weights stay below 1e3; from here on
sums and products of float32 cancel and overflow by themselves, and reports are closed for it."""

GROSS = 0.01
"""A difference of this part of the tensor's largest value is no rounding of float32, so that it needs no float64 witness."""

_INDICES = frozenset(["argmax", "argmin", "argsort", "sort", "topk", "mode", "kthvalue", "cummax", "cummin"])
"""Operators that return indices, which ties may order otherwise."""

_INDICES_BY_DIMENSION = frozenset(["max", "min", "median", "nanmedian"])
"""Those that do when they are given more than the tensor."""


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """What the exported script did in a process of its own: exit status (negative: a signal) and what it printed."""

    code: int
    output: str


@dataclass(frozen=True, slots=True)
class Tried:
    """A version of torch and the verdict of the case under it."""

    torch: str
    verdict: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules look at. ``fresh`` are findings of runs in fresh processes, None for one that said nothing.

    ``variant`` is what the report is about; ``origin`` what it was reduced from, whose ledger counts.
    """

    variant: Variant
    diagnosis: Diagnosis
    source: str
    fresh: tuple[tuple[Finding, ...] | None, ...]
    script: ScriptRun
    inputs: tuple[Mapping[str, Any], ...] = ()  # as the worker's picture measures them
    tried: tuple[Tried, ...] = ()
    text: str = ""  # the report, for what it may not hold
    origin: Variant | None = None

    @property
    def speaking(self) -> Finding | None:
        """The finding that speaks for the variant."""
        return ranked(self.diagnosis.findings)[0] if self.diagnosis.findings else None

    @property
    def values(self) -> bool:
        """Whether it is about elements of tensors. A ``mutation`` may be a lost write instead, which has no ``elements``."""
        finding = self.speaking
        return finding is not None and finding.oracle in NUMERIC and "elements" in finding.numbers

    @property
    def rounded(self) -> bool:
        """Whether it is about floating elements that are finite: where tolerances count."""
        finding = self.speaking
        return self.values and finding is not None and "rel_error" in finding.numbers and not self._exact(finding)

    def _exact(self, finding: Finding) -> bool:
        """Integers and booleans are compared exactly whatever a case says."""
        kinds = (type(finding.numbers.get("eager")), type(finding.numbers.get("compiled")))
        return all(kind in (bool, int) for kind in kinds)


@dataclass(frozen=True, slots=True)
class Check:
    """One rule applied: what it asks, whether it is met, the fact that decides, and what to do when it is not."""

    rule: str
    met: bool
    fact: str
    advice: str = field(default="")


Rule = Callable[[Facts], Check]


def check(facts: Facts) -> list[Check]:
    """Every rule applied, in order."""
    return [rule(facts) for rule in RULES]


def fails_alike(facts: Facts) -> Check:
    """It fails now, and twice more in fresh processes, with one signature."""
    rule = "fails every time, in fresh processes, in the same way"
    if facts.diagnosis.verdict not in ("FAIL", "ERROR") or facts.diagnosis.signature is None:
        why = f"the verdict is {facts.diagnosis.verdict}" + (f": {facts.diagnosis.reason}" if facts.diagnosis.reason else "")  # fmt: skip
        return Check(rule, False, why, "report what fails; `runner run` says what does")
    alike = [found is not None and shows(facts.diagnosis.signature, found) for found in facts.fresh]
    fact = f"{sum(alike)} of {len(alike)} runs in fresh processes show {facts.diagnosis.signature}"
    advice = "find what it depends on (threads, memory, the order of runs) with `runner run --stress 20`"
    return Check(rule, len(alike) > 1 and all(alike), fact, advice)


def deterministic(facts: Facts) -> Check:
    """Eager agrees with itself bit for bit."""
    rule = "eager is deterministic"
    flaky = facts.diagnosis.verdict == "FLAKY" or any(found is None for found in facts.fresh)
    advice = "seed what is random, or leave out the operator that is not deterministic"
    return Check(rule, not flaky, "two eager runs disagree" if flaky else "two eager runs agree bit for bit", advice)


def default_tolerances(facts: Facts) -> Check:
    """Values are compared with rtol and atol of ``torch.testing.assert_close``."""
    rule = "default rtol and atol"
    given = facts.variant.case.tolerance
    own = bool(given.by_dtype) or given.exact
    fact = "the case sets a tolerance of its own" if own else "as torch.testing.assert_close has them"
    return Check(rule, not (own and facts.values), fact, "take `tolerance:` out of the case")


def worse_than_eager(facts: Facts) -> Check:
    """Against a float64 run, the compiled result is worse than eager's, also as ``same`` sees it."""
    rule = "a float64 run says that compiled is worse than eager"
    finding = facts.speaking
    if finding is None or not facts.values:
        return Check(rule, True, "the failure is not about values")
    if not row_of(finding.oracle).measured or not facts.rounded:
        return Check(rule, True, "NaN, infinities, signs and integers are compared exactly")
    numbers = finding.numbers
    ours, theirs = _size(numbers.get("eager_error_max")), _size(numbers.get("compiled_error_max"))
    if ours is None or theirs is None:
        return _without_float64(rule, facts, finding)
    fact = f"largest error against float64: eager {ours:.3g}, compiled {theirs:.3g}"
    if numbers.get("same") is True:
        return Check(rule, False, f"{fact}; torch._dynamo.utils.same(eager, compiled, float64) calls them equal",
                     "the difference is within what upstream accepts; there is nothing to report")  # fmt: skip
    advice = "compiled is the nearer one: this is no bug of the compiler"
    return Check(rule, theirs > ours, fact, advice)


def _without_float64(rule: str, facts: Facts, finding: Finding) -> Check:
    """No float64 run can be had (autocast, random numbers, shared storage): only a gross difference speaks for itself."""
    difference, scale = _size(finding.numbers.get("abs_error_max")), _size(finding.numbers.get("scale"))
    bound = max(GROSS, ULPS * low_precision(facts.source, facts.variant.dtype))
    why = next((note for note in facts.diagnosis.notes if "float64" in note), "there is no float64 run")
    gross = difference is not None and scale is not None and difference > bound * scale
    fact = f"{why}; the largest difference is {difference} in a tensor that reaches {scale}"
    advice = (
        f"make a case whose float64 run can be had, or one that is off by more than {bound:.2g} of the largest value"
    )
    return Check(rule, gross, fact + (", which is no rounding" if gross else ""), advice)


def seeded(facts: Facts) -> Check:
    """Random operators draw eager's numbers."""
    rule = "fallback_random is on and the generator is seeded before each run"
    off = facts.variant.case.config.get(RANDOM) is False or facts.variant.backend.config.get(RANDOM) is False
    fact = f"the case sets {RANDOM} to false" if off else "both are so in the script"
    return Check(rule, not off, fact, "take that flag out of `config:`")


def not_explained(facts: Facts) -> Check:
    """No documented policy of the compiler makes the difference."""
    rule = "not explained by emulate_precision_casts or fallback_random"
    told = [label for label in facts.diagnosis.labels if label.startswith("explained-by-")]
    finding = facts.speaking
    if finding is not None and facts.values:
        small = is_small(finding, low_precision(facts.source, facts.variant.dtype))
        flags = [f"{RANDOM} = True", *([f"{EMULATE_CASTS} = True"] if small else [])]  # a gross difference stays a bug
        gone = (row.setting for row in facts.diagnosis.ablations if row.outcome == "gone")
        told += [f"gone with {setting}" for setting in gone if setting in flags]
    fact = "; ".join(told) if told else "neither makes it go away"
    return Check(rule, not told, fact, "upstream keeps this difference by design")


def no_indices(facts: Facts) -> Check:
    """No indices of max, min and the like are compared: ties may be broken otherwise."""
    rule = "no indices of max, min, sort or topk are compared"
    finding = facts.speaking
    used = sorted({step.operator for step in all_steps(facts.variant.case.chain) if _gives_indices(step)})
    whole = finding is not None and finding.oracle == "value" and not facts.rounded
    compared = bool(used) and facts.values and whole
    fact = f"integers differ, and the case uses {', '.join(used)}" if compared else "none is"
    return Check(rule, not compared, fact, "return the values that these indices point to (torch.gather)")


def _gives_indices(step: Step) -> bool:
    name, arguments = plain(step.operator), step.arguments
    given = len(arguments.positional) + len(arguments.keywords)
    asked = any(key == "return_indices" for key, _ in arguments.keywords)
    return name in _INDICES or asked or (name in _INDICES_BY_DIMENSION and given > 1)


def ordinary_inputs(facts: Facts) -> Check:
    """The inputs of a report about values are finite and of ordinary size."""
    rule = "inputs are finite and of ordinary magnitude"
    finding = facts.speaking
    if finding is None or not facts.values:
        return Check(rule, True, "the failure is not about values")
    odd = []
    for entry in facts.inputs:
        kinds = (
            [f"{entry['nonfinite']} NaN or infinite"] if entry["nonfinite"] and finding.oracle != "nonfinite" else []
        )
        kinds += [f"{entry['denormal']} denormal"] if entry["denormal"] else []
        kinds += [f"up to {entry['largest']:.3g}"] if entry["largest"] > ORDINARY else []
        odd += [f"input {entry['index']}: {', '.join(kinds)}"] if kinds else []
    largest = max((float(entry["largest"]) for entry in facts.inputs), default=0.0)
    fact = "; ".join(odd) if odd else f"the largest is {largest:.3g}"
    return Check(rule, not odd, fact, f"show it with numbers below {ORDINARY:g} in magnitude (`init: normal`)")


def one_cause(facts: Facts) -> Check:
    """One report is about one failure."""
    rule = "one cause"
    stages = sorted({finding.stage for finding in facts.diagnosis.findings if finding.stage})
    fact = f"findings at {', '.join(stages)}" if stages else "one"
    advice = "ignore the other oracle in the case (`ignore:`), reduce, and report each by itself"
    return Check(rule, len(stages) < 2, fact, advice)


def script_alone(facts: Facts) -> Check:
    """The script fails by itself, with torch alone, for the same reason."""
    rule = "the script alone shows it"
    code, output = facts.script.code, facts.script.output
    last = next((line for line in reversed(output.strip().splitlines()) if line.strip()), "nothing was printed")
    fact = f"exit status {code}: {_problem(output) or last}"[:300]
    signature = facts.diagnosis.signature
    alike = signature is not None and any(_told(finding, code, output) for finding in facts.diagnosis.findings)
    advice = "run what `runner repro` prints; what only `--import` brings must stand in the script"
    return Check(rule, alike, fact, advice)


def _told(finding: Finding, code: int, output: str) -> bool:
    """Whether the script's end is this finding: it prints ``PROBLEM: oracle: words``.

    What only the compiled side raised it calls ``error``, since it does not look for the moment.
    """
    oracle, error = finding.oracle, str((finding.error or {}).get("type", ""))
    if oracle == "signal":
        return code < 0
    if oracle == "timeout":
        return code != 0 and "Timeout (" in output
    if code != 1:
        return False
    if error and re.search(rf"\b{re.escape(error)}\b", output) is None:
        return False
    wanted = "error" if error and row_of(oracle).raised else oracle
    return f"\nPROBLEM: {wanted}: " in f"\n{output}"


def _problem(output: str) -> str:
    """The script's first line about it."""
    return next((line for line in output.splitlines() if line.startswith("PROBLEM:")), "")


def short(facts: Facts) -> Check:
    """Model and inputs are short enough to be read."""
    rule = f"at most {LINES} lines of model and inputs"
    count = code_lines(facts.source)
    return Check(rule, count <= LINES, f"{count} lines", "reduce it: leave out --no-reduce, or give it more --budget")


def code_lines(source: str) -> int:
    """Lines of code: without blank lines, comments, imports and the docstring at its head."""
    tree = ast.parse(source)
    left_out = {
        number for node in tree.body if _is_head(node) for number in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    lines = enumerate(source.splitlines(), 1)
    return sum(
        1 for number, line in lines if line.strip() and not line.lstrip().startswith("#") and number not in left_out
    )


def _is_head(node: ast.stmt) -> bool:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or isinstance(node, ast.Import | ast.ImportFrom)


def nothing_private(facts: Facts) -> Check:
    """The report names neither this machine, nor its user, nor their folders."""
    rule = "no names or paths of this machine"
    found = [what for what, text in _private() if re.search(rf"(?<![\w.-]){re.escape(text)}(?![\w-])", facts.text)]
    advice = "rename what the case says of them (names, `doc:`, `config:`)"
    return Check(rule, not found, f"it holds {', '.join(found)}" if found else "none found", advice)


_COMMON = frozenset({"root", "user", "runner", "localhost", "ubuntu", "admin", "main", "torch", "python"})
"""Names of users and machines that are words of any report."""


def _private() -> list[tuple[str, str]]:
    """(what it is, the text) of everything that would tell where a report was made."""
    found = [("the home folder", str(Path.home())), ("the working folder", os.getcwd())]
    try:
        names = [("the user's name", getpass.getuser())]
    except (OSError, KeyError):  # a user without a name
        names = []
    names.append(("the machine's name", socket.gethostname()))
    found += [(what, name) for what, name in names if len(name) > 2 and name.lower() not in _COMMON]
    return [(what, text) for what, text in found if text not in ("", "/")]


def not_intended(facts: Facts) -> Check:
    """No ledger entry says that this is by design, or noise."""
    rule = "not known as by-design or noise"
    variant = facts.origin or facts.variant
    found = [
        entry
        for entry in variant.case.known
        if entry.why != "bug"
        and applies(entry, variant, facts.diagnosis.torch)
        and any(explains(entry, finding) for finding in facts.diagnosis.findings)
    ]
    fact = "; ".join(f"{e.why} since {e.reason or e.issue or f'line {e.span.line}'}" for e in found) or "no such entry"
    return Check(rule, not found, fact, "if the ledger is wrong, correct its entry (`why:`) first")


def newest(facts: Facts) -> Check:
    """It fails with the newest torch of those tried, and that is no old one."""
    rule = f"fails with torch {NEWEST} or newer"
    tried: Sequence[Tried] = facts.tried or [Tried(facts.diagnosis.torch, facts.diagnosis.verdict)]
    last = max(tried, key=lambda one: release_of(one.torch))
    recent = release_of(last.torch)[:2] >= release_of(NEWEST)[:2]
    fails = last.verdict in ("FAIL", "ERROR")
    fact = f"the newest tried is {last.torch}: {last.verdict}"
    advice = f"give --python a torch {NEWEST} or newer" if not recent else "it is fixed there; no report is needed"
    return Check(rule, recent and fails, fact, advice)


def _size(value: Any) -> float | None:
    """A number of a finding, where infinities and NaN are words."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


RULES: tuple[Rule, ...] = (
    fails_alike,
    deterministic,
    default_tolerances,
    worse_than_eager,
    seeded,
    not_explained,
    no_indices,
    ordinary_inputs,
    one_cause,
    script_alone,
    short,
    nothing_private,
    not_intended,
    newest,
)
