"""What does recording lines of the compiler cost? Cases of the smoke suite, each without and with, in one run.

    python bench/lines.py [-k EXPR] [-n 20] [--repeat 3]

Each variant runs in a forked child of one warm process, which has nothing compiled on disk: without lines, and with
lines by each method that this Python has. The order alternates by variants. The time is that of the compiled calls.
Prints the medians, and whether both methods have the same lines. Exit code 1: they have not.
"""

from __future__ import annotations

import os
import pickle
import statistics
import sys
import tempfile
from typing import Any

os.environ.update({
    "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    **os.environ,
})  # fmt: skip

import torch
from commands import SUITES, command_line, option

from runner.builder.source import build
from runner.cases.expand import parse_selection
from runner.contract.job import Job
from runner.contract.lines import Lines, is_text
from runner.session.collect import load
from runner.session.plan import Environment, Planned, job
from runner.worker.program import lines
from runner.worker.run.job import judge_job

WITHOUT = "without"


def observe(task: Job, way: str, folder: str) -> tuple[float, list[str]]:
    """Return the seconds of a variant's compiled calls in a forked child, and what it reached.

    Raises:
        RuntimeError: the child failed.
    """
    path = os.path.join(folder, "answer")
    if (pid := os.fork()) == 0:
        code = 1
        try:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(dir=folder)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            if way == "settrace":
                lines.take_tool = lambda monitoring: None
            record = judge_job(task, lambda message: None)
            with open(path, "wb") as file:
                pickle.dump((record.seconds["backend"], [name for name in record.reached if is_text(name)]), file)
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError(f"{task.id} failed {way}")
    with open(path, "rb") as file:
        answer: tuple[float, list[str]] = pickle.load(file)
    return answer


def difference(first: list[str], second: list[str]) -> list[str]:
    """Return the lines that one of two records has alone."""
    both = Lines(first), Lines(second)
    return [*(both[0] - both[1]).texts(), *(both[1] - both[0]).texts()]


def main() -> int:
    """Measure and print."""
    usual = "backend:inductor and not tag:planted and not tag:capture and not case:refused_index"
    arguments = command_line(
        __doc__, option("-k", dest="select", default=usual), option("-n", dest="count", type=int, default=20),
        option("--repeat", type=int, default=3),
    ).parse_args()  # fmt: skip
    torch.set_num_threads(1)
    torch.compile(lambda x: x.sin() + 1)(torch.ones(8))
    variants = [*filter(parse_selection(arguments.select), load([str(SUITES / "smoke.suite.yaml")]).variants)]
    variants = variants[:: max(1, len(variants) // arguments.count)][: arguments.count]
    if not variants:
        sys.exit(f"nothing selected by {arguments.select!r}")
    here = Environment("0", "", torch.__version__, torch.__version__, "")
    ways = [WITHOUT, "settrace", *(["monitoring"] if hasattr(sys, "monitoring") else [])]
    ratios: dict[str, list[float]] = {way: [] for way in ways[1:]}
    counts: list[int] = []
    unequal = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, variant in enumerate(variants):
            answers = _of_variant(Planned(variant, here), ways if number % 2 else ways[::-1], arguments.repeat, folder)
            seconds = {way: statistics.median(each[0] for each in answers[way]) for way in ways}
            for way, values in ratios.items():
                values.append(seconds[way] / seconds[WITHOUT])
            counts.append(len(Lines(answers["settrace"][0][1])))
            if "monitoring" in ways and (extra := difference(answers["settrace"][0][1], answers["monitoring"][0][1])):
                unequal += 1
                print(f"{variant.id}: not the same lines: {extra[:5]}")
    print(f"{len(variants)} variants, {arguments.repeat} times each; median {statistics.median(counts):.0f} lines")
    for way, values in ratios.items():
        print(f"{way:<11} median {statistics.median(values):.2f} times the time, largest {max(values):.2f}")
    return 1 if unequal else 0


def _of_variant(planned: Planned, ways: list[str], repeat: int, folder: str) -> dict[str, list[Any]]:
    """Return the answers of a variant by way, the ways in turn."""
    answers: dict[str, list[Any]] = {way: [] for way in ways}
    source = build(planned.variant)
    for _ in range(repeat):
        for way in ways:
            fields = {"coverage": "" if way == WITHOUT else "lines"}
            task = Job(**{**job(planned, source).to_json(), **fields})
            answers[way].append(observe(task, way, folder))
    return answers


if __name__ == "__main__":
    sys.exit(main())
