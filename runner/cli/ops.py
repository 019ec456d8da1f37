"""``runner ops``: each operator call of a model alone under the backends, and a table of what is right."""

from __future__ import annotations

import argparse

from runner.cli.arguments import DETAIL, ENVIRONMENT, JSON, PATHS, SELECTION, argument, command, setting
from runner.cli.op_by_op import op_by_op
from runner.cli.run import run_words
from runner.cli.variants import run_valid

_EPILOG = """\
  runner ops captured/ --backend openvino       every model of a folder that runner capture made
  runner ops model.spec.yaml::bert --backend acme:compile

Each call runs alone on values like those of the model, so an error of one operator reaches no other one. The folder has
the cases, the table as ops.md, and ops.json.

exit codes: 0 all calls are right, 1 one is not, 2 interrupted, 3 internal error, 4 bad arguments or files,
5 nothing selected
"""


@command(
    "Run each distinct operator call of a case or a model alone under its backends. Say which are right, how far they "
    "are off, and how often the model makes them.",
    *PATHS,
    SELECTION,
    ENVIRONMENT,
    setting("seed"),
    *DETAIL,
    argument("-o", "--output", metavar="FOLDER", help="where the cases and tables go (default: a new run's folder)"),
    JSON,
    epilog=_EPILOG,
)
def run(arguments: argparse.Namespace) -> int:
    """Run the calls of the selected cases, and return the exit code."""
    return run_valid(arguments, lambda loaded: op_by_op(arguments, loaded.variants, run_words))
