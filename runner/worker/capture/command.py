"""``python runner/worker/__main__.py --capture ANSWER.json ...``: runs a script, or makes a model, and records it.

The code is the user's own, and so is the process. Nothing is patched but ``torch.compile``, whose backend becomes a
recorder.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Sequence

from runner.worker.capture.session import Session
from runner.worker.capture.stored import TensorFile

FAILED = 1
"""Exit code where the user's code raised. What was recorded until then is still written."""


def main(words: Sequence[str]) -> int:
    """Run the user's code, write the captures to the file that the first word names, and return an exit code."""
    parser = argparse.ArgumentParser(prog="runner capture")
    parser.add_argument("--keep", action="append", default=[])
    parser.add_argument("--keep-in", default="")
    parser.add_argument("answer")
    parser.add_argument("kind", choices=("script", "module", "make"))
    parser.add_argument("target")
    parser.add_argument("more", nargs=argparse.REMAINDER)
    arguments = parser.parse_args(words)
    stored = TensorFile(arguments.keep_in, arguments.keep)
    session = Session(stored)
    start = time.perf_counter()
    sys.argv[:] = [arguments.target, *(arguments.more[1:] if arguments.more[:1] == ["--"] else arguments.more)]
    code, error = 0, ""
    try:
        with session:
            _KINDS[arguments.kind](arguments.target, session)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as raised:  # noqa: BLE001  (what was recorded until then is wanted)
        code, error = FAILED, _lines_of(raised)
        sys.stderr.write(f"your code raised:\n{error}")
    stored.write()
    answer = {
        "captures": [capture.to_json() for capture in session.captures()],
        "error": error,
        "code": code,
        "seconds": time.perf_counter() - start,
    }
    temporary = f"{arguments.answer}.part"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(temporary, arguments.answer)
    return FAILED if error else 0


def _lines_of(error: BaseException) -> str:
    """Return an exception with the frames of the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<frozen ")]
    return "".join([*traceback.format_list(own), *traceback.format_exception_only(error)])


def _run_script(path: str, session: Session) -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")


def _run_module(name: str, session: Session) -> None:
    sys.path.insert(0, os.getcwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _make(target: str, session: Session) -> None:
    """Compile what ``package.module:function`` makes, and call it once."""
    sys.path.insert(0, os.getcwd())
    module, _, name = target.partition(":")
    made = getattr(importlib.import_module(module), name)()
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise TypeError(f"{target} gives a {type(made).__name__}, not (model, args) or (model, args, kwargs)")
    model, args, kwargs = (*made, {})[:3]
    args = args if isinstance(args, tuple | list) else (args,)
    session.compile(model)(*args, **kwargs)


_KINDS: dict[str, Callable[[str, Session], None]] = {"script": _run_script, "module": _run_module, "make": _make}
