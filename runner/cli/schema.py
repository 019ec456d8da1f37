"""``runner schema``: the JSON Schemas."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cases.yaml.schema import schema_text


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner schema`` takes."""
    parser.description = "Draft-07, for editors and other tools. events is one line of a run's events.jsonl."
    parser.add_argument("name", nargs="?", choices=("spec", "suite", "definitions", "events"), default="spec")


def run(arguments: argparse.Namespace) -> int:
    """Print the schema."""
    console.output(schema_text(arguments.name), end="")
    return exit_codes.OK
