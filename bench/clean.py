"""How often does the runner cry wolf? Runs variants of the shipped specs that have no bug, and counts red verdicts.

    python bench/clean.py [--count 500] [--rounds 3]

Every case of the smoke suite that no ledger entry speaks of, under the four backends of the ladder, seed after seed, until
``count`` variants have run; then again with other seeds. Prints one line a round.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "inductor")
SUITE = Path(__file__).parent.parent / "suites" / "smoke.suite.yaml"


def run(seed: int, events: Path) -> list[dict[str, object]]:
    """The finished variants of one run of the suite."""
    command = [sys.executable, "-m", "runner", "run", str(SUITE), "-k", "not tag:planted", "--seed", str(seed)]
    for backend in BACKENDS:
        command += ["--backend", backend]
    subprocess.run([*command, "--events", str(events)], stdout=subprocess.DEVNULL, check=False)
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    return [line for line in lines if line["event"] == "variant-finished"]


def main() -> int:
    """Run all rounds; 1 if anything was red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    seed, alarms = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, arguments.rounds + 1):
            verdicts: collections.Counter[str] = collections.Counter()
            while verdicts.total() < arguments.count:
                seed += 1
                for event in run(seed, Path(folder, f"{seed}.jsonl")):
                    verdicts[str(event["verdict"])] += 1
                    if event["verdict"] != "PASS":
                        alarms += 1
                        print(f"  seed {seed}: {event['verdict']} {event['id']}: {event['reason']}")
            print(
                f"round {number}: {verdicts.total()} variants, " + ", ".join(f"{n} {v}" for v, n in verdicts.items()),
                flush=True,
            )
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
