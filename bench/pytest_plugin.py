"""Does pytest say what ``runner run`` says, and how much longer does it take?

    python bench/pytest_plugin.py [--suite suites/smoke.suite.yaml] [-n 2] [--rounds 3]

Each round is one ``runner run SUITE -j N`` and one ``pytest SUITE -n N`` (``-n 0``: pytest alone, ``-j`` as it is),
after a run that fills the cache of kernels. The verdict of pytest is that of its own JUnit file, held against what
pytest counts the test as. Seconds are wall time and, in brackets, processor time of all processes: on a busy machine
only the latter can be compared. Exits with 1 when a verdict differs, or when the median of pytest's wall time passes
1.3 times the runner's.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from commands import ROOT, RUNNER, Cost, command_line, measure_command, option, read_results

MOST = 1.3
WORDS = {"PASS": "passed", "XFAIL": "skipped", "SKIP": "skipped"}
"""What pytest's JUnit file says of a green verdict; of all others it says ``failure``."""


def run_runner(suite: str, jobs: int, folder: Path) -> tuple[Cost, dict[str, str]]:
    """Return the cost and the verdicts of ``runner run``."""
    log = folder / "events.jsonl"
    slots = ["-j", str(jobs)] if jobs else []
    cost = measure_command([*RUNNER, "run", suite, "--events", str(log), *slots], (0, 1), ROOT)
    return cost, {result.id: result.verdict for result in read_results(log)}


def run_pytest(suite: str, jobs: int, folder: Path) -> tuple[Cost, dict[str, str]]:
    """Return the cost and the verdicts of pytest; a verdict that pytest counts wrongly is both words."""
    report = folder / "junit.xml"
    words = ["-p", "runner.pytest_plugin", "-p", "xdist.plugin", suite, "-q", "--junitxml", str(report)]
    words += ["-n", str(jobs)] if jobs else []
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    cost = measure_command([sys.executable, "-m", "pytest", *words], (0, 1), ROOT, environ)
    verdicts = {}
    for case in ElementTree.parse(report).iter("testcase"):
        values = {entry.get("name", ""): entry.get("value", "") for entry in case.iter("property")}
        word = next((child.tag for child in case if child.tag in ("failure", "skipped", "error")), "passed")
        name, verdict = values.get("id", str(case.get("name"))), values.get("verdict", "none")
        verdicts[name] = verdict if word == WORDS.get(verdict, "failure") else f"{verdict} as {word}"
    return cost, verdicts


def differences(runner: Mapping[str, str], pytest: Mapping[str, str]) -> list[str]:
    """Return a line for each variant of which the two say different things."""
    pairs = {name: (runner.get(name), pytest.get(name)) for name in {**runner, **pytest}}
    return [f"  {name}: {verdict} and {word}" for name, (verdict, word) in pairs.items() if verdict != word]


def main() -> int:
    """Run all rounds, and print a line for each."""
    arguments = command_line(
        __doc__, option("--suite", default="suites/smoke.suite.yaml"), option("-n", type=int, default=2, dest="jobs"),
        option("--rounds", type=int, default=3),
    ).parse_args()  # fmt: skip
    ratios, wrong = [], 0
    with tempfile.TemporaryDirectory() as name:
        settings = arguments.suite, arguments.jobs, Path(name)
        print(f"to fill the cache: runner {run_runner(*settings)[0]}", flush=True)
        for number in range(1, arguments.rounds + 1):
            load = os.getloadavg()[0]
            runner, expected = run_runner(*settings)
            pytest, verdicts = run_pytest(*settings)
            lines = differences(expected, verdicts)
            ratios.append(pytest.seconds / runner.seconds)
            wrong += len(lines)
            counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(expected.values()).items())
            print(
                f"round {number}: {counts}; {len(lines)} differ; runner {runner}, pytest {pytest}, "
                f"{ratios[-1]:.2f} times [{pytest.cpu / runner.cpu:.2f}]; load before {load:.1f}",
                *lines, sep="\n", flush=True,
            )  # fmt: skip
    print(f"median {statistics.median(ratios):.2f} times, at most {MOST}")
    return int(bool(wrong) or statistics.median(ratios) > MOST)


if __name__ == "__main__":
    sys.exit(main())
