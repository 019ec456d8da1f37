"""``runner debug CASE --record``: the frame in which Dynamo failed, in a file that ``runner replay`` runs again."""

from __future__ import annotations

import argparse

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cli.arguments import settings_of
from runner.cli.minify import summary
from runner.diagnose.harness import Lab, Progress, refuse_kernels, result_of
from runner.diagnostics import shown_path
from runner.quote import operand, shell_words
from runner.record.store import output_folder


def record(arguments: argparse.Namespace, variant: Variant) -> int:
    """Run the variant while Dynamo records; 0 when it recorded something, else 1.

    Raises:
        UsageError: the case cannot run, or dill, with which torch records, is not there.
    """
    refuse_kernels(variant, "debug --record")
    progress = Progress()
    with Lab.of(settings_of(arguments), variant) as lab:
        progress.say(f"running {variant.id} with recording on")
        folder = output_folder(arguments.output, "record")
        try:
            found = result_of(lab.ask([lab.job("record", {"folder": str(folder)})])[0])
        finally:
            progress.end()
    raised = found["raised"]
    console.output(f"{variant.id}\nraises {summary(raised) if raised else 'nothing'}")
    for file in found["files"]:
        console.output(f"recorded: {shown_path(file)}\nreplay it: {_command(arguments, file)}")
    if not found["files"]:
        console.output(
            "nothing recorded: Dynamo records its own internal errors, not graph breaks and not what a backend raises"
        )
    return exit_codes.OK if found["files"] else exit_codes.FAILED


def _command(arguments: argparse.Namespace, file: str) -> str:
    words = ["runner", "replay", operand(shown_path(file))]
    for python in arguments.python[:1]:
        words += ["--python", python]
    for name in arguments.imports:
        words += ["--import", name]
    return shell_words(words)
