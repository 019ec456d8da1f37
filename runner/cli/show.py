"""``runner show``: a case resolved, with its source."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cli.arguments import add_paths, add_selection
from runner.cli.variants import matching_variants
from runner.report.case import describe


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner show`` takes."""
    parser.description = "Print a case resolved, with its source."
    add_paths(parser, many=False)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the case, and which variants match beside it."""
    variant, *others = matching_variants(arguments)
    console.output(describe(variant, others))
    return exit_codes.OK
