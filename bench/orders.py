"""Whether a verdict depends on what ran before it: generated variants in living processes, in three orders.

    python bench/orders.py [--count 200] [--seed 0] [--jobs 1] [--backend inductor] [--profile wide] [--device cpu]

Draws cases, runs them as planned, backwards and shuffled, and compares the verdicts and the oracles that found
something. Prints each variant with different answers, and exits with 1 if there is one.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from commands import RUNNER, command_line, measure_command, option

from runner.record.events import Notice, VariantFinished
from runner.session.collect import collect
from runner.session.plan import Planned
from runner.session.run import Plan, plan, run
from runner.session.settings import RunSettings

Answer = tuple[str, tuple[str, ...]]
"""A verdict, and the oracles that found something."""


def orders(planned: Sequence[Planned], seed: int) -> dict[str, tuple[Planned, ...]]:
    """Return the orders by their names."""
    shuffled = random.Random(seed).sample(planned, len(planned))
    return {"as planned": tuple(planned), "backwards": tuple(reversed(planned)), "shuffled": tuple(shuffled)}


def answers(planned: Plan, settings: RunSettings) -> dict[str, Answer]:
    """Run a plan, and return what each variant came to, by its id."""
    results: dict[str, Answer] = {}
    for event in run(planned, settings):
        if isinstance(event, VariantFinished):
            results[event.id] = (event.verdict, event.oracles)
        elif isinstance(event, Notice) and event.severity == "error":
            print(event.message, file=sys.stderr)
    return results


def differences(results: Mapping[str, Mapping[str, Answer]]) -> list[str]:
    """Return a line for each variant that has different answers in the orders ``results``."""
    names = dict.fromkeys(name for answers in results.values() for name in answers)
    rows = {name: {order: answers.get(name) for order, answers in results.items()} for name in names}
    return [f"{name}: {row}" for name, row in rows.items() if len({*row.values()}) > 1]


def main() -> int:
    """Draw, run three times, compare. Return 1 where a verdict depends on the order."""
    defaults = {"count": 200, "seed": 0, "jobs": 1, "backend": "inductor", "profile": "wide", "device": "cpu"}
    options = [option(f"--{name}", type=type(value), default=value) for name, value in defaults.items()]
    words = command_line(__doc__, *options).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases = str(Path(folder, "cases"))
        draw = ("--seed", str(words.seed), "--count", str(words.count), "--profile", words.profile)
        measure_command([*RUNNER, "generate", *draw, "-o", cases])
        settings = RunSettings(
            isolation="living", jobs=words.jobs, backend=(words.backend,), device=(words.device,), seed=words.seed
        )
        whole = plan(collect([cases], settings), settings)
        results = {}
        for name, order in orders(whole.planned, words.seed).items():
            results[name] = answers(replace(whole, planned=order), settings)
            print(f"{name}: {dict(Counter(verdict for verdict, _ in results[name].values()))}", flush=True)
    lines = differences(results)
    print(*lines, f"{len(lines)} of {len(whole.planned)} verdicts depend on the order", sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
