"""``runner debug --replay FILE``: Dynamo again over a frame that ``runner debug --record`` recorded."""

from __future__ import annotations

import argparse
from pathlib import Path

from runner import console, exit_codes
from runner.cli.arguments import add_environment, add_result_codes, settings_of
from runner.contract.job import Job
from runner.diagnose.harness import Progress, result_of
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome
from runner.exit_codes import UsageError
from runner.session.plan import TIMEOUT, find_environments, worker_paths
from runner.session.scheduler import drive, with_reference


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner debug --replay`` takes."""
    parser.description = "Run Dynamo again over a recorded frame, and see whether it fails."
    add_result_codes(parser)
    parser.add_argument("file", metavar="FILE", help="a .rec file")
    add_environment(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay; 0 when the failure shows again, 1 when Dynamo comes to the end of the frame.

    Raises:
        UsageError: no such file, it holds no recording, or dill is not there.
    """
    file = Path(arguments.file)
    if not file.is_file():
        raise UsageError(f"{arguments.file}: no such file")
    with Progress() as progress:
        progress.say(f"replaying {arguments.file}")
        raised = result_of(_ask(arguments, file.resolve()))["raised"]
    if raised is None:
        console.output(f"{arguments.file}: Dynamo comes to the end of the frame without an error")
        return exit_codes.NO_RESULT
    console.output(f"{arguments.file}: Dynamo raises {raised['type']}\n\n{str(raised['message']).strip()}")
    return exit_codes.OK


def _ask(arguments: argparse.Namespace, file: Path) -> Outcome:
    environment = find_environments(arguments.python)[0]
    job = Job(key="replay", id=file.name, environment=environment.key, name="replay", source="", backend={},
              imports=tuple(arguments.imports), paths=worker_paths(settings_of(arguments)), timeout=TIMEOUT,
              task="replay",
              arguments={"file": str(file)}, cacheable=False)  # fmt: skip
    with LocalEngine({environment.key: environment.python}, 1, warm={environment.key: "import"}) as engine:
        (outcome,) = drive(engine, with_reference([job]))
    return outcome
