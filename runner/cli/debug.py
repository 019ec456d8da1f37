"""``runner debug``: a folder with everything that the compiler did in one run of a case, and a page that lists it.

``--replay FILE`` is Dynamo again over a frame that ``--record`` recorded. ``--sanitizer`` is the script under NVIDIA's
compute-sanitizer, which sees what guards cannot.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
from pathlib import Path

from runner import console, exit_codes
from runner.cases.model import Variant
from runner.cli.arguments import CASE, ENVIRONMENT, FAILURE, RESULT_CODES, SELECTION, argument, command, settings_of
from runner.cli.variants import first_variant, matching_variants
from runner.contract.settings import SAFE_PATH
from runner.diagnose.bundle import ARTIFACTS, gather, render, write_index
from runner.diagnose.harness import (
    Progress,
    VariantEngine,
    ask_environment,
    refuse_kernels,
    refuse_launches,
    result_of,
    telling_line,
)
from runner.diagnose.repro import script
from runner.diagnostics import shown_path
from runner.engine import interpreters, scratch
from runner.files import write_anew
from runner.quote import operand, shell_words
from runner.record.store import output_folder
from runner.session.plan import TIMEOUT, find_environments, worker_paths

WITHOUT_CACHES = 120.0
"""Seconds that a run may take beyond the case's own limit: every kernel is built anew, and every log is written."""


@command(
    "Kernels, graphs, IR, logs, trace, compile times: one run without caches, and a page that lists them.",
    *FAILURE,
    argument("-o", "--output", metavar="FOLDER", help="default: debug/ in the run folder, which is printed"),
    argument("--function", metavar="NAME", help="let Dynamo compile frames of this name alone"),
    argument("--record", action="store_true", help="record an internal error of Dynamo, for runner debug --replay"),
    argument(
        "--replay",
        action="store_true",
        help="run Dynamo again over FILE, which --record wrote; runner debug --replay --help",
    ),
    argument(
        "--sanitizer",
        action="store_true",
        help="run the case on CUDA under compute-sanitizer; runner debug --sanitizer --help",
    ),
    epilog=RESULT_CODES,
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
    with Progress() as progress, VariantEngine.of(settings_of(arguments), variant, slots=1) as engine:
        asked = {"folder": str(folder), "function": arguments.function, "artifacts": list(ARTIFACTS)}
        job = engine.job("debug", asked, timeout=(variant.case.timeout or TIMEOUT) + WITHOUT_CACHES)
        job = dataclasses.replace(job, name="case")  # the worker writes FOLDER/case.py
        outcome = engine.ask([job], lambda: progress.say(f"compiling {variant.id} without caches"))[0]
        document = {
            "id": variant.id,
            "torch": engine.environment.build,
            "backend": variant.backend.backend,
            "function": arguments.function,
        }
        try:
            document |= gather(folder, outcome, variant, engine.environment.python)
            write_index(folder, document)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise exit_codes.UsageError(f"debug: the case has changed the folder of its results: {error}") from None
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
        asked = {"folder": str(output_folder(arguments.output, "record"))}
        recording = result_of(engine.ask([engine.job("record", asked)])[0])
    raised = recording["raised"]
    console.output(f"{variant.id}\nraises {telling_line(raised) if raised else 'nothing'}")
    settings = dataclasses.replace(settings_of(arguments), python=tuple(arguments.python[:1]))
    for file in recording["files"]:
        options = settings.flags("python", "imports", "no_project")
        words = ["runner", "debug", "--replay", operand(shown_path(file)), *options]
        console.output(f"recorded: {shown_path(file)}\nreplay it: {shell_words(words)}")
    if not recording["files"]:
        console.output(
            "nothing recorded: Dynamo records its own internal errors, not graph breaks and not what a backend raises"
        )
    return exit_codes.OK if recording["files"] else exit_codes.NO_RESULT


@command(
    "Run Dynamo again over a recorded frame, and see whether it fails.",
    argument("file", metavar="FILE", help="a .rec file"),
    ENVIRONMENT,
    epilog=RESULT_CODES,
)
def run_replay(arguments: argparse.Namespace) -> int:
    """Replay; 0 when the failure shows again, 1 when Dynamo comes to the end of the frame.

    Raises:
        UsageError: no such file, it holds no recording, or dill is not there.
    """
    file = Path(arguments.file)
    if not file.is_file():
        raise exit_codes.UsageError(f"{arguments.file}: no such file")
    environment = find_environments(arguments.python)[0]
    with Progress() as progress:
        progress.say(f"replaying {arguments.file}")
        raised = ask_environment(
            environment, "replay", {"file": str(file.resolve())}, id=file.name,
            imports=tuple(arguments.imports), paths=worker_paths(settings_of(arguments)), timeout=TIMEOUT,
        )["raised"]  # fmt: skip
    if raised is None:
        console.output(f"{arguments.file}: Dynamo comes to the end of the frame without an error")
        return exit_codes.NO_RESULT
    console.output(f"{arguments.file}: Dynamo raises {raised['type']}\n\n{str(raised['message']).strip()}")
    return exit_codes.OK


_FOUND = 99
"""Exit code that compute-sanitizer is asked for when it finds something."""


@command(
    "The case's script (see repro) under NVIDIA's compute-sanitizer, without torch's memory cache.",
    *CASE,
    SELECTION,
    argument("--python", action="append", default=[], metavar="PATH", help="a Python that has torch"),
    argument(
        "--tool",
        choices=("memcheck", "racecheck", "initcheck", "synccheck"),
        default="memcheck",
        help="what to look for: accesses out of bounds, races within shared memory, reads of what nobody wrote, "
        "wrong barriers",
    ),
)
def run_sanitize(arguments: argparse.Namespace) -> int:
    """Run the first variant on CUDA that CASE names; FAILED when the tool or the script finds something.

    Raises UsageError when there is no compute-sanitizer here, or no variant on CUDA.
    """
    variants = matching_variants(arguments)
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        raise exit_codes.UsageError(
            "no compute-sanitizer on the PATH: it comes with the CUDA toolkit, in its bin folder"
        )
    variant = next((variant for variant in variants if variant.device.startswith("cuda")), None)
    if variant is None:
        raise exit_codes.UsageError(
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
        words = [tool, "--tool", arguments.tool, "--error-exitcode", str(_FOUND), python, str(path)]
        console.output(f"{variant.id}: compute-sanitizer --tool {arguments.tool}")
        code = interpreters.run_process_tree(words, env=environment).returncode
    if code == 0:
        console.output(f"{arguments.tool} found nothing")
        return exit_codes.OK
    said = f"{arguments.tool} found something" if code == _FOUND else f"the script ended with exit status {code}"
    console.output(said)
    return exit_codes.FAILED
