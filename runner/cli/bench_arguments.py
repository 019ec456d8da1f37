"""The arguments of ``runner bench``. What it does is in ``runner.benchmark``."""

from __future__ import annotations

import argparse

from runner.cli.arguments import COUNT, integer, paths, pythons, seed, selection

_EPILOG = """\
One variant at a time, whatever the machine has: two at once disturb each other. Nothing is judged: run `runner run` first,
for a wrong answer can be as fast as you like. See docs/bench.md for what each figure means.

exit codes: 0 something was timed, 2 interrupted, 3 internal error, 4 bad arguments or files, 5 nothing could be timed
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bench",
        help="time cases in eager and compiled",
        description="Compile times with and without a kernel cache, run times with their spread, speed-up, memory, kernels, bandwidth.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    paths(parser)
    selection(parser)
    pythons(parser, "row")
    seed(parser)
    parser.add_argument("-n", "--repeat", type=integer(1, COUNT), default=10, metavar="N",
                        help="measure each run time at least N times (default: 10; short ones are measured far more often)")  # fmt: skip
    parser.add_argument("--json", metavar="FILE", help="also as JSON; - is standard output, and then nothing else")
    parser.add_argument("--plot", metavar="FILE", help="also bars of the speed-ups: FILE.svg, or FILE.html")
