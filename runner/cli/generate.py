"""``runner generate``: valid chains of operators, drawn by a seed, as spec files and a suite."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from runner import console, exit_codes, interrupts
from runner.cli.arguments import add_settings, integer, set_epilog, settings_of
from runner.contract.profiles import PROFILES
from runner.diagnose.harness import Progress
from runner.diagnostics import shown_path
from runner.engine.local import LocalEngine
from runner.exit_codes import UsageError
from runner.generate.generator import CaseGenerator, GeneratedCase, Request, named_parents, write_specs, write_suite
from runner.record.store import output_folder
from runner.session.environments import find_environments
from runner.session.settings import COUNT, MANY
from runner.text import plural

IDLE = 8
"""Batches without a valid case, after which no more is drawn."""

LONGEST = 60
"""Steps of a case."""

PROFILE_HELP = "; ".join(f"{name}: {profile.summary}" for name, profile in PROFILES.items()) + " (default: wide)"

_EPILOG = """\
The same seed gives the same cases on the same torch, by the same version of the generator.
The doc of a case holds the command that draws it again. See docs/generate.md.

exit codes: 0 the cases were written, 1 there are fewer, 2 interrupted, 3 internal error, 4 bad arguments
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner generate`` takes."""
    parser.description = (
        "Draws chains of operators that eager PyTorch takes, and writes them as spec files with a suite."
    )
    set_epilog(parser, _EPILOG)
    parser.add_argument("--profile", choices=[*PROFILES], default="wide", help=PROFILE_HELP)
    parser.add_argument(
        "--ops",
        default="",
        metavar="PATTERN",
        help="only operators with such a name are taken from torch's operator database, and each "
        "case has one: 'torch.scatter*'",
    )
    parser.add_argument("--depth", type=depth, metavar="A..B", help="steps of a case, instead of the profile's")
    parser.add_argument(
        "--mutate",
        action="append",
        default=[],
        metavar="PATH",
        help="change the cases of these spec files instead of drawing new ones; repeat for several",
    )
    add_settings(parser, "allow_python", help="with --mutate: change the inputs and the runs of models in Python too")
    parser.add_argument(
        "--list-ops", action="store_true", help="print the operators that --ops selects, and draw nothing"
    )
    parser.add_argument("--seed", type=integer(0, MANY), default=0, metavar="N", help="what is drawn (default: 0)")
    parser.add_argument(
        "--count", type=integer(1, COUNT), default=100, metavar="N", help="how many cases (default: 100)"
    )
    parser.add_argument("--first", type=integer(0, MANY), default=0, metavar="N",
                        help="the number of the first case of that seed (default: 0)")  # fmt: skip
    parser.add_argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="the folder of the files, new or empty (default: generated/ in a new run folder)",
    )
    add_settings(parser, "python", help="the Python whose torch draws the cases (default: this one)")
    add_settings(parser, "jobs")


def depth(text: str) -> tuple[int, int]:
    """How many steps, as A..B or one number."""
    match = re.fullmatch(r"([0-9]{1,3})(?:\.\.([0-9]{1,3}))?", text, re.ASCII)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no range such as 3..8, from 1 to {LONGEST}")
    return low, high


def run(arguments: argparse.Namespace) -> int:
    """Write the cases that the command line asks for.

    Raises:
        UsageError: no such Python, a pattern that no operator has, or a folder that cannot be used.
    """
    settings = settings_of(arguments)
    if len(settings.python) > 1:
        raise UsageError("--python: one Python draws the cases")
    environment = find_environments(settings.python)[0]
    request = Request(
        arguments.seed, arguments.count, arguments.first, arguments.profile, arguments.ops, arguments.depth,
        tuple(arguments.mutate), settings.allow_python,
    )  # fmt: skip
    if request.mutate and (request.ops or request.depth or arguments.list_ops):
        raise UsageError("--mutate changes the cases of files: leave --ops, --depth and --list-ops out")
    parents = named_parents(request.mutate, settings.limits(), settings.allow_python) if request.mutate else None
    folder = None if arguments.list_ops else output_folder(arguments.output, "generated")
    cases: list[GeneratedCase] = []
    operators: list[str] = []
    progress = Progress()
    interrupted = False
    engine = LocalEngine({environment.key: environment.python}, settings.slots(), warm={environment.key: "import"})
    generator = CaseGenerator(engine, environment, request, settings.slots(), parents)
    try:
        if parents is None:
            operators = generator.find_operators(lambda: progress.say("reading torch's operator database"))
        if generator.missing:
            console.message(f"runner: without torch's operator database: {generator.missing}")
        idle = 0
        while folder is not None and len(cases) < request.count and idle < IDLE:
            tick = partial(progress.say, f"{len(cases)} of {request.count} cases")
            more = generator.next_cases(request.count - len(cases), tick)
            cases, idle = [*cases, *more], 0 if more else idle + 1
    except KeyboardInterrupt:
        interrupted = True
    finally:
        with interrupts.held():
            engine.close()
            progress.end()
            interrupted = interrupts.noted() or interrupted
    if folder is None:
        console.output("\n".join(operators))
    else:
        _write(folder, request, [case.data for case in cases[: request.count]], generator)
    missing = 0 if folder is None else max(0, request.count - len(cases))
    if interrupted:
        console.message(f"runner: interrupted: {missing} of {request.count} cases are missing")
        return exit_codes.INTERRUPTED
    if missing:
        console.message(f"runner: {missing} of {request.count} cases are missing: the last {IDLE} batches gave none")
        return exit_codes.FAILED
    return exit_codes.OK


def _write(folder: Path, request: Request, cases: Sequence[Mapping[str, Any]], generator: CaseGenerator) -> None:
    """Write the files, none without a case, and print what there is."""
    suite = folder
    if cases:
        suite = write_suite(folder, request.name, write_specs(folder, request.name, cases))
    lost = ", ".join(f"{count} {fault}" for fault, count in generator.faults.most_common() if count)
    console.output(
        f"{shown_path(str(suite))}: {plural(len(cases), 'case')} of {plural(generator.drawn, 'draw')}; not written: "
        f"{lost or 'none'}"
    )
