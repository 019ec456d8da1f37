"""The command line: arguments in, exit code out. What the commands do is in ``runner.cli.commands``."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence

from runner import __version__, console, exit_codes, interrupts
from runner.cli import bench_arguments, diagnose_arguments
from runner.cli.arguments import COUNT, MANY, Parser, environment, integer, paths, seconds, seed, selection, shard
from runner.diagnostics import InputError

_EXAMPLES = """\
examples:
  runner run suites/                           every suite there, eager against torch.compile
  runner run case.spec.yaml --backend aot_eager
  runner run suites/ -k "frexp or pad" -j 4 --junit report.xml
  runner run suites/ --python old/bin/python --python new/bin/python
  runner show case.spec.yaml::relu             the case as Python source
  runner repro case.spec.yaml::relu > repro.py a script that needs torch alone
  runner diagnose case.spec.yaml::relu         what is to blame: stage, pass, operator, kernel
  runner reduce case.spec.yaml::relu           the smallest case that still fails like it
  runner bench suites/ --plot bench.svg        how fast: compile, eager, compiled; judges nothing

exit codes are pytest's: 0 as expected, 1 failures, 2 interrupted, 3 internal error,
4 bad arguments or files, 5 nothing selected.
"""

_FOREIGN = """\
A log that you did not write on this machine (its signature says so) holds somebody else's command line. It is shown
and you are asked, or pass --yes. It runs in the current folder, and without options that run code, name files or
open connections: --allow-python, --python, --import, --backend PACKAGE:FUNCTION, --junit, --events, --limit,
--durations, --engine, --address. What is left out is named.
"""


_MACHINE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
    | {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""What the machine may refuse at any time: no bug, and no traceback."""


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser: argparse.ArgumentParser = Parser(
        prog="runner",
        description="Does a torch.compile backend compute what eager PyTorch computes? Cases are YAML; verdicts come with their numbers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"runner {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _run(commands)
    _again(commands)
    _list(commands)
    _validate(commands)
    _look(commands)
    _sanitize(commands)
    diagnose_arguments.add(commands)
    bench_arguments.add(commands)
    _report(commands)
    _ledger(commands)
    _selftest(commands)
    return parser


def _run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="run cases and judge them",
        description="Run every variant in a process of its own and compare it with eager PyTorch. A folder means its suites.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    paths(parser)
    selection(parser)
    environment(parser)
    seed(parser, "of models, inputs and random operators")
    parser.add_argument("--no-known", action="store_true", help="ignore the ledger: known failures are failures")
    _which(parser.add_argument_group("what runs, and when"))
    _where(parser.add_argument_group("where it runs"))
    reports = parser.add_argument_group("reports")
    reports.add_argument("--diagnose", action="store_true",
                         help="then say of each FAIL and ERROR what is to blame, as runner diagnose does")  # fmt: skip
    reports.add_argument("--junit", metavar="FILE", help="JUnit XML here, besides the one in the run's folder")
    reports.add_argument("--junit-dialect", choices=("extended", "strict"), default="extended",
                         help="extended adds file, line and properties to testcases; strict passes junit-10.xsd")  # fmt: skip
    reports.add_argument(
        "--events", metavar="FILE", help="the event log (JSON lines) here, besides the one in the run's folder"
    )
    reports.add_argument("--slow", type=seconds, default=60.0, metavar="TIME",
                         help="say so when a variant runs longer than this, and label it (default: 60s)")  # fmt: skip


def _which(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-x", "--exitfirst", action="store_true", help="stop at the first failure")
    group.add_argument("--max-fail", "--maxfail", type=integer(1, MANY), metavar="N", help="stop after N failures")
    group.add_argument("--lf", "--last-failed", dest="last_failed", action="store_true",
                       help="only what failed the last time it ran here; everything if nothing did")  # fmt: skip
    group.add_argument("--ff", "--failed-first", dest="failed_first", action="store_true",
                       help="everything, what failed the last time first")  # fmt: skip
    group.add_argument("--order", choices=("plan", "smart"), default="plan",
                       help="smart: failed first, then the longest first by what earlier runs took")  # fmt: skip
    group.add_argument("--retries", type=integer(0, COUNT), default=0, metavar="N",
                       help="run a red variant again up to N times; one that then does otherwise is FLAKY, which is red")  # fmt: skip
    group.add_argument("--stress", type=integer(1, COUNT), default=1, metavar="N",
                       help="run every variant N times; one that does not always do the same is FLAKY")  # fmt: skip
    group.add_argument("--confirm", action=argparse.BooleanOptionalAction, default=True,
                       help="run what fails once more, alone in a fresh process, before it is reported (default: yes)")  # fmt: skip
    group.add_argument("--shard", type=shard, metavar="M/N", help="only the M-th of N parts; runner merge joins them")
    group.add_argument("--durations", metavar="RUN",
                       help="make shards take equally long by the times of this run (the same file for all shards)")  # fmt: skip
    group.add_argument("--budget", type=seconds, metavar="TIME",
                       help="end after this long, such as 10m, with exit code 2; runner resume goes on")  # fmt: skip
    group.add_argument("--cached", action="store_true",
                       help="take results from earlier --cached runs where nothing has changed, and say so")  # fmt: skip


def _where(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--isolation", choices=("auto", "fork", "fresh", "living"), default="auto",
                       help="a process forked from a warm one for each variant; from a cold one; or processes that live on "
                            "(auto: fork on the CPU, living on accelerators)")  # fmt: skip
    group.add_argument("--kernel-cache", choices=("shared", "private"), default="shared",
                       help="compiled kernels are kept for later runs, or for this run alone")  # fmt: skip
    group.add_argument("--engine", choices=("local", "ray"), default="local",
                       help="this machine, or a Ray cluster (a local one unless --address names another)")  # fmt: skip
    group.add_argument("--address", metavar="ADDRESS", help="with --engine ray: the cluster, as ray.init takes it")


def _again(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "resume",
        help="finish a run that was interrupted or killed",
        description="Run what has no verdict yet, by the command line that began the run, into its folder and reports.",
        epilog=f"One process at a time writes to a run's folder.\n\n{_FOREIGN}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _past_run(parser, commands.choices["run"])
    parser = commands.add_parser(
        "rerun",
        help="repeat a run, or what failed in it",
        description="A new run by the command line of an earlier one. Options after -- are added to it.",
        usage="runner rerun [-h] [--yes] [--failed] [RUN] [-- OPTION ...]",
        epilog=f"example: runner rerun --failed -- --stress 20 -j 1\n\n{_FOREIGN}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _past_run(parser, commands.choices["run"])
    parser.add_argument("--failed", action="store_true", help="only what has no good verdict in it")
    parser = commands.add_parser(
        "merge",
        help="join the runs of all shards into one",
        description="One event log, table and JUnit file from the runs of --shard 1/N to N/N. Refuses missing, doubled and foreign shards.",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder or its event log, one for each shard")
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="write events.jsonl and junit.xml here (default: a new run's folder)"
    )
    parser.add_argument("--junit", metavar="FILE", help="JUnit XML here too")
    parser.add_argument("--junit-dialect", choices=("extended", "strict"), default="extended")


def _past_run(parser: argparse.ArgumentParser, run: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", default="latest", metavar="RUN", help="a run's folder, its name, its event log, or latest"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask about a log that you did not write here")
    options = {name: action.nargs != 0 for action in run._actions for name in action.option_strings}
    parser.set_defaults(parse=_parsed, options=options)


def _list(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "list", help="list the variants that a run would run", description="One id a line, in the order of reports."
    )
    paths(parser)
    selection(parser)


def _validate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "validate",
        help="check files without running them",
        description="Every error of every file, at its line and column. Needs no torch; --build does.",
    )
    paths(parser)
    environment(parser)
    parser.add_argument(
        "--build",
        action="store_true",
        help="also make every model and its inputs and call it, on the meta device where that can be",
    )
    schema = commands.add_parser(
        "schema",
        help="print a JSON Schema of the YAML format, or of event logs",
        description="Draft-07, for editors and other tools. events is one line of a run's events.jsonl.",
    )
    schema.add_argument("name", nargs="?", choices=("spec", "suite", "definitions", "events"), default="spec")


def _look(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, text in (
        ("show", "print a case resolved, with its source"),
        ("repro", "print a case as a script that needs torch alone"),
    ):
        parser = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        paths(parser, many=False)
        selection(parser)


def _sanitize(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "sanitize",
        help="run a case on CUDA under compute-sanitizer",
        description="The case's script (see repro) under NVIDIA's compute-sanitizer, without torch's memory cache.",
    )
    paths(parser, many=False)
    selection(parser)
    parser.add_argument("--python", action="append", default=[], metavar="PATH", help="a Python that has torch")
    parser.add_argument(
        "--tool",
        choices=("memcheck", "racecheck", "initcheck", "synccheck"),
        default="memcheck",
        help="what to look for: accesses out of bounds, races within shared memory, reads of what nobody wrote, wrong barriers",
    )


def _report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        help="make reports again from a run's event log",
        description="The table, the failures, and JUnit if asked.",
    )
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="latest", help="a run's folder, its events.jsonl, or latest"
    )
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML; - is standard output")
    parser.add_argument("--junit-dialect", choices=("extended", "strict"), default="extended")


def _selftest(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "selftest",
        help="plant known bugs and see them found",
        description="Plants every bug that torch offers to testers and the project's own broken backends; prints a mutation score.",
    )
    environment(parser)


def _ledger(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "ledger",
        help="list known failures by what a run made of them, or rewrite them from it",
        description="Every known: entry of the paths, and whether a run matched it. 1 when one is fixed, changed or stale.",
    )
    paths(parser)
    parser.set_defaults(allow_python=True)  # nothing runs
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--run", metavar="RUN", help="a run's folder, its events.jsonl, or latest (the default, if there is one)"
    )
    which.add_argument("--update", metavar="RUN", help="rewrite the entries from this run, and print the diff")
    parser.add_argument("--add", action="store_true", help="with --update: entries for failures that have none")
    parser.add_argument("--dry-run", action="store_true", help="with --update: print the diff and write nothing")


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """The arguments; ``jobs_given`` says whether ``-j`` is the person's word."""
    arguments = build_parser().parse_args(words)
    arguments.jobs_given = getattr(arguments, "jobs", None) is not None
    if not arguments.jobs_given:
        arguments.jobs = os.cpu_count() or 1
    return arguments


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The command line, and what follows ``--`` in a ``rerun``: argparse would take that for its own options."""
    if words[:1] != ["rerun"] or "--" not in words:
        return words, []
    cut = words.index("--")
    return words[:cut], words[cut + 1 :]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Without ``argv`` it is the process's own, whose end no signal may disturb."""
    interrupts.install()
    console.ready()
    try:
        code = _end_of(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        console.message("runner: interrupted")
        code = exit_codes.INTERRUPTED
    except Exception as error:  # noqa: BLE001  (else Python's own exit code, 1, would say that cases failed)
        code = exit_codes.INTERNAL
        if isinstance(error, OSError) and error.errno in _MACHINE:
            console.message(f"runner: {f'{error.filename}: ' if error.filename else ''}{error.strerror}")
        elif isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            console.message(f"runner: {error.filename}: {error.strerror}")
            code = exit_codes.USAGE  # only what was typed can be so
        else:
            import traceback

            console.message(f"{traceback.format_exc()}runner: internal error, a bug in runner itself")
    if argv is None:
        interrupts.ignore()
    try:
        console.flush()  # here, where a reader that went away is no error; at Python's own exit it would be
    except exit_codes.UsageError as error:
        if code in (exit_codes.OK, exit_codes.FAILED):
            console.message(f"runner: {error}")
            code = exit_codes.INTERNAL
    return code


def _end_of(words: list[str]) -> int:
    """The exit code of a command, the usual errors included."""
    words, more = _split(words)
    try:
        arguments = _parsed(words)
        arguments.more = more
        if not _has_folder():
            raise exit_codes.UsageError("the current folder is gone")
        from runner.cli import commands  # after parsing: `--version` and `--help` need none of it

        return int(getattr(commands, arguments.command)(arguments, words))
    except SystemExit as end:  # argparse exits with 2, which is pytest's "interrupted"
        return exit_codes.USAGE if end.code == 2 else int(end.code or 0)
    except InputError as error:
        from runner.cli import commands

        return commands.refuse(error.diagnostics)
    except exit_codes.UsageError as error:
        console.message(f"runner: {error}")
        return error.code


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True
