"""``runner bench``: times variants one after the other, prints a table, and writes JSON and a plot."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from runner import __version__, console, exit_codes, interrupts
from runner.benchmark.measure import BUSY, ENVIRON, Measurer, Report, Row, default_threads
from runner.cases.model import Variant
from runner.cli import outputs
from runner.cli.arguments import JSON, PATHS, SEED, SELECTION, argument, command, integer, setting, settings_of
from runner.cli.variants import run_valid
from runner.diagnose.harness import Progress
from runner.engine import scratch
from runner.engine.local import LocalEngine
from runner.engine.processors import usable_processors
from runner.report.benchmark import page, render, svg
from runner.session.plan import checked_environments, plan
from runner.session.preflight import import_code
from runner.session.settings import COUNT

_EPILOG = """\
One variant at a time, whatever the machine has: two at once disturb each other. Nothing is judged:
run `runner run` first, for a wrong answer can be as fast as you like. See docs/bench.md for what each figure means.

exit codes: 0 something was timed, 2 interrupted, 3 internal error, 4 bad arguments or files, 5 nothing could be timed
"""

PLOTS = {".svg": svg, ".html": page}


@command(
    "Compile times with and without a kernel cache, run times with their spread, speed-up, memory, kernels, bandwidth.",
    *PATHS,
    SELECTION,
    setting("python", help="a Python that has torch; repeat for a row each"),
    setting("imports"),
    SEED,
    argument(
        "-n",
        "--repeat",
        type=integer(1, COUNT),
        default=10,
        metavar="N",
        help="measure each run time at least N times (default: 10; short ones are measured far more often)",
    ),
    JSON,
    argument("--plot", metavar="FILE", help="also bars of the speed-ups: FILE.svg, or FILE.html"),
    epilog=_EPILOG,
)
def run(arguments: argparse.Namespace) -> int:
    """Time the selected variants, and return the exit code."""
    return run_valid(arguments, lambda loaded: _time(arguments, loaded.variants))


def _time(arguments: argparse.Namespace, variants: Sequence[Variant]) -> int:
    """Time them. The exit code says whether that was done, never what came of it.

    Returns:
        OK if any variant was timed, NOTHING if none could be, INTERNAL if the harness failed for one, INTERRUPTED.

    Raises:
        UsageError: no such Python, code that cannot be imported, or a file that cannot be written.
    """
    if arguments.plot and Path(arguments.plot).suffix not in PLOTS:
        raise exit_codes.UsageError(f"--plot {arguments.plot}: expected a name that ends in {' or '.join(PLOTS)}")
    settings = settings_of(arguments)
    environments = checked_environments(settings, variants)
    everything = plan(variants, environments)
    threads = {environment.key: default_threads(environment) for environment in environments}
    started = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    load = round(os.getloadavg()[0] / usable_processors(), 3)  # of a minute, per processor that we may use
    if load > BUSY:
        console.message(f"runner: others work on this machine: load {load:.2f} a processor")
    rows: list[Row] = []
    interrupted = False
    progress = Progress()
    # A server that has compiled would spare its children a part.
    warm = {environment.key: "import" for environment in environments}
    engine = LocalEngine(
        {environment.key: environment.python for environment in environments}, 1, warm=warm, environ=ENVIRON
    )
    folder = scratch.make()
    at = ""
    measurer = Measurer(
        engine, settings, arguments.repeat, threads, folder, lambda: progress.say(f"{at}: {measurer.doing}")
    )
    try:
        for notice in import_code(engine, everything, settings):
            console.message(f"runner: {notice.severity}: {notice.message}")
        for planned in everything:
            at = f"{planned.number}/{len(everything)} {planned.variant.id}"
            rows.append(measurer.row(planned))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        with interrupts.held():
            engine.close()
            scratch.remove(folder)  # now that nobody writes there
            progress.end()
            interrupted = interrupts.noted() or interrupted
    report = Report(
        __version__, started, arguments.repeat, load, tuple(rows), interrupted, tuple(measurer.copies.values())
    )
    outputs.show(arguments, json.dumps(report.to_dict(), indent=2), render(report))
    if arguments.plot:
        outputs.write("--plot", arguments.plot, PLOTS[Path(arguments.plot).suffix](report))
    if interrupted:
        console.message(f"runner: interrupted: {len(everything) - len(rows)} of {len(everything)} were not timed")
        return exit_codes.INTERRUPTED
    if any(row.status == "broken" for row in rows):
        return exit_codes.INTERNAL
    return exit_codes.OK if report.timed else exit_codes.NOTHING
