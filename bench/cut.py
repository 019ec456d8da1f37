"""Plants faults of operators into captured graphs of 50 to 1,000 calls, and counts how often the cut names them.

    python bench/cut.py -o FOLDER [--kinds value,pair] [--graphs 0,19] [-j N]

Twenty stacks of ``torch.nn`` (``bench/cut_models.py``) are captured once into FOLDER. Each fault is in one operator
drawn by ``--seed`` (a pair: wrong only where one graph holds both), among those with which the case fails.
FOLDER/results.jsonl has a line for each, and is gone on with.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from runner.cases.model import Backend  # noqa: E402
from runner.contract.job import Job  # noqa: E402
from runner.diagnose.diagnosis import bisection_job  # noqa: E402
from runner.diagnose.harness import VariantEngine  # noqa: E402
from runner.session.collect import load  # noqa: E402
from runner.session.plan import find_environments  # noqa: E402
from runner.verdict.policy import ranked  # noqa: E402
from runner.verdict.signature import signature_of  # noqa: E402

PER_BLOCK = {"transformer": 24, "conv": 10, "mlp": 15, "rnn": 17}
"""Calls of one block."""
KINDS = ("value", "stride", "exception", "hang", "gradient", "pair")
GRAPHS = 20
LEAST, MOST = 50, 1000
TRIES = 6
"""So many operators are drawn for a fault that shows in what the case gives."""
HANG = 20.0
"""Seconds after which a question about a hang is answered."""
BUDGET = 900.0


def models() -> list[str]:
    """Return the twenty models, whose numbers of calls grow by one factor."""
    kinds = [*PER_BLOCK]
    sizes = [LEAST * (MOST / LEAST) ** (number / (GRAPHS - 1)) for number in range(GRAPHS)]
    return [
        f"{kind}_{round(calls / PER_BLOCK[kind])}"
        for number, calls in enumerate(sizes)
        for kind in [kinds[number % len(kinds)]]
    ]


@dataclass(frozen=True)
class Trial:
    """A fault in a model: its kind, and the calls of the model's graph."""

    model: str
    kind: str
    folder: Path
    seed: int

    @property
    def key(self) -> str:
        """The trial's name."""
        return f"{self.model} {self.kind} {self.seed}"

    def engine(self, module: str) -> VariantEngine:
        """Return an engine for the case under the backend of a module in the folder."""
        path = next((self.folder / self.model).glob("*.spec.yaml"))
        variant = next(iter(load([str(path)]).variants))
        case = replace(variant.case, timeout=HANG) if self.kind == "hang" else variant.case
        variant = replace(variant, case=case, backend=Backend(module, f"{module}:compile_graph"))
        return VariantEngine(variant, find_environments([sys.executable])[0], paths=[str(self.folder), str(HERE)])

    def write(self, module: str, text: str) -> str:
        """Write a module of the folder, and return its name."""
        (self.folder / f"{module}.py").write_text(f"import cut_faults\ncompile_graph = cut_faults.{text}\n")
        return module

    def calls(self) -> list[dict[str, Any]]:
        """Return the calls of the case's graph, and how each can be spoiled."""
        file = self.folder / f"{self.model}.json"
        if not file.exists():
            with self.engine(self.write(f"list_{self.model}", f"listing({str(file)!r})")) as engine:
                engine.ask([engine.job()])
        return list(json.loads(file.read_text()))

    def choices(self) -> Iterator[list[str]]:
        """Yield the names of calls to be spoiled, in the order in which they are drawn."""
        names = [call["name"] for call in self.calls() if self.kind in call["kinds"]]
        draw = random.Random(self.key)
        for _ in range(TRIES):
            first, last = sorted(draw.sample(range(len(names)), 2))
            yield names[first : last + 1 : last - first] if self.kind == "pair" else [names[last]]


def run(trial: Trial) -> dict[str, Any]:
    """Plant a fault that shows, cut, and return what was planted and what was named."""
    begun = time.monotonic()
    for number, names in enumerate(trial.choices()):
        module = trial.write(
            f"fault_{trial.model}_{trial.kind}_{trial.seed}_{number}", f"spoiled({trial.kind!r}, {names!r})"
        )
        with trial.engine(module) as engine:
            answer = engine.read(engine.ask([engine.job()])[0])
            if answer.trust or not answer.findings:
                continue
            signature = replace(signature_of(ranked(answer.findings)[0]), stage="backend")
            task = bisection_job(engine, signature, {}, BUDGET)
            assert isinstance(task, Job), task
            if trial.kind == "hang":
                task = replace(task, arguments={**task.arguments, "seconds": HANG})
            (outcome,) = engine.ask([task])
        result = outcome.result or {}
        named = [call["name"] for call in result.get("operators", ())]
        return {
            "key": trial.key, "model": trial.model, "kind": trial.kind, "oracle": signature.oracle, "planted": names,
            "named": named, "right": named == names, "calls": len(trial.calls()), "runs": result.get("runs"),
            "note": result.get("note") or outcome.ended, "confirmed": result.get("confirmed"),
            "seconds": round(time.monotonic() - begun, 1),
        }  # fmt: skip
    return {"key": trial.key, "model": trial.model, "kind": trial.kind, "right": None, "note": "no fault showed"}


class Results:
    """The lines of a file, one for each trial."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.rows = {row["key"]: row for row in map(json.loads, lines)}

    def add(self, row: dict[str, Any]) -> None:
        """Keep a line."""
        with self._lock:
            self.rows[row["key"]] = row
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), file=sys.stderr, flush=True)


def capture(folder: Path, model: str) -> None:
    """Capture a model, unless that was done."""
    if not (folder / model).is_dir():
        words = [
            str(Path(sys.executable).with_name("runner")),
            "capture",
            f"cut_models:make_{model}",
            "-o",
            str(folder / model),
        ]
        subprocess.run(words, check=True, cwd=HERE, stdout=subprocess.DEVNULL)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows of the table, one for each kind."""
    lines = [
        "| fault | graphs | calls | operator named | compiles, median | most | seconds, median |",
        "| --- " * 7 + "|",
    ]
    groups = {kind: [row for row in rows if row["kind"] == kind and row["right"] is not None] for kind in KINDS}
    groups["all of one operator"] = [row for kind, own in groups.items() if kind != "pair" for row in own]
    for kind, own in groups.items():
        if own:
            right, compiles = sum(row["right"] for row in own), [row["runs"] - 1 for row in own]
            sizes = [row["calls"] for row in own]
            lines.append(
                f"| {kind} | {len(own)} | {min(sizes)} to {max(sizes)} | {right} ({right / len(own):.0%}) "
                f"| {median(compiles):g} | {max(compiles)} | {median(row['seconds'] for row in own):.0f} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run what is not in the results yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--graphs", default="", help="numbers of graphs, from 0 for the smallest (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    arguments = parser.parse_args()
    folder = arguments.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [models()[int(number)] for number in arguments.graphs.split(",") if number] or models()
    for model in chosen:
        capture(folder, model)
    results = Results(folder / "results.jsonl")
    trials = [Trial(model, kind, folder, arguments.seed) for kind in arguments.kinds.split(",") for model in chosen]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(lambda trial: results.add(run(trial)), [t for t in trials if t.key not in results.rows]))
    print(table([results.rows[trial.key] for trial in trials]))


if __name__ == "__main__":
    main()
