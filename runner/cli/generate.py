"""``runner generate``: valid chains of operators, drawn by a seed, as spec files and a suite."""

from __future__ import annotations

import argparse

from runner import console, exit_codes, interrupts
from runner.cli.arguments import add_environment, integer, set_epilog, settings_of
from runner.diagnose.harness import Progress
from runner.diagnostics import shown_path
from runner.engine.local import LocalEngine
from runner.generate.files import write_specs, write_suite
from runner.generate.generator import CaseGenerator, GeneratedCase, Request
from runner.record.store import output_folder
from runner.session.environments import find_environments
from runner.session.settings import COUNT, MANY
from runner.text import plural

_EPILOG = """\
The same seed gives the same cases on the same torch, by the same version of the generator.
The doc of a case holds the command that draws it again. See docs/generate.md.

exit codes: 0 the cases were written, 2 interrupted, 3 internal error, 4 bad arguments
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner generate`` takes."""
    parser.description = (
        "Draws chains of operators that eager PyTorch takes, and writes them as spec files with a suite."
    )
    set_epilog(parser, _EPILOG)
    parser.add_argument("--seed", type=integer(0, MANY), default=0, metavar="N", help="what is drawn (default: 0)")
    parser.add_argument(
        "--count", type=integer(1, COUNT), default=100, metavar="N", help="how many cases (default: 100)"
    )
    parser.add_argument("--first", type=integer(0, MANY), default=0, metavar="N",
                        help="the number of the first case of that seed (default: 0)")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FOLDER", required=True, help="the folder of the files, new or empty")
    add_environment(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the cases that the command line asks for.

    Raises:
        UsageError: no such Python, or a folder that cannot be used.
    """
    settings = settings_of(arguments)
    environment = find_environments(settings.python)[0]
    folder = output_folder(arguments.output, "generated")
    request = Request(arguments.seed, arguments.count, arguments.first)
    cases: list[GeneratedCase] = []
    progress = Progress()
    interrupted = False
    engine = LocalEngine({environment.key: environment.python}, settings.slots(), warm={environment.key: "import"})
    generator = CaseGenerator(engine, environment, request, settings.slots())
    try:
        while len(cases) < request.count:
            progress.say(f"{len(cases)} of {request.count} cases")
            cases += generator.next_cases(request.count - len(cases))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        with interrupts.held():
            engine.close()
            progress.end()
            interrupted = interrupts.noted() or interrupted
    name = f"chains_{request.seed}"
    suite = write_suite(folder, name, write_specs(folder, name, [case.data for case in cases[: request.count]]))
    lost = ", ".join(f"{count} {fault}" for fault, count in generator.faults.most_common() if count)
    console.output(
        f"{shown_path(str(suite))}: {plural(min(len(cases), request.count), 'case')}; not written: {lost or 'none'}"
    )
    if interrupted:
        console.message(f"runner: interrupted: {request.count - len(cases)} of {request.count} cases are missing")
        return exit_codes.INTERRUPTED
    return exit_codes.OK
