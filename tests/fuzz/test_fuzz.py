"""Changed files and event logs are refused in words or understood: no traceback, no hang, no code, nothing written.

Two hundred trials of ``bench/fuzz.py``, and five hundred each night, always the same ones. More of them:
``python bench/fuzz.py --files 20000 --logs 5000``.
Each number is a file of its own; Hypothesis drew 310 times from 78 files and 194 changes, because it repeats what it drew before.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import pytest
from fuzz_trial import Recipe, Result

from tests.fuzz import trials as calls

SEED = 12
EXAMPLES = [("spec", 150, 40), ("suite", 20, 8), ("log", 40, 8)]
NIGHTLY = [("spec", 310, 60), ("suite", 50, 15), ("log", 140, 15)]
"""Kind, number of trials, and how many different messages these show at least."""
SHOWN = 5


@pytest.mark.parametrize(
    ("kind", "count", "least"), [*EXAMPLES, *(pytest.param(*row, marks=pytest.mark.nightly) for row in NIGHTLY)]
)
def test_nothing_is_found(trials: ProcessPoolExecutor, kind: str, count: int, least: int) -> None:
    print(f"seed {SEED}")
    recipes = [Recipe.numbered(kind, number, SEED) for number in range(count)]
    results: list[Result] = [*trials.map(calls.of_recipe, recipes)]
    findings = {problem.key: result.recipe for result in results for problem in result.problems}
    shown = [trials.submit(calls.story, recipe, key).result() for key, recipe in [*findings.items()][:SHOWN]]
    assert not findings, f"{len(findings)} findings, such as\n\n" + "\n\n".join(shown)
    loads = sum(result.loads for result in results) / len(results)
    messages = set().union(*(result.kinds for result in results))
    print(f"{len(results)} trials, {loads:.0%} of the files were accepted, {len(messages)} different messages")
    # A fuzzer whose files are all refused at the door tests nothing, and neither does one that changes nothing.
    if kind == "spec":
        assert 0.35 < loads < 0.7
    assert len(messages) > least
