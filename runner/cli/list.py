"""``runner list``: the ids of the variants that a run would run, their tags, or their backends."""

from __future__ import annotations

import argparse
from collections import Counter

from tabulate import tabulate

from runner import console, exit_codes
from runner.cli.arguments import add_paths, add_selection
from runner.cli.variants import load_variants, refuse, select_variants
from runner.text import in_line, plural

_AT_ONCE = 1000
"""Ids that are printed in one go: each print takes as long as a look at ten ids."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner list`` takes."""
    parser.description = (
        "One id a line, in the order of reports. Each can be given to run, show, diagnose and the others."
    )
    add_paths(parser)
    add_selection(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--tags", action="store_true", help="the tags instead, each with how many variants have it")
    group.add_argument(
        "--backends", action="store_true", help="the backends instead, each with how many variants have it"
    )


def run(arguments: argparse.Namespace) -> int:
    """List valid variants even when other files are broken; the exit code says so."""
    loaded = load_variants(arguments)
    code = refuse(loaded.errors) if loaded.errors else exit_codes.OK
    variants = select_variants(arguments, loaded, empty=bool(loaded.errors)).variants
    if arguments.tags:
        _print_counts(Counter(tag for variant in variants for tag in variant.case.tags))
    elif arguments.backends:
        _print_counts(Counter(variant.backend.name for variant in variants))
    else:
        for start in range(0, len(variants), _AT_ONCE):
            console.output("\n".join(in_line(variant.id) for variant in variants[start : start + _AT_ONCE]))
    return code


def _print_counts(counts: Counter[str]) -> None:
    rows = [(in_line(name), plural(count, "variant")) for name, count in sorted(counts.items())]
    console.output(tabulate(rows, tablefmt="plain", disable_numparse=True))
