"""``runner history``: the verdicts of a case over the runs kept here."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from runner import console, exit_codes
from runner.cli.arguments import set_epilog
from runner.exit_codes import UsageError
from runner.report.past_verdicts import past_verdicts, render
from runner.report.terminal import colour_of, modes
from runner.text import one_line, plural

_EPILOG = """\
examples:
  runner history first.spec.yaml::scaled_relu
  runner history 'first.spec.yaml::scaled_relu[float32,cpu]@inductor'
  runner history scaled_relu                  in any file

The flake rate is the share of red attempts of runs with --stress, with
Wilson's 95 % interval. It counts the newest such run and those of the same
plan: the same cases and the same torch.

exit codes: 0 there are verdicts, 4 bad arguments, 5 there are no verdicts
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner history`` takes."""
    parser.description = (
        "The verdicts of a case over the runs kept here, the newest first: torch, backend, time, stage, signature, "
        "flake rate."
    )
    set_epilog(parser, _EPILOG)
    parser.add_argument(
        "case", metavar="CASE", help="an id with or without its axes and backend, a case's name, or a file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    if not arguments.case:
        raise UsageError("the name of the case is empty")
    verdicts, runs = past_verdicts(arguments.case)
    if not verdicts:
        where = f"in the {plural(runs, 'run')} kept here" if runs else "here: no run is kept in .runner/runs"
        raise UsageError(f"no verdict of {one_line(arguments.case, 200)} {where}", exit_codes.NOTHING)
    colour = modes(sys.stdout, os.environ)[0]
    width = shutil.get_terminal_size((120, 24)).columns
    paint = (lambda text, verdict: console.painted(text, colour_of(verdict))) if colour else None
    console.output(render(verdicts, width, paint), colours=colour)
    return exit_codes.OK
