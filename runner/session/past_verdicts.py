"""The verdicts of one case over all runs kept here."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.cases.versions import release_of
from runner.diagnostics import shown_path
from runner.record.events import Key, RunStarted, VariantFinished, from_json
from runner.record.journal import lines, parse_line
from runner.record.store import FOLDER


@dataclass(frozen=True, slots=True)
class PastVerdict:
    """A verdict, the name of its run, and a hash of what that run planned: equal where cases and torch were the
    same."""

    run: str
    plan: str
    event: VariantFinished


def past_verdicts(case: str, base: Path | None = None) -> tuple[list[PastVerdict], int]:
    """Return the verdicts of a case, and how many runs there are. Logs that cannot be read are left out.

    The newest run comes first. Within a run the verdicts are ordered by id and torch: which variant ended first is
    chance.

    Args:
        case: an id, or the beginning of one up to its axes: ``FILE``, ``FILE::CASE``, ``FILE::CASE[AXES]``,
            ``FILE::CASE[AXES]@BACKEND``, ``FILE::CASE@BACKEND``; or the name of a case alone.
        base: the folder of runs, ``.runner`` if None.
    """
    case = _as_printed(case)
    verdicts: list[PastVerdict] = []
    journals = sorted((base or Path(FOLDER)).glob("runs/*/events.jsonl"), reverse=True)
    for journal in journals:
        with contextlib.suppress(OSError):
            verdicts += _of_run(journal, case)
    return verdicts, len(journals)


def _of_run(journal: Path, case: str) -> list[PastVerdict]:
    """The verdicts in one log; of a variant that has two the later one. Raises OSError."""
    plan = ""
    results: dict[Key, VariantFinished] = {}
    for event in _events(journal, case):
        if isinstance(event, RunStarted):
            plan = event.plan
        elif case in _names(event):
            results[event.key] = event
    verdicts = sorted(results.values(), key=lambda event: (event.id, release_of(event.torch)))
    return [PastVerdict(journal.parent.name, plan, event) for event in verdicts]


def _events(journal: Path, case: str) -> Iterator[RunStarted | VariantFinished]:
    """The start of a run, and the verdicts that may be of the case: the other lines of a long log are not parsed."""
    words = [json.dumps(part)[1:-1].encode() for part in case.partition("@")[::2]]
    for line in lines(journal):
        if b'"run-started"' in line or (b'"variant-finished"' in line and all(word in line for word in words)):
            with contextlib.suppress(ValueError):  # torn, or no event
                event = from_json(parse_line(line))
                if isinstance(event, RunStarted | VariantFinished):
                    yield event


def _names(event: VariantFinished) -> tuple[str, ...]:
    """By which names a person may ask for a variant."""
    name = event.case.rpartition("::")[2]
    return (
        event.id,
        event.label,
        event.case,
        f"{event.case}@{event.backend}",
        name,
        f"{name}@{event.backend}",
        shown_path(event.file),
    )


def _as_printed(case: str) -> str:
    """The file of an id as reports print it, and a file alone as ``_names`` has it."""
    file, mark, name = case.partition("::")
    if mark:
        return f"{shown_path(file)}::{name}"
    return shown_path(os.path.abspath(file)) if Path(file).suffix else case
