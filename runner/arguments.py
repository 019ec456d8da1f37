"""Arguments that several commands share, and what their values must be."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.shards import Shard


def paths(parser: argparse.ArgumentParser, many: bool = True) -> None:
    """Where cases are: many paths, or one case."""
    if many:
        parser.add_argument(
            "paths", nargs="+", metavar="PATH", help="a .suite.yaml, a .spec.yaml, a folder, or FILE::CASE"
        )
    else:
        parser.add_argument("case", metavar="CASE", help="FILE::CASE, or an id that a run printed")
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
        type=positive,
        metavar="N",
        help="processes at once (default: the cores)",
    )


def positive(text: str) -> int:
    """An integer of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def count(text: str) -> int:
    """An integer of at least 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("at least 0")
    return number


def seconds(text: str) -> float:
    """A duration such as 10m, in seconds."""
    from runner.spec.cases import duration

    try:
        found = duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not found or found <= 0:
        raise argparse.ArgumentTypeError("longer than nothing")
    return found


def shard(text: str) -> Shard:
    """M/N."""
    from runner.shards import parse

    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
