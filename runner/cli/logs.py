"""Commands that read event logs and run nothing.

``report`` and ``merge`` make reports again, ``history`` shows verdicts over runs. ``diff`` holds runs, versions or
backends against each other, and ``score`` counts a run's backends.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from runner import console, exit_codes
from runner.cli import outputs
from runner.cli.arguments import DETAIL, JSON, OUTPUTS, argument, command, junit, setting, settings_of
from runner.files import replace_text
from runner.record.events import RunFinished
from runner.record.journal import Journal, Weight
from runner.record.store import Log, journal_of, make_latest, new_folder, read_log, started_of
from runner.report import difference, past_verdicts
from runner.report import score as scores
from runner.report.excused import with_ledger
from runner.report.handlers import Options, Reports
from runner.report.junit import render as render_junit
from runner.report.terminal import Reporter, colour_of, modes
from runner.session.ledgers import read_ledgers
from runner.session.shards import check_stamps, merge
from runner.text import one_line, plural


@command(
    "The table, the failures, and JUnit or pages if asked.",
    argument("run", metavar="RUN", nargs="?", default="latest", help="a run's folder, its events.jsonl, or latest"),
    *junit("write JUnit XML; - is standard output"),
    *OUTPUTS,
    *DETAIL,
)
def run_report(arguments: argparse.Namespace) -> int:
    """Make the reports again, by the same code that makes them during a run."""
    log = read_log(arguments.run)
    log.print_problems()
    events = log.events
    outputs.check_of_logs(arguments, log)
    chosen = outputs.reporters_of(arguments)
    if arguments.junit:
        try:
            text = render_junit(events, arguments.junit_dialect)
        except ValueError as error:  # two variants whose testcases would have one name
            raise exit_codes.UsageError(f"--junit {arguments.junit}: this log makes no report: {error}") from None
        if arguments.junit == "-":
            console.output(text)
            return exit_codes.OK
        outputs.write("--junit", arguments.junit, text)
    if not isinstance(events[-1], RunFinished):
        events.append(RunFinished(exit_codes.INTERRUPTED, 0.0, interrupted=True))
    verbose = arguments.detail == "verbose"
    terminal = Reporter(
        whole=not sys.stdout.isatty(), verbose=verbose, quiet=arguments.detail == "quiet", progress=verbose
    )
    reports = Reports(terminal, chosen, Options(dialect=arguments.junit_dialect, folder=log.path.parent))
    return exit_codes.INTERNAL if reports.play(events) else exit_codes.OK


@command(
    "One event log, table and JUnit file from the runs of --shard 1/N to N/N. Refuses missing, doubled and "
    "foreign shards.",
    argument("runs", nargs="+", metavar="RUN", help="a run's folder or its event log, one for each shard"),
    argument(
        "-o", "--output", metavar="FOLDER", help="write events.jsonl and junit.xml here (default: a new run's folder)"
    ),
    *junit("JUnit XML here too"),
    *OUTPUTS,
)
def run_merge(arguments: argparse.Namespace) -> int:
    """Join the runs into a new one; its exit code. Raises UsageError when they are not all the shards of one plan."""
    logs = [_shard(run) for run in arguments.runs]
    outputs.check_of_logs(arguments, *logs)
    chosen = outputs.reporters_of(arguments)
    events = merge([log.events for log in logs])
    folder = _merged_folder(arguments.output)
    start = started_of(events)
    events[events.index(start)] = replace(start, folder=str(folder))
    try:
        xml = render_junit(events, arguments.junit_dialect)
    except ValueError as error:  # two variants whose testcases would have one name
        raise exit_codes.UsageError(f"cannot merge: these logs make no report: {error}") from None
    reports = [folder / "junit.xml", *([Path(arguments.junit)] if arguments.junit else [])]
    problems: list[str] = []
    with Journal(folder / "events.jsonl", problems.append, {"plan": start.plan}) as journal:
        for event in events:
            journal.write(event)
    try:
        for path in reports:
            replace_text(path, xml)
    except OSError as error:
        problems.append(f"{error.filename} cannot be written: {error.strerror}")
    if problems:
        raise exit_codes.UsageError(problems[0])
    make_latest(folder)
    terminal = Reporter(progress=False, reports=[str(path) for path in (*reports, folder / "events.jsonl")])
    options = Options(dialect=arguments.junit_dialect, stamp={"plan": start.plan})
    failed = Reports(terminal, chosen, options).play(events)
    code = next(event.exit_code for event in reversed(events) if isinstance(event, RunFinished))
    return exit_codes.INTERNAL if failed and code in (exit_codes.OK, exit_codes.FAILED) else code


def _shard(run: str) -> Log:
    """The log of one shard's run. Raises UsageError when its log cannot be what that run has written."""
    log = read_log(run)
    log.print_problems()
    if log.problems.worst > Weight.USUAL:
        raise exit_codes.UsageError(f"cannot merge: {log.path} is not as its run wrote it; run that shard again")
    check_stamps(log.path)
    return log


def _merged_folder(output: str | None) -> Path:
    """A folder for the joined run. Raises UsageError when it cannot be made, or has a run already."""
    if output is None:
        folder, warning = new_folder()
        if warning:
            raise exit_codes.UsageError(f"{warning}; name a folder with -o")
        return folder
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise exit_codes.UsageError(f"-o {folder}: {error.strerror}") from None
    if (folder / "events.jsonl").exists() or (folder / "events.jsonl").is_symlink():
        raise exit_codes.UsageError(f"-o {folder}: there is a run already; name another folder")
    return folder


_HISTORY = """\
examples:
  runner history first.spec.yaml::scaled_relu
  runner history 'first.spec.yaml::scaled_relu[float32,cpu]@inductor'
  runner history scaled_relu                  in any file

The flake rate is the share of red attempts of runs with --stress, with
Wilson's 95 % interval. It counts the newest such run and those of the same
plan: the same cases and the same torch.

exit codes: 0 there are verdicts, 4 bad arguments, 5 there are no verdicts
"""


@command(
    "The verdicts of a case over the runs kept here, the newest first: torch, backend, time, stage, signature, "
    "flake rate.",
    argument("case", metavar="CASE", help="an id with or without its axes and backend, a case's name, or a file"),
    epilog=_HISTORY,
)
def run_history(arguments: argparse.Namespace) -> int:
    """Print the table."""
    if not arguments.case:
        raise exit_codes.UsageError("the name of the case is empty")
    verdicts, runs = past_verdicts.past_verdicts(arguments.case)
    if not verdicts:
        where = f"in the {plural(runs, 'run')} kept here" if runs else "here: no run is kept in .runner/runs"
        raise exit_codes.UsageError(f"no verdict of {one_line(arguments.case, 200)} {where}", exit_codes.NOTHING)
    colour = modes(sys.stdout, os.environ)[0]
    width = shutil.get_terminal_size((120, 24)).columns
    paint = (lambda text, verdict: console.painted(text, colour_of(verdict))) if colour else None
    console.output(past_verdicts.render(verdicts, width, paint), colours=colour)
    return exit_codes.OK


_DIFF = """\
examples:
  runner diff old/ new/                                two runs
  runner diff .runner/runs/20261120-124714-16690 latest
  runner diff latest --torch 2.6.0 2.13.0              two versions of one run
  runner diff latest --backend aot_eager inductor      two backends of one run
  runner diff old.jsonl new.jsonl --markdown diff.md --json diff.json

broken    passed, or failed as the ledger expects, and is red now
changed   fails in another way, or is no longer expected to
expected  passed, and fails now as the ledger expects
fixed     was red or failed as expected, and passes now
slower    passes, and takes 2 times and 2 seconds longer in torch
new, gone a verdict on one side alone

exit codes: 0 nothing is broken, 1 something is, 3 internal error,
4 bad arguments or files, 5 no variant has a verdict on both sides
"""

_ROWS = 100  # of a section on a terminal


@command(
    "What differs between two runs, or between two versions of torch or two backends of one run: what an "
    "upgrade broke.",
    argument("old", metavar="OLD", help="a run's folder, its event log, or latest"),
    argument("new", metavar="NEW", nargs="?", help="the run to hold against it (default: the same one)"),
    argument("--torch", nargs=2, metavar=("OLD", "NEW"), help="the version of torch of each side"),
    argument(
        "--backend",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="the backend of each side; variants are then paired without it",
    ),
    argument("--markdown", metavar="FILE", help="also as Markdown; - is standard output, and then nothing else"),
    JSON,
    argument("--html", metavar="FILE", help="also as a page"),
    epilog=_DIFF,
)
def run_diff(arguments: argparse.Namespace) -> int:
    """Compare both sides; the exit code says whether something is broken."""
    runs = (arguments.old, arguments.new or arguments.old)
    paths = _paths(arguments, *runs)
    old_log = whole_log(runs[0])
    new_log = old_log if paths[0] == paths[1] else whole_log(runs[1])
    outputs.check_of_logs(arguments, old_log, new_log)
    old, new = difference.sides(old_log, new_log, arguments.torch, arguments.backend)
    comparison = difference.compare(old, new)
    if not comparison.pairs:
        raise exit_codes.UsageError(
            f"no variant has a verdict on both sides: {len(old.results)} results in {old.log}, {len(new.results)} in "
            f"{new.log}; "
            "ids hold the path from the folder in which a run began",
            exit_codes.NOTHING,
        )
    forms = {
        "markdown": lambda: difference.render_markdown(comparison),
        "json": lambda: json.dumps(difference.to_dict(comparison), indent=2) + "\n",
        "html": lambda: difference.page(comparison),
    }
    _print_forms(arguments, forms, lambda: _print(comparison))
    return exit_codes.FAILED if comparison.section("broken") else exit_codes.OK


def _paths(arguments: argparse.Namespace, *runs: str) -> list[str]:
    """Return the logs of runs. Raises UsageError also where two forms are to be standard output."""
    paths = [os.path.realpath(journal_of(run)) for run in runs]
    if arguments.json == arguments.markdown == "-":
        raise exit_codes.UsageError("--json - and --markdown -: standard output holds one of them")
    return paths


def whole_log(run: str) -> Log:
    """Read a run. Raises UsageError also for a log of which lines were left out: neither a gate nor a score stands
    without them."""
    log = read_log(run)
    log.demand_whole()
    return log


def _print_forms(
    arguments: argparse.Namespace, forms: Mapping[str, Callable[[], str]], show: Callable[[], None]
) -> None:
    """Print what is asked for as ``-``, else call ``show``; and write the forms that have a file.

    ``forms`` are named as their options.
    """
    if chosen := next((name for name in ("json", "markdown") if getattr(arguments, name) == "-"), ""):
        console.output(forms[chosen](), end="")
    else:
        show()
    for name, make in forms.items():
        path = getattr(arguments, name)
        if path not in (None, "-"):
            outputs.write(f"--{name}", path, make())


def _print(comparison: difference.Comparison) -> None:
    colour, terminal = modes(sys.stdout, os.environ)
    width = shutil.get_terminal_size((120, 24)).columns
    paint = console.painted if colour else None
    console.output(difference.render(comparison, width, paint, _ROWS if terminal else None), colours=colour)


_SCORE = """\
examples:
  runner score latest                                  every backend of the last run
  runner score latest --backend openvino --svg openvino.svg
  runner score old/ new/ --markdown score.md           two runs beside each other

conformance   passes of what was judged
weighed       the same, where a failure keeps a part of a pass: a wrong result
              nothing, since a wrong number that nobody notices harms most
claim         what the backend claims of all variants
overall       passes of what was judged or is not claimed
by the backend
              passes of which the code of a backend outside torch computed an
              operator; in the others torch computed all

A known failure (XFAIL) does not count as a pass; VACUOUS, FLAKY and INVALID do not either.
What is skipped, or has no verdict, counts nowhere but is shown: docs/score.md.

exit codes: 0 there is a score, 3 internal error, 4 bad arguments or files,
5 no variant was judged
"""


@command(
    "The conformance of each backend of a run: in all, by family, dtype, kind of difference and severity, "
    "with what it does not claim.",
    argument(
        "run", metavar="RUN", nargs="?", default="latest", help="a run's folder, its event log, or latest (the default)"
    ),
    argument("second", metavar="RUN2", nargs="?", help="another run, whose backends stand beside those of the first"),
    argument("--backend", metavar="NAME", action="append", default=[], help="only this backend (may be repeated)"),
    setting("ledger", help="count the failures that this ledger (*.ledger.yaml) explains as known"),
    argument("--markdown", metavar="FILE", help="also as Markdown; - is standard output, and then nothing else"),
    JSON,
    argument("--svg", metavar="FILE", help="also as a picture with a badge for each backend"),
    epilog=_SCORE,
)
def run_score(arguments: argparse.Namespace) -> int:
    """Print the score. Raises UsageError where nothing was judged."""
    runs = [arguments.run, *([arguments.second] if arguments.second is not None else [])]
    if len(set(_paths(arguments, *runs))) < len(runs):
        raise exit_codes.UsageError("both runs are one; name one, or two that differ")
    logs = [whole_log(run) for run in runs]
    outputs.check_of_logs(arguments, *logs)
    entries = read_ledgers(arguments.ledger, settings_of(arguments).limits())
    runs_read = [(str(log.path), with_ledger(log.events, entries)) for log in logs]
    result = scores.score(runs_read, arguments.backend)
    if not any(column.total.judged for column in result.columns):
        outcomes = scores.unjudged(runs_read, arguments.backend)
        raise exit_codes.UsageError(f"no variant was judged, so there is no score: {outcomes}", exit_codes.NOTHING)
    forms = {
        "markdown": lambda: scores.render_markdown(result),
        "json": lambda: json.dumps(scores.to_dict(result), indent=2) + "\n",
        "svg": lambda: scores.badge(result),
    }
    _print_forms(
        arguments, forms, lambda: console.output(scores.render(result, shutil.get_terminal_size((80, 24)).columns))
    )
    return exit_codes.OK
