"""A small part of every bench, as ratios, held against those of the last night.

    python bench/nightly.py ratios.json     measures, compares with what the file holds, and writes the new ratios

Each ratio compares two things of one run on one machine, and the smaller is the better. Exits with 1 where a ratio is
more than 1.5 times the last one, so that somebody looks. The targets themselves need more rounds:
``docs/lab/2026-11-performance.md`` names their commands.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import startup
import throughput
import verdicts
from commands import command_line, option, write_json
from tabulate import tabulate

COMMANDS = ("--help", "list suites/")
WORSE = 1.5
"""How much a ratio may grow before somebody should look: single rounds on shared machines differ by up to 40 %."""


def measure_verdicts() -> dict[str, float]:
    """Return what one case costs beside a script."""
    (seconds,) = verdicts.measure(1)
    passing = {f"{verdicts.PASSING}, {backend}": seconds[f"script, {backend}"] for backend in verdicts.BACKENDS}
    return {
        **{target.subject: target.value or 0.0 for target in verdicts.targets(seconds)},
        **{f"{name}, to a script": seconds[name] / script for name, script in passing.items()},
    }


def measure_throughput() -> dict[str, float]:
    """Return what a few variants cost beside pytest-xdist."""
    arguments = throughput.parser().parse_args(["-n", "12", "--ways", "xdist,runner,runner-cached"])
    with tempfile.TemporaryDirectory(prefix="nightly-") as folder:
        passes = throughput.medians(throughput.run(arguments, Path(folder)))
    return {
        f"{backend}, {caches}: {way} to xdist": passes[backend, caches, way].seconds
        / passes[backend, caches, "xdist"].seconds
        for backend in throughput.BACKENDS
        for caches, way in (("cold", "runner"), ("warm", "runner"), ("warm", "runner-cached"))
    }


def measure_commands() -> dict[str, float]:
    """Return what commands without torch cost beside the start of Python."""
    seconds = {name: statistics.median(values) for name, values in startup.measure(5, COMMANDS).items()}
    python = seconds.pop(startup.PYTHON)
    return {f"{name}, to python": value / python for name, value in seconds.items()}


def compare(last: Mapping[str, float], now: Mapping[str, float]) -> tuple[str, list[str]]:
    """Return a table of both, and the names of the ratios that have become worse."""
    changes = {name: ratio / last[name] for name, ratio in now.items() if last.get(name, 0) > 0 and ratio > 0}
    worse = [name for name, change in changes.items() if change > WORSE]
    rows = [[name, last.get(name), now[name], changes.get(name), "WORSE" if name in worse else ""] for name in now]
    return tabulate(rows, headers=["ratio", "last", "now", "now / last", ""], floatfmt=".2f"), worse


def main() -> int:
    """Measure, compare and keep; the exit code."""
    file = option("file", type=Path, help="JSON: ratios by name. Read, if it is there, and written")
    path: Path = command_line(__doc__, file).parse_args().file
    last = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    now = {**measure_commands(), **measure_verdicts(), **measure_throughput()}
    table, worse = compare(last, now)
    print(table)
    write_json(path, now)
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
