"""``runner validate``: every error of every file; with ``--build`` torch's refusals too, at the line that holds
them."""

from __future__ import annotations

import argparse
from collections import Counter

from runner import console, exit_codes
from runner.cli import outputs
from runner.cli.arguments import add_environment, add_github, add_paths
from runner.cli.variants import load_variants, tell_github
from runner.exit_codes import UsageError
from runner.text import in_line, plural


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner validate`` takes."""
    parser.description = "Every error of every file, at its line and column. Needs no torch; --build does."
    add_paths(parser)
    add_environment(parser)
    parser.add_argument(
        "--build",
        action="store_true",
        help="also make every model and its inputs and call it, on the meta device where that can be",
    )
    parser.add_argument("--sarif", metavar="FILE", help="SARIF 2.1.0 here; - is standard output, and then nothing else")
    add_github(parser, "in a job of GitHub Actions: also remarks at lines of YAML")


def run(arguments: argparse.Namespace) -> int:
    """Print every error and warning, and how much is valid."""
    loaded = load_variants(arguments, everything=True)
    diagnostics = [*loaded.diagnostics]
    unbuilt: Counter[str] = Counter()
    if not loaded.suites and not diagnostics:
        raise UsageError(
            f"{', '.join(arguments.paths)}: no .suite.yaml and no .spec.yaml file here or below", exit_codes.NOTHING
        )
    if arguments.build:
        from runner.cli.build import try_out  # late: an engine is needed here alone

        refusals, unbuilt = try_out(arguments, loaded)
        diagnostics += refusals
    for diagnostic in diagnostics:
        console.message(diagnostic.render())
    if arguments.github:
        tell_github(diagnostics)
    if arguments.sarif:
        from runner.report.sarif import render

        if arguments.sarif == "-":
            console.output(render(diagnostics), end="")
            return exit_codes.USAGE if any(d.severity == "error" for d in diagnostics) else exit_codes.OK
        outputs.write("--sarif", arguments.sarif, render(diagnostics))
    errors = sum(d.severity == "error" for d in diagnostics)
    cases = len({id(v.case) for v in loaded.variants})
    console.output(f"{plural(cases, 'valid case')}, {plural(len(loaded.variants), 'variant')}, "
        f"{plural(errors, 'error')}, "
          f"{plural(len(diagnostics) - errors, 'warning')}")  # fmt: skip
    for reason, count in unbuilt.most_common():
        console.output(f"not built: {plural(count, 'variant')}: {in_line(reason)}")
    return exit_codes.USAGE if errors else exit_codes.OK
