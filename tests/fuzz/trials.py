"""Trials of the fuzzer in a process of their own. The functions here are called there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import fuzz_logs  # noqa: F401
from fuzz_process import Outcome, run
from fuzz_shrink import smallest
from fuzz_trial import Fuzzer, Recipe, Result, Trial

_fuzzers: list[Fuzzer] = []


def start() -> None:
    """Import all that commands use, and make the logs."""
    _fuzzers.append(Fuzzer())


def of_recipe(recipe: Recipe) -> Result:
    """The trial of a recipe."""
    return _fuzzers[0].run(recipe)


def story(recipe: Recipe, key: str) -> str:
    """A finding with the smallest file that shows it, and how to see it again."""
    smaller, trial = smallest(_fuzzers[0], recipe, key)
    text = trial.files[trial.name].decode("utf-8", "backslashreplace")
    told = [f"{problem.oracle}: {problem.detail}" for problem in _fuzzers[0].judge(smaller, trial).problems]
    return f"{told!a}\npython bench/fuzz.py --recipe {smaller}\nrunner {' '.join(trial.words)}\n{text[:1000]!a}"


def of_files(trial: Trial, plant: Callable[[], None] | None = None, again: bool = False) -> Result:
    """A trial of given files, with a fault in the program. ``again``: twice, to compare."""
    fuzzer = _fuzzers[0]
    fuzzer.plant = plant
    try:
        return fuzzer.judge(Recipe(trial.kind, 0, (), 0 if again else 1), trial)
    finally:
        fuzzer.plant = None


def hanging() -> Outcome:
    """A process that does not end."""
    return run(lambda _: time.sleep(60) or 0, Path.cwd(), (), wall=0.3)


def logs() -> tuple[bytes, ...]:
    """The event logs that are changed."""
    return _fuzzers[0].logs
