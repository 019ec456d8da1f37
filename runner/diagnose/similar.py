"""Failures like this one, among what ledgers and lists of known bugs already hold.

The score is between 0 and 1::

    operators  half of it   the mean of two shares: of the failure's operators that the entry has, and the reverse
    oracle     a quarter    the same way to disagree
    stage      an eighth    the same stage
    exception  an eighth    an exception class in common, without the compiler's own wrappers

A long chain around a known bug shares few of its own operators but all of the entry's, so the second share rewards it.
An entry that shares neither an operator nor an exception is no match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runner.cases.limits import Limits
from runner.cases.model import Case, Variant
from runner.cases.suites import PathError, Reader
from runner.cases.walk import all_steps
from runner.contract.finding import Finding
from runner.diagnostics import shown_path
from runner.exit_codes import NOTHING, UsageError
from runner.record.journal import numbered_lines, parse_line
from runner.text import draw_table, one_line
from runner.verdict.policy import COMPILER_OWN, ranked

TABLE_ROWS = 10
"""Matches that ``table`` prints."""

_CLASSES = {
    "numeric": "value", "nan-inf": "nonfinite", "compile-crash": "compile-error", "runtime-crash": "runtime-error",
    "segfault": "signal", "hang": "timeout",
}  # fmt: skip
"""Oracles by the words that lists of bugs use for them."""

_SYMBOLS = {
    " ** ": "pow",
    " * ": "mul",
    " + ": "add",
    " - ": "sub",
    " / ": "truediv",
    " // ": "floordiv",
    " @ ": "matmul",
}
_SYNONYMS = {
    "truediv": "div",
    "iadd": "add",
    "imul": "mul",
    "isub": "sub",
    "itruediv": "div",
    "floordivide": "floordiv",
}
_ERROR = re.compile(r"\b_?[A-Z]\w*(?:Error|Exception|Failed|Unsupported)\b|\bSIG[A-Z]+\b|\bUnsupported\b")


@dataclass(frozen=True, slots=True)
class FailureProfile:
    """The properties by which ``score`` compares two failures; a ``FailureSignature`` identifies one."""

    operators: frozenset[str]
    oracles: frozenset[str]
    stage: str | None = None
    errors: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Entry:
    """A known failure: its profile, its title, where it is written and its link."""

    profile: FailureProfile
    title: str
    where: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """An entry, its score from 0 to 1, and the operators that it shares."""

    entry: Entry
    score: float
    shared: tuple[str, ...]


def profile_of(variant: Variant, findings: Sequence[Finding]) -> FailureProfile:
    """Return the profile of a failing variant; ``findings`` may be empty where it has not run."""
    first = ranked(findings)[0] if findings else None
    error = (first.error if first else None) or {}
    names = frozenset(str(name) for name in (error.get("type"), *(error.get("chain") or ())) if name)
    errors = names - frozenset(COMPILER_OWN) or names
    oracles = frozenset([first.oracle] if first else [])
    return FailureProfile(operators_of(variant.case.chain), oracles, first.stage if first else None, errors)


def search(profile: FailureProfile, candidates: Iterable[Entry]) -> list[Match]:
    """Return the entries that are like ``profile``, the best first; of several with one link only the best."""
    matches: dict[str, Match] = {}
    for entry in candidates:
        shared = profile.operators & entry.profile.operators
        if not shared and not profile.errors & entry.profile.errors:
            continue
        match = Match(entry, score(profile, entry.profile), tuple(sorted(shared)))
        key = entry.link or entry.where
        if key not in matches or matches[key].score < match.score:
            matches[key] = match
    return sorted(matches.values(), key=lambda match: (-match.score, match.entry.where))


def score(failure: FailureProfile, known: FailureProfile) -> float:
    """Return how alike two failures are, from 0 to 1; the head of this file has the formula."""
    shared = len(failure.operators & known.operators)
    return (
        sum(shared / len(side) for side in (failure.operators, known.operators) if side) / 2 * 0.5
        + 0.25 * bool(failure.oracles & known.oracles)
        + 0.125 * (failure.stage is not None and failure.stage == known.stage)
        + 0.125 * bool(failure.errors & known.errors)
    )


def table(matches: Sequence[Match]) -> str:
    """Return the best ``TABLE_ROWS`` matches as text."""
    if not matches:
        return "no known failure has these operators or this exception"
    rows = [
        (f"{match.score:.2f}", ", ".join(match.shared), "/".join(sorted(match.entry.profile.oracles)),
         match.entry.profile.stage or "", one_line(match.entry.title, 60), match.entry.link or match.entry.where)
        for match in matches[:TABLE_ROWS]
    ]  # fmt: skip
    text = draw_table(rows, ("score", "operators", "oracle", "stage", "what", "where"))
    hidden = len(matches) - TABLE_ROWS
    return text + (f"\nand {hidden} more" if hidden > 0 else "")


def entries(paths: Sequence[str], limits: Limits | None = None) -> Iterator[Entry]:
    """Yield the known failures that files hold.

    Args:
        paths: .spec.yaml and .suite.yaml files, folders of them, and .jsonl files with a bug a line.

    Raises:
        UsageError: a path cannot be read.
    """
    lists = [path for path in paths if path.endswith(".jsonl")]
    for path in lists:
        yield from _entries_of_list(path)
    files = [path for path in paths if path not in lists]
    if not files:
        return
    try:
        suites = Reader(limits or Limits(), any_device=True).files(files)
    except PathError as error:
        raise UsageError(f"--similar: {error}") from None
    cases: dict[tuple[str, int], Case] = {}
    for case in (case for suite in suites for case in suite.cases):
        cases.setdefault((case.file, case.span.line), case)  # a suite with defaults has copies of its own
    for case in cases.values():
        for known in case.known:
            errors = frozenset(_ERROR.findall(known.error or ""))
            profile = FailureProfile(operators_of(case.chain), frozenset(known.oracle), known.stage, errors)
            where = f"{shown_path(known.span.file)}:{known.span.line}"
            yield Entry(profile, case.doc.strip() or case.name.replace("_", " "), where, known.issue or "")


def _entries_of_list(path: str) -> Iterator[Entry]:
    """Yield the bugs of a file with one JSON object a line: ``title``, ``url``, ``ops``, ``class``, ``stage``,
    ``exception``."""
    try:
        rows = [(number, _row(line, f"{path}:{number}")) for number, line in numbered_lines(path)]
    except OSError as error:
        raise UsageError(f"--similar {path}: {error.strerror}", NOTHING) from None
    for number, row in rows:
        operators = frozenset(name for text in row.get("ops") or () for name in _operators_in(str(text)))
        oracles = frozenset(_CLASSES.get(word, word) for word in str(row.get("class") or "").split("/") if word)
        errors = frozenset(_ERROR.findall(str(row.get("exception") or ""))) - frozenset(COMPILER_OWN)
        profile = FailureProfile(operators, oracles, row.get("stage_2.13.0") or row.get("stage"), errors)
        yield Entry(profile, str(row.get("title") or row.get("id")), f"{path}:{number}", str(row.get("url") or ""))


def _row(line: bytes, place: str) -> dict[str, Any]:
    try:
        row = parse_line(line)
    except ValueError as error:
        raise UsageError(f"--similar {place}: no JSON: {error}") from None
    if not isinstance(row, dict) or not isinstance(row.get("ops") or [], list):
        raise UsageError(f"--similar {place}: no object with a list of ops")
    return row


def _operators_in(text: str) -> Iterator[str]:
    """Return the operators that free text names: the functions it calls, else Python's signs, else its first word."""
    names = re.findall(r"([A-Za-z_][\w.]*)\(", text)
    names = names or [name for sign, name in _SYMBOLS.items() if sign in text]
    return map(operator_name, names or re.findall(r"\A\s*([A-Za-z_][\w.]*)", text))


def operators_of(chain: Sequence[Any]) -> frozenset[str]:
    """Return the operators of a chain and of its blocks, without namespaces; see ``operator_name``."""
    return frozenset(operator_name(step.operator) for step in all_steps(chain))


def operator_name(operator: str) -> str:
    """Return one name for one operator: ``relu`` for ``F.relu``, ``nn.ReLU``, ``Tensor.relu_``,
    ``aten.relu.default``."""
    parts = operator.removeprefix("torch.ops.").split(".")
    last = parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else parts[-1]
    last = last.lower().strip("_").replace("_", "")
    return _SYNONYMS.get(last, last)
