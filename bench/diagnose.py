"""Diagnoses every row of the corpus that diverges on a torch: is the stage the row's, and does the bisector name a subsystem?

    python bench/diagnose.py --json diagnoses.json [--python PATH] [--sample N] [-j N]

Rows are those of ``bench/corpus.py``. What is in the JSON file already is not run again. With ``--cut`` the graphs of a row that the
bisector explains are cut too, under the same backend: does that name the same operator? Exits 1 when less than 95 % of the stages are
right, or when of the rows whose stage is inductor (which the corpus does not tell from decomposition) less than 70 % get a subsystem.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import corpus
from commands import command_line, markdown_table, option, write_json

from runner.cases.model import Variant
from runner.diagnose.diagnosis import BUDGET, HANG_SECONDS, SECONDS, Culprit, Diagnosis, diagnose, read_bisection
from runner.diagnose.harness import VariantEngine
from runner.exit_codes import UsageError
from runner.report.diagnosis import sentence
from runner.session.collect import load
from runner.session.plan import Environment, find_environments
from runner.text import duration

STAGES_RIGHT = 0.95
SUBSYSTEMS_NAMED = 0.70
"""The shares that are to be reached."""


@dataclass(frozen=True)
class Task:
    """A row that diverges, as the corpus has it and as a variant of ours."""

    row: corpus.Row
    stage: str
    variant: Variant

    @property
    def stages(self) -> tuple[str, ...]:
        """Return the names that its stage has here."""
        return corpus.STAGES.get(self.stage, (self.stage,))


def read_tasks(torch: str) -> list[Task]:
    """Return the rows that diverge on ``torch``, in the corpus's order.

    Raises:
        corpus.CorpusError: the files do not fit together.
    """
    tags = corpus.read_tags(corpus.SUITE)
    variants: dict[corpus.Key | None, Variant] = {}
    for variant in load([str(corpus.SUITE)], allow_python=True).variants:
        variants.setdefault(tags.get(f"{Path(variant.case.file).name}::{variant.case.name}"), variant)
    tasks = []
    for row in corpus.read_rows(corpus.CORPUS):
        expected = row.expected(torch)
        if not row.is_control and expected is not None and expected.diverges and row.key in variants:
            tasks.append(Task(row, str(expected.stage), variants[row.key]))
    if not tasks:
        raise corpus.CorpusError(f"no row of the corpus diverges on torch {torch}")
    return tasks


class Results:
    """What was diagnosed, by the row's number, kept in a file that is complete at every moment."""

    def __init__(self, path: Path | None, build: str) -> None:
        """Read the file, if it is there and about the same torch."""
        self._path, self._build, self._lock = path, build, threading.Lock()
        data = json.loads(path.read_text(encoding="utf-8")) if path is not None and path.exists() else {}
        self.rows: dict[str, dict[str, Any]] = data["rows"] if data.get("torch") == build else {}

    def add(self, task: Task, diagnosis: dict[str, Any]) -> None:
        """Keep a diagnosis."""
        with self._lock:
            self.rows[task.row.id] = {"row_stage": task.stage, **diagnosis}
            write_json(self._path, {"torch": self._build, "rows": self.rows})


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


def run(tasks: Sequence[Task], environment: Environment, results: Results, options: argparse.Namespace) -> None:
    """Diagnose the tasks, so many at a time, each in processes of its own."""

    def run_task(task: Task) -> list[str]:
        try:
            with VariantEngine(task.variant, environment, slots=1) as engine:
                diagnosis = diagnose(engine, ablations=options.ablations)
                is_cut = options.cut and diagnosis.culprit is not None and diagnosis.culprit.subsystem
                results.add(task, {**diagnosis.to_dict(), **({"cut": cut(engine, diagnosis)} if is_cut else {})})
        except UsageError as error:
            results.add(task, {"error": str(error)})
        return cells(task, results.rows[task.row.id])

    with ThreadPoolExecutor(options.jobs) as pool:
        for number, row in enumerate(pool.map(run_task, tasks), 1):
            print(f"{number} of {len(tasks)}: {' · '.join(row)}", file=sys.stderr, flush=True)


def cells(task: Task, result: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    culprit = Culprit(**result["culprit"]) if result.get("culprit") else None
    blamed = "; ".join(filter(None, (sentence(culprit) if culprit else "", result.get("bisect_note", ""))))
    stage = result.get("stage") or result.get("error") or result["verdict"]
    mark = "" if is_stage_right(task, result) else " **no**"
    return [task.row.id, task.row.cls, task.stage, stage + mark, blamed, duration(result.get("seconds", 0.0))]


def is_stage_right(task: Task, result: dict[str, Any]) -> bool:
    """Return whether the named stage is the row's."""
    return result.get("stage") in task.stages or (bool(result.get("stage")) and task.row.id in corpus.STAGE_NOTES)


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
    except (corpus.CorpusError, UsageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results = Results(arguments.json, environment.build)
    if arguments.only:
        tasks = [task for task in tasks if task.row.id in arguments.only]
        results.rows = {key: value for key, value in results.rows.items() if key not in arguments.only}
    elif arguments.sample:
        tasks = random.Random(0).sample(tasks, min(arguments.sample, len(tasks)))
    new = [task for task in tasks if task.row.id not in results.rows]
    run(new, environment, results, arguments)
    body = [cells(task, results.rows[task.row.id]) for task in tasks]
    print(markdown_table(["row", "class", "row's stage", "stage", "to blame", "time"], body))
    return report(tasks, results.rows)


def report(tasks: Sequence[Task], rows: dict[str, dict[str, Any]]) -> int:
    """Print the shares; return 1 if one is too small."""
    stages = [is_stage_right(task, rows[task.row.id]) for task in tasks]
    culprits = [rows[task.row.id].get("culprit") or {} for task in tasks if "inductor" in task.stages]
    shares = (
        ("stage is the row's", stages, STAGES_RIGHT),
        ("subsystem is named", [bool(culprit.get("subsystem")) for culprit in culprits], SUBSYSTEMS_NAMED),
    )
    print()
    for name, marks, target in shares:
        print(f"{name}: {sum(marks)} of {len(marks)} ({sum(marks) / max(len(marks), 1):.0%}, target {target:.0%})")
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
