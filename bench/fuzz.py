"""Feeds changed files and event logs to the control commands and looks for tracebacks, hangs, leaks of text, and code.

    python bench/fuzz.py --files 20000 --logs 5000 --command .venv/bin/runner     by the installed command, one process each
    python bench/fuzz.py --files 20000 --logs 5000                                in forks of a process that has all imported
    python bench/fuzz.py --recipe spec:12:345,678:9                               one trial again, with all that it wrote

Files are copies of the shipped ones with one to four changes, logs those of runs under a scripted engine. Commands are validate, list,
show, repro and ledger for files; report, ledger, merge, resume and rerun for logs. What is held: no traceback, a documented exit
code, 5 s of a processor, 1 GiB, text without control characters, a place for each diagnostic, programs that a payload does not
change, no file written, no program started. Findings are kept, one folder each with the smallest file and the command;
those of one cause once. Exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fuzz_oracles import Problem
from fuzz_shrink import smallest
from fuzz_trial import Fuzzer, Recipe, Result, Trial
from tabulate import tabulate

import runner

_BATCH = 16
_fuzzer: Fuzzer | None = None


@dataclass
class Summary:
    """What the results say together."""

    counts: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    loads: Counter[bool] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    findings: dict[str, tuple[Recipe, Problem]] = field(default_factory=dict)
    repeats: Counter[str] = field(default_factory=Counter)
    trials: int = 0
    slowest: Result | None = None
    largest: Result | None = None
    longest: Result | None = None

    def add(self, result: Result) -> None:
        """Count one result."""
        self.trials += 1
        self.counts[result.command, result.code] += 1
        self.kinds.update(result.kinds)
        if result.recipe.kind != "log":
            self.loads[result.loads] += 1
        for problem in result.problems:
            self.repeats[problem.key] += 1
            known = self.findings.get(problem.key)
            if known is None or len(result.recipe.edits) < len(known[0].edits):
                self.findings[problem.key] = result.recipe, problem
        self.slowest = max(filter(None, (self.slowest, result)), key=lambda one: one.seconds)
        self.largest = max(filter(None, (self.largest, result)), key=lambda one: one.memory)
        self.longest = max(filter(None, (self.longest, result)), key=lambda one: one.text)

    def share(self) -> float:
        """Of the YAML files that were accepted."""
        return self.loads[True] / max(1, self.loads.total())

    def render(self, verbose: bool = False) -> str:
        """The tables for a person."""
        codes = sorted({code for _, code in self.counts}, key=str)
        commands = sorted({name for name, _ in self.counts})
        rows = [[name, *(self.counts[name, code] or "" for code in codes)] for name in commands]
        lines = [
            tabulate(rows, headers=["command", *("killed" if code is None else f"exit {code}" for code in codes)]),
            "",
        ]
        lines.append(
            f"{self.share():.0%} of {self.loads.total()} YAML files load; {len(self.kinds)} different messages were reached"
        )
        for what, result, text in (
            ("slowest", self.slowest, f"{self.slowest.seconds:.2f} s" if self.slowest else ""),
            ("largest", self.largest, f"{self.largest.memory >> 20} MiB" if self.largest else ""),
            ("longest", self.longest, f"{self.longest.text} bytes" if self.longest else ""),
        ):
            lines.append(f"{what}: {text} ({result.command} {result.recipe})" if result else "")
        if verbose:
            lines += ["", *(f"{count:6} {kind}" for kind, count in self.kinds.most_common())]
        return "\n".join(lines)


def _start(words: tuple[str, ...]) -> None:
    global _fuzzer
    _fuzzer = Fuzzer(words)


def _batch(recipes: list[Recipe]) -> list[Result]:
    assert _fuzzer is not None
    return [_fuzzer.run(recipe) for recipe in recipes]


def _smallest(recipe: Recipe, key: str) -> tuple[Recipe, Trial]:
    assert _fuzzer is not None
    return smallest(_fuzzer, recipe, key)


def recipes(files: int, logs: int, seed: int, suites: float = 0.15) -> Iterator[Recipe]:
    """The recipes of a run: logs among files, and among these a share of suites."""
    total = files + logs
    for number in range(total):
        if number * logs // max(1, total) < (number + 1) * logs // max(1, total):
            yield Recipe.numbered("log", number, seed)
        else:
            yield Recipe.numbered("suite" if number * suites % 1 < suites else "spec", number, seed)


def batches(all_recipes: Iterator[Recipe]) -> Iterator[list[Recipe]]:
    """Some at a time."""
    batch: list[Recipe] = []
    for recipe in all_recipes:
        batch.append(recipe)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def fuzz(arguments: argparse.Namespace, pool: ProcessPoolExecutor) -> Summary:
    """Run all trials, or those of ``--seconds``."""
    summary, began, said = Summary(), time.monotonic(), 0.0
    work = batches(recipes(arguments.files, arguments.logs, arguments.seed))
    pending: set[Future[list[Result]]] = set()
    while True:
        late = arguments.seconds is not None and time.monotonic() - began > arguments.seconds
        while not late and len(pending) < 2 * arguments.jobs and (batch := next(work, None)):
            pending.add(pool.submit(_batch, batch))
        if not pending:
            return summary
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            for result in future.result():
                fresh = {problem.key for problem in result.problems} - summary.findings.keys()
                summary.add(result)
                for problem in result.problems:
                    if problem.key in fresh:
                        print(
                            ascii(f"{result.recipe}: {problem.oracle}: {problem.detail}")[1:-1][:400], file=sys.stderr
                        )
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"{summary.trials} of {arguments.files + arguments.logs} in {said - began:.0f} s, "
                  f"{len(summary.findings)} findings", file=sys.stderr, flush=True)  # fmt: skip


def keep(summary: Summary, pool: ProcessPoolExecutor, output: Path, words: tuple[str, ...]) -> list[list[object]]:
    """Make each finding's file small and write it, with its command; rows for a table."""
    keys = sorted(summary.findings, key=lambda key: -summary.repeats[key])
    futures = [pool.submit(_smallest, summary.findings[key][0], key) for key in keys]
    rows: list[list[object]] = []
    for number, (key, future) in enumerate(zip(keys, futures, strict=True), 1):
        problem = summary.findings[key][1]
        recipe, trial = future.result()
        folder = output / f"{number:03}-{problem.oracle}"
        for name, data in trial.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.replace(b"@WORK@", os.fsencode(folder.resolve())))
        line = f"cd {shlex.quote(str(folder.resolve()))} && {shlex.join([*(words or ('runner',)), *trial.words])}"
        text = f"{problem.detail!a}\n{line}\npython bench/fuzz.py --recipe {recipe}\n"
        (folder / "finding.txt").write_text(text, encoding="utf-8")
        rows.append([summary.repeats[key], problem.oracle, ascii(problem.detail)[1:-1][:110], folder.name])
    return rows


def once(text: str, words: tuple[str, ...]) -> int:
    """One trial, with its files and all that it wrote."""
    fuzzer = Fuzzer(words)
    recipe = Recipe.parse(text)
    trial = fuzzer.trial(recipe)
    result = fuzzer.judge(recipe, trial)
    print(
        f"runner {shlex.join(trial.words)}\nexit code {result.code}, {result.seconds:.2f} s, {result.memory >> 20} MiB"
    )
    for name, data in trial.files.items():
        print(f"--- {name}\n{ascii(data.decode('utf-8', 'backslashreplace'))[1:-1]}"[:20_000].replace("\\n", "\n"))
    for problem in result.problems:
        print(f"{problem.oracle}: {ascii(problem.detail)[1:-1]}")
    return 1 if result.problems else 0


def main() -> int:
    """Fuzz as the command line says; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000, metavar="N", help="how many YAML files (default: 2000)")
    parser.add_argument("--logs", type=int, default=500, metavar="N", help="how many event logs (default: 500)")
    parser.add_argument("--seed", type=int, default=0, help="of what is changed (default: 0)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="at once (default: the cores)"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="begin nothing after so many seconds")
    parser.add_argument(
        "--command", default="", metavar="RUNNER", help="an installed runner, such as .venv/bin/runner; left out: forks"
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="for findings (default: a new temporary folder)")
    parser.add_argument("--recipe", metavar="RECIPE", help="this trial alone")
    parser.add_argument("--verbose", action="store_true", help="list the messages that were reached")
    arguments = parser.parse_args()
    words = tuple(shlex.split(arguments.command))
    if words:
        words = (os.path.abspath(words[0]) if os.sep in words[0] else words[0], *words[1:])
    if arguments.recipe:
        return once(arguments.recipe, words)
    began = time.monotonic()
    print(
        f"seed {arguments.seed}, {arguments.command or f'forks with {Path(runner.__file__).parent}'}", file=sys.stderr
    )
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn"), _start, (words,)) as pool:
        summary = fuzz(arguments, pool)
        seconds = time.monotonic() - began
        print(summary.render(arguments.verbose), flush=True)
        print(f"{summary.trials} trials in {seconds:.0f} s, {summary.trials / seconds:.1f} a second", flush=True)
        if summary.findings:
            output = arguments.output or Path(tempfile.mkdtemp(prefix="runner-fuzz-findings-"))
            rows = keep(summary, pool, output, words)
            print("\n" + tabulate(rows, headers=["times", "oracle", "what", "folder"]) + f"\n\nin {output}")
    return 1 if summary.findings else 0


if __name__ == "__main__":
    sys.exit(main())
