"""Arguments that several commands share, and what their values must be."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from runner import console

if TYPE_CHECKING:
    from runner.session.shards import Shard

JOBS = 1024
"""Processes at once, at most."""
COUNT = 100_000
"""How often one thing may be repeated, at most."""
MANY = 1_000_000_000
YEAR = 366 * 86400.0
"""Seconds that an option may name, at most."""


class Parser(argparse.ArgumentParser):
    """A parser that prints like everything else, so that a stream that cannot be written changes no exit code."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            (console.output if file is sys.stdout else console.message)(message, end="")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and what argparse does not know: how a value that begins with ``-`` is written."""
        if message.endswith("expected one argument"):
            option = message.removeprefix("argument ").partition(":")[0].rpartition("/")[2]
            message += f" (a value that begins with - is written {option}=VALUE)"
        super().error(message)


def paths(parser: argparse.ArgumentParser, many: bool = True) -> None:
    """Where cases are: many paths, or one case."""
    if many:
        parser.add_argument(
            "paths",
            nargs="+",
            metavar="PATH",
            help="a .suite.yaml, a .spec.yaml, a folder, FILE::CASE, or FOLDER::CASE",
        )
    else:
        parser.add_argument("case", metavar="CASE", help="FILE::CASE, FOLDER::CASE, or an id that a run printed")
    parser.add_argument(
        "--allow-python", action="store_true", help="allow cases that bring Python of their own (module:)"
    )
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=VALUE",
                        help="change a limit on what files may ask for, such as tensor_bytes=8GiB")  # fmt: skip


def selection(parser: argparse.ArgumentParser) -> None:
    """What narrows them."""
    parser.add_argument("--backend", action="append", default=[], metavar="NAME",
                        help="instead of the suites' own: a name torch.compile knows, a suite's, or package:function")  # fmt: skip
    parser.add_argument("--device", action="append", default=[], metavar="NAME", help="only on this device")
    parser.add_argument("-k", dest="select", metavar="EXPR",
                        help='words of ids with and, or, not; tag:x, file:x*, backend:x, e.g. "tag:numeric and not conv"')  # fmt: skip


def pythons(parser: argparse.ArgumentParser, each: str) -> None:
    """Under which Pythons they run, ``each`` of which the report gives a column or a row."""
    parser.add_argument("--python", action="append", default=[], metavar="PATH",
                        help=f"a Python that has torch; repeat for a {each} each")  # fmt: skip
    parser.add_argument("--import", dest="imports", action="append", default=[], metavar="MODULE",
                        help="import this in every worker first (registers operators and backends)")  # fmt: skip


def environment(parser: argparse.ArgumentParser) -> None:
    """Under which Pythons they run, and how."""
    pythons(parser, "column")
    parser.add_argument(
        "-j",
        "--jobs",
        type=integer(1, JOBS),
        metavar="N",
        help=f"processes at once, at most {JOBS} (default: the cores)",
    )


def seed(parser: argparse.ArgumentParser, what: str = "of models and inputs") -> None:
    """From what random numbers are made: any signed integer of 64 bits, which every torch takes."""
    parser.add_argument("--seed", type=integer(-(1 << 63), (1 << 63) - 1), default=0, metavar="N", help=f"{what} (default: 0)")  # fmt: skip


def integer(least: int, most: int) -> Callable[[str], int]:
    """A reader of whole numbers from ``least`` to ``most``."""

    def read(text: str) -> int:
        # Plain digits, and few: int() takes other scripts' digits and underscores, and refuses 5,000 digits with an error of its own.
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,40}", text) else None
        if number is None or not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{_short(text)} is no whole number from {least} to {most}")
        return number

    return read


def seconds(text: str) -> float:
    """A duration such as 10m, in seconds: longer than 0, at most a year."""
    from runner.cases.case import duration

    try:
        number = duration(text)
    except ValueError:
        number = None
    if number is None or not 0 < number <= YEAR:
        raise argparse.ArgumentTypeError(
            f"{_short(text)} is no time such as 90s, 10m or 2h, longer than 0 and at most a year"
        )
    return number


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def shard(text: str) -> Shard:
    """M/N."""
    from runner.session.shards import parse

    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
