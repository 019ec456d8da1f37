"""How long the commands take that need no torch: medians of ten runs, as a table (``python bench/startup.py``)."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from tabulate import tabulate

REPOSITORY = Path(__file__).resolve().parent.parent
COMMANDS = ("--version", "--help", "schema", "list suites/", "validate specs/ --allow-python")
RUNS = 10


def measure(words: list[str]) -> list[float]:
    """Seconds of each run, the first one (which fills caches) left out."""
    taken = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "runner", *words], cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - began)
    return taken[1:]


def main() -> None:
    """Measure each command and print the table."""
    rows = []
    for words in COMMANDS:
        seconds = measure(words.split())
        rows.append([f"runner {words}", statistics.median(seconds), min(seconds), max(seconds)])
    print(tabulate(rows, headers=["command", "median s", "fastest", "slowest"], floatfmt=".3f"))


if __name__ == "__main__":
    main()
