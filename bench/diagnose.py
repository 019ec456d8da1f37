"""Diagnoses every row of the corpus that diverges on a torch: is the stage the row's, and does the bisector name a subsystem?

    python bench/diagnose.py --json diagnoses.json [--python PATH] [--sample N] [-j N]

Rows are those of ``bench/corpus.py``. What is in the JSON file already is not run again. With ``--cut`` the graphs of a row that the bisector
explains are cut too, under the same backend: does that name the same operator? Exits 1 when less than 95 % of the stages are
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import corpus  # noqa: E402

from runner.cases.model import Variant  # noqa: E402
from runner.diagnose.diagnosis import BUDGET, HANG_SECONDS, SECONDS, Culprit, Diagnosis, diagnose, read_bisection  # noqa: E402
from runner.diagnose.harness import VariantEngine  # noqa: E402
from runner.exit_codes import UsageError  # noqa: E402
from runner.report.diagnosis import sentence  # noqa: E402
from runner.session.collect import load  # noqa: E402
from runner.session.plan import Environment, find_environments  # noqa: E402
from runner.text import duration  # noqa: E402

STAGES_RIGHT = 0.95
SUBSYSTEMS_NAMED = 0.70
"""What issue 5 asks for."""


@dataclass(frozen=True)
class Task:
    """A row that diverges, as the corpus has it and as a variant of ours."""

    row: corpus.Row
    stage: str
    variant: Variant

    @property
    def stages(self) -> tuple[str, ...]:
        """The names that its stage has here."""
        return corpus.STAGES.get(self.stage, (self.stage,))


def tasks(torch: str) -> list[Task]:
    """The rows that diverge on ``torch``, in the corpus's order.

    Raises:
        corpus.CorpusError: the files do not fit together.
    """
    tags = corpus.read_tags(corpus.SUITE)
    variants = {}
    for variant in load([str(corpus.SUITE)], allow_python=True).variants:
        key = tags.get(f"{Path(variant.case.file).name}::{variant.case.name}")
        if key is not None:
            variants.setdefault(key, variant)
    found = []
    for row in corpus.read_rows(corpus.CORPUS):
        expected = row.expected(torch)
        if row.kind != "control" and expected is not None and expected.diverges and row.key in variants:
            found.append(Task(row, str(expected.stage), variants[row.key]))
    if not found:
        raise corpus.CorpusError(f"no row of the corpus diverges on torch {torch}")
    return found


class Results:
    """What was found, by the row's number, kept in a file that is complete at every moment."""

    def __init__(self, path: Path | None, build: str) -> None:
        """Read the file, if it is there and about the same torch."""
        self._path, self._build, self._lock = path, build, threading.Lock()
        self.rows: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            self.rows = kept["rows"] if kept["torch"] == build else {}

    def add(self, task: Task, found: Diagnosis | str, beside: dict[str, Any]) -> None:
        """Keep a diagnosis, or the words for why it is missing."""
        data = {"error": found} if isinstance(found, str) else found.to_dict()
        with self._lock:
            self.rows[task.row.id] = {"row_stage": task.stage, **data, **beside}
            if self._path is not None:
                new = self._path.with_suffix(".new")
                text = json.dumps({"torch": self._build, "rows": self.rows}, indent=1, default=str)
                new.write_text(text, encoding="utf-8")
                os.replace(new, self._path)


def cut(engine: VariantEngine, diagnosis: Diagnosis) -> dict[str, Any]:
    """What the cut of the graphs answers: its culprit, its note and its seconds."""
    assert diagnosis.signature is not None
    seconds = HANG_SECONDS if diagnosis.signature.oracle == "timeout" else SECONDS
    arguments = {"wanted": [[*diagnosis.signature.kind]], "seconds": seconds, "budget": BUDGET}
    (outcome,) = engine.ask([engine.job("cut", arguments, timeout=BUDGET + 2 * SECONDS)])
    answer = read_bisection(outcome, engine.variant.case, engine.source)
    return {**asdict(answer), "seconds": round(outcome.seconds, 1), "runs": (outcome.result or {}).get("runs")}


def agrees(result: dict[str, Any]) -> bool | None:
    """Whether cut and bisector name one operator; None where one of them names none."""
    bisected, answer = result.get("culprit") or {}, (result.get("cut") or {}).get("culprit") or {}
    for key in ("place", "step"):
        if bisected.get(key) and answer.get(key):
            return bool(bisected[key] == answer[key])
    if not bisected.get("operator") or not answer.get("operator"):
        return None
    names = [re.sub(r"^aten\.|\.\w+$|^.*\.", "", str(culprit["operator"])) for culprit in (bisected, answer)]
    return names[0].strip("_") == names[1].strip("_")


def run(todo: list[Task], environment: Environment, results: Results, jobs: int, ablations: bool, cuts: bool) -> None:
    """Diagnose the tasks, ``jobs`` at a time, each in processes of its own."""
    done = [0]

    def one(task: Task) -> None:
        found: Diagnosis | str
        beside: dict[str, Any] = {}
        try:
            with VariantEngine(task.variant, environment, slots=1) as engine:
                found = diagnose(engine, ablations=ablations)
                if cuts and found.culprit is not None and found.culprit.subsystem:
                    beside = {"cut": cut(engine, found)}
        except UsageError as error:
            found = str(error)
        results.add(task, found, beside)
        done[0] += 1
        print(f"{done[0]} of {len(todo)}: {' · '.join(cells(task, results.rows[task.row.id]))}", file=sys.stderr, flush=True)  # fmt: skip

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, todo))


def cells(task: Task, result: dict[str, Any]) -> list[str]:
    """A row of the table."""
    culprit = Culprit(**result["culprit"]) if result.get("culprit") else None
    blamed = "; ".join(filter(None, (sentence(culprit) if culprit else "", result.get("bisect_note", ""))))
    stage = result.get("stage") or result.get("error") or result["verdict"]
    mark = "" if stage_right(task, result) else " **no**"
    return [task.row.id, task.row.cls, task.stage, stage + mark, blamed, duration(result.get("seconds", 0.0))]


def stage_right(task: Task, result: dict[str, Any]) -> bool:
    """Whether the named stage is the row's."""
    return result.get("stage") in task.stages or (bool(result.get("stage")) and task.row.id in corpus.STAGE_NOTES)


def named(result: dict[str, Any]) -> bool:
    """Whether the bisector names a subsystem."""
    return bool((result.get("culprit") or {}).get("subsystem"))


def main(argv: list[str] | None = None) -> int:
    """Run, print the table and the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="results, written as they come, and gone on with")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="the Python that has torch")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many rows, drawn alike every time")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="only this row, again")
    parser.add_argument("--ablations", action="store_true", help="also try changed settings, which takes twice as long")
    parser.add_argument("--cut", action="store_true", help="cut the graphs too")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    arguments = parser.parse_args(argv)
    try:
        environment = find_environments([arguments.python])[0]
        chosen = tasks(environment.torch)
    except (corpus.CorpusError, UsageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results = Results(arguments.json, environment.build)
    if arguments.only:
        chosen = [task for task in chosen if task.row.id in arguments.only]
        results.rows = {key: value for key, value in results.rows.items() if key not in arguments.only}
    elif arguments.sample:
        chosen = random.Random(0).sample(chosen, min(arguments.sample, len(chosen)))
    todo = [task for task in chosen if task.row.id not in results.rows]
    run(todo, environment, results, arguments.jobs, arguments.ablations, arguments.cut)
    body = [cells(task, results.rows[task.row.id]) for task in chosen]
    print(corpus._grid(["row", "class", "row's stage", "stage", "to blame", "time"], body))
    return report(chosen, results.rows)


def report(chosen: list[Task], rows: dict[str, dict[str, Any]]) -> int:
    """Print the shares; 1 if one is too small."""
    right = [stage_right(task, rows[task.row.id]) for task in chosen]
    bisectable = [task for task in chosen if "inductor" in task.stages]
    told = [named(rows[task.row.id]) for task in bisectable]
    stages, subsystems = sum(right) / len(right), sum(told) / len(told) if told else 1.0
    print(f"\nstage is the row's: {sum(right)} of {len(right)} ({stages:.0%}, wanted {STAGES_RIGHT:.0%})")
    print(f"subsystem is named: {sum(told)} of {len(told)} ({subsystems:.0%}, wanted {SUBSYSTEMS_NAMED:.0%})")
    verdicts = {task.row.id: agrees(rows[task.row.id]) for task in chosen if "cut" in rows[task.row.id]}
    if verdicts:
        told = [verdict for verdict in verdicts.values() if verdict is not None]
        print(
            f"the cut names the bisector's operator: {sum(told)} of {len(told)}; {len(verdicts) - len(told)} without an operator of both"
        )
    for row in (row for row, verdict in verdicts.items() if not verdict):
        print(f"  {row}: bisector {rows[row]['culprit']}; cut {rows[row]['cut']}")
    return int(stages < STAGES_RIGHT or subsystems < SUBSYSTEMS_NAMED)


if __name__ == "__main__":
    sys.exit(main())
