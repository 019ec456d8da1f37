"""``runner repro``: a case as a script that needs torch alone."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cli.arguments import add_paths, add_result_codes, add_selection
from runner.cli.variants import first_variant
from runner.diagnose.repro import script
from runner.record.store import latest_result, latest_seed


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner repro`` takes."""
    parser.description = (
        "Print a case as a script that needs torch alone and exits non-zero while the problem is there. It compares "
        "what the "
        "latest run here found of the variant; without such a finding it compares what the case declares."
    )
    add_result_codes(parser)
    add_paths(parser, many=False)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    variant = first_variant(arguments)
    console.output(script(variant, latest_result(variant.id), latest_seed()), end="")
    return exit_codes.OK
