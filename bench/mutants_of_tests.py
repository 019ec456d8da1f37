"""How many mutants of the compiler do other tests kill: the same mutants as of ``runner mutate``, by unittest.

    python bench/mutants_of_tests.py record FOLDER/test_a.py ... --seconds 2000 -o map.jsonl
    python bench/mutants_of_tests.py try FOLDER/test_a.py ... --map map.jsonl --trials mutants/trials.jsonl -o tests.jsonl

``record`` runs tests in a drawn order, of each file in turn, until they have taken so many seconds of a processor, and
keeps the lines of the compiler that each one reaches. ``try`` runs those that passed and reach the line of a mutant,
chosen as ``runner mutate`` chooses cases, until one fails. Each test, and each mutant, has a process of its own, forked
from one that has imported the tests. The modules are imported from where they are.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a process that has been forked cannot fork a pool

from runner.contract.lines import Lines
from runner.contract.mutant import Mutant
from runner.mutants.campaign import sample
from runner.mutants.trial import FACTOR, SLACK
from runner.worker.program.lines import Sources, recording, texts_of
from runner.worker.program.mutant import NotPlanted, plant

LIMIT = 300
"""Seconds that a test may take without a mutant."""


def tests_of(paths: Iterable[str]) -> dict[str, unittest.TestCase]:
    """Import modules, and return their tests by name."""
    found = {}
    for path in paths:
        sys.path.insert(0, str(Path(path).parent))
        module = importlib.import_module(Path(path).stem)
        for test in flat(unittest.defaultTestLoader.loadTestsFromModule(module)):
            if type(test).__module__ == module.__name__:
                found[test.id()] = test
    return found


def flat(suite: Iterable[Any]) -> Iterator[unittest.TestCase]:
    """Yield the tests of nested suites."""
    for each in suite:
        if isinstance(each, unittest.TestCase):
            yield each
        else:
            yield from flat(each)


def run_one(test: unittest.TestCase, seconds: float) -> dict[str, Any]:
    """Run a test in this process, which ends by SIGALRM after so many seconds. Return its outcome and what failed."""
    signal.alarm(int(seconds) + 1)
    result = unittest.TestResult()
    begun = time.monotonic()
    unittest.TestSuite([test]).run(result)
    signal.alarm(0)
    bad = [text for _, text in (*result.errors, *result.failures)] + ["succeeded, against expectation"] * len(
        result.unexpectedSuccesses
    )
    outcome = "failed" if bad else "skipped" if result.skipped or result.expectedFailures else "passed"
    return {"outcome": outcome, "text": "".join(bad)[-600:], "seconds": time.monotonic() - begun}


def record_one(test: unittest.TestCase) -> dict[str, Any]:
    """Run a test and record its lines."""
    sources = Sources.of()
    with recording(sources) as numbers:
        result = run_one(test, LIMIT)
    return {**result, "lines": sorted(texts_of(sources, numbers))}


def try_one(mutant: Mutant, tests: Mapping[str, unittest.TestCase], chosen: list[tuple[str, float]]) -> dict[str, Any]:
    """Plant a mutant in this process, and run tests until one fails."""
    if not chosen:
        return {"fate": "not reached"}
    try:
        plant(mutant)
    except NotPlanted as error:
        return {"fate": "invalid", "text": str(error)}
    for name, usual in chosen:
        result = run_one(tests[name], SLACK + FACTOR * usual)
        if result["outcome"] == "failed":
            return {"fate": "killed", "test": name, "text": result["text"], "tried": len(chosen)}
    return {"fate": "survived", "tried": len(chosen)}


def forked(
    jobs: Iterable[tuple[str, Callable[[], dict[str, Any]]]], slots: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the answer of each job; each has a process of its own. A death is an answer too."""
    queue, running = iter(jobs), dict[int, tuple[str, str]]()
    while True:
        for name, job in itertools.islice(queue, slots - len(running)):
            handle, path = tempfile.mkstemp()
            os.close(handle)
            pid = os.fork()
            if pid == 0:
                answer_in_child(job, path)
            running[pid] = name, path
        if not running:
            return
        pid, status, usage = os.wait4(-1, 0)
        name, path = running.pop(pid)
        text = Path(path).read_text()
        Path(path).unlink()
        answer: dict[str, Any] = (
            json.loads(text) if text else {"fate": "killed", "outcome": "failed", "text": f"died: status {status}"}
        )
        yield name, {**answer, "busy": round(float(answer.get("children", 0)) + usage.ru_utime + usage.ru_stime, 3)}


def answer_in_child(job: Callable[[], dict[str, Any]], path: str) -> None:
    """Do a job, write its answer, and end the process."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        answer = job()
    except Exception as error:  # noqa: BLE001 - of a mutant, in what runs tests
        answer = {"fate": "killed", "outcome": "failed", "text": f"{type(error).__name__}: {error}"}
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(path).write_text(json.dumps({**answer, "children": children.ru_utime + children.ru_stime}))
    os._exit(0)


def record(arguments: argparse.Namespace) -> None:
    """Run tests in a drawn order until their seconds are used, and write a line for each."""
    tests = tests_of(arguments.paths)
    by_module: dict[str, list[str]] = {}
    for name in random.Random(arguments.seed).sample(sorted(tests), len(tests)):
        by_module.setdefault(name.partition(".")[0], []).append(name)
    order = [name for turn in itertools.zip_longest(*by_module.values()) for name in turn if name is not None]
    spent, count = 0.0, 0

    def jobs() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
        for name in order:
            if spent >= arguments.seconds:
                return
            yield name, partial(record_one, tests[name])

    with open(arguments.output, "w", encoding="utf-8") as file:
        for name, answer in forked(jobs(), arguments.jobs):
            spent += answer["busy"]
            count += answer["outcome"] == "passed"
            file.write(json.dumps({"test": name, **answer}) + "\n")
            file.flush()
    print(f"{len(tests)} tests; {count} passed in {spent:.0f} s of a processor")


def try_all(arguments: argparse.Namespace) -> None:
    """Try the mutants of a campaign, and write a line for each."""
    tests = tests_of(arguments.paths)
    passed = [
        (entry["test"], entry["seconds"], Lines(entry["lines"]))
        for line in Path(arguments.map).read_text(encoding="utf-8").splitlines()
        if (entry := json.loads(line))["outcome"] == "passed" and entry["test"] in tests
    ]
    trials = [json.loads(line) for line in Path(arguments.trials).read_text(encoding="utf-8").splitlines()]
    output = Path(arguments.output)
    done = {json.loads(line)["id"] for line in output.read_text().splitlines()} if output.exists() else set[str]()
    begun, counts = time.monotonic(), dict[str, int]()

    def jobs() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
        for trial in trials:
            mutant = Mutant.from_json(trial["mutant"])
            if trial["fate"] == "invalid" or mutant.id in done:
                continue
            if time.monotonic() - begun > arguments.seconds:
                return
            yield mutant.id, partial(try_one, mutant, tests, choose(mutant, passed, arguments.cases))

    with output.open("a", encoding="utf-8") as file:
        for name, answer in forked(jobs(), arguments.jobs):
            counts[answer["fate"]] = counts.get(answer["fate"], 0) + 1
            file.write(json.dumps({"id": name, **answer}) + "\n")
            file.flush()
    print(counts)


def choose(mutant: Mutant, passed: list[tuple[str, float, Lines]], most: int) -> list[tuple[str, float]]:
    """Return the tests for a mutant, of those that reach its line."""
    reaching = [(name, seconds) for name, seconds, lines in passed if lines.holds(mutant.file, mutant.line)]
    return sample(sorted(reaching, key=lambda test: test[1]), most)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["record", "try"])
    parser.add_argument("paths", nargs="+", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=600, help="record: of a processor; try: of the clock")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=16)
    parser.add_argument("--map")
    parser.add_argument("--trials")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("-o", "--output", required=True)
    arguments = parser.parse_args()
    (record if arguments.command == "record" else try_all)(arguments)


if __name__ == "__main__":
    main()
