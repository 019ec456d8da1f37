"""``runner debug``: a folder with everything that the compiler did in one run of a case, and a page that lists it.

``--replay FILE`` is Dynamo again over a frame that ``--record`` recorded. ``--sanitizer`` is a variant's script under
NVIDIA's compute-sanitizer, which sees what guards cannot.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cli.arguments import add_environment, add_paths, add_result_codes, add_selection, add_variant, settings_of
from runner.cli.reduce import summary
from runner.cli.variants import first_variant, matching_variants
from runner.contract.job import Job
from runner.contract.settings import SAFE_PATH
from runner.diagnose.bundle import ARTIFACTS, GROUPS, drop_empty, extract_kernels, file_records, write_index
from runner.diagnose.harness import Progress, VariantEngine, refuse_kernels, refuse_launches, result_of
from runner.diagnose.repro import script
from runner.diagnostics import shown_path
from runner.engine import interpreters, scratch
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome
from runner.exit_codes import UsageError
from runner.files import remove_irregular, remove_tree, write_anew
from runner.quote import operand, shell_words
from runner.record.store import latest_result, latest_seed, output_folder
from runner.session.plan import TIMEOUT, find_environments, worker_paths
from runner.session.scheduler import drive, with_reference
from runner.text import clean, draw_table, one_line, plural
from runner.verdict import outcomes

WITHOUT_CACHES = 120.0
"""Seconds that a run may take beyond the case's own limit: every kernel is built anew, and every log is written."""

_TLPARSE_LIMIT = 120.0
_PHASES = 8  # shown on the terminal


def add(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner debug`` takes."""
    parser.description = (
        "Kernels, graphs, IR, logs, trace, compile times: one run without caches, and a page that lists them."
    )
    add_variant(parser)
    parser.add_argument("-o", "--output", metavar="FOLDER", help="default: debug/ in the run folder, which is printed")
    parser.add_argument("--function", metavar="NAME", help="let Dynamo compile frames of this name alone")
    parser.add_argument(
        "--record", action="store_true", help="record an internal error of Dynamo, for runner debug --replay"
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="run Dynamo again over FILE, which --record wrote; runner debug --replay --help",
    )
    parser.add_argument(
        "--sanitizer",
        action="store_true",
        help="run the case on CUDA under compute-sanitizer; runner debug --sanitizer --help",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the bundle (or, with ``--record``, a recording) and print what is in it.

    Returns:
        0 if the bundle was made, even if the case failed in it.

    Raises:
        UsageError: the folder is in use, the variant cannot run here, or the case is wrong.
        InputError: the case is wrong.
    """
    variant = first_variant(arguments)
    if arguments.record:
        return _record(arguments, variant)
    refuse_launches(variant, "debug")
    folder = output_folder(arguments.output, "debug")
    said = f"compiling {variant.id} without caches"
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant, slots=1) as engine:
        asked = {"folder": str(folder), "function": arguments.function, "artifacts": list(ARTIFACTS)}
        job = engine.job("debug", asked, timeout=(variant.case.timeout or TIMEOUT) + WITHOUT_CACHES)
        job = dataclasses.replace(job, name="case")  # the worker writes FOLDER/case.py
        outcome = engine.ask([job], lambda: progress.say(said))[0]
        document = {
            "id": variant.id,
            "torch": engine.environment.build,
            "backend": variant.backend.backend,
            "function": arguments.function,
        }
        try:
            document |= _gather(folder, outcome, variant, engine.environment.python)
            write_index(folder, document)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise UsageError(f"debug: the case has changed the folder of its results: {error}") from None
    console.output(render(document, folder))
    return exit_codes.OK


def _record(arguments: argparse.Namespace, variant: Variant) -> int:
    """Run the variant while Dynamo records the frame in which it fails, for ``runner debug --replay``; 0 when it did,
    else 1.

    Raises:
        UsageError: the case cannot run, or dill, with which torch records, is not there.
    """
    refuse_kernels(variant, "debug --record")
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant) as engine:
        progress.say(f"running {variant.id} with recording on")
        folder = output_folder(arguments.output, "record")
        recording = result_of(engine.ask([engine.job("record", {"folder": str(folder)})])[0])
    raised = recording["raised"]
    console.output(f"{variant.id}\nraises {summary(raised) if raised else 'nothing'}")
    settings = dataclasses.replace(settings_of(arguments), python=tuple(arguments.python[:1]))
    for file in recording["files"]:
        words = ["runner", "debug", "--replay", operand(shown_path(file)), *settings.flags("python", "imports")]
        console.output(f"recorded: {shown_path(file)}\nreplay it: {shell_words(words)}")
    if not recording["files"]:
        console.output(
            "nothing recorded: Dynamo records its own internal errors, not graph breaks and not what a backend raises"
        )
    return exit_codes.OK if recording["files"] else exit_codes.NO_RESULT


def _gather(folder: Path, outcome: Outcome, variant: Variant, python: str) -> dict[str, Any]:
    """Add what the worker did not write, and say what came of it. A process that died has left what it wrote before.

    Raises:
        UsageError: the case is wrong.
    """
    remove_irregular(folder)
    record: Mapping[str, Any] = {}
    if outcome.ended == "result":
        record = result_of(outcome)
    failed = []
    error = _error(outcome, record)
    if error:
        write_anew(folder / "error.txt", error + "\n")
    if outcome.output.strip():
        write_anew(folder / "output.txt", clean(outcome.output))
    write_anew(folder / "repro.py", script(variant, latest_result(variant.id), latest_seed()))
    if record:
        _write_json(folder / "times.json", {"phases": record["times"], "compilations": record["compilations"]})
        _write_json(folder / "counters.json", {"counters": record["counters"], "inductor": record["kernels"]})
    else:
        failed.append("times and counts: the process ended before it could say them")
    remove_tree(folder / "__pycache__")
    drop_empty(folder)
    made = extract_kernels(folder)
    failed += [line for line in (_tlparse(folder, python), _nothing_compiled(record, outcome)) if line]
    return {
        "error": error,
        "frames": record.get("frames", []),
        "graphs": record.get("graphs"),
        "kernel_files": len(made),
        "times": record.get("times", []),
        "kernels": {name: value for name, value in record.get("kernels", {}).items() if value},
        "failed": failed,
        "missing_artifacts": record.get("missing", []),
        "files": file_records(folder),
    }


def _error(outcome: Outcome, record: Mapping[str, Any]) -> str | None:
    """What ended the run, with its stack; None where nothing did."""
    if not record:
        stack = f"\n\n{outcome.stack.strip()}" if outcome.stack.strip() else ""
        return clean(outcomes.describe(outcome) + stack)
    raised = record["raised"]
    if raised is None:
        return None
    return clean(f"{raised['type']}: {raised['message'].strip()}\n\n{raised['trace']}".strip())


def _nothing_compiled(record: Mapping[str, Any], outcome: Outcome) -> str:
    function = outcome.job.arguments["function"]
    if not record or record["frames"]:
        return ""
    if function:
        return f"--function {function}: no frame of that name was compiled; a case's own frame is called forward"
    return "graphs: Dynamo compiled no frame at all"


def _tlparse(folder: Path, python: str) -> str:
    """Make tlparse's pages from the trace, where tlparse is installed; what is missing otherwise."""
    logs = sorted((folder / "trace").glob("*.log"))
    if not logs:
        return "trace: torch wrote none"
    program = find_tlparse(python)
    if program is None:
        return "tlparse's pages: tlparse is not installed (pip install tlparse)"
    output = folder / "tlparse"
    try:
        done = subprocess.run(
            [program, str(logs[-1]), "-o", str(output), "--overwrite", "--no-browser"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_TLPARSE_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"tlparse's pages: {one_line(str(error))}"
    if done.returncode or not (output / "index.html").is_file():
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return f"tlparse's pages: {one_line(said[-1])}"
    return ""


def find_tlparse(python: str) -> str | None:
    """tlparse beside one of our Pythons (whose environment need not be active), or on the path."""
    beside = os.pathsep.join(os.path.dirname(os.path.abspath(one)) for one in (sys.executable, python))
    return shutil.which("tlparse", path=beside) or shutil.which("tlparse")


def _write_json(path: Path, value: Any) -> None:
    write_anew(path, json.dumps(value, indent=2) + "\n")


def render(document: Mapping[str, Any], folder: Path) -> str:
    """What the bundle holds, for the terminal."""
    lines = [f"{document['id']} under torch {document['torch']}"]
    if document["error"]:
        lines.append(f"raised: {one_line(document['error'].partition(chr(10))[0])}")
    if document["graphs"] is not None:
        lines.append(f"{plural(document['graphs'], 'graph')} compiled, {plural(document['kernel_files'], 'kernel')}")
    counts = Counter(file["group"] for file in document["files"])
    examples = {file["group"]: file["path"] for file in reversed(document["files"])}
    rows = [[group, counts[group], examples[group]] for group in GROUPS if counts[group]]
    lines += ["", draw_table(rows, ["files", "", "such as"])]
    if document["times"]:
        times = [[row["phase"], row["count"], f"{row['seconds']:.3f}"] for row in document["times"][:_PHASES]]
        lines += ["", draw_table(times, ["phase", "times", "seconds"], right=True)]
    if document["failed"]:
        lines += ["", *(f"missing: {line}" for line in document["failed"])]
    return clean("\n".join([*lines, "", str(folder / "index.html")]))


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner debug --replay`` takes."""
    parser.description = "Run Dynamo again over a recorded frame, and see whether it fails."
    add_result_codes(parser)
    parser.add_argument("file", metavar="FILE", help="a .rec file")
    add_environment(parser)


def run_replay(arguments: argparse.Namespace) -> int:
    """Replay; 0 when the failure shows again, 1 when Dynamo comes to the end of the frame.

    Raises:
        UsageError: no such file, it holds no recording, or dill is not there.
    """
    file = Path(arguments.file)
    if not file.is_file():
        raise UsageError(f"{arguments.file}: no such file")
    with Progress() as progress:
        progress.say(f"replaying {arguments.file}")
        raised = result_of(_ask(arguments, file.resolve()))["raised"]
    if raised is None:
        console.output(f"{arguments.file}: Dynamo comes to the end of the frame without an error")
        return exit_codes.NO_RESULT
    console.output(f"{arguments.file}: Dynamo raises {raised['type']}\n\n{str(raised['message']).strip()}")
    return exit_codes.OK


def _ask(arguments: argparse.Namespace, file: Path) -> Outcome:
    environment = find_environments(arguments.python)[0]
    job = Job(key="replay", id=file.name, environment=environment.key, name="replay", source="", backend={},
              imports=tuple(arguments.imports), paths=worker_paths(settings_of(arguments)), timeout=TIMEOUT,
              task="replay",
              arguments={"file": str(file)}, cacheable=False)  # fmt: skip
    with LocalEngine({environment.key: environment.python}, 1, warm={environment.key: "import"}) as engine:
        (outcome,) = drive(engine, with_reference([job]))
    return outcome


_FOUND = 99
"""Exit code that compute-sanitizer is asked for when it finds something."""


def add_sanitize(parser: argparse.ArgumentParser) -> None:
    """Add what ``runner debug --sanitizer`` takes."""
    parser.description = "The case's script (see repro) under NVIDIA's compute-sanitizer, without torch's memory cache."
    add_paths(parser, many=False)
    add_selection(parser)
    parser.add_argument("--python", action="append", default=[], metavar="PATH", help="a Python that has torch")
    parser.add_argument(
        "--tool",
        choices=("memcheck", "racecheck", "initcheck", "synccheck"),
        default="memcheck",
        help="what to look for: accesses out of bounds, races within shared memory, reads of what nobody wrote, "
        "wrong barriers",
    )


def run_sanitize(arguments: argparse.Namespace) -> int:
    """Run the first variant on CUDA that CASE names; FAILED when the tool or the script finds something.

    Raises UsageError when there is no compute-sanitizer here, or no variant on CUDA.
    """
    variants = matching_variants(arguments)
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        raise UsageError("no compute-sanitizer on the PATH: it comes with the CUDA toolkit, in its bin folder")
    variant = next((one for one in variants if one.device.startswith("cuda")), None)
    if variant is None:
        raise UsageError(
            f"{variants[0].id} is on {variants[0].device}, and compute-sanitizer needs CUDA: add --device cuda"
        )
    python = find_environments(arguments.python)[0].python
    # From a cache one block serves many tensors, and what lies beyond one of them would be another's.
    environment = interpreters.without_current_folder(
        {**scratch.compile_environment(os.environ), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", SAFE_PATH: "1"}
    )
    with scratch.folder() as folder:
        path = folder / "case.py"
        write_anew(path, script(variant))
        command = [tool, "--tool", arguments.tool, "--error-exitcode", str(_FOUND), python, str(path)]
        console.output(f"{variant.id}: compute-sanitizer --tool {arguments.tool}")
        code = interpreters.run_process_tree(command, env=environment).returncode
    if code == 0:
        console.output(f"{arguments.tool} found nothing")
        return exit_codes.OK
    console.output(
        f"{arguments.tool} found something" if code == _FOUND else f"the script ended with exit status {code}"
    )
    return exit_codes.FAILED
