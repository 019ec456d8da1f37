"""How often does the runner cry wolf? Runs variants of the shipped specs that have no bug, and counts red verdicts.

    python bench/clean.py [--count 500] [--rounds 3]

Every case of the smoke suite that no ledger entry speaks of, under the four backends of the ladder, seed after seed,
until ``count`` variants have run; then again with other seeds. Prints one line a round, and exits with 1 if anything
was red.
"""

from __future__ import annotations

import collections
import itertools
import sys
import tempfile
from pathlib import Path

from commands import RUNNER, SUITES, command_line, measure_command, option, read_results

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")


def main() -> int:
    """Run all rounds; 1 if anything was red."""
    arguments = command_line(
        __doc__, option("--count", type=int, default=500), option("--rounds", type=int, default=3)
    ).parse_args()
    command = [*RUNNER, "run", str(SUITES / "smoke.suite.yaml"), "-k", "not tag:planted"]
    command += [word for backend in BACKENDS for word in ("--backend", backend)]
    seeds, alarms = itertools.count(1), 0
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(1, arguments.rounds + 1):
            verdicts: collections.Counter[str] = collections.Counter()
            while verdicts.total() < arguments.count:
                seed = str(next(seeds))
                log = Path(folder, f"{seed}.jsonl")
                measure_command([*command, "--seed", seed, "--events", str(log)], (0, 1), folder)
                results = read_results(log)
                verdicts.update(result.verdict for result in results)
                reds = [result for result in results if result.verdict != "PASS"]
                alarms += len(reds)
                print(*(f"  seed {seed}: {red.verdict} {red.id}: {red.reason}\n" for red in reds), sep="", end="")
            text = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
            print(f"round {turn}: {verdicts.total()} variants, {text}", flush=True)
    return int(bool(alarms))


if __name__ == "__main__":
    sys.exit(main())
