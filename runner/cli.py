"""The command line: arguments in, exit code out. What the commands do is in ``runner.commands``."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from runner import __version__, cli_bench, cli_diagnose, exits
from runner.arguments import count, environment, paths, positive, seconds, selection, shard
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


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
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
    cli_diagnose.add(commands)
    cli_bench.add(commands)
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
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of models, inputs and random operators (default: 0)"
    )
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
    group.add_argument("--max-fail", "--maxfail", type=positive, metavar="N", help="stop after N failures")
    group.add_argument("--lf", "--last-failed", dest="last_failed", action="store_true",
                       help="only what failed the last time it ran here; everything if nothing did")  # fmt: skip
    group.add_argument("--ff", "--failed-first", dest="failed_first", action="store_true",
                       help="everything, what failed the last time first")  # fmt: skip
    group.add_argument("--order", choices=("plan", "smart"), default="plan",
                       help="smart: failed first, then the longest first by what earlier runs took")  # fmt: skip
    group.add_argument("--retries", type=count, default=0, metavar="N",
                       help="run a red variant again up to N times; one that then does otherwise is FLAKY, which is red")  # fmt: skip
    group.add_argument("--stress", type=positive, default=1, metavar="N",
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
    )
    _past_run(parser)
    parser = commands.add_parser(
        "rerun",
        help="repeat a run, or what failed in it",
        description="A new run by the command line of an earlier one. Options after -- are added to it.",
        usage="runner rerun [-h] [--failed] [RUN] [-- OPTION ...]",
        epilog="example: runner rerun --failed -- --stress 20 -j 1",
    )
    _past_run(parser)
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


def _past_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", default="latest", metavar="RUN", help="a run's folder, its name, its event log, or latest"
    )
    parser.set_defaults(parse=_parsed)


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
        "schema", help="print a JSON Schema of the YAML format", description="Draft-07, for editors and other tools."
    )
    schema.add_argument("name", nargs="?", choices=("spec", "suite", "definitions"), default="spec")


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
    """Run one command; its exit code."""
    words, more = _split(list(sys.argv[1:] if argv is None else argv))
    try:
        arguments = _parsed(words)
        arguments.more = more
    except SystemExit as done:  # argparse exits with 2, which is pytest's "interrupted"
        return exits.USAGE if done.code == 2 else int(done.code or 0)
    from runner import commands  # after parsing: `--version` and `--help` need none of it

    signal.signal(signal.SIGTERM, _interrupt)
    _ready_streams()
    if not _has_folder():
        print("runner: the current folder is gone", file=sys.stderr)
        return exits.USAGE
    try:
        code = int(getattr(commands, arguments.command)(arguments, words))
        sys.stdout.flush()  # here, where a reader that went away is no error; at Python's own exit it would be
        return code
    except InputError as error:
        return commands.refuse(error.diagnostics)
    except exits.UsageError as error:
        print(f"runner: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:  # `runner list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except Exception:  # noqa: BLE001  (else Python's own exit code, 1, would say that cases failed)
        import traceback

        traceback.print_exc()
        print("runner: internal error, a bug in runner itself", file=sys.stderr)
        return exits.INTERNAL


def _ready_streams() -> None:
    """Output that cannot be encoded, or has been closed, is no reason to stop."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started us: `runner run ... >&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
