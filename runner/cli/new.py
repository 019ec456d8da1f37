"""``runner new``: a case from the names of operators and the shapes of inputs."""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner import console, exit_codes, quote
from runner.cases.canonical import format_text
from runner.cases.first_draft import DraftError, Shape, draft_case
from runner.cases.serialize import emit
from runner.cases.suites import SPEC
from runner.cases.yaml import reader
from runner.cli import outputs
from runner.cli.arguments import argument, command
from runner.diagnostics import Diagnostic, InputError
from runner.exit_codes import UsageError
from runner.files import link_problem, replace_text
from runner.quote import QuoteError
from runner.session.collect import collect
from runner.session.settings import RunSettings

_SIZES = re.compile(r"(?P<sizes>\[\]|[0-9]{1,9}(?:,[0-9]{1,9})*)(?::(?P<dtype>\w+))?", re.ASCII)
_DEFAULT = "4,8"
_DRAFT = f"new{SPEC}"


@command(
    "Print a valid case whose chain calls these operators, one after the other.",
    argument("operators", nargs="+", metavar="OPERATOR", help="such as F.gelu, torch.add or nn.Linear"),
    argument(
        "--shape", action="append", metavar="SIZES",
        help=f"of an input, such as 4,8, or 4:int64 with a dtype of its own, or [] for a number; repeat for several "
        f"(default: {_DEFAULT}); further inputs have the last one's",
    ),
    argument("--dtype", action="append", default=[], metavar="DTYPE", help="of the case; repeat for several"),
    argument("--grad", action="store_true", help="compare gradients of the inputs too"),
    argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE",
        help="an argument of each operator that has it, as in YAML: dim=1, kernel_size=[3, 3]; repeat for several",
    ),
    argument("--name", default="", metavar="NAME", help="of the case (default: made of the operators)"),
    argument("-o", "--output", metavar="FILE", help="write a new file; none is replaced"),
    epilog="examples:\n"
    "  runner new F.gelu --shape 4,8 --dtype bfloat16 --grad\n"
    "  runner new nn.Linear F.relu --arg in_features=8 --arg out_features=3\n"
    "  runner new torch.matmul --shape 4,8 --shape 8,3 -o product.spec.yaml\n",
)  # fmt: skip
def run(arguments: argparse.Namespace) -> int:
    """Print the case, or write it to a new file. It is read as ``runner validate`` reads it before."""
    target: str | None = arguments.output
    if target is not None:
        _check_target(target)
    try:
        shapes = [*map(_shape, arguments.shape or [_DEFAULT])]
        case = draft_case(
            arguments.operators, shapes, _arguments(arguments.arg), arguments.dtype, arguments.grad, arguments.name
        )
        text = format_text(emit({"cases": [case]}))
    except (DraftError, QuoteError) as error:
        raise UsageError(f"new: {error}") from None
    _validate(text)
    if target is None:
        console.output(text, end="")
        return exit_codes.OK
    outputs.write("--output", target, text)
    console.output(f"next: runner run {quote.shell_word(quote.operand(target))}")
    return exit_codes.OK


def _check_target(path: str) -> None:
    problem = "" if path.endswith(SPEC) else f"cases end in {SPEC}"
    problem = problem or link_problem(path) or ("it is there already; name a new file" if os.path.lexists(path) else "")
    parent = os.path.dirname(path) or "."
    problem = problem or ("" if os.path.isdir(parent) else f"there is no folder {parent}")
    if problem:
        raise UsageError(f"--output {path}: {problem}")


def _shape(text: str) -> Shape:
    match = _SIZES.fullmatch(text.replace(" ", ""))
    if match is None:
        raise DraftError(f"--shape {text}: sizes are such as 4,8, or 4:int64, or [] for a number")
    sizes = "" if match["sizes"] == "[]" else match["sizes"]
    return Shape(tuple(map(int, filter(None, sizes.split(",")))), match["dtype"] or "")


def _arguments(words: Sequence[str]) -> Mapping[str, Any]:
    """The values of ``--arg`` by name; each is YAML. Raises DraftError."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise DraftError(f"--arg {word}: it is NAME=VALUE, such as dim=1")
        if name in values:
            raise DraftError(f"--arg {name} is given twice")
        node, diagnostics = reader.load("--arg", value)
        if node is None or diagnostics:
            raise DraftError(f"--arg {word}: {diagnostics[0].message}")
        values[name] = node.plain()
    return values


def _validate(text: str) -> None:
    """Raise InputError if the case is wrong. Its places are those of the text that is not written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, _DRAFT)
        replace_text(path, text)
        errors = collect([str(path)], RunSettings()).errors
    if errors:
        raise InputError(map(_placed, errors))


def _placed(problem: Diagnostic) -> Diagnostic:
    return replace(problem, span=replace(problem.span, file=_DRAFT))
