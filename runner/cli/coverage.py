"""``runner coverage``: what a suite exercises of torch's operators, their arguments, dtypes, shapes and of the oracles.

It runs no case.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Sequence

from runner import console, exit_codes
from runner.cli import outputs
from runner.cli.arguments import JSON, PATHS, SELECTION, argument, command, defaults, setting, settings_of
from runner.cli.variants import load_variants, refuse, select_variants
from runner.contract.lines import TORCH, Lines, is_text
from runner.diagnose.harness import Progress, ask_environment
from runner.record.events import VariantFinished
from runner.record.store import read_log
from runner.report.coverage import Entry, count_constructs, measure, missing_lines, reached_parts, render, to_dict
from runner.session.plan import Environment, find_environments, worker_paths

_EPILOG = """\
A name counts where the chain of a case holds it, in one of the spellings of
torch's operator database: a function, a method, in place, an operator of
Python or of ATen. A dtype counts where an input has it, and an argument where
a step gives it.
What is reached inside the compiler only a run can tell: runner run --coverage
or --coverage-lines, then runner coverage --run latest.

exit codes: 0 there is a coverage, 2 interrupted, 3 internal error,
4 bad arguments or files, 5 nothing selected
"""

_TIMEOUT = 300.0
_MEMORY = 4 << 30
_PACKAGES = 20
"""Packages of backends whose lines are counted, at most."""


@command(
    "Names of torch's operator database and of the format, arguments, dtypes, backwards, kinds of inputs and of "
    "difference that a suite exercises.",
    *PATHS,
    SELECTION,
    setting("python", help="the Python whose torch has the operator database (default: this one)"),
    argument(
        "--missing", action="store_true", help="print what is not exercised instead, a name of the database a line"
    ),
    argument("--run", metavar="RUN", help="also what this run reached in the compiler; it had the option --coverage"),
    JSON,
    defaults(allow_python=True),
    epilog=_EPILOG,
)
def run(arguments: argparse.Namespace) -> int:
    """Print the coverage of the selected variants.

    Raises UsageError for another Python than one, and where nothing is selected.
    """
    settings = settings_of(arguments)
    if len(settings.python) > 1:
        raise exit_codes.UsageError("--python: one Python has the operator database")
    loaded = load_variants(arguments)
    if loaded.errors:
        return refuse(loaded.diagnostics)
    variants = select_variants(arguments, loaded).variants
    reached = _reached(arguments.run) if arguments.run is not None else {}
    names = {name for texts in reached.values() for name in texts}
    entries, tables, missing = _database(
        find_environments(settings.python)[0], _tables_for(names), _packages_of(names),
        (*worker_paths(settings, variants), os.getcwd()),
    )  # fmt: skip
    if missing:
        console.message(f"runner: without torch's operator database: {missing}")
    coverage = measure(
        variants, entries,
        reached_parts(names, tables) if reached else None,
        count_constructs(reached.values(), tables),
    )  # fmt: skip
    text = "\n".join(missing_lines(coverage)) if arguments.missing else render(coverage)
    outputs.show(arguments, json.dumps(to_dict(coverage), indent=2), text)
    return exit_codes.OK


def _reached(run: str) -> dict[str, set[str]]:
    """Return what a run reached, by variant without its backend. Raises UsageError where it did not record that."""
    log = read_log(run)
    reached: defaultdict[str, set[str]] = defaultdict(set)
    for event in log.events:
        if isinstance(event, VariantFinished) and event.reached:
            reached[event.label].update(event.reached)
    if not reached:
        raise exit_codes.UsageError(f"{log.path}: no variant says what it reached: runner run --coverage records it")
    return reached


def _tables_for(reached: set[str]) -> tuple[str, ...]:
    """Return which of the compiler's tables are wanted.

    Those of lines take seconds, and 100,000 lines are no help where none was recorded.
    """
    if not reached:
        return ()
    return ("parts", "lines") if any(is_text(name) for name in reached) else ("parts",)


def _packages_of(reached: set[str]) -> tuple[str, ...]:
    """Return the packages of backends whose lines were recorded. Some are enough of a stranger's log."""
    tops = {line.partition(":")[0].partition("/")[0].removesuffix(".py") for line in Lines(reached).texts()}
    names = sorted({top.partition(" ")[2] for top in tops} - {*TORCH})
    return tuple(name for name in names if name.isidentifier())[:_PACKAGES]


def _database(
    environment: Environment, tables: tuple[str, ...], packages: tuple[str, ...], paths: Sequence[str]
) -> tuple[dict[str, Entry], dict[str, list[str]], str]:
    """Ask a worker for torch's operator database and the compiler's tables; both, and why there is no database.

    Raises UsageError where the worker dies.
    """
    with Progress() as progress:
        result = ask_environment(
            environment, "database", {"tables": tables, "packages": packages},
            lambda: progress.say("reading torch's operator database"),
            backend={"backend": "eager"}, timeout=_TIMEOUT, memory=_MEMORY, isolation="living", paths=tuple(paths),
        )  # fmt: skip
    entries = {
        name: Entry(**{key: tuple(values) for key, values in facts.items()}) for name, facts in result["names"].items()
    }
    return entries, result["tables"], str(result["missing"])
