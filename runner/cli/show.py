"""``runner show``: a case resolved, with its source."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cli.arguments import add_paths, add_selection
from runner.cli.variants import load_variants, refuse, select_variants
from runner.report.case import describe
from runner.session.nodes import names_nodes


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner show`` takes."""
    parser.description = "Print a case resolved, with its source; of a file or a folder every case."
    add_paths(parser, many=False)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the first variant of each case, and which variants match beside it. Wrong cases beside these come after them."""
    loaded = load_variants(arguments)
    if not loaded.variants and loaded.errors:
        return refuse(loaded.diagnostics)
    cases: dict[int, list[Variant]] = {}
    for variant in select_variants(arguments, loaded).variants:
        cases.setdefault(id(variant.case), []).append(variant)
    console.output("\n\n".join(describe(variant, others) for variant, *others in cases.values()))
    if loaded.errors and not names_nodes([arguments.case]):
        return refuse(loaded.errors)
    return exit_codes.OK
