"""How long the commands take that need no torch, beside a start of Python.

    python bench/startup.py [--rounds 10]

Prints medians, after a round that fills caches.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from commands import ROOT, command_line, measure_command, option, spread
from tabulate import tabulate

COMMANDS = ("--version", "--help", "schema", "list suites/", "validate specs/ --allow-python")
PYTHON = "python"


def measure(rounds: int, commands: Sequence[str] = COMMANDS) -> Mapping[str, list[float]]:
    """Return the seconds of each command in each round, after one that fills caches."""
    words = {PYTHON: ["-c", "pass"], **{f"runner {text}": ["-m", "runner", *text.split()] for text in commands}}
    seconds: dict[str, list[float]] = {name: [] for name in words}
    for _ in range(rounds + 1):
        for name, arguments in words.items():
            seconds[name].append(measure_command([sys.executable, *arguments], cwd=ROOT).seconds)
    return {name: values[1:] for name, values in seconds.items()}


if __name__ == "__main__":
    options = command_line(__doc__, option("--rounds", type=int, default=10)).parse_args()
    rows = [[name, *spread(values)] for name, values in measure(options.rounds).items()]
    print(tabulate(rows, headers=["command", "median s", "fastest", "slowest"], floatfmt=".3f"))
