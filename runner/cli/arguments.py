"""Arguments that several commands share, and what their values must be."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
  runner why case.spec.yaml::relu         stage, operator, case, script
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
        unknown = message.partition("\n")[0].split()[2:] if message.startswith("unrecognized arguments: ") else []
        for option in (word.partition("=")[0] for word in unknown if word.startswith("-")):
            if option in _OF_PYTEST:
                message += f"\n{option} of pytest is here: {_OF_PYTEST[option]}"
            elif near := nearest(option, self._option_string_actions):
                message += f"\n{option}: {near}"
        if message.endswith("expected one argument"):
            option = message.removeprefix("argument ").partition(":")[0].rpartition("/")[2]
            message += f" (a value that begins with - is written {option}=VALUE)"
        self.exit(2, f"{self.prog}: error: {message}\n{self.prog} --help lists what it takes\n")


Adder = Callable[[argparse._ActionsContainer], object]
"""Adds arguments to a parser or to a group of one."""


@dataclass(frozen=True)
class Command:
    """A command: the function that runs it, what its help says above and below the options, and its arguments."""

    run: Callable[[argparse.Namespace], int]
    text: str
    epilog: str
    adders: Sequence[Adder]
    usage: str | None = None

    def __call__(self, arguments: argparse.Namespace) -> int:
        """Run it, and return the exit code."""
        return self.run(arguments)

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Give a parser the help and the arguments."""
        parser.description, parser.epilog, parser.usage = self.text, self.epilog or None, self.usage or parser.usage
        if self.epilog:  # its lines are kept
            parser.formatter_class = argparse.RawDescriptionHelpFormatter
        _add_all(parser, self.adders)
        if settable(parser):
            _add_all(parser, _PROJECT)


def command(
    text: str, *adders: Adder, epilog: str = "", usage: str | None = None
) -> Callable[[Callable[[argparse.Namespace], int]], Command]:
    """Make a command of the function that runs it; the arguments are those of ``Command``."""
    return lambda run: Command(run, text, epilog, adders, usage)


def argument(*names: str, **keywords: Any) -> Adder:
    """Return what adds one argument, in the words of ``add_argument``."""
    return lambda parser: parser.add_argument(*names, **keywords)


def defaults(**values: Any) -> Adder:
    """Return what sets values that no option gives."""
    return lambda parser: parser.set_defaults(**values)


def group(title: str, *adders: Adder) -> Adder:
    """Return what adds arguments under a title of their own."""
    return lambda parser: _add_all(parser.add_argument_group(title), adders)


def one_of(*adders: Adder, required: bool = False) -> Adder:
    """Return what adds options of which one alone may be given."""
    return lambda parser: _add_all(parser.add_mutually_exclusive_group(required=required), adders)


def _add_all(parser: argparse._ActionsContainer, adders: Sequence[Adder]) -> None:
    for add in adders:
        add(parser)


def setting(*names: str, help: str | None = None) -> Adder:
    """Return what adds the options of these settings; ``help`` replaces their own where a command means a little
    else."""
    return lambda parser: _add_settings(parser, names, help)


def _add_settings(parser: argparse._ActionsContainer, names: Sequence[str], help: str | None) -> None:
    for name in names:
        option = options()[name]
        keywords: dict[str, Any] = {"dest": name, "help": help or option.help}
        default = RunSettings.__dataclass_fields__[name].default
        match option.kind:
            case "switch":
                keywords["action"] = "store_true"
            case "yes-no":
                _add_all(parser, yes_no(name, keywords["help"]))
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


def yes_no(name: str, help: str) -> tuple[Adder, Adder]:
    """Return what adds ``--name`` and ``--no-name``, of which the first is the default."""
    # Suppressed, or Python 3.11 writes the default into the help once more.
    action = argparse.BooleanOptionalAction
    return argument(f"--{name}", action=action, default=argparse.SUPPRESS, help=help), defaults(**{name: True})


def settings_of(arguments: argparse.Namespace) -> RunSettings:
    """Return the settings of a command line; what its command does not take is as by default."""
    values = {name: getattr(arguments, name) for name in options() if hasattr(arguments, name)}
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return RunSettings(**fields)


_OCCASIONAL = frozenset(
    {"select", "exitfirst", "last_failed", "failed_first", "shard", "durations", "keep_warm", "no_project"}
)
"""Settings of one command line, which no file sets for all."""

KEYS = {
    "paths": "paths",
    **{
        "import" if name == "imports" else name.replace("_", "-"): name for name in options() if name not in _OCCASIONAL
    },
    **{name: name for name in ("diagnose", "junit", "events", "ctrf", "github", "report", "keep")},
    "junit-dialect": "junit_dialect",
    "html": "html_folder",
    "verbose": "detail",
    "quiet": "detail",
}
"""The keys of a project file, each with the attribute that its option sets."""

HARMLESS = frozenset({
    "--accuracy", "--backend", "--budget", "--cached", "--confirm", "--coverage", "--coverage-lines",
    "--device", "--diagnose", "--exitfirst", "--fail-on-skip", "--failed-first", "--ff", "--isolation",
    "--jobs", "--junit-dialect", "--kernel-cache", "--last-failed", "--ledger", "--lf", "--max-fail",
    "--maxfail", "--no-confirm", "--no-known", "--no-project", "--numprocesses", "--op-by-op", "--order",
    "--quiet", "--recompile", "--retries", "--seed", "--shard", "--slow", "--stress", "--values", "--verbose",
})  # fmt: skip
"""Long options that are taken from anybody: they run no code, open no connection, and name no file but a ledger, which
is read as cases are.

So are all short ones.
"""

_PROJECT = (
    setting("no_project"),
    argument(
        "--trust-project", metavar="DIGEST",
        help="let the project file hold if its digest is this one, which runner config prints",
    ),
)  # fmt: skip
"""What each command takes that a project file may give defaults."""


def settable(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return what a project file may give a command, by its key; ``--backend OLD NEW`` is another option."""
    return {
        key: action
        for action in parser._actions
        for key, dest in KEYS.items()
        if action.dest == dest and action.nargs != 2
        and (f"--{key}" in action.option_strings or (key == "paths" and not action.option_strings))
    }  # fmt: skip


PATHS = (
    argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="a .suite.yaml, a .spec.yaml, a folder, FILE::CASE, or FOLDER::CASE",
    ),
    setting("allow_python", "limit"),
)
"""Where cases are."""

CASE = (
    argument("case", metavar="CASE", help="FILE::CASE, FOLDER::CASE, or an id that a run printed"),
    setting("allow_python", "limit"),
)
"""Where one case is."""

SELECTION = setting("backend", "device", "select")
"""What narrows them."""

ENVIRONMENT = setting("python", "imports", "jobs")
"""Under which Pythons they run, and how many at once."""

PYTEST_JOBS = argument(
    "-n",
    "--numprocesses",
    dest="jobs",
    type=lambda text: None if text in ("auto", "logical") else integer(1, JOBS)(text),
    default=argparse.SUPPRESS,
    help=argparse.SUPPRESS,
)
"""``-j`` as pytest-xdist spells it, ``auto`` included."""

SEED = setting("seed", help="of models and inputs, in cases without a seed of their own (default: 0)")
"""From what random numbers are made, where no random operator runs."""

FAILURE = (*CASE, SELECTION, ENVIRONMENT, SEED, setting("values"))
"""All that a command about one failing variant takes. Such a command ends with RESULT_CODES."""

JSON = argument("--json", metavar="FILE", help="also as JSON; - is standard output, and then nothing else")


def junit(text: str, dialect: str | None = None) -> tuple[Adder, Adder]:
    """Return what adds where JUnit XML goes, and in which dialect."""
    return (
        argument("--junit", "--junitxml", metavar="FILE", help=text),
        argument("--junit-dialect", choices=("extended", "strict"), default="extended", help=dialect),
    )


def github(text: str) -> Adder:
    """Return what adds whether GitHub Actions is told of what is wrong."""
    return argument("--github", action="store_true", help=text)


OUTPUTS = (
    argument("--ctrf", metavar="FILE", help="JSON of the Common Test Report Format (ctrf.io) here"),
    argument(
        "--html", metavar="FOLDER", dest="html_folder",
        help="also pages in this folder: failures by signature, a table with filters, a page for each failure",
    ),
    github("in a job of GitHub Actions: a summary of the step, and remarks at lines of YAML"),
    argument(
        "--report", action="append", default=[], metavar="NAME=PATH",
        help="what a reporter writes, here: events, junit, ctrf, html, github, one of another package, "
        "or package:function; repeat for several",
    ),
)  # fmt: skip
"""What ``runner.cli.outputs.reporters_of`` reads."""

DETAIL = (
    argument(
        "-v", "--verbose", dest="detail", action="store_const", const="verbose", default="",
        help="say of each variant what was compared: outputs, strides, aliases, gradients, elements; "
        "its labels and notes; name every failure of a signature, and runs that were removed",
    ),
    argument(
        "-q", "--quiet", dest="detail", action="store_const", const="quiet", default="",
        help="print failures, warnings and the summary alone, and no live lines",
    ),
)  # fmt: skip
"""How much the terminal says, as ``arguments.detail``: ``verbose``, ``quiet`` or neither. The later of both counts."""


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
