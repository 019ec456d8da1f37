"""``runner fmt``: files in their canonical layout."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner import console, exit_codes
from runner.cases.canonical import format_text
from runner.cases.limits import Limits
from runner.cases.suites import LEDGER, SPEC, SUITE, PathError, Walk
from runner.cases.yaml.reader import read_text, similar_file
from runner.cases.yaml.tree import Unfit
from runner.cli.arguments import argument, command, one_of, setting, settings_of
from runner.cli.variants import tell
from runner.diagnostics import InputError, shown_path
from runner.exit_codes import UsageError
from runner.files import link_problem, replace_text
from runner.text import in_line, plural, visible

_ENDINGS = (SPEC, SUITE, LEDGER)
_STDIN = "-"


@command(
    "Lay files out in the one canonical way: order of keys, line breaks, indentation, quotes and blank lines. "
    "Values, comments and the ids of variants stay.",
    argument("paths", nargs="+", metavar="PATH", help="a .spec.yaml, a .suite.yaml, a .ledger.yaml, or a folder; "
             "- is standard input, and then the result is standard output"),
    one_of(
        argument("--check", action="store_true", help="write nothing; 1 if a file has another layout"),
        argument("--diff", action="store_true", help="as --check, and print what would change"),
    ),
    setting("limit"),
    epilog="exit codes: 0 done, 1 a file would change, or cannot be laid out anew and\n"
    "stays as it is, 4 bad arguments or files.\n",
)  # fmt: skip
def run(arguments: argparse.Namespace) -> int:
    """Lay out each file, or with ``--check`` and ``--diff`` say which would change."""
    limits = settings_of(arguments).limits()
    if _STDIN in arguments.paths:
        return _filter(arguments, limits)
    writes = not (arguments.check or arguments.diff)
    changed, codes = 0, {exit_codes.OK}
    files = _files(arguments.paths, limits)
    for path in files:
        name = shown_path(str(path))
        try:
            old = _read(path, limits)
            new = format_text(old, str(path), limits)
            if new == old:
                continue
            if writes and (problem := link_problem(path)):
                raise UsageError(problem)
            if writes:
                replace_text(path, new, keeps_mode=True)
        except InputError as error:
            tell(error.diagnostics)
            codes.add(exit_codes.USAGE)
        except (Unfit, UsageError, OSError) as error:
            console.message(f"runner: {in_line(name)}: left as it is: {in_line(str(error))}")
            codes.add(exit_codes.FAILED if isinstance(error, Unfit) else exit_codes.USAGE)
        else:
            changed += 1
            console.output(f"{'laid out' if writes else 'would change'}: {in_line(name)}")
            if arguments.diff:
                console.output("\n".join(_diff(name, old, new)))
    if changed and not writes:
        codes.add(exit_codes.FAILED)
    console.output(f"{plural(changed, 'file')} of {len(files)} {'laid out' if writes else 'would change'}")
    return max(codes)


def _filter(arguments: argparse.Namespace, limits: Limits) -> int:
    """Read standard input and print it in its layout, its lines with ``\\n``. Nothing is printed where it has none."""
    if arguments.paths != [_STDIN] or arguments.check or arguments.diff:
        raise UsageError("- stands alone: it is standard input, and the result is standard output")
    data = sys.stdin.buffer.read(limits.file_bytes + 1)
    try:
        text = format_text(data.decode("utf-8"), "<stdin>", limits).replace("\r\n", "\n")
        if visible(text) != text:
            raise Unfit("it holds characters that a terminal obeys, which are not printed; name the file")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"<stdin>: this is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        ) from None
    except Unfit as error:
        raise UsageError(f"<stdin>: it cannot be laid out: {error}", exit_codes.FAILED) from None
    except InputError as error:
        tell(error.diagnostics)
        return exit_codes.USAGE
    console.output(text, end="")
    return exit_codes.OK


def _files(paths: Sequence[str], limits: Limits) -> list[Path]:
    """The files of the command line. Raises UsageError for a path that names none."""
    files: dict[Path, None] = {}
    walk = Walk(limits)
    try:
        for name in paths:
            path = Path(name)
            chosen = walk.below(path, _ENDINGS) if os.path.isdir(path) else [path]
            if not chosen:
                raise UsageError(f"{name}: no file here or below ends in {', '.join(_ENDINGS)}", exit_codes.NOTHING)
            if not os.path.isdir(path) and not os.path.exists(path):
                near = similar_file(path)
                raise UsageError(f"no such file or directory: {name}{near and f'; {near}'}")
            if not os.path.isdir(path) and not name.endswith(_ENDINGS):
                raise UsageError(f"{name}: cases end in {SPEC}, suites in {SUITE}, ledgers in {LEDGER}")
            files.update(dict.fromkeys(chosen))
    except PathError as error:
        raise UsageError(str(error)) from None
    return [*files]


def _read(path: Path, limits: Limits) -> str:
    text, diagnostics = read_text(path, limits)
    if text is None:
        raise InputError(diagnostics)
    return text


def _diff(name: str, old: str, new: str) -> Iterator[str]:
    return difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"{name} (as it is)", f"{name} (laid out)", lineterm=""
    )
