"""What is known before a hunt begins: the groups of earlier hunts, and the ledgers of spec files.

An entry of a ledger speaks of one case, and a drawn case is another one. So more than its signature must agree before
it explains a failure. Nothing new is to hide behind an entry that pins little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.cases.limits import Limits
from runner.cases.model import Known, Variant
from runner.contract.finding import Finding
from runner.diagnose.similar import operators_of
from runner.diagnostics import shown_path
from runner.hunt import state as states
from runner.hunt.groups import FAILURES, read_triage
from runner.session.collect import read_cases
from runner.verdict.policy import applies, explains


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a ledger, and the operators of its case."""

    known: Known
    operators: frozenset[str]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The entries of all files that ``--known`` names."""

    entries: tuple[Entry, ...] = ()

    def explain(self, variant: Variant, torch: str, findings: Sequence[Finding], reduced: bool = False) -> str:
        """Return the place of an entry that explains one of the findings; empty without one.

        The case has all operators of the entry's. One that is not reduced may fail for another reason, so there the
        entry must name an exception. A reduced one must have no operator besides.
        """
        operators = operators_of(variant.case.chain)
        for entry in self.entries:
            agree = operators == entry.operators if reduced else entry.known.error and entry.operators <= operators
            if not (entry.operators and agree and applies(entry.known, variant, torch)):
                continue
            if any(explains(entry.known, finding) for finding in findings):
                return f"{shown_path(entry.known.span.file)}:{entry.known.span.line}"
        return ""


def known_groups(paths: Sequence[str]) -> dict[str, str]:
    """Return the ids of the signatures that hunts in these folders have seen, each with the folder and its triage
    there.

    Raises:
        UsageError, InputError: a folder's files are wrong.
    """
    places: dict[str, str] = {}
    for path in paths:
        state = states.read(Path(path))
        triage = read_triage(Path(path)) if state is not None else {}
        for red in (red for record in state.rounds for red in record.red) if state is not None else ():
            if red.verdict in FAILURES:
                word = f" ({triage[red.signature_id].word})" if red.signature_id in triage else ""
                places.setdefault(red.signature_id, f"{path}{word}")
    return places


def read_ledger(paths: Sequence[str], limits: Limits) -> Ledger:
    """Return the ledgers of spec files and folders of them.

    Raises:
        UsageError: a path names none.
        InputError: a file is wrong. What it knows would come up as new.
    """
    if not paths:
        return Ledger()
    entries: dict[tuple[str, int, int], Entry] = {}  # a suite with defaults has copies of a case
    for case in read_cases(paths, limits, "--known"):
        for known in case.known:
            place = known.span.file, known.span.line, known.span.column
            entries.setdefault(place, Entry(known, operators_of(case.chain)))
    return Ledger(tuple(entries.values()))


def is_hunt(path: str) -> bool:
    """Return whether a path is the folder of a hunt."""
    return (Path(path) / states.FILE).is_file()
