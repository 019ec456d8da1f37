"""Commands that hold results against each other: ``diff`` runs, versions or backends; ``score`` a run's backends."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping

from runner import console, exit_codes
from runner.cli import outputs
from runner.cli.arguments import describe
from runner.record.store import Log, journal_of, read_log
from runner.report import difference
from runner.report import score as scores
from runner.report.terminal import modes
from runner.verdict.difference import compare, sides
from runner.verdict.score import score

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


def add_diff(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner diff`` takes."""
    describe(
        parser,
        "What differs between two runs, or between two versions of torch or two backends of one run: the gate of an "
        "upgrade.",
        _DIFF,
    )
    parser.add_argument("old", metavar="OLD", help="a run's folder, its event log, or latest")
    parser.add_argument("new", metavar="NEW", nargs="?", help="the run to hold against it (default: the same one)")
    parser.add_argument("--torch", nargs=2, metavar=("OLD", "NEW"), help="the version of torch of each side")
    parser.add_argument("--backend", nargs=2, metavar=("OLD", "NEW"),
                        help="the backend of each side; variants are then paired without it")  # fmt: skip
    parser.add_argument(
        "--markdown", metavar="FILE", help="also as Markdown; - is standard output, and then nothing else"
    )
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - is standard output, and then nothing else")
    parser.add_argument("--html", metavar="FILE", help="also as a page")


def run_diff(arguments: argparse.Namespace) -> int:
    """Compare both sides; the exit code says whether something is broken."""
    runs = (arguments.old, arguments.new or arguments.old)
    paths = [os.path.realpath(journal_of(run)) for run in runs]
    if arguments.json == arguments.markdown == "-":
        raise exit_codes.UsageError("--json - and --markdown -: standard output holds one of them")
    old_log = whole_log(runs[0])
    new_log = old_log if paths[0] == paths[1] else whole_log(runs[1])
    outputs.check_of_logs(arguments, old_log, new_log)
    old, new, names = sides(old_log, new_log, arguments.torch, arguments.backend)
    comparison = difference.Comparison(old, new, compare(old.results, new.results, names))
    if not comparison.difference.pairs:
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
    return exit_codes.FAILED if comparison.difference.section("broken") else exit_codes.OK


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
    chosen = next((name for name in ("json", "markdown") if getattr(arguments, name) == "-"), "")
    if chosen:
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
weighed       the same, where a failure keeps the credit of its severity
claim         what the backend claims of all variants
overall       passes of what was judged or is not claimed

A known failure (XFAIL) does not count as a pass; VACUOUS, FLAKY and INVALID do not either.
What is skipped, or has no verdict, counts nowhere but is shown: docs/score.md.

exit codes: 0 there is a score, 3 internal error, 4 bad arguments or files,
5 no variant was judged
"""


def add_score(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner score`` takes."""
    describe(
        parser,
        "The conformance of each backend of a run: in all, by family, dtype, oracle and severity, with what it does "
        "not claim.",
        _SCORE,
    )
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="latest", help="a run's folder, its event log, or latest (the default)"
    )
    parser.add_argument(
        "second", metavar="RUN2", nargs="?", help="another run, whose backends stand beside those of the first"
    )
    parser.add_argument(
        "--backend", metavar="NAME", action="append", default=[], help="only this backend (may be repeated)"
    )
    parser.add_argument(
        "--markdown", metavar="FILE", help="also as Markdown; - is standard output, and then nothing else"
    )
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - is standard output, and then nothing else")
    parser.add_argument("--svg", metavar="FILE", help="also as a picture with a badge for each backend")


def run_score(arguments: argparse.Namespace) -> int:
    """Print the score. Raises UsageError where nothing was judged."""
    runs = [arguments.run, *([arguments.second] if arguments.second is not None else [])]
    paths = [os.path.realpath(journal_of(name)) for name in runs]
    if arguments.json == arguments.markdown == "-":
        raise exit_codes.UsageError("--json - and --markdown -: standard output holds one of them")
    if len(set(paths)) < len(paths):
        raise exit_codes.UsageError("both runs are one; name one, or two that differ")
    logs = [whole_log(run) for run in runs]
    outputs.check_of_logs(arguments, *logs)
    result = score([(str(log.path), log.events) for log in logs], arguments.backend)
    if not any(column.total.judged for column in result.columns):
        raise exit_codes.UsageError(
            f"no variant was judged: {', '.join(run.log for run in result.runs)}", exit_codes.NOTHING
        )
    forms = {
        "markdown": lambda: scores.render_markdown(result),
        "json": lambda: json.dumps(scores.to_dict(result), indent=2) + "\n",
        "svg": lambda: scores.badge(result),
    }
    _print_forms(
        arguments, forms, lambda: console.output(scores.render(result, shutil.get_terminal_size((80, 24)).columns))
    )
    return exit_codes.OK
