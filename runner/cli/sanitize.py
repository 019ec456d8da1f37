"""``runner debug --sanitizer``: a variant's script under NVIDIA's compute-sanitizer, which sees what guards cannot."""

from __future__ import annotations

import argparse
import os
import shutil

from runner import console, exit_codes
from runner.cli.arguments import add_paths, add_selection
from runner.cli.variants import matching_variants
from runner.contract.settings import SAFE_PATH
from runner.diagnose.repro import script
from runner.engine import interpreters, scratch
from runner.exit_codes import UsageError
from runner.files import write_anew
from runner.session.plan import find_environments

_FOUND = 99
"""Exit code that compute-sanitizer is asked for when it finds something."""


def add(parser: argparse.ArgumentParser) -> None:
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


def run(arguments: argparse.Namespace) -> int:
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
