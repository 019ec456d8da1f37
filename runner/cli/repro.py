"""``runner repro``: a case as a script that needs torch alone."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cli.arguments import add_paths, add_result_codes, add_selection
from runner.cli.variants import first_variant
from runner.diagnose.repro import script


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner repro`` takes."""
    parser.description = "Print a case as a script that needs torch alone."
    add_result_codes(parser)
    add_paths(parser, many=False)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    console.output(script(first_variant(arguments)), end="")
    return exit_codes.OK
