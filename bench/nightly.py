"""A small part of every bench, as ratios, held against those of the last night.

    python bench/nightly.py ratios.json            measures, compares with what the file holds, and writes the new ratios there

Each ratio compares two things of one run on one machine, and the smaller is the better. Exits with 1 where a ratio is more than 1.5
times the last one, so that somebody looks. The targets themselves need more rounds: ``docs/lab/2026-11-performance.md`` names their commands.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import throughput
import verdicts
from tabulate import tabulate

WORSE = 1.5
"""How much a ratio may grow before somebody should look: single rounds on shared machines differ by up to 40 %."""


def measure_verdicts() -> dict[str, float]:
    """Return what one case costs beside a script."""
    (seconds,) = verdicts.measure(1)
    ratios = {what: ratio for what, ratio, _ in verdicts.targets(seconds)}
    for backend in verdicts.BACKENDS:
        passing = f"{verdicts.PASSING}, {backend}"
        ratios[f"{passing}, to a script"] = seconds[passing] / seconds[f"script, {backend}"]
    return ratios


def measure_throughput() -> dict[str, float]:
    """Return what a few variants cost beside pytest-xdist."""
    words = ["-n", "12", "--ways", "xdist,runner,runner-cached"]
    arguments = throughput.parser().parse_args(words)
    with tempfile.TemporaryDirectory(prefix="nightly-") as folder:
        medians = throughput.medians(throughput.run(arguments, Path(folder)))
    return {
        f"{backend}, {caches}: {way} to xdist": medians[backend, caches, way].seconds
        / medians[backend, caches, "xdist"].seconds
        for backend in throughput.BACKENDS
        for caches, way in (("cold", "runner"), ("warm", "runner"), ("warm", "runner-cached"))
    }


def measure_commands() -> dict[str, float]:
    """Return what commands without torch cost beside the start of Python."""
    root = Path(__file__).resolve().parent.parent
    commands: Mapping[str, Sequence[str]] = {
        "python": ["-c", "pass"],
        "runner --help": ["-m", "runner", "--help"],
        "runner list suites/": ["-m", "runner", "list", "suites/"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(5):
        for name, words in commands.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, *words], cwd=root, stdout=subprocess.DEVNULL, check=True)
            seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    return {f"{name}, to python": medians[name] / medians["python"] for name in commands if name != "python"}


def compare(last: Mapping[str, float], now: Mapping[str, float]) -> tuple[str, list[str]]:
    """Return a table of both, and the names of the ratios that have become worse."""
    rows = []
    worse = []
    for name, ratio in now.items():
        change = ratio / last[name] if last.get(name, 0) > 0 and ratio > 0 else None
        if change is not None and change > WORSE:
            worse.append(name)
        rows.append([name, last.get(name), ratio, change, "WORSE" if name in worse else ""])
    return tabulate(rows, headers=["ratio", "last", "now", "now / last", ""], floatfmt=".2f"), worse


def main() -> int:
    """Measure, compare and keep; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="JSON: ratios by name. Read, if it is there, and written")
    file = parser.parse_args().file
    last = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    now = {**measure_commands(), **measure_verdicts(), **measure_throughput()}
    table, worse = compare(last, now)
    print(table)
    file.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
