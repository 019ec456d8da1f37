"""``runner bench``: times variants one after the other, prints a table, and writes JSON and a plot."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from runner import __version__, exits
from runner.diagnose.lab import Progress
from runner.engine.local import LocalEngine
from runner.environments import find_environments, worker_paths
from runner.exits import UsageError
from runner.plan import plan
from runner.report.timing import page, picture, render
from runner.spec.limits import Limits
from runner.spec.model import Variant
from runner.timing.measure import ENVIRON, Measurer, Options, default_threads
from runner.timing.model import BUSY, Report, Row

PLOTS = {".svg": picture, ".html": page}


def run(arguments: argparse.Namespace, variants: Sequence[Variant]) -> int:
    """Time them. The exit code says whether that was done, never what came of it.

    Returns:
        OK if any variant was timed, NOTHING if none could be, INTERNAL if the harness failed for one, INTERRUPTED.

    Raises:
        UsageError: no such Python, or a file that cannot be written.
    """
    _check(arguments)
    environments = find_environments(arguments.python)
    everything = plan(variants, environments)
    threads = {one.key: default_threads(one) for one in environments}
    started, load = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"), _load()
    if load > BUSY:
        print(f"runner: others work on this machine: load {load:.2f} a processor", file=sys.stderr)
    options = Options(
        repeat=arguments.repeat, seed=arguments.seed, imports=arguments.imports, paths=worker_paths(arguments),
        limits=Limits.from_environment().with_overrides(arguments.limit),
    )  # fmt: skip
    rows: list[Row] = []
    interrupted = False
    progress = Progress()
    warm = {one.key: "import" for one in environments}  # a server that has compiled would spare its children a part
    engine = LocalEngine({one.key: one.python for one in environments}, 1, warm=warm, environ=ENVIRON)
    folder = Path(tempfile.mkdtemp(prefix="runner-timing-"))
    at = ""
    measurer = Measurer(engine, options, threads, folder, lambda: progress.say(f"{at}: {measurer.doing}"))
    try:
        for planned in everything:
            at = f"{planned.number}/{len(everything)} {planned.variant.id}"
            rows.append(measurer.row(planned))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)  # now that nobody writes there
        progress.end()
    report = Report(
        __version__, started, arguments.repeat, load, tuple(rows), interrupted, tuple(measurer.copies.values())
    )
    _tell(arguments, report)
    if interrupted:
        print(
            f"runner: interrupted: {len(everything) - len(rows)} of {len(everything)} were not timed", file=sys.stderr
        )
        return exits.INTERRUPTED
    if any(row.status == "broken" for row in rows):
        return exits.INTERNAL
    return exits.OK if report.timed else exits.NOTHING


def _tell(arguments: argparse.Namespace, report: Report) -> None:
    """Raises UsageError for a file that cannot be written, after the table is out."""
    text = json.dumps(report.to_dict(), indent=2) + "\n"
    if arguments.json == "-":
        print(text, end="")
    else:
        print(render(report))
    files = {arguments.json: text} if arguments.json not in (None, "-") else {}
    if arguments.plot:
        files[arguments.plot] = PLOTS[Path(arguments.plot).suffix](report)
    for path, written in files.items():
        try:
            Path(path).write_text(written, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", exits.INTERNAL) from None


def _check(arguments: argparse.Namespace) -> None:
    """See now that there is a place for the files: timing takes long.

    Raises:
        UsageError: there is none, or a plot's name has another ending.
    """
    if arguments.plot and Path(arguments.plot).suffix not in PLOTS:
        raise UsageError(f"--plot {arguments.plot}: expected a name that ends in {' or '.join(PLOTS)}")
    for option in ("json", "plot"):
        path = getattr(arguments, option)
        if path and path != "-" and not Path(path).parent.is_dir():
            raise UsageError(f"--{option} {path}: no folder {Path(path).parent}")
        if path and path != "-" and Path(path).is_dir():
            raise UsageError(f"--{option} {path}: this is a folder")


def _load() -> float:
    """The load of the last minute per processor that we may use."""
    return round(os.getloadavg()[0] / len(os.sched_getaffinity(0)), 3)
