"""``runner board``: a static site over many runs, and the check of results that somebody sends for it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner import __version__, console, exit_codes
from runner.cases.suites import PathError
from runner.cli import outputs
from runner.cli.arguments import argument, command, one_of, settings_of
from runner.diagnostics import InputError, shown_path
from runner.exit_codes import UsageError
from runner.files import entries_below, open_regular, replace_file
from runner.record.events import VariantFinished, end_of, variants_of
from runner.record.journal import Weight
from runner.record.store import Log, read_log
from runner.report.board import board_of, pages
from runner.report.site.folder import INDEX, check_folder, write_folder
from runner.report.site.results import Declared
from runner.session.collect import collect
from runner.session.nodes import names_nodes
from runner.session.plan import Environment
from runner.session.plan import plan as planned_pairs
from runner.session.run import digest_of
from runner.text import in_line, one_line, plural

_LOG, _MACHINE = "events.jsonl", "machine.txt"
_MARK = '<meta name="generator" content="torch-spec-runner board">'
"""By which an earlier board in a folder is known. It is replaced; any other folder must be empty."""
_LINE = 1000  # bytes of what a result says of its machine

_EPILOG = """\
examples:
  runner board results/ -o site/                 all results of a folder
  runner board .runner/runs/* -o site/           the runs that are kept here
  runner board results/ --check suites/core.suite.yaml
                                                 are they whole runs of this suite?

A folder of results holds BACKEND/TORCH/DATE/events.jsonl, and beside each log,
if you like, machine.txt: a line on the machine.

exit codes: 0 the site is written or all results are good, 1 a result is not,
3 internal error, 4 bad arguments or files, 5 there is no result
"""


@dataclass(frozen=True, slots=True)
class Result:
    """A run, and where it lies: ``place`` is BACKEND, TORCH and DATE in a folder of results, else empty."""

    log: Log
    place: tuple[str, ...] = ()
    machine: str = ""


@command(
    "Write a static site over many runs: the conformance of each backend over time, and what broke when.",
    argument("runs", metavar="RUN", nargs="+", help="a run, its events.jsonl, or a folder with results"),
    one_of(
        argument("-o", "--output", metavar="FOLDER", help="for the site; an earlier board there is replaced"),
        argument(
            "--check", metavar="SUITE", action="append",
            help="write nothing; say of each result whether it is a whole run of this suite as it is here",
        ),
        required=True,
    ),
    epilog=_EPILOG,
)  # fmt: skip
def run(arguments: argparse.Namespace) -> int:
    """Write the site, or check the results. Raises UsageError for a path that holds no run."""
    results = [result for path in arguments.runs for result in _results(path)]
    if not results:
        raise UsageError(f"no {_LOG} below {', '.join(arguments.runs)}", exit_codes.NOTHING)
    outputs.check_of_logs(arguments, *(result.log for result in results))
    if arguments.check:
        return _check(results, arguments.check)
    folder = Path(arguments.output)
    check_folder(arguments.output, "-o", _MARK, "board")
    for result in results:
        result.log.demand_whole()
    board = board_of((result.log, result.machine) for result in results)
    with_reports = board.logs
    try:
        for name, log in with_reports.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            # Who sends a log says what its files hold; nothing of this machine's files belongs into the site.
            write_folder(folder / name, log.events, Declared.of((), roots=()), None)
        for name, text in pages(board):
            replace_file(folder / name, [text.encode("utf-8", "backslashreplace")])
    except OSError as error:
        raise UsageError(f"-o {arguments.output}: {error.strerror}") from None
    console.output(f"{shown_path(str(folder / INDEX))}: {plural(len(with_reports), 'run')}")
    return exit_codes.OK


def _results(path: str) -> Iterator[Result]:
    """Yield the runs that a path names."""
    folder = Path(path)
    if not folder.is_dir() or (folder / _LOG).exists():
        yield Result(read_log(path), machine=_machine(folder))
        return
    logs = sorted(entry.path for entry in entries_below(folder) if entry.name == _LOG)
    for log in map(Path, logs):
        yield Result(read_log(str(log)), log.relative_to(folder).parts[-4:-1], _machine(log.parent))


def _machine(folder: Path) -> str:
    try:
        with open_regular(folder / _MACHINE, links=False) as file:
            return one_line(file.read(_LINE).decode(errors="replace"), 200)
    except OSError:
        return ""


# --- the check of results ---


def _check(results: Sequence[Result], suites: Sequence[str]) -> int:
    code = exit_codes.OK
    for result in results:
        problems = [*_problems(result, suites)]
        console.output(in_line(f"{result.log.path}: {'not good' if problems else 'good'}"))
        for problem in problems:
            console.output(in_line(f"  {problem}"))
            code = exit_codes.FAILED
    return code


def _problems(result: Result, suites: Sequence[str]) -> Iterator[str]:
    """Say what keeps a result from being a whole run of suites."""
    log, start = result.log, result.log.started
    if log.problems.worst == Weight.REFUSED:
        yield "its log was changed after it was written"
    end = end_of(log.events)
    if end is None or end.interrupted:
        yield "its run did not come to its end"
    events = variants_of(log.events)
    if missing := sum(not isinstance(event, VariantFinished) for event in events):
        yield f"{plural(missing, 'variant')} without a verdict"
    if start.total > len(events):
        rest = start.total - len(events)
        yield f"{rest} of {plural(start.total, 'variant')} are not in it; runner merge joins shards"
    yield from _misplaced(result)
    if start.version != __version__:
        yield f"runner {one_line(start.version, 40)} made it, and this is {__version__}: check it with that version"
    else:
        yield from _other_content(log, suites)


def _misplaced(result: Result) -> Iterator[str]:
    """Say where a folder of results and a log contradict each other."""
    if len(result.place) < 3:
        return
    backend, torch, date = result.place
    events = variants_of(result.log.events)
    rows = (
        ("backend", backend, {event.backend for event in events}),
        ("torch", torch, {event.torch for event in events}),
        ("date", date, {result.log.started.started[:10]}),
    )
    for name, value, known in rows:
        if value not in known:
            shown = one_line(", ".join(sorted(known)), 200)
            yield f"its folder says {name} {value}, and its log says {shown or 'nothing'}"


def _other_content(log: Log, suites: Sequence[str]) -> Iterator[str]:
    """Say how a log's plan differs from what the same command would plan for suites as they are here."""
    from runner.cli.main import build_parser

    start = log.started
    try:
        typed = build_parser().parse_args(start.argv[1:])
        if typed.command != "run":
            raise UsageError(f"{typed.command} is another command")
        settings = settings_of(typed)
        if settings.select or settings.device or names_nodes(typed.paths):  # the backend is the vendor's choice
            yield f"its command selected a part: {one_line(' '.join(start.argv), 200)}"
            return
        variants = collect(suites, settings).variants
    except (UsageError, InputError, PathError, SystemExit) as error:
        yield f"its command cannot be followed: {one_line(str(error), 300)}"
        return
    environments = [
        Environment(str(number), "", str(each.get("torch")), str(each.get("build")), str(each.get("version")))
        for number, each in enumerate(start.environments)
    ]
    if digest_of(planned_pairs(variants, environments), settings) == start.plan:
        return
    here, there = {variant.id for variant in variants}, {event.id for event in variants_of(log.events)}
    counts = f"{len(here - there)} of its variants are missing, {len(there - here)} are others"
    yield f"it is no run of {', '.join(suites)} as here: {counts if here != there else 'the content of cases differs'}"
