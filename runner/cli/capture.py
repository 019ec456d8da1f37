"""``runner capture``: records the models of a script, or one that a function makes, and writes cases of them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.cli.arguments import argument, command
from runner.cli.shrinking import SHRINK, shrinking
from runner.contract.graphs import LOST, Capture
from runner.diagnostics import shown_path
from runner.engine import scratch
from runner.engine.interpreters import WORKER, find_python
from runner.exit_codes import UsageError
from runner.files import read_text
from runner.graphs.folder import Folder, open_folder
from runner.graphs.grains import GRAINS
from runner.quote import shell_words
from runner.session.plan import find_environments
from runner.text import in_line, plural

DRAWN, KEPT = "draw", "keep"
WEIGHTS = ("parameter", "buffer", "constant")

_EPILOG = """\
  runner capture train.py -- --epochs 1
  runner capture -m package.train -- --epochs 1
  runner capture package.module:make_model     a function that returns (model, args) or (model, args, kwargs)

The code is yours and runs as it always does, in the chosen Python; only torch.compile records instead of compiling.
The files that are written hold no code: they need no --allow-python. See docs/capture.md.

exit codes: 0 cases were written, 1 your code raised or compiled nothing, 2 interrupted, 3 internal error,
4 bad arguments
"""


@command(
    "Record what Dynamo makes of your own model, and write it as cases: of all its graphs, of each of its modules, or "
    "of each of its operators.",
    argument("target", metavar="TARGET", help="a script, or package.module:function"),
    argument("-m", dest="is_module", action="store_true", help="TARGET is a module, as in python -m"),
    argument("-o", "--output", metavar="FOLDER", default="captured",
             help="where the files go: new, empty, or a folder of captured cases, which grows (default: captured)"),
    argument("--by", choices=GRAINS, default="graph",
             help="one case for each graph, or for each kind of module or of operator call (default: graph)"),
    argument("--weights", choices=(DRAWN, KEPT), default=DRAWN,
             help="keep the model's own parameters and buffers, in a safetensors file beside the cases (default: drawn "
             "with their statistics)"),
    argument("--values", choices=(DRAWN, KEPT), default=DRAWN, help="the same of its inputs (default: drawn)"),
    *SHRINK,
    argument("--python", metavar="PYTHON", default=None, help="the Python that has your model (default: this one)"),
    epilog=_EPILOG,
)  # fmt: skip
def run(arguments: argparse.Namespace) -> int:
    """Capture what the command line names.

    Raises:
        UsageError: there is no such Python, script or folder.
    """
    folder = open_folder(Path(arguments.output))
    environment = find_environments((arguments.python,) if arguments.python else ())[0]
    kind = "module" if arguments.is_module else "make" if _is_function(arguments.target) else "script"
    if kind == "script" and not os.path.isfile(arguments.target):
        raise UsageError(f"{arguments.target}: no such script; package.module:function names a function")
    if fault := _target_fault(arguments.target):
        raise UsageError(f"{arguments.target}: {fault}")
    answer = _record(environment.python, kind, arguments, folder)
    captures = [Capture.from_json(item) for item in answer["captures"]]
    with shrinking(arguments, arguments.python) as shrink:
        entries = [folder.add(capture, arguments.by, shrink=shrink) for capture in captures]
    for entry in entries:
        _print(entry)
    if answer["error"]:
        kept = "what was compiled before is kept" if captures else "nothing was compiled before"
        console.message(f"runner: your code raised; {kept}")
    if not any(capture.graphs for capture in captures):
        if not captures and not answer["error"]:
            console.message("runner: nothing was compiled: torch.compile was not called, or what it gave was not")
        return exit_codes.FAILED
    paths = folder.save()
    console.output("\n".join(shown_path(str(path)) for path in paths))
    console.output(f"next: {shell_words(['runner', 'run', shown_path(str(folder.suite))])}")
    return exit_codes.FAILED if answer["error"] else exit_codes.OK


def _target_fault(target: str) -> str:
    """Return why a target names neither a script nor a function, with what to write instead; else nothing."""
    module, _, function = target.partition(":")
    if target.endswith(".ipynb"):
        return f"a notebook is no script; jupyter nbconvert --to script {shell_words([target])} makes one"
    if _is_function(target) and module.endswith(".py"):
        name = ".".join(Path(module.removesuffix(".py")).parts)
        return f"a function is named by its module: {name}:{function}"
    return ""


def _is_function(target: str) -> bool:
    return ":" in target and not os.path.exists(target)


def _record(python: str, kind: str, arguments: argparse.Namespace, output: Folder) -> dict[str, Any]:
    """Run the code, and return what the worker says of it."""
    path = find_python(python)
    if path is None:
        raise UsageError(f"--python {python}: no such Python")
    with scratch.folder() as folder:
        answer = folder / "answer.json"
        kept = [*(WEIGHTS if arguments.weights == KEPT else ()), *(["input"] if arguments.values == KEPT else [])]
        keeping = [f"--keep-in={output.free('values', '.safetensors')}", *(f"--keep={role}" for role in kept)]
        command = [
            path, str(WORKER), "--capture", *(keeping if kept else ()), str(answer), kind, arguments.target, "--",
            *arguments.more,
        ]  # fmt: skip
        code = subprocess.run(command, check=False).returncode
        if not answer.is_file():
            raise UsageError(f"the process of {arguments.target} ended with exit status {code}, and left no answer")
        return json.loads(read_text(answer))  # type: ignore[no-any-return]


def _print(entry: dict[str, Any]) -> None:
    whole = sum(graph["whole"] for graph in entry["graphs"])
    cases = {name for graph in entry["graphs"] for name in graph["cases"]}
    share = 100 * entry["sayable"] / entry["calls"] if entry["calls"] else 100.0
    console.output(
        f"{in_line(entry['model'])}: {plural(len(entry['graphs']), 'graph')}, {whole} of them whole; "
        f"{entry['sayable']} of {entry['calls']} calls ({share:.1f} %); {plural(len(cases), 'case')}; "
        f"{plural(len(entry['breaks']), 'graph break')}"
    )
    for fault in entry["faults"]:
        console.output(in_line(f"  left out: {fault['what']}, {fault['count']} times: {fault['reason']}"))
    for note in entry["notes"]:
        if note.startswith(LOST):
            console.output(in_line(f"  {note}"))
    if not entry["graphs"]:
        for item in entry["breaks"]:
            console.output(in_line(f"  no graph: {item['reason']}"))
