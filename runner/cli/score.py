"""``runner score``: the conformance of each backend of a run, or of two runs beside each other."""

from __future__ import annotations

import argparse
import json
import os
import shutil

from runner import console, exit_codes
from runner.cli import outputs
from runner.cli.arguments import set_epilog
from runner.cli.diff import print_forms, whole_log
from runner.exit_codes import UsageError
from runner.record.store import journal_of
from runner.report.score import badge, render, render_markdown, to_dict
from runner.verdict.score import score

_EPILOG = """\
examples:
  runner score latest                                  every backend of the last run
  runner score latest --backend openvino --svg openvino.svg
  runner score old/ new/ --markdown score.md           two runs beside each other

conformance   passes of what was judged
weighed       the same, where a failure keeps the credit of its severity
claim         what the backend claims of all variants
overall       passes of what was judged or is not claimed

A known failure (XFAIL) does not count as a pass; VACUOUS, FLAKY and INVALID do not either.
What is skipped, or has no verdict, counts nowhere but is shown: docs/score.md.

exit codes: 0 there is a score, 3 internal error, 4 bad arguments or files,
5 no variant was judged
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner score`` takes."""
    parser.description = (
        "The conformance of each backend of a run: in all, by family, dtype, oracle and severity, with what it does "
        "not claim."
    )
    set_epilog(parser, _EPILOG)
    parser.add_argument(
        "run", metavar="RUN", nargs="?", default="latest", help="a run's folder, its event log, or latest (the default)"
    )
    parser.add_argument(
        "second", metavar="RUN2", nargs="?", help="another run, whose backends stand beside those of the first"
    )
    parser.add_argument(
        "--backend", metavar="NAME", action="append", default=[], help="only this backend (may be repeated)"
    )
    parser.add_argument(
        "--markdown", metavar="FILE", help="also as Markdown; - is standard output, and then nothing else"
    )
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - is standard output, and then nothing else")
    parser.add_argument("--svg", metavar="FILE", help="also as a picture with a badge for each backend")


def run(arguments: argparse.Namespace) -> int:
    """Print the score. Raises UsageError where nothing was judged."""
    runs = [arguments.run, *([arguments.second] if arguments.second is not None else [])]
    paths = [os.path.realpath(journal_of(name)) for name in runs]
    outputs.check(arguments, {*paths})
    if arguments.json == arguments.markdown == "-":
        raise UsageError("--json - and --markdown -: standard output holds one of them")
    if len(set(paths)) < len(paths):
        raise UsageError("both runs are one; name one, or two that differ")
    result = score([(str(log.path), log.events) for log in map(whole_log, runs)], arguments.backend)
    if not any(column.total.judged for column in result.columns):
        raise UsageError(f"no variant was judged: {', '.join(run.log for run in result.runs)}", exit_codes.NOTHING)
    forms = {
        "markdown": lambda: render_markdown(result),
        "json": lambda: json.dumps(to_dict(result), indent=2) + "\n",
        "svg": lambda: badge(result),
    }
    print_forms(arguments, forms, lambda: console.output(render(result, shutil.get_terminal_size((80, 24)).columns)))
    return exit_codes.OK
