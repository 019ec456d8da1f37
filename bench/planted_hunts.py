"""Hunts for the planted bugs of ``runner selftest``: after how many variants each is seen by the right oracle, and whether it is reduced and reported.

    python bench/planted_hunts.py -o FOLDER
    python bench/planted_hunts.py -o FOLDER --only scaled_gradient,draws_twice

A hunt draws new cases for a backend that is broken always. A bug behind a flag, or of one operator, is hunted with the self-test's
own case as a parent (``--mutate``): there the flag stands. Exits with 1 when a bug was missed within 500 variants.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from runner.cases.serialize import plain, text_of_plain
from runner.hunt.groups import read_state
from runner.selftest import BUGS, Planted, variants

MOST = 500
"""Variants of one hunt."""
BATCH = 8
ROUNDS = (1, 2, 4, 8, 16, 32, 60)
GENERAL = {"large_sum", "two_outputs", "in_place", "view_of_input", "gradient", "random"}
"""Cases of the self-test whose bug shows in any case of the kind. Drawn values stay where operators are defined: none is NaN."""
HANGS = "timeout"
LIMIT = "10s"
"""What a variant of a bug that hangs may take: it waits in each stage. With the default of two minutes, a batch takes an hour.
Its report diagnoses one such variant, and each try of that waits as long: it gets twenty minutes instead of four."""


@dataclass(frozen=True)
class Hunt:
    """What a hunt for one bug came to."""

    bug: str
    variants: int
    result: str
    reduced: str = ""


def hunt(bug: Planted, folder: Path) -> Hunt:
    """Hunt for one bug, a few rounds at a time, until the right oracle names it at the right stage.

    The right oracle may be the one of the reason alone: a lost gradient has two, and the more severe one names the group.
    """
    own = folder / bug.bug
    hangs = HANGS in bug.oracles
    budget = "20m" if hangs else "4m"
    words = ["--batch", str(BATCH), "--reduce-budget", budget, "--backend", bug.backend, "-o", str(own)]
    words += ["--profile", "training"] if bug.case == "gradient" else []
    words += ["--timeout", LIMIT] if hangs else []
    if bug.case not in GENERAL or bug.config or hangs:
        words += ["--mutate", str(_parent(bug, folder)), "--allow-python"]
    for rounds in ROUNDS:
        subprocess.run(
            [sys.executable, "-m", "runner", "hunt", "--rounds", str(rounds), *words], capture_output=True, check=False
        )
        state = read_state(own)
        if state is None:
            return Hunt(bug.bug, 0, "NOT BEGUN")
        count = sum(each.variants for each in state.rounds)
        right = [red.signature_id for each in state.rounds for red in each.red
                 if red.stage == bug.stage and (red.oracle in bug.oracles or red.reason.startswith(bug.oracles))]  # fmt: skip
        if right:
            report = state.reports.get(right[0])
            reported = ", reported" if report and not report.problem else ""
            return Hunt(bug.bug, count, f"seen{reported}", str(state.reductions.get(right[0], "not reduced")))
        if count >= MOST:
            break
    return Hunt(bug.bug, count, "MISSED")


def _parent(bug: Planted, folder: Path) -> Path:
    """Write the self-test's case of a bug, with its flags, and return the file."""
    variant = next(each for each in variants([bug]) if each.backend.name == bug.bug)
    path = folder / f"{bug.bug}.spec.yaml"
    data = {key: value for key, value in plain(variant.case).items() if key not in ("tags", "timeout")}
    if variant.case.module is not None:
        shutil.copy(variant.case.module.file, folder)
    path.write_text(text_of_plain({**data, **({"config": dict(bug.config)} if bug.config else {})}))
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt for all bugs and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder for the hunts")
    parser.add_argument("--only", default="", metavar="NAMES", help="bugs by their names, separated by commas")
    options = parser.parse_args(arguments)
    options.output.mkdir(exist_ok=True)
    names = [name for name in options.only.split(",") if name] or [bug.bug for bug in BUGS]
    results = []
    for bug in (bug for bug in BUGS if bug.bug in names):
        results.append(hunt(bug, options.output))
        print(results[-1], file=sys.stderr, flush=True)
    rows = [(each.bug, each.variants or "", each.result, each.reduced) for each in results]
    print(tabulate(rows, ["planted bug", "variants", "", "operators"]))
    return int(any(each.result in ("MISSED", "NOT BEGUN") for each in results))


if __name__ == "__main__":
    sys.exit(main())
