"""Does pytest say what ``runner run`` says, and how much longer does it take?

    python bench/pytest_plugin.py [--suite suites/smoke.suite.yaml] [-n 2] [--rounds 3]

Each round is one ``runner run SUITE -j N`` and one ``pytest SUITE -n N`` (``-n 0``: pytest alone, ``-j`` as it is), after a run
that fills the cache of kernels. The verdict of pytest is that of its own JUnit file, held against what pytest counts the test as.
Seconds are wall time and, in brackets, processor time of all processes: on a busy machine only the latter can be compared.
Exits with 1 when a verdict differs, or when the median of pytest's wall time passes 1.3 times the runner's.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
MOST = 1.3
WORDS = {"PASS": "passed", "XFAIL": "skipped", "SKIP": "skipped"}
"""What pytest's JUnit file says of a green verdict; of all others it says ``failure``."""


@dataclass(frozen=True)
class Seconds:
    """Of a command: wall time, and processor time of its processes."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s [{self.cpu:.1f}]"


def cpu_seconds() -> float:
    """Return the processor time of all processes that have ended below this one."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def timed(command: Sequence[str]) -> Seconds:
    """Run a command, and return its seconds."""
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    begun, used = time.monotonic(), cpu_seconds()
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return Seconds(time.monotonic() - begun, cpu_seconds() - used)


def run_runner(suite: str, jobs: int, folder: Path) -> tuple[Seconds, dict[str, str]]:
    """Return the seconds and the verdicts of ``runner run``."""
    log = folder / "events.jsonl"
    more = ["-j", str(jobs)] if jobs else []
    seconds = timed([sys.executable, "-m", "runner", "run", suite, "--events", str(log), *more])
    events = map(json.loads, log.read_text().splitlines())
    return seconds, {event["id"]: event["verdict"] for event in events if event["event"] == "variant-finished"}


def run_pytest(suite: str, jobs: int, folder: Path) -> tuple[Seconds, dict[str, str]]:
    """Return the seconds and the verdicts of pytest; a verdict that pytest counts wrongly is both words."""
    report = folder / "junit.xml"
    plugins = ["-p", "runner.pytest_plugin", "-p", "xdist.plugin"]
    more = ["-n", str(jobs)] if jobs else []
    seconds = timed([sys.executable, "-m", "pytest", *plugins, suite, "-q", "--junitxml", str(report), *more])
    verdicts = {}
    for case in ElementTree.parse(report).iter("testcase"):
        values = {each.get("name", ""): each.get("value", "") for each in case.iter("property")}
        word = next((child.tag for child in case if child.tag in ("failure", "skipped", "error")), "passed")
        name, verdict = values.get("id", str(case.get("name"))), values.get("verdict", "none")
        verdicts[name] = verdict if word == WORDS.get(verdict, "failure") else f"{verdict} as {word}"
    return seconds, verdicts


def differences(one: Mapping[str, str], two: Mapping[str, str]) -> list[str]:
    """Return a line for each variant of which the two say different things."""
    return [
        f"  {name}: {one.get(name)} and {two.get(name)}" for name in {**one, **two} if one.get(name) != two.get(name)
    ]


def main() -> int:
    """Run all rounds, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="suites/smoke.suite.yaml")
    parser.add_argument("-n", type=int, default=2, dest="jobs")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    ratios, wrong = [], 0
    with tempfile.TemporaryDirectory() as name:
        first, _ = run_runner(arguments.suite, arguments.jobs, Path(name))
        print(f"to fill the cache: runner {first}", flush=True)
        for number in range(1, arguments.rounds + 1):
            folder = Path(name, str(number))
            folder.mkdir()
            load = os.getloadavg()[0]
            own, expected = run_runner(arguments.suite, arguments.jobs, folder)
            other, verdicts = run_pytest(arguments.suite, arguments.jobs, folder)
            lines = differences(expected, verdicts)
            ratios.append(other.wall / own.wall)
            wrong += len(lines)
            counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(expected.values()).items())
            print(
                f"round {number}: {counts}; {len(lines)} differ; runner {own}, pytest {other}, "
                f"{other.wall / own.wall:.2f} times [{other.cpu / own.cpu:.2f}]; load before {load:.1f}",
                *lines, sep="\n", flush=True,
            )  # fmt: skip
    print(f"median {statistics.median(ratios):.2f} times, at most {MOST}")
    return 1 if wrong or statistics.median(ratios) > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
