"""``runner warm``: the processes that runs with ``--keep-warm`` have left, and their end."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cli.arguments import argument, command
from runner.engine.kept import keepers, stop_all
from runner.exit_codes import UsageError
from runner.text import plural


@command(
    "The processes of torch that runs with --keep-warm have left for later ones, one a line.",
    argument("--stop", action="store_true", help="end them, and the runs that use them start others"),
)
def run(arguments: argparse.Namespace) -> int:
    """Print the processes, or end them."""
    try:
        processes = stop_all() if arguments.stop else [*keepers().values()]
    except OSError as error:
        raise UsageError(f"no process can be kept warm: {error.strerror or error}", exit_codes.INTERNAL) from None
    for process in processes:
        console.output(f"process {process}")
    console.output(f"{plural(len(processes), 'process', 'processes')} {'ended' if arguments.stop else 'warm'}")
    return exit_codes.OK
