"""``runner operators``: what a step may call, with signatures and dtypes, what is refused, and who uses it."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner import console, exit_codes
from runner.builder.catalog import find_operators
from runner.builder.operators import Operator, Refusal, resolve
from runner.cases.limits import Limits
from runner.cases.model import Case
from runner.cases.operator_names import known_names, names_of, operators_of, pattern_hint
from runner.cases.operator_texts import VERSIONS, arguments_of, is_overload, overloads_of, text_of, words_for
from runner.cases.suites import SPEC, Reader
from runner.cli.arguments import argument, command
from runner.diagnostics import shown_path
from runner.files import read_text, shipped
from runner.quote import operand, shell_words
from runner.text import in_line, plural

_CASES = 5
"""Cases of an operator that are printed; a command lists all."""
_LONGEST = 200

_EPILOG = """\
  runner operators                   all, a signature a line
  runner operators F.gelu            one, with its dtypes and the shipped cases
  runner operators 'torch.*norm*'    some; a word stands for any namespace
  runner operators 'aten.add.*'      overloads, which have a part of their own

runner ops is another command: it runs the operator calls of a model.

exit codes: 0 printed, 3 internal error, 4 bad arguments, 5 nothing matches
"""


@command(
    "The operators that a step of a case may call, each with its signature, and those that are refused, each with the "
    "reason. Needs no torch.",
    argument(
        "pattern", nargs="?", default="*", metavar="PATTERN", help="a name, or a pattern of names such as F.conv*"
    ),
    argument("--torch", choices=VERSIONS, help="the operators of this torch alone (default: of each)"),
    epilog=_EPILOG,
)
def run(arguments: argparse.Namespace) -> int:
    """Print what the pattern matches. Raises UsageError where it matches nothing."""
    pattern, version = str(arguments.pattern), arguments.torch
    match = find_operators(pattern, version)
    if not match.callable and not match.refused:
        raise exit_codes.UsageError(_unknown(pattern, version), exit_codes.NOTHING)
    if len(match.callable) + len(match.refused) == 1:
        names = [*match.callable, *match.refused]
        console.output("\n".join(_details(names[0], version) if match.callable else _refusal(names[0])))
        return exit_codes.OK
    lines = [line for name in match.callable for line in _brief(name, version)]
    console.output("\n".join([*lines, *(": ".join(_refusal(name)[:1]) for name in match.refused)]))
    return exit_codes.OK


def _unknown(pattern: str, version: str | None) -> str:
    """Return why a pattern matches nothing."""
    unlike = f"no operator is like '{in_line(pattern[:_LONGEST])}'"
    if not pattern or len(pattern) > _LONGEST:
        return unlike
    if version is not None and (known := find_operators(pattern).callable):
        return f"torch {version} has no operator {known[0]}: {', '.join(text_of(known[0]).versions)} has"
    answer = resolve(pattern)
    if pattern.isascii() and set(pattern).isdisjoint("*?[") and isinstance(answer, Refusal):
        return ": ".join(map(in_line, filter(None, (answer.message, answer.hint))))
    hint = "a package or a file has it" if isinstance(answer, Operator) else pattern_hint(pattern)
    return f"{unlike}{f': {in_line(hint)}' if hint else ''}"


def _brief(name: str, version: str | None) -> Iterator[str]:
    """Yield one line about an operator: its first signature, or its name."""
    signatures = text_of(name, version).signatures
    more = f"  # and {plural(len(signatures) - 1, 'more signature')}" if len(signatures) > 1 else ""
    python = name.startswith("operator.") and signatures
    yield in_line(f"{name}: {signatures[0]}" if python else f"{signatures[0]}{more}" if signatures else name)


def _refusal(name: str) -> list[str]:
    answer = resolve(name)
    if not isinstance(answer, Refusal):
        raise ValueError(f"{name} is not refused")
    return [in_line(answer.message), *([f"  {in_line(answer.hint)}"] if answer.hint else [])]


def _details(name: str, version: str | None) -> list[str]:
    """Return all that is known about an operator, a line each."""
    text = text_of(name, version)
    arguments = arguments_of(text.signatures)
    values = "; ".join(f"{each}: {', '.join(words)}" for each in arguments if (words := words_for(name, each)))
    cases = _cases_of(name)
    folder = shipped("specs")
    rows = {
        "about": text.line,
        "values": values,
        "dtypes": f"{', '.join(text.dtypes)} on the CPU" if text.dtypes else "",
        "torch": ", ".join(text.versions),
        "overloads": ", ".join(overloads_of(name)),
        "names": ", ".join(each for each in names_of(name)[1:] if not is_overload(each)),
        "cases": plural(len(cases), "shipped case") if cases else "no shipped case calls it",
    }
    lines = [line for key, value in rows.items() if value for line in _row(key, value)]
    ids = [f"  {in_line(f'{shown_path(case.file)}::{case.name}')}" for case in cases[:_CASES]]
    every = [shell_words(["runner", "list", operand(shown_path(str(folder))), "-k", f"op:{name}", "--allow-python"])]
    return [*map(in_line, text.signatures or (name,)), *lines, *ids, *(every if len(cases) > _CASES else [])]


def _row(key: str, value: str) -> list[str]:
    """Return a fact and its name, in lines of the terminal's width."""
    head = f"  {key:<10} "
    width = max(shutil.get_terminal_size().columns - 1, 2 * len(head))
    return textwrap.wrap(
        in_line(value), width, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )


def _cases_of(name: str) -> Sequence[Case]:
    """Return the shipped cases that call an operator by any of its names. It reads the files that may have one."""
    callers = tuple(each for each in known_names() if name in names_of(each))
    files = [path for path in sorted(shipped("specs").rglob(f"*{SPEC}")) if _may_call(path, callers)]
    suites = Reader(Limits()).suites(files) if files else []
    return [case for suite in suites for case in suite.cases if name in operators_of(case)]


def _may_call(path: Path, callers: Sequence[str]) -> bool:
    """Return whether a file has one of the names, or a model in Python, which may."""
    text = read_text(path)
    return "module:" in text or any(caller in text for caller in callers)
