"""``runner import``: reads files in foreign formats, and writes cases of what they hold."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from runner import console, exit_codes
from runner.cli.arguments import argument, command
from runner.cli.shrinking import SHRINK, shrinking
from runner.cli.variants import tell
from runner.contract.graphs import Capture
from runner.diagnostics import Diagnostic, InputError, shown_path
from runner.graphs.cases import fault_of
from runner.graphs.folder import open_folder
from runner.graphs.grains import GRAINS, Grain
from runner.importers.foreign_file import read_file
from runner.importers.formats import FORMATS, format_of
from runner.quote import shell_words
from runner.text import in_line, plural

_EPILOG = (
    "formats:\n"
    + "".join(f"  {name:<8} {known.summary}\n" for name, known in FORMATS.items())
    + """
No code of a file runs, and none is written. Calls that no case can hold are listed with their place.
See docs/import.md.

exit codes: 0 cases were written, 1 there was no case, or --strict and something was left out, 2 interrupted,
3 internal error, 4 bad arguments or files
"""
)


@command(
    "Write what other tools recorded of models as cases: logs of operators, printed graphs, exported programs.",
    argument("files", nargs="+", metavar="FILE", help="a file in one of the formats"),
    argument("-o", "--output", metavar="FOLDER", default="imported",
             help="where the files go: new, empty, or a folder of such cases, which grows (default: imported)"),
    argument("--format", choices=[*FORMATS], help="the format of all files (default: as each looks)"),
    argument("--by", choices=GRAINS, help="one case for each graph, or for each kind of module or of operator call "
             "(default: graph; of logs always operator)"),
    *SHRINK,
    argument("--strict", action="store_true", help="exit with 1 if anything of a file was left out"),
    epilog=_EPILOG,
)  # fmt: skip
def run_import(arguments: argparse.Namespace) -> int:
    """Import the files that the command line names.

    Raises:
        UsageError: the folder cannot be used.
    """
    folder = open_folder(Path(arguments.output))
    captures: list[tuple[Capture, Grain]] = []
    errors: list[Diagnostic] = []
    stems = Counter(Path(path).stem for path in dict.fromkeys(arguments.files))
    for path in dict.fromkeys(arguments.files):
        try:
            file = read_file(path)
            known = FORMATS[arguments.format or format_of(file)]
            capture = known.read(file)
            if stems[file.name] > 1:  # model.py of several folders
                capture = replace(capture, model=f"{Path(path).resolve().parent.name} {file.name}")
            captures.append((capture, "operator" if known.is_of_calls else arguments.by or "graph"))
        except InputError as error:
            errors += error.diagnostics
    if errors:
        tell(errors)
        return exit_codes.USAGE
    entries = []
    is_whole, is_interrupted = True, False
    try:
        with shrinking(arguments) as shrink:
            for capture, grain in captures:
                entries.append(folder.add(capture, grain, "imported", shrink))
    except KeyboardInterrupt:
        is_interrupted = True
    for (capture, _), entry in zip(captures, entries, strict=False):
        left_out = [*_left_out(capture, entry["refused"])]
        console.output(
            f"{in_line(capture.model)}: {entry['sayable']} of {entry['calls']} calls; "
            f"{plural(len({name for graph in entry['graphs'] for name in graph['cases']}), 'case')}"
        )
        console.output("".join(f"  left out: {in_line(line)}\n" for line in left_out), end="")
        is_whole = is_whole and not left_out
    if is_interrupted:
        console.message(f"runner: interrupted: {plural(len(entries), 'file')} of {len(captures)} became cases")
    if not folder.cases:
        console.message("runner: nothing of these files can be a case")
        return exit_codes.FAILED
    folder.save()
    console.output(f"{plural(len(folder.cases), 'case')} in {shown_path(str(folder.path))}")
    console.output(f"next: {shell_words(['runner', 'run', shown_path(str(folder.suite))])}")
    if is_interrupted:
        return exit_codes.INTERRUPTED
    return exit_codes.OK if is_whole or not arguments.strict else exit_codes.FAILED


def _left_out(capture: Capture, refused: list[str]) -> Iterator[str]:
    """Yield what no case holds of a capture, each with its place."""
    for graph in capture.graphs:
        yield from (f"{graph.origin}: input {item.name}: {item.fault}" for item in graph.inputs if item.fault)
        yield from (f"{call.source}: {call.operator}: {fault}" for call in graph.calls if (fault := fault_of(call)))
    yield from capture.notes
    yield from refused
