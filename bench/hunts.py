"""What hunts find: bugs that are planted, and failures with and without guidance.

    python bench/hunts.py planted -o FOLDER
    python bench/hunts.py planted -o FOLDER --only scaled_gradient,draws_twice
    python bench/hunts.py guided -o FOLDER --variants 400
    python bench/hunts.py guided -o FOLDER --variants 400 --seeds 1,2,3 --backend inductor

``planted`` hunts for the bugs of ``runner selftest``: after how many variants is each seen by the right oracle, is it
reduced, and is it reported? A hunt draws new cases for a backend that is broken always. A bug behind a flag, or of
one operator, is hunted with the self-test's own case as a parent (``--mutate``): there the flag stands. Exits with 1
when a bug was missed within 500 variants.

``guided`` counts groups of failures over variants, by hunts that draw with and without guidance. Nothing is reduced.
Each way gets equally many variants of each seed. ``mutate`` starts with the shipped regressions and findings as
parents, whose own defects its ledger explains; they count for no way. Run it on an idle machine for times; counts
need none.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from commands import RUNNER, measure_command, option, run_mode
from tabulate import tabulate

from runner.cases.serialize import plain, text_of_plain
from runner.generate.generator import read_parents
from runner.hunt.groups import FAILURES, Head, Round, append_line, read_ledger, read_state
from runner.hunt.hunt import Guidance, Rounds, settings_for
from runner.selftest import BUGS, Planted, variants
from runner.session.plan import find_environments
from runner.session.settings import RunSettings

ROUNDS = (1, 2, 4, 8, 16, 32, 60)
GENERAL = {"large_sum", "two_outputs", "in_place", "view_of_input", "gradient", "random"}
"""Cases of the self-test whose bug shows in any case of the kind. Drawn values are never NaN."""
LIMIT = "10s"
"""What a variant of a bug that hangs may take: it waits in each stage. With the default of two minutes, a batch takes
an hour. Its report diagnoses one such variant, and each try waits as long: it gets twenty minutes instead of four."""

SPECS = ("specs/found", "specs/regressions")
BATCH = 40
COLUMNS = (
    "way",
    "seed",
    "variants",
    "failures",
    "groups at 1/4",
    "1/2",
    "3/4",
    "all",
    "wrong results",
    "no failure",
    "s",
)


def planted(options: argparse.Namespace) -> int:
    """Hunt for planted bugs, and print after how many variants each is seen."""
    options.output.mkdir(exist_ok=True)
    names = [name for name in options.only.split(",") if name] or [bug.bug for bug in BUGS]
    rows = []
    for bug in (bug for bug in BUGS if bug.bug in names):
        rows.append((bug.bug, *hunt_bug(bug, options.output)))
        print(*rows[-1], file=sys.stderr, flush=True)
    print(tabulate(rows, ["planted bug", "variants", "", "operators"]))
    return int(any(result in ("MISSED", "NOT BEGUN") for _, _, result, _ in rows))


def hunt_bug(bug: Planted, folder: Path) -> tuple[int, str, str]:
    """Hunt for one bug, a few rounds at a time, until the right oracle names it at the right stage.

    The right oracle may be that of the reason alone: a lost gradient has two, and the more severe one names the group.

    Returns:
        how many variants were hunted, what came of it, and what the reduction did to the operators.
    """
    hangs = "timeout" in bug.oracles
    words = ["--batch", "8", "--reduce-budget", "20m" if hangs else "4m", "--backend", bug.backend]
    words += [*["--profile", "training"] * (bug.case == "gradient"), *["--timeout", LIMIT] * hangs]
    if bug.case not in GENERAL or bug.config or hangs:
        words += ["--mutate", str(write_parent(bug, folder)), "--allow-python"]
    for rounds in ROUNDS:
        command = [*RUNNER, "hunt", "--rounds", str(rounds), *words, "-o", str(folder / bug.bug)]
        measure_command(command, range(-255, 256))
        state = read_state(folder / bug.bug)
        if state is None:
            return 0, "NOT BEGUN", ""
        count = sum(entry.variants for entry in state.rounds)
        reds = [red for entry in state.rounds for red in entry.red if red.stage == bug.stage]
        right = [red.signature_id for red in reds if red.oracle in bug.oracles or red.reason.startswith(bug.oracles)]
        if right:
            report = state.reports.get(right[0])
            result = "seen, reported" if report and not report.problem else "seen"
            return count, result, str(state.reductions.get(right[0], "not reduced"))
        if count >= 500:
            break
    return count, "MISSED", ""


def write_parent(bug: Planted, folder: Path) -> Path:
    """Write the self-test's case of a bug, with its flags, and return the file."""
    variant = next(variant for variant in variants([bug]) if variant.backend.name == bug.bug)
    path = folder / f"{bug.bug}.spec.yaml"
    data = {key: value for key, value in plain(variant.case).items() if key not in ("tags", "timeout")}
    if variant.case.module is not None:
        shutil.copy(variant.case.module.file, folder)
    path.write_text(text_of_plain({**data, **({"config": dict(bug.config)} if bug.config else {})}))
    return path


def guided(options: argparse.Namespace) -> int:
    """Hunt with and without guidance, and print how many groups of failures each way has."""
    pairs = itertools.product(map(int, options.seeds.split(",")), options.ways.split(","))
    rows = [row(way, seed, hunt_way(options, way, seed)) for seed, way in pairs]
    print(tabulate(rows, COLUMNS))
    return 0


def hunt_way(options: argparse.Namespace, way: str, seed: int) -> list[Round]:
    """Return the rounds of one hunt, up to so many variants."""
    folder = options.output / f"{way}-{seed}"
    folder.mkdir(parents=True)
    settings = settings_for(RunSettings(backend=(options.backend,), jobs=options.jobs))
    environment, limits, paths = find_environments(())[0], settings.limits(), SPECS if way == "mutate" else ()
    guidance = None if way == "plain" else Guidance(seed, read_parents(paths, limits) if paths else ())
    head = Head(
        seed, options.profile, BATCH, environment.build, backend=settings.backend, guided=way != "plain", mutate=paths
    )
    rounds: list[Round] = []
    append_line(folder, head)
    with Rounds(
        folder, head, environment, settings, read_ledger(SPECS, limits), lambda text: None, guidance
    ) as drawing:
        while (count := sum(entry.variants for entry in rounds)) < options.variants:
            rounds.append(drawing.run(len(rounds), lambda key: False))
            append_line(folder, rounds[-1])
            print(f"{folder.name}: {count + rounds[-1].variants} variants, {groups(rounds)} groups", flush=True)
    return rounds


def groups(rounds: Sequence[Round]) -> int:
    """Return how many signatures fail that no ledger explains."""
    reds = [red for entry in rounds for red in entry.red]
    return len({red.signature_id for red in reds if red.verdict in FAILURES and not red.known})


def row(way: str, seed: int, rounds: Sequence[Round]) -> tuple[object, ...]:
    """Return a row of the table: groups after each quarter of the rounds, variants, red ones, seconds."""
    quarters = [groups(rounds[: -(-len(rounds) * part // 4)]) for part in (1, 2, 3, 4)]
    reds = [red for entry in rounds for red in entry.red]
    failures = sum(red.verdict in FAILURES for red in reds)
    severe = {red.signature_id for red in reds if red.severity == "wrong-result" and not red.known}
    seconds = round(sum(entry.drawing + entry.running for entry in rounds))
    variants = sum(entry.variants for entry in rounds)
    return way, seed, variants, failures, *quarters, len(severe), len(reds) - failures, seconds


MODES = {
    planted: (
        option("-o", "--output", type=Path, required=True, help="a folder for the hunts"),
        option("--only", default="", metavar="NAMES", help="bugs by their names, separated by commas"),
    ),
    guided: (
        option("-o", "--output", type=Path, required=True, help="a new folder for the hunts"),
        option("--variants", type=int, default=400),
        option("--seeds", default="1"),
        option("--ways", default="plain,guided,mutate"),
        option("--profile", default="wide"),
        option("--backend", default="aot_eager_decomp_partition"),
        option("-j", "--jobs", type=int, default=2),
    ),
}

if __name__ == "__main__":
    sys.exit(run_mode(__doc__, MODES, None))
