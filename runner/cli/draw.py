"""Commands that draw cases by a seed: ``runner generate`` writes them as spec files and a suite; ``runner hunt`` runs
them, groups what is red, and reduces and reports one case of each new group.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from runner import console, exit_codes, interrupts
from runner.cli.arguments import argument, command, integer, one_of, seconds, setting, settings_of
from runner.contract.profiles import PROFILES
from runner.diagnose.harness import Progress
from runner.diagnostics import shown_path
from runner.engine.local import LocalEngine
from runner.files import entries_below, link_problem, replace_text
from runner.generate.generator import (
    CaseGenerator,
    Request,
    named_parents,
    write_specs,
    write_suite,
)
from runner.hunt.groups import (
    CASE,
    HUNT_FILE,
    NOW,
    REDUCED,
    REPORT,
    SHIPPED,
    Group,
    Head,
    State,
    activity,
    append_line,
    folder_of,
    groups_of,
    is_hunt,
    known_groups,
    read_ledger,
    read_state,
    read_triage,
    render,
    write_empty_triage,
)
from runner.hunt.hunt import Bounds, Guidance, Hunt, Rounds, settings_for
from runner.quote import operand, shell_word, shell_words
from runner.record.store import LOCK, lock, output_folder
from runner.session.plan import checked_environments, find_environments, order_words
from runner.session.preflight import import_words
from runner.session.settings import COUNT, MANY, RunSettings
from runner.text import duration, plural

IDLE = 8
"""Batches without a valid case, after which no more is drawn."""

LONGEST = 60
"""Steps of a case."""

PROFILE_HELP = "; ".join(f"{name}: {profile.summary}" for name, profile in PROFILES.items()) + " (default: wide)"

_GENERATE = """\
The same seed gives the same cases on the same torch, by the same version of the generator.
The doc of a case holds the command that draws it again. See docs/generate.md.

exit codes: 0 the cases were written, 1 there are fewer, 2 interrupted, 3 internal error, 4 bad arguments
"""


def depth(text: str) -> tuple[int, int]:
    """How many steps, as A..B or one number."""
    match = re.fullmatch(r"([0-9]{1,3})(?:\.\.([0-9]{1,3}))?", text, re.ASCII)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no range such as 3..8, from 1 to {LONGEST}")
    return low, high


TWINS = argument(
    "--twins",
    action="store_true",
    help="give about half of the cases a twin: an equal program, whose compiled form is compared with the case's own",
)


@command(
    "Draws chains of operators that eager PyTorch takes, and writes them as spec files with a suite.",
    argument("--profile", choices=[*PROFILES], default="wide", help=PROFILE_HELP),
    argument(
        "--ops",
        default="",
        metavar="PATTERN",
        help="only operators with such a name are taken from torch's operator database, and each "
        "case has one: 'torch.scatter*'",
    ),
    argument("--depth", type=depth, metavar="A..B", help="steps of a case, instead of the profile's"),
    argument(
        "--mutate",
        action="append",
        default=[],
        metavar="PATH",
        help="change the cases of these spec files instead of drawing new ones; repeat for several",
    ),
    setting("allow_python", help="with --mutate: change the inputs and the runs of models in Python too"),
    TWINS,
    argument("--list-ops", action="store_true", help="print the operators that --ops selects, and draw nothing"),
    argument("--seed", type=integer(0, MANY), default=0, metavar="N", help="what is drawn (default: 0)"),
    argument("--count", type=integer(1, COUNT), default=100, metavar="N", help="how many cases (default: 100)"),
    argument(
        "--first",
        type=integer(0, MANY),
        default=0,
        metavar="N",
        help="the number of the first case of that seed (default: 0)",
    ),
    argument(
        "-o",
        "--output",
        metavar="FOLDER",
        help="the folder of the files, new or empty (default: generated/ in a new run folder)",
    ),
    setting("python", help="the Python whose torch draws the cases (default: this one)"),
    setting("jobs"),
    epilog=_GENERATE,
)
def run_generate(arguments: argparse.Namespace) -> int:
    """Write the cases that the command line asks for.

    Raises:
        UsageError: no such Python, a pattern that no operator has, or a folder that cannot be used.
    """
    settings = settings_of(arguments)
    if len(settings.python) > 1:
        raise exit_codes.UsageError("--python: one Python draws the cases")
    environment = find_environments(settings.python)[0]
    request = Request(
        arguments.seed, arguments.count, arguments.first, arguments.profile, arguments.ops, arguments.depth,
        tuple(arguments.mutate), settings.allow_python, arguments.twins,
    )  # fmt: skip
    if request.mutate and (request.ops or request.depth or arguments.list_ops):
        raise exit_codes.UsageError("--mutate changes the cases of files: leave --ops, --depth and --list-ops out")
    parents = named_parents(request.mutate, settings.limits(), settings.allow_python) if request.mutate else None
    folder = None if arguments.list_ops else output_folder(arguments.output, "generated")
    cases: list[Mapping[str, Any]] = []
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
            cases, idle = [*cases, *more.values()], 0 if more else idle + 1
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
        _write(folder, request, cases[: request.count], generator)
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


BATCH = 60
"""Cases that a round draws."""

_HUNT = """\
The same command goes on with a hunt that was ended or killed. See docs/hunt.md.

exit codes: 0 nothing new was found, 1 there are new groups, 2 interrupted,
3 internal error, 4 bad arguments or files
"""


@command(
    "Draw cases, run them, and group what is red by its signature. Of each new group one case is reduced, with "
    "its script and its report.",
    one_of(
        argument(
            "-o", "--output", metavar="FOLDER", help="the hunt's folder: new, empty, or that of a hunt that goes on"
        ),
        argument("--status", metavar="FOLDER", help="print the groups of the hunt in this folder, and run nothing"),
        required=True,
    ),
    argument(
        "--budget",
        type=seconds,
        metavar="TIME",
        help="end after about this long, such as 30m, all parts of a hunt together; this or --rounds must be given",
    ),
    argument("--rounds", type=integer(1, MANY), metavar="N", help="end after this many rounds"),
    argument("--batch", type=integer(1, COUNT), metavar="N", help=f"cases drawn in a round (default: {BATCH})"),
    argument(
        "--reduce-budget",
        type=seconds,
        default=120.0,
        metavar="TIME",
        help="of one reduction, and of one report (default: 2m)",
    ),
    argument("--timeout", type=seconds, metavar="TIME", help="of a variant; what takes longer is red (default: 2m)"),
    argument(
        "--known",
        action="append",
        default=[],
        metavar="PATH",
        help="the folder of an earlier hunt, or spec files with a ledger beside the shipped one: what they know is "
        "not new; repeat for several",
    ),
    setting("ledger"),
    argument("--profile", choices=[*PROFILES], default="wide", help=PROFILE_HELP),
    argument("--ops", default="", metavar="PATTERN", help="as of runner generate"),
    argument("--depth", type=depth, metavar="A..B", help="as of runner generate"),
    argument(
        "--guided",
        action="store_true",
        help="let the parts of the compiler and the operators that were reached steer what is drawn, "
        "and change cases that reached new ones",
    ),
    argument(
        "--mutate",
        action="append",
        default=[],
        metavar="PATH",
        help="change the cases of these spec files too (implies --guided); repeat for several",
    ),
    setting("allow_python", help="with --mutate: change the inputs and the runs of models in Python too"),
    TWINS,
    setting(
        "coverage_lines",
        help="let the lines of the compiler that ran steer too (implies --guided); compiling takes twice the time",
    ),
    argument("--seed", type=integer(0, MANY), default=0, metavar="N", help="what is drawn (default: 0)"),
    setting("backend", help="what compiles: a name torch.compile knows, or package:function (default: inductor)"),
    setting("device"),
    setting("python", help="the Python whose torch draws and runs the cases (default: this one)"),
    setting("shard", help="do the M-th of every N rounds, beside hunts of the same seed elsewhere"),
    setting("imports", "jobs", "engine", "address"),
    epilog=_HUNT,
)
def run_hunt(arguments: argparse.Namespace) -> int:
    """Hunt, or print the status of a hunt.

    Raises:
        UsageError, InputError: wrong arguments, a folder of something else, a wrong ``triage.yaml``.
    """
    hunts = [path for path in arguments.known if is_hunt(path)]
    places = known_groups(hunts)
    if arguments.status is not None:
        return _status(arguments, places)
    if arguments.budget is None and arguments.rounds is None:
        raise exit_codes.UsageError("--budget or --rounds says when the hunt ends")
    settings = settings_for(settings_of(arguments))
    if len(settings.python) > 1:
        raise exit_codes.UsageError("--python: one Python draws and runs the cases")
    ledger = read_ledger(
        [SHIPPED, *(path for path in arguments.known if path not in hunts)], settings.limits(), arguments.ledger
    )
    parents = named_parents(arguments.mutate, settings.limits(), settings.allow_python) if arguments.mutate else ()
    folder = _folder(arguments.output)
    progress = Progress()

    say = _Sayer(folder, progress).say

    def tell(text: str) -> None:
        progress.end()
        console.message(text)

    with contextlib.ExitStack() as stack:
        stack.enter_context(lock(folder))
        environment = find_environments(settings.python)[0]
        hunt_state = _state(folder, _head(arguments, settings, environment.build), arguments.batch)
        _import_code(settings)
        guidance = None
        if hunt_state.head.guided:
            guidance = Guidance(hunt_state.head.seed, parents)
            guidance.learn_again(folder, hunt_state.rounds, settings.limits())
        rounds = stack.enter_context(Rounds(folder, hunt_state.head, environment, settings, ledger, say, guidance))
        bounds = Bounds(arguments.budget, arguments.rounds, arguments.reduce_budget)
        hunt = Hunt(folder, hunt_state, places, rounds, bounds, tell)
        interrupted = False
        try:
            hunt.run()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            progress.end()
    groups = hunt.groups()
    console.output(render(hunt_state, groups))
    code = _end(arguments, folder, hunt_state.head, groups)
    if interrupted:
        console.message("runner: interrupted: the same command goes on")
        return exit_codes.INTERRUPTED
    return code


def _import_code(settings: RunSettings) -> None:
    """Raise UsageError where code that was typed cannot be had. On a cluster each round looks for it."""
    if settings.engine == "local":
        (environment, *_) = checked_environments(settings, None)
        with LocalEngine({environment.key: environment.python}, 1, warm={environment.key: "import"}) as engine:
            for notice in import_words(engine, [environment], settings):
                console.message(f"runner: {notice.severity}: {notice.message}")


EVERY = 5.0
"""Seconds between two lines about one round or about the same groups."""


class _Sayer:
    """Says what a hunt does now, on standard error and in the folder, where ``--status`` reads it."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._folder, self._progress = folder, progress
        self._part, self._due, self._began = "", 0.0, time.monotonic()

    def say(self, text: str) -> None:
        """Say it at once where what stands before its semicolon is new, else every few seconds."""
        part, now = text.partition(";")[0], time.monotonic()
        is_due = part != self._part or now >= self._due
        if is_due:
            self._part, self._due = part, now + EVERY
            with contextlib.suppress(OSError):  # a full disk, which the record of the round will tell
                replace_text(self._folder / NOW, f"{text}\n")
        if sys.stderr.isatty():
            self._progress.say(text)
        elif is_due:
            console.message(f"[{duration(now - self._began)}] {text}")


def _status(arguments: argparse.Namespace, places: Mapping[str, str]) -> int:
    """Print the status of a hunt. Its exit code is that of the hunt."""
    folder = Path(arguments.status)
    hunt_state = read_state(folder)
    if hunt_state is None:
        raise exit_codes.UsageError(f"--status {folder}: it holds no hunt: there is no {HUNT_FILE}")
    groups = groups_of(hunt_state, places, read_triage(folder))
    console.output(render(hunt_state, groups, activity(folder)))
    return _end(arguments, folder, hunt_state.head, groups)


def _end(arguments: argparse.Namespace, folder: Path, head: Head, groups: Sequence[Group]) -> int:
    """Print the folder of the worst new group with the command that comes next, and return the hunt's exit code."""
    worst = next((group for group in groups if group.is_new), None)
    if worst is None:
        return exit_codes.OK
    own = Path(operand(shown_path(str(folder_of(folder, worst.id)))))
    console.output(f"worst: {shell_word(own)}\nnext: {shell_words(_next_words(arguments, own, head, worst))}")
    return exit_codes.FAILED


def _next_words(arguments: argparse.Namespace, own: Path, head: Head, group: Group) -> list[str]:
    """Return a command that says more of a group: its report where there is one, else what leads to it."""
    if group.report is not None and not group.report.problem:
        return ["cat", str(own / REPORT)]
    drawn = f"{own / CASE}::{group.first.id.partition('::')[2]}"
    backends = tuple(name for name in head.backend if drawn.endswith(f"@{name}"))
    settings = RunSettings(
        backend=backends, device=head.device, python=tuple(arguments.python), imports=head.imports,
        allow_python=head.allow_python, no_project=arguments.no_project,
    )  # fmt: skip
    options = settings.flags("backend", "python", "imports", "allow_python", "no_project")
    if group.reduction is not None and not group.reduction.problem:
        return [*order_words(), "runner", "issue", str(own / REDUCED), *options]
    name = "run" if group.reduction is not None else "reduce"  # of what fails in company alone no case is smaller
    return [*order_words(), "runner", name, drawn, *options, *settings.flags("device")]


def _folder(output: str) -> Path:
    """Return the folder of a hunt, made if need be. Raises UsageError for one that holds something else."""
    folder = Path(output)
    try:
        if problem := link_problem(output):
            raise exit_codes.UsageError(f"--output {folder}: {problem}")
        folder.mkdir(exist_ok=True)
        if not is_hunt(output) and any(path.name != LOCK for path in folder.iterdir()):
            raise exit_codes.UsageError(
                f"--output {folder}: there is something in it, and no hunt; name another folder"
            )
        for entry in entries_below(folder):
            if entry.is_symlink():
                raise exit_codes.UsageError(
                    f"--output {folder}: {entry.path} is a link, which may lead anywhere; a hunt makes none"
                )
            if not (entry.is_file() or entry.is_dir()):
                raise exit_codes.UsageError(f"--output {folder}: {entry.path} is no regular file")
    except OSError as error:
        raise exit_codes.UsageError(f"--output {folder}: {error.strerror}") from None
    return folder.resolve()


def _head(arguments: argparse.Namespace, settings: RunSettings, torch: str) -> Head:
    return Head(
        arguments.seed, arguments.profile, arguments.batch or BATCH, torch, arguments.ops, tuple(arguments.depth or ()),
        settings.backend, settings.device, (arguments.shard.index, arguments.shard.count) if arguments.shard else (),
        arguments.guided or bool(arguments.mutate) or arguments.coverage_lines, tuple(arguments.mutate),
        arguments.coverage_lines, arguments.timeout or 0.0, settings.allow_python, arguments.twins,
        settings.imports,
    )  # fmt: skip


def _state(folder: Path, head: Head, batch: int | None) -> State:
    """Return what the hunt has done. One without a round gets this head: the command of the other may have had a
    mistake.

    Raises:
        UsageError: the hunt of the folder draws or runs something else.
    """
    found = read_state(folder)
    if found is None or not (found.rounds or found.head == head):
        append_line(folder, head)
        write_empty_triage(folder)
        return State(head)
    names = ("seed", "profile", "ops", "depth", "backend", "device", "guided", "mutate", "lines", "timeout",
             "allow_python", "twins", "imports", "shard", "torch", "batch")  # fmt: skip
    asked = replace(head, batch=batch or found.head.batch)
    if changes := [name for name in names if getattr(found.head, name) != getattr(asked, name)]:
        values = ", ".join(f"{name} was {getattr(found.head, name)!r}" for name in changes)
        raise exit_codes.UsageError(f"the hunt in {folder} cannot go on with this command: {values}")
    return found
