"""Diagnoses the rows of the corpus that diverge: is the stage the row's, and does the bisector name a subsystem?

    python bench/diagnose.py --json diagnoses.json [--python PATH] [--sample N] [-j N]

Rows are those of ``tools/corpus_page.py``. What is in the JSON file already is not run again. With ``--cut`` the
graphs of a row that the bisector explains are cut too, under the same backend: does that name the same operator?
Exits 1 when less than 95 % of the stages are right, or when of the rows whose stage is inductor (which the corpus
does not tell from decomposition) less than 70 % get a subsystem.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from commands import command_line, option, write_json
from corpus_page import CORPUS, STAGE_NOTES, STAGES, SUITE, CorpusError, Key, Row, grid, read_rows, read_tags

from runner.cases.model import Variant
from runner.diagnose.diagnosis import BUDGET, HANG_SECONDS, SECONDS, Culprit, Diagnosis, diagnose, read_bisection
from runner.diagnose.harness import VariantEngine
from runner.exit_codes import UsageError
from runner.report.diagnosis import sentence
from runner.session.collect import load
from runner.session.plan import Environment, find_environments
from runner.text import duration


@dataclass(frozen=True)
class Task:
    """A row that diverges, as the corpus has it and as a variant of ours."""

    row: Row
    stage: str
    variant: Variant

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the names that its stage has here."""
        return STAGES.get(self.stage, (self.stage,))


def read_tasks(torch: str) -> list[Task]:
    """Return the rows that diverge on ``torch``, in the corpus's order.

    Raises:
        CorpusError: the files do not fit together.
    """
    tags = read_tags(SUITE)
    variants: dict[Key | None, Variant] = {}
    for variant in load([str(SUITE)], allow_python=True).variants:
        variants.setdefault(tags.get(f"{Path(variant.case.file).name}::{variant.case.name}"), variant)
    tasks = []
    for row in read_rows(CORPUS):
        expected = row.expected(torch)
        if not row.is_control and expected is not None and expected.diverges and row.key in variants:
            tasks.append(Task(row, str(expected.stage), variants[row.key]))
    if not tasks:
        raise CorpusError(f"no row of the corpus diverges on torch {torch}")
    return tasks


def cut(engine: VariantEngine, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return what the cut of the graphs answers: its culprit, its note and its seconds."""
    assert diagnosis.signature is not None
    seconds = HANG_SECONDS if diagnosis.signature.oracle == "timeout" else SECONDS
    arguments = {"wanted": [[*diagnosis.signature.kind]], "seconds": seconds, "budget": BUDGET}
    (outcome,) = engine.ask([engine.job("cut", arguments, timeout=BUDGET + 2 * SECONDS)])
    answer = read_bisection(outcome, engine.variant.case, engine.source)
    return {**asdict(answer), "seconds": round(outcome.seconds, 1), "runs": (outcome.result or {}).get("runs")}


def is_agreed(result: dict[str, Any]) -> bool | None:
    """Return whether cut and bisector name one operator; None where one of them names none."""
    culprits = result.get("culprit") or {}, (result.get("cut") or {}).get("culprit") or {}
    for key in ("place", "step"):
        if all(culprit.get(key) for culprit in culprits):
            return bool(culprits[0][key] == culprits[1][key])
    if not all(culprit.get("operator") for culprit in culprits):
        return None
    names = {re.sub(r"^aten\.|\.\w+$|^.*\.", "", str(culprit["operator"])).strip("_") for culprit in culprits}
    return len(names) == 1


def diagnose_row(task: Task, environment: Environment, options: argparse.Namespace) -> dict[str, Any]:
    """Return the diagnosis of a row, made in processes of its own, or why it is missing."""
    try:
        with VariantEngine(task.variant, environment, slots=1) as engine:
            diagnosis = diagnose(engine, ablations=options.ablations)
            is_cut = options.cut and diagnosis.culprit is not None and diagnosis.culprit.subsystem
            cuts = {"cut": cut(engine, diagnosis)} if is_cut else {}
            return {"row_stage": task.stage, **diagnosis.to_dict(), **cuts}
    except UsageError as error:
        return {"row_stage": task.stage, "error": str(error)}


def run(tasks: Sequence[Task], environment: Environment, rows: dict[str, Any], options: argparse.Namespace) -> None:
    """Diagnose the tasks, so many at a time, and add them to the rows and their file as they come."""
    with ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(diagnose_row, task, environment, options): task for task in tasks}
        for number, future in enumerate(as_completed(running), 1):
            task = running[future]
            rows[task.row.id] = future.result()
            write_json(options.json, {"torch": environment.build, "rows": rows})
            line = " · ".join(cells(task, rows[task.row.id]))
            print(f"{number} of {len(tasks)}: {line}", file=sys.stderr, flush=True)


def cells(task: Task, result: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    culprit = Culprit(**result["culprit"]) if result.get("culprit") else None
    blamed = "; ".join(filter(None, (sentence(culprit) if culprit else "", result.get("bisect_note", ""))))
    stage = result.get("stage") or result.get("error") or result["verdict"]
    mark = "" if is_stage_right(task, result) else " **no**"
    return [task.row.id, task.row.cls, task.stage, stage + mark, blamed, duration(result.get("seconds", 0.0))]


def is_stage_right(task: Task, result: dict[str, Any]) -> bool:
    """Return whether the named stage is the row's."""
    return result.get("stage") in task.stages or (bool(result.get("stage")) and task.row.id in STAGE_NOTES)


def main(words: Sequence[str] | None = None) -> int:
    """Run, print the table and the shares."""
    arguments = command_line(
        __doc__,
        option("--json", type=Path, metavar="FILE", help="results, written as they come, and gone on with"),
        option("--python", default=sys.executable, metavar="PATH", help="the Python that has torch"),
        option("--sample", type=int, metavar="N", help="only so many rows, drawn alike every time"),
        option("--only", action="append", default=[], metavar="ROW", help="only this row, again"),
        option("--ablations", action="store_true", help="also try changed settings, which takes twice as long"),
        option("--cut", action="store_true", help="cut the graphs too"),
        option("-j", "--jobs", type=int, default=os.cpu_count() or 1, metavar="N"),
    ).parse_args(words)
    try:
        environment = find_environments([arguments.python])[0]
        tasks = read_tasks(environment.torch)
    except (CorpusError, UsageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    file: Path | None = arguments.json
    data = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else {}
    rows = data["rows"] if data.get("torch") == environment.build else {}
    if arguments.only:
        tasks = [task for task in tasks if task.row.id in arguments.only]
        rows = {key: value for key, value in rows.items() if key not in arguments.only}
    elif arguments.sample:
        tasks = random.Random(0).sample(tasks, min(arguments.sample, len(tasks)))
    run([task for task in tasks if task.row.id not in rows], environment, rows, arguments)
    head = ["row", "class", "row's stage", "stage", "to blame", "time"]
    print(grid(head, [cells(task, rows[task.row.id]) for task in tasks]), end="\n\n")
    return report(tasks, rows)


def report(tasks: Sequence[Task], rows: dict[str, dict[str, Any]]) -> int:
    """Print the shares; return 1 if one is too small."""
    stages = [is_stage_right(task, rows[task.row.id]) for task in tasks]
    culprits = [rows[task.row.id].get("culprit") or {} for task in tasks if "inductor" in task.stages]
    shares = (
        ("stage is the row's", stages, 0.95),
        ("subsystem is named", [bool(culprit.get("subsystem")) for culprit in culprits], 0.70),
    )
    for name, marks, target in shares:
        share = sum(marks) / len(marks) if marks else 1.0
        print(f"{name}: {sum(marks)} of {len(marks)} ({share:.0%}, target {target:.0%})")
    cuts = {task.row.id: is_agreed(rows[task.row.id]) for task in tasks if "cut" in rows[task.row.id]}
    known = [answer for answer in cuts.values() if answer is not None]
    if cuts:
        missing = f"{len(cuts) - len(known)} without an operator of both"
        print(f"the cut names the bisector's operator: {sum(known)} of {len(known)}; {missing}")
    for row in (row for row, answer in cuts.items() if not answer):
        print(f"  {row}: bisector {rows[row]['culprit']}; cut {rows[row]['cut']}")
    return int(any(sum(marks) < target * len(marks) for _, marks, target in shares))


if __name__ == "__main__":
    sys.exit(main())
