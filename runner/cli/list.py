"""``runner list``: the ids of the variants that a run would run."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cli.arguments import add_paths, add_selection
from runner.cli.variants import load_variants, refuse, select_variants
from runner.text import in_line


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner list`` takes."""
    parser.description = "One id a line, in the order of reports."
    add_paths(parser)
    add_selection(parser)


def run(arguments: argparse.Namespace) -> int:
    """List valid variants even when other files are broken; the exit code says so."""
    loaded = load_variants(arguments)
    for variant in select_variants(arguments, loaded, empty=bool(loaded.errors)).variants:
        console.output(in_line(variant.id))
    return refuse(loaded.diagnostics) if loaded.errors else exit_codes.OK
