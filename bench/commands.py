"""What measurements share: command lines, commands with their seconds, results of runs, medians, targets and tables."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tabulate import tabulate

from runner.record.events import VariantFinished
from runner.record.journal import Weight, read_journal

ROOT = Path(__file__).resolve().parents[1]
SUITES = ROOT / "suites"
sys.path.append(str(ROOT / "tools"))  # benches may import its modules
RUNNER = (sys.executable, "-m", "runner")
TAIL = 2000
"""Characters of a command's output that an error has."""

Option = tuple[tuple[str, ...], dict[str, Any]]
M = TypeVar("M")


class Broken(Exception):
    """A command did not end as it should, so that its seconds mean nothing."""


# --- command lines -------------------------------------------------------------------------


def option(*names: str, **settings: Any) -> Option:
    """Return an option or an argument, from what ``add_argument`` takes."""
    return names, settings


def command_line(description: str | None, *options: Option) -> argparse.ArgumentParser:
    """Return a parser with these options."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for names, settings in options:
        parser.add_argument(*names, **settings)
    return parser


def run_mode(description: str | None, modes: Mapping[Any, Sequence[Option]], words: Sequence[str] | None) -> int:
    """Run the function whose name is the first word, with the options of the other words; return its exit code."""
    parser = command_line(description)
    parsers = parser.add_subparsers(required=True, metavar="MODE")
    for mode, options in modes.items():
        of_mode = parsers.add_parser(mode.__name__, help=mode.__doc__, description=mode.__doc__)
        of_mode.set_defaults(mode=mode)
        for names, settings in options:
            of_mode.add_argument(*names, **settings)
    arguments = parser.parse_args(words)
    return int(arguments.mode(arguments))


def report_measurement(parser: argparse.ArgumentParser, measure: Callable[[Any, Path], tuple[str, bool]]) -> int:
    """Measure in a temporary folder, or in the one of ``--keep``, and print the report.

    Args:
        parser: the command line, with ``--keep``.
        measure: returns the report, and whether a target was missed.

    Returns:
        the exit code: 1 if a target was missed, 3 if a command broke. A wrong argument ends the process.
    """
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
            folder = Path(arguments.keep or temporary).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            text, is_missed = measure(arguments, folder)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except Broken as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 3
    print(text)
    return int(is_missed)


def say(text: str) -> None:
    """Print a line of progress, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


# --- commands ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a command printed, and with its children: seconds of wall and processor time, peak of memory in MB."""

    output: str
    seconds: float
    user: float
    system: float
    memory: float

    @property
    def cpu(self) -> float:
        """Return seconds of processor time, its own and the kernel's."""
        return self.user + self.system

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s [{self.cpu:.1f}]"


def measure_command(
    words: Sequence[str], codes: Container[int] = (0,), cwd: Path | str = ".", environ: Mapping[str, str] | None = None,
    log: Path | None = None, stderr: int | None = subprocess.STDOUT,
) -> Cost:  # fmt: skip
    """Run a command to its end.

    Args:
        words: the command.
        codes: exit codes with which it may end.
        cwd: the folder in which it runs.
        environ: its environment; None: that of this process.
        log: the file for what it prints, if that is to stay.
        stderr: where its errors go, as ``subprocess`` has it.

    Raises:
        Broken: it ended with another exit code.
    """
    began = time.perf_counter()
    with (
        log.open("w+", errors="replace") if log else tempfile.TemporaryFile("w+", errors="replace") as output,
        subprocess.Popen(
            words, cwd=cwd, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=stderr
        ) as process,
    ):
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode not in codes:
        raise Broken(f"{' '.join(words)} gave exit code {process.returncode}\n{text[-TAIL:]}")
    return Cost(text, seconds, usage.ru_utime, usage.ru_stime, usage.ru_maxrss / 1000)


# --- results -------------------------------------------------------------------------------


def read_results(log: Path) -> list[VariantFinished]:
    """Return the verdicts of a run's events, in their order.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is no event. One that a killed runner left is torn, and is left out.
    """
    events, problems = read_journal(log)
    if problems.worst > Weight.USUAL:
        raise ValueError(f"{log}: {problems.lines()[0]}")
    return [event for event in events if isinstance(event, VariantFinished)]


def name_of(variant: str) -> str:
    """Return an id without the folder that the run was started from."""
    return variant.rpartition("/")[2]


def write_json(path: Path | None, data: Any) -> None:
    """Write data to a file that is complete at every moment, if there is a file to write."""
    if path is not None:
        new = path.with_name(f"{path.name}.new")
        new.write_text(json.dumps(data, indent=1, default=str) + "\n", encoding="utf-8")
        new.replace(path)


# --- numbers -------------------------------------------------------------------------------


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    """Return the median, the least and the greatest."""
    ordered = sorted(values)
    return statistics.median(ordered), ordered[0], ordered[-1]


def medians(measurements: Sequence[M], key: Callable[[M], Hashable], *fields: str) -> dict[Any, M]:
    """Return a measurement for each key: the first one, but for the medians of ``fields`` over all that have them."""
    groups: dict[Hashable, list[M]] = {}
    for measurement in measurements:
        groups.setdefault(key(measurement), []).append(measurement)
    results: dict[Any, M] = {}
    for name, group in groups.items():
        values = {field: _median([getattr(member, field) for member in group]) for field in fields}
        results[name] = dataclasses.replace(group[0], **values)  # type: ignore[type-var]
    return results


def _median(values: Sequence[Any]) -> Any:
    """Return the median of numbers, or of each entry that all mappings have."""
    known = [value for value in values if value is not None]
    if known and isinstance(known[0], Mapping):
        names = [name for name in known[0] if all(name in value for value in known)]
        return {name: statistics.median(value[name] for value in known) for name in names}
    return statistics.median(known) if known else None


@dataclasses.dataclass(frozen=True)
class Target:
    """A value that is to be at least ``low`` and at most ``high``; None: it was not measured. ``text`` shows it."""

    subject: str
    text: str
    value: float | None
    low: float = -math.inf
    high: float = math.inf

    @property
    def verdict(self) -> str:
        """Say whether it is reached."""
        if self.value is None:
            return "not measured"
        return "met" if self.low <= self.value <= self.high else "MISSED"


def target_table(targets: Sequence[Target]) -> tuple[str, bool]:
    """Return the table of targets, and whether one was missed."""
    rows = [[row.subject, "" if row.value is None else row.text.format(row.value), row.verdict] for row in targets]
    table = tabulate(rows, headers=["target", "measured", ""], disable_numparse=True)
    return table, any(row.verdict == "MISSED" for row in targets)
