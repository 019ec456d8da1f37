"""Try a wheel of the runner under several Pythons and versions of torch, and print a table.

python tools/versions.py WHEEL PYTHON... [--jobs N] [--no-smoke]

Of each Python a new environment gets the wheel and its dependencies. It prints the version, and validates and lists
suites/smoke.suite.yaml. If the Python itself has torch, it is then the worker of a run of that suite.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from runner.record.events import finished_of
from runner.record.journal import read_journal

SMOKE = Path(__file__).resolve().parents[1] / "suites" / "smoke.suite.yaml"
HEADERS = ("Python", "torch", "installs", "--version", "validate", "list", "smoke")
COMMANDS = (("--version",), ("validate", str(SMOKE)), ("list", str(SMOKE)))
"""What needs no torch, in the order of the columns."""
PROBE = """\
import json, platform
try:
    from torch import __version__ as torch
except ImportError:
    torch = ""
print(json.dumps([platform.python_version(), torch]))
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit code of a command, and the last line that it printed."""

    code: int
    last: str = ""

    def __str__(self) -> str:
        """Return the cell of a table."""
        return "ok" if self.code == 0 else f"exit code {self.code}: {self.last}"


def run(words: Sequence[str | Path], folder: Path) -> Outcome:
    """Run a command in a folder, with no variable of the caller's Python."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        process = subprocess.run(
            [*map(str, words)], cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        return Outcome(127, str(error))
    return Outcome(process.returncode, next(reversed(process.stdout.strip().splitlines()), ""))


def counted(log: Path) -> str:
    """Return how many variants of a run have each verdict: ``40 PASS, 1 FAIL``."""
    counts = Counter(result.verdict for result in finished_of(read_journal(log)[0]).values())
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


def smoke(runner: Path, python: str, folder: Path, jobs: int) -> str:
    """Run the smoke suite with this Python as its worker. Return the cell: the verdicts and the exit code."""
    log = folder / "events.jsonl"
    words = [runner, "run", SMOKE, "--no-project", "-q", "-j", str(jobs), "--python", python, "--events", log]
    outcome = run(words, folder)
    verdicts = counted(log) if log.exists() else ""
    return f"{verdicts}; exit code {outcome.code}" if verdicts else str(outcome)


def row(wheel: Path, python: str, folder: Path, jobs: int) -> list[str]:
    """Return the cells of one Python. A step that fails leaves the later ones empty.

    Args:
        wheel: absolute path of what is installed.
        python: an interpreter.
        folder: an empty one, for its environment and its run.
        jobs: processes at once in the run; 0 for no run.
    """
    probe = run([python, "-c", PROBE], folder)
    if probe.code:
        return [python, "", str(probe)]
    version, torch = json.loads(probe.last)
    scripts = folder / "environment" / "bin"
    installed = run([python, "-m", "venv", scripts.parent], folder)
    if not installed.code:
        installed = run([scripts / "python", "-m", "pip", "install", "--quiet", wheel], folder)
    cells = [version, torch, str(installed)]
    if installed.code:
        return cells
    cells += [str(run([scripts / "runner", *words], folder)) for words in COMMANDS]
    if torch and jobs:
        cells.append(smoke(scripts / "runner", python, folder, jobs))
    return cells


def rows(wheel: Path, pythons: Sequence[str], jobs: int) -> Iterator[list[str]]:
    """Yield the row of each Python, in folders that do not stay."""
    for python in pythons:
        with tempfile.TemporaryDirectory(prefix="versions-") as folder:
            cells = row(wheel, python, Path(folder), jobs)
        print(" | ".join(cells), file=sys.stderr, flush=True)
        yield cells + [""] * (len(HEADERS) - len(cells))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return 1 if a Python does not install the wheel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("pythons", metavar="PYTHON", nargs="+")
    parser.add_argument("--jobs", "-j", type=int, default=1, help="processes at once in a run (default: 1)")
    parser.add_argument("--no-smoke", action="store_true", help="run no suite, even where there is torch")
    arguments = parser.parse_args(words)
    table = [*rows(arguments.wheel.resolve(), arguments.pythons, 0 if arguments.no_smoke else arguments.jobs)]
    print(tabulate(table, HEADERS, tablefmt="github", disable_numparse=True))
    return int(any(cells[HEADERS.index("installs")] != "ok" for cells in table))


if __name__ == "__main__":
    sys.exit(main())
