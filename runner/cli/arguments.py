"""Arguments that several commands share, and what their values must be."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from runner import console
from runner.diagnostics import nearest
from runner.session.settings import JOBS, YEAR, RunSettings, options, parse_shard

EXAMPLES = """\
examples:
  runner run suites/                      every suite: eager and torch.compile
  runner run case.spec.yaml --backend aot_eager
  runner run suites/ -k "frexp or pad" -j 4 --junit report.xml
  runner run suites/ --python old/bin/python --python new/bin/python
  runner show case.spec.yaml::relu        the case as Python source
  runner repro case.spec.yaml::relu > repro.py
  runner diagnose case.spec.yaml::relu    the guilty stage, pass, operator, kernel
  runner reduce case.spec.yaml::relu      the smallest case that fails like it
  runner bench suites/ --plot bench.svg   times; judges nothing

exit codes are pytest's: 0 as expected, 1 failures, 2 interrupted,
3 internal error, 4 bad arguments or files, 5 nothing selected.
"""
"""The end of two helps: of ``runner`` and of ``runner run``."""


_OF_PYTEST = {
    "-m": "-k tag:NAME",
    "--collect-only": "runner list PATH",
    "--co": "runner list PATH",
    "--markers": "runner list PATH --tags",
    "-s": "nothing: a failure shows what its process printed, and the run's folder keeps all of it",
    "--capture": "nothing: a failure shows what its process printed, and the run's folder keeps all of it",
    "--tb": "nothing: a failure shows the stack of its exception",
    "--pdb": "runner debug ID",
    "--sw": "runner run PATH --lf -x",
    "--stepwise": "runner run PATH --lf -x",
    "--deselect": "-k 'not ...'",
    "--ignore": "-k 'not file:...'",
    "--timeout": "timeout: in a case or in a suite's defaults",
    "--count": "--stress N",
    "--reruns": "--retries N",
    "--dist": "nothing: every variant is a job of its own",
    "--strict-markers": "nothing: an unknown tag of -k is always reported",
    "--fixtures": "nothing: a case holds its inputs",
}
"""Options of pytest and its plugins that are spelt otherwise here, or need no option."""

_Value = TypeVar("_Value")

RESULT_CODES = """\
exit codes: 0 the result was made, 1 it was not (the failure did not show,
or does not allow it), 2 interrupted, 3 internal error,
4 bad arguments or files, 5 nothing selected.
"""
"""The end of the help of each command about one failure."""


class Parser(argparse.ArgumentParser):
    """A parser that prints like everything else, so that a stream that cannot be written changes no exit code.

    An option is written out: the start of one, such as pytest's --co, would mean another than its author thinks.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})

    def format_help(self) -> str:
        """Return the help with no line wider than the terminal: what keeps its lines is not wrapped by argparse."""
        width = max(shutil.get_terminal_size().columns - 1, 20)
        lines = super().format_help().split("\n")
        return "\n".join(
            "\n".join(textwrap.wrap(line, width, break_on_hyphens=False)) if len(line) > width else line
            for line in lines
        )

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            (console.output if file is sys.stdout else console.message)(message, end="")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and what argparse does not know: how a value that begins with ``-`` is written."""
        unknown = message.split()[2:] if message.startswith("unrecognized arguments: ") else []
        for option in (word.partition("=")[0] for word in unknown if word.startswith("-")):
            if option in _OF_PYTEST:
                message += f"\n{option} of pytest is here: {_OF_PYTEST[option]}"
            elif near := nearest(option, self._option_string_actions):
                message += f"\n{option}: {near}"
        if message.endswith("expected one argument"):
            option = message.removeprefix("argument ").partition(":")[0].rpartition("/")[2]
            message += f" (a value that begins with - is written {option}=VALUE)"
        self.exit(2, f"{self.prog}: error: {message}\n{self.prog} --help lists what it takes\n")


def add_paths(parser: argparse.ArgumentParser, many: bool = True) -> None:
    """Add where cases are: many paths, or one case."""
    if many:
        parser.add_argument(
            "paths",
            nargs="+",
            metavar="PATH",
            help="a .suite.yaml, a .spec.yaml, a folder, FILE::CASE, or FOLDER::CASE",
        )
    else:
        parser.add_argument("case", metavar="CASE", help="FILE::CASE, FOLDER::CASE, or an id that a run printed")
    add_settings(parser, "allow_python", "limit")


def add_settings(parser: argparse._ActionsContainer, *names: str, help: str | None = None) -> None:
    """Add the options of these settings; ``help`` replaces their own where a command means a little else."""
    for name in names:
        option = options()[name]
        default = RunSettings.__dataclass_fields__[name].default
        keywords: dict[str, Any] = {"dest": name, "help": help or option.help}
        match option.kind:
            case "switch":
                keywords["action"] = "store_true"
            case "yes-no":
                add_yes_no(parser, name, keywords["help"])
                continue
            case "list":
                keywords |= {"action": "append", "default": [], "metavar": option.metavar}
            case "choice":
                keywords |= {"choices": option.choices, "default": default}
            case _:
                readers = {
                    "number": integer(option.least, option.most),
                    "seconds": seconds,
                    "shard": reader(parse_shard),
                    "text": str,
                }
                keywords |= {"type": readers[option.kind], "default": default, "metavar": option.metavar}
        parser.add_argument(*option.flags.split(), **keywords)


def add_yes_no(parser: argparse._ActionsContainer, name: str, help: str) -> None:
    """Add ``--name`` and ``--no-name``, of which the first is the default."""
    # Suppressed, or Python 3.11 writes the default into the help once more.
    action = argparse.BooleanOptionalAction
    parser.add_argument(f"--{name}", action=action, default=argparse.SUPPRESS, help=help)
    parser.set_defaults(**{name: True})


def settings_of(arguments: argparse.Namespace) -> RunSettings:
    """Return the settings of a command line; what its command does not take is as by default."""
    values = {name: getattr(arguments, name) for name in options() if hasattr(arguments, name)}
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return RunSettings(**fields)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add what narrows them."""
    add_settings(parser, "backend", "device", "select")


def add_pythons(parser: argparse.ArgumentParser, each: str) -> None:
    """Add under which Pythons they run, ``each`` of which the report gives a column or a row."""
    add_settings(parser, "python", help=f"a Python that has torch; repeat for a {each} each")
    add_settings(parser, "imports")


def add_environment(parser: argparse.ArgumentParser) -> None:
    """Add under which Pythons they run, and how many at once."""
    add_settings(parser, "python", "imports", "jobs")


def add_variant(parser: argparse.ArgumentParser, text: str) -> None:
    """Add all that a command about one failing variant takes, ``text`` for its help, and its exit codes."""
    describe(parser, text, RESULT_CODES)
    add_paths(parser, many=False)
    add_selection(parser)
    add_environment(parser)
    add_seed(parser)
    add_settings(parser, "values")


def add_junit(parser: argparse._ActionsContainer, text: str, dialect: str | None = None) -> None:
    """Add where JUnit XML goes, and in which dialect."""
    parser.add_argument("--junit", "--junitxml", metavar="FILE", help=text)
    parser.add_argument("--junit-dialect", choices=("extended", "strict"), default="extended", help=dialect)


def add_outputs(parser: argparse._ActionsContainer) -> None:
    """Add what ``runner.cli.outputs.reporters_of`` reads."""
    parser.add_argument("--ctrf", metavar="FILE", help="JSON of the Common Test Report Format (ctrf.io) here")
    parser.add_argument(
        "--html", metavar="FOLDER", dest="html_folder",
        help="also pages in this folder: failures by signature, a table with filters, a page for each failure",
    )  # fmt: skip
    add_github(parser, "in a job of GitHub Actions: a summary of the step, and remarks at lines of YAML")
    parser.add_argument("--report", action="append", default=[], metavar="NAME=PATH",
                        help="what a reporter writes, here: events, junit, ctrf, html, github, one of another package, "
                        "or package:function; repeat for several")  # fmt: skip


def add_github(parser: argparse._ActionsContainer, text: str) -> None:
    """Add whether GitHub Actions is told of what is wrong."""
    parser.add_argument("--github", action="store_true", help=text)


def add_verbose(parser: argparse._ActionsContainer) -> None:
    """Add how much the terminal says, as ``arguments.detail``: ``verbose``, ``quiet`` or neither.

    The later of both counts.
    """
    parser.add_argument(
        "-v",
        "--verbose",
        dest="detail",
        action="store_const",
        const="verbose",
        default="",
        help="say of each variant what was compared: outputs, strides, aliases, gradients, elements; "
        "its labels and notes; name every failure of a signature, and runs that were removed",
    )
    parser.add_argument("-q", "--quiet", dest="detail", action="store_const", const="quiet", default="",
                        help="print failures, warnings and the summary alone, and no live lines")  # fmt: skip


def describe(parser: argparse.ArgumentParser, text: str, epilog: str) -> None:
    """Set the text above the options of a help and the one below, whose lines are kept."""
    parser.description, parser.epilog = text, epilog
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add from what random numbers are made, where no random operator runs."""
    add_settings(parser, "seed", help="of models and inputs, in cases without a seed of their own (default: 0)")


def add_pytest_jobs(parser: argparse.ArgumentParser) -> None:
    """Add ``-j`` as pytest-xdist spells it, ``auto`` included."""

    def jobs(text: str) -> int | None:
        return None if text in ("auto", "logical") else integer(1, JOBS)(text)

    parser.add_argument(
        "-n", "--numprocesses", dest="jobs", type=jobs, default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def integer(least: int, most: int) -> Callable[[str], int]:
    """A reader of whole numbers from ``least`` to ``most``."""

    def read(text: str) -> int:
        # Plain digits, and few: int() takes other scripts' digits and underscores, and refuses 5,000 digits with an
        # error of its own.
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


def reader(parse: Callable[[str], _Value]) -> Callable[[str], _Value]:
    """A reader of what ``parse`` takes, which says what its ValueError says."""

    def read(text: str) -> _Value:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read
