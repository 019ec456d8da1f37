"""Failures like this one, among what ledgers and lists of known bugs already hold.

The score is between 0 and 1::

    operators  half of it   the mean of two parts: of ours that the entry has, of the entry's that we have
    oracle     a quarter    the same way to disagree
    stage      an eighth    the same stage
    exception  an eighth    an exception class in common, wrappers of the compiler's own left out

A long chain around a known bug has few operators in common but all of the entry's, which the second part of the mean
rewards. What shares neither an operator nor an exception is no match at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from runner.cases.limits import Limits
from runner.cases.model import Variant
from runner.cases.suites import PathError, Reader
from runner.cases.walk import all_steps
from runner.diagnostics import shown_path
from runner.exit_codes import NOTHING, UsageError
from runner.record.events import Finding
from runner.text import one_line
from runner.verdict.policy import COMPILER_OWN, ranked

SHOWN = 10
"""Matches in a table."""

_CLASSES = {
    "numeric": "value", "nan-inf": "nonfinite", "compile-crash": "compile-error", "runtime-crash": "runtime-error",
    "segfault": "signal", "hang": "timeout",
}  # fmt: skip
"""Words of a list of bugs that the ledger says otherwise."""

_SYMBOLS = {" ** ": "pow", " * ": "mul", " + ": "add", " - ": "sub", " / ": "truediv", " // ": "floordiv", " @ ": "matmul"}  # fmt: skip
_WRITTEN = {"truediv": "div", "iadd": "add", "imul": "mul", "isub": "sub", "itruediv": "div", "floordivide": "floordiv"}
_ERROR = re.compile(r"\b_?[A-Z]\w*(?:Error|Exception|Failed|Unsupported)\b|\bSIG[A-Z]+\b|\bUnsupported\b")


@dataclass(frozen=True, slots=True)
class Mark:
    """What two failures are compared by."""

    operators: frozenset[str]
    oracles: frozenset[str]
    stage: str | None = None
    errors: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Entry:
    """A known failure: its mark, what it is called, where it is written and its link."""

    mark: Mark
    title: str
    where: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """An entry, its score, and in what it is alike."""

    entry: Entry
    score: float
    shared: tuple[str, ...]


def mark_of(variant: Variant, findings: Sequence[Finding]) -> Mark:
    """The mark of a variant that fails; ``findings`` may be empty where it has not run."""
    first = ranked(findings)[0] if findings else None
    error = (first.error if first else None) or {}
    names = frozenset(str(name) for name in (error.get("type"), *(error.get("chain") or ())) if name)
    own = names - frozenset(COMPILER_OWN) or names
    oracles = frozenset([first.oracle] if first else [])
    return Mark(operators_of(variant.case.chain), oracles, first.stage if first else None, own)


def search(mark: Mark, known: Iterable[Entry]) -> list[Match]:
    """The entries that are like ``mark``, the best first; of several with one link the best."""
    matches: dict[str, Match] = {}
    for entry in known:
        shared = mark.operators & entry.mark.operators
        if not shared and not mark.errors & entry.mark.errors:
            continue
        match = Match(entry, score(mark, entry.mark), tuple(sorted(shared)))
        key = entry.link or entry.where
        if key not in matches or matches[key].score < match.score:
            matches[key] = match
    return sorted(matches.values(), key=lambda match: (-match.score, match.entry.where))


def score(ours: Mark, theirs: Mark) -> float:
    """How alike two failures are, as the head of this file has it."""
    shared = len(ours.operators & theirs.operators)
    parts = [shared / len(side) for side in (ours.operators, theirs.operators) if side]
    alike = sum(parts) / 2 * 0.5
    alike += 0.25 * bool(ours.oracles & theirs.oracles)
    alike += 0.125 * (ours.stage is not None and ours.stage == theirs.stage)
    return alike + 0.125 * bool(ours.errors & theirs.errors)


def table(matches: Sequence[Match]) -> str:
    """The best of them as text."""
    if not matches:
        return "no known failure has these operators or this exception"
    rows = [
        (f"{match.score:.2f}", ", ".join(match.shared), "/".join(sorted(match.entry.mark.oracles)),
         match.entry.mark.stage or "", one_line(match.entry.title, 60), match.entry.link or match.entry.where)
        for match in matches[:SHOWN]
    ]  # fmt: skip
    text = tabulate(rows, ("score", "operators", "oracle", "stage", "what", "where"), "simple", disable_numparse=True)
    more = len(matches) - SHOWN
    return text + (f"\nand {more} more" if more > 0 else "")


def entries(paths: Sequence[str], limits: Limits | None = None) -> Iterator[Entry]:
    """The known failures that files hold.

    Args:
        paths: .spec.yaml and .suite.yaml files, folders of them, and .jsonl files with a bug a line.

    Raises:
        UsageError: a path cannot be read.
    """
    lists = [path for path in paths if path.endswith(".jsonl")]
    for path in lists:
        yield from _of_list(path)
    files = [path for path in paths if path not in lists]
    if not files:
        return
    try:
        suites = Reader(limits or Limits(), any_device=True).files(files)
    except PathError as error:
        raise UsageError(f"--similar: {error}") from None
    seen = set()
    for suite in suites:
        for case in suite.cases:
            if (case.file, case.span.line) in seen:  # a suite with defaults has copies of its own
                continue
            seen.add((case.file, case.span.line))
            operators = operators_of(case.chain)
            for known in case.known:
                errors = frozenset(_ERROR.findall(known.error or ""))
                mark = Mark(operators, frozenset(known.oracle), known.stage, errors)
                where = f"{shown_path(known.span.file)}:{known.span.line}"
                title = case.doc.strip() or case.name.replace("_", " ")
                yield Entry(mark, title, where, known.issue or "")


def _of_list(path: str) -> Iterator[Entry]:
    """A file with one JSON object a line: ``title``, ``url``, ``ops``, ``class``, ``stage``, ``exception``."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"--similar {path}: {error.strerror}", NOTHING) from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"--similar {path}:{number}: no JSON: {error}") from None
        if not isinstance(row, dict):
            raise UsageError(f"--similar {path}:{number}: not an object")
        operators = frozenset(name for text in row.get("ops") or () for name in _named(str(text)))
        words = str(row.get("class") or "").split("/")
        oracles = frozenset(_CLASSES.get(word, word) for word in words if word)
        errors = frozenset(_ERROR.findall(str(row.get("exception") or ""))) - frozenset(COMPILER_OWN)
        stage = row.get("stage_2.13.0") or row.get("stage")
        mark = Mark(operators, oracles, stage, errors)
        yield Entry(mark, str(row.get("title") or row.get("id")), f"{path}:{number}", str(row.get("url") or ""))


def _named(text: str) -> Iterator[str]:
    """The operators that free text names: what is called, else its first word, else Python's signs."""
    called = re.findall(r"([A-Za-z_][\w.]*)\(", text)
    if called:
        yield from map(plain, called)
        return
    signs = [name for sign, name in _SYMBOLS.items() if sign in text]
    if signs:
        yield from map(plain, signs)
        return
    word = re.match(r"\s*([A-Za-z_][\w.]*)", text)
    if word:
        yield plain(word[1])


def operators_of(chain: Iterable[Any]) -> frozenset[str]:
    """The operators of a chain and of all that is inside it, without namespaces; see ``plain``."""
    return frozenset(plain(step.operator) for step in all_steps(chain))


def plain(operator: str) -> str:
    """``relu`` for ``F.relu``, ``nn.ReLU``, ``Tensor.relu_``, ``aten.relu.default``: one name for one thing."""
    name = operator.removeprefix("torch.ops.")
    parts = name.split(".")
    last = parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else parts[-1]
    last = last.lower().strip("_").replace("_", "")
    return _WRITTEN.get(last, last)
