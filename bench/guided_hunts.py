"""What guidance gives: groups of failures over variants, by hunts that draw with and without it. Nothing is reduced.

    python bench/guided_hunts.py -o FOLDER --variants 400
    python bench/guided_hunts.py -o FOLDER --variants 400 --seeds 1,2,3 --backend inductor

Each way gets equally many variants of each seed. ``mutate`` starts with the shipped regressions and findings as parents, whose own
defects its ledger explains; they count for no way. Run it on an idle machine for times; counts need none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from runner.generate.generator import read_parents
from runner.hunt.groups import FAILURES, Head, Round, append_line, read_ledger
from runner.hunt.hunt import Guidance, Rounds, settings_for
from runner.session.plan import find_environments
from runner.session.settings import RunSettings

SPECS = ("specs/found", "specs/regressions")
BATCH = 40
WAYS = ("plain", "guided", "mutate")


def hunt(folder: Path, way: str, seed: int, profile: str, settings: RunSettings, variants: int) -> list[Round]:
    """Return the rounds of one hunt, up to so many variants."""
    folder.mkdir(parents=True)
    settings = settings_for(settings)
    environment = find_environments(())[0]
    paths = SPECS if way == "mutate" else ()
    parents = read_parents(paths, settings.limits()) if paths else ()
    guidance = None if way == "plain" else Guidance(seed, parents)
    head = Head(seed, profile, BATCH, environment.build, backend=settings.backend, guided=way != "plain", mutate=paths)
    ledger = read_ledger(SPECS, settings.limits())
    rounds: list[Round] = []
    append_line(folder, head)
    with Rounds(folder, head, environment, settings, ledger, lambda text: None, guidance) as drawing:
        while sum(each.variants for each in rounds) < variants:
            rounds.append(drawing.run(len(rounds), lambda key: False))
            append_line(folder, rounds[-1])
            print(
                f"{folder.name}: {sum(each.variants for each in rounds)} variants, {groups(rounds)} groups", flush=True
            )
    return rounds


def groups(rounds: Sequence[Round]) -> int:
    """Return how many signatures fail that no ledger explains."""
    return len({red.signature_id for each in rounds for red in each.red if red.verdict in FAILURES and not red.known})


def row(way: str, seed: int, rounds: Sequence[Round]) -> tuple[object, ...]:
    """Return a row of the table: groups after each quarter of the rounds, variants, red ones, seconds."""
    quarters = [groups(rounds[: -(-len(rounds) * part // 4)]) for part in (1, 2, 3, 4)]
    reds = [red for each in rounds for red in each.red]
    failures = sum(red.verdict in FAILURES for red in reds)
    severe = {red.signature_id for red in reds if red.severity == "wrong-result" and not red.known}
    seconds = sum(each.drawing + each.running for each in rounds)
    return (
        way,
        seed,
        sum(each.variants for each in rounds),
        failures,
        *quarters,
        len(severe),
        len(reds) - failures,
        round(seconds),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Hunt each way with each seed, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a new folder for the hunts")
    parser.add_argument("--variants", type=int, default=400)
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--profile", default="wide")
    parser.add_argument("--backend", default="aot_eager_decomp_partition")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    settings = RunSettings(backend=(options.backend,), jobs=options.jobs)
    rows = []
    for seed in map(int, options.seeds.split(",")):
        for way in options.ways.split(","):
            folder = options.output / f"{way}-{seed}"
            rows.append(row(way, seed, hunt(folder, way, seed, options.profile, settings, options.variants)))
    headers = [
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
    ]
    print(tabulate(rows, headers))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
