"""Python interpreters: finding one, asking what it has, starting a worker under it, reading what that printed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner import interrupts
from runner.contract import settings
from runner.engine import process_tree, scratch
from runner.files import append_regular, open_regular

ENTRY_SWITCH = "RUNNER_WORKER_ENTRY"
"""Environment variable by which tests name another function that runs jobs (see ``runner/worker/server/child.py``)."""
WORKER = Path(__file__).resolve().parent.parent / "worker" / "__main__.py"
"""The worker's start, by absolute path: the interpreter that runs it has torch but not this project."""

TICK = 0.2
"""Seconds between two ticks of a process that is waited for."""

_PROBE = """
import importlib.metadata, json, platform, sys
sys.path[:] = [entry for entry in sys.path if entry]
found = {"python": platform.python_version()}
try:
    found["build"] = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    pass
print(json.dumps(found))
"""

_INSTALLED = """
import difflib, importlib.metadata, importlib.util, json, pkgutil, sys
sys.path[:] = [entry for entry in sys.path if entry]
group, modules, folders = json.loads(sys.argv[1])
sys.path += folders
points = importlib.metadata.entry_points()
points = points.select(group=group) if hasattr(points, "select") else points.get(group, ())
missing = {}
for module in modules:
    try:
        there = module in sys.modules or importlib.util.find_spec(module) is not None
    except ValueError:
        there = True
    if not there:
        names = sorted({found.name for found in pkgutil.iter_modules()} | set(sys.builtin_module_names))
        missing[module] = (difflib.get_close_matches(module, names, n=1) or [""])[0]
print(json.dumps([sorted({point.name for point in points}), missing]))
"""


_FOLDERS = """
import importlib.util, json, sys
sys.path[:] = [entry for entry in sys.path if entry]
names, folders = json.loads(sys.argv[1])
sys.path += folders
found = {}
for name in names:
    spec = importlib.util.find_spec(name)
    if spec is not None and (spec.submodule_search_locations or spec.origin):
        found[name] = [*(spec.submodule_search_locations or [spec.origin])][0]
print(json.dumps(found))
"""


def find_python(python: str) -> str | None:
    """Return the absolute path of an executable given by name or path, None without one.

    Links stay: a venv is a link.
    """
    path = shutil.which(os.path.expanduser(python))
    return os.path.abspath(path) if path else None


def probe(python: str) -> dict[str, str]:
    """Ask an interpreter, in about 0.1 s and without importing torch, what it is.

    Returns:
        ``torch`` (such as ``2.13.0``), ``build`` (such as ``2.13.0+cpu``) and ``python``; or ``error``, one line.
    """
    path = find_python(python)
    if path is None:
        there = os.path.exists(os.path.expanduser(python))
        return {"error": f"{python} is not an executable file" if there else f"{python}: no such Python interpreter"}
    try:
        process = run_script(path, _PROBE)
    except subprocess.TimeoutExpired:
        return {"error": f"{python} did not answer within 60 s"}
    except OSError as error:
        return {"error": f"{python} cannot be started: {error.strerror}"}
    try:
        fields = {str(key): str(value) for key, value in json.loads(process.stdout).items()}
    except (ValueError, AttributeError):
        last = process.stderr.decode(errors="backslashreplace").strip().rpartition("\n")[2]
        return {
            "error": f"{python} does not work as a Python interpreter: {last or f'exit status {process.returncode}'}"
        }
    if "build" not in fields:
        return {"error": f"{python} (Python {fields.get('python')}) has no torch: {path} -m pip install torch"}
    return {"torch": fields["build"].partition("+")[0], **fields}


def inspect_packages(
    python: str, group: str, modules: Sequence[str], folders: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Ask an interpreter for the names of its entry points of ``group``, and which of ``modules`` are not there.

    Nothing is imported. Each missing module has the nearest name there is, or an empty one.

    Args:
        modules: first names only, such as ``a`` of ``a.b``: to look further, ``a`` would be imported.
        folders: at the end of its path, as for a worker.

    Raises:
        OSError: the interpreter cannot be started, or gives no answer.
    """
    try:
        answer = run_script(find_python(python) or python, _INSTALLED, json.dumps([group, [*modules], [*folders]]))
        backends, missing = json.loads(answer.stdout)
        return [*map(str, backends)], {str(key): str(value) for key, value in missing.items()}
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise OSError(f"{python} does not say which packages it has: {error}") from error


def package_folders(python: str, names: Sequence[str], folders: Sequence[str] = ()) -> dict[str, str]:
    """Return where an interpreter has the packages of these names, without those that it has not. Nothing is imported.

    That is a folder, or the file of a module that is no package.

    Args:
        python: the interpreter.
        names: without dots.
        folders: at the end of its path, as for a worker.

    Raises:
        OSError: the interpreter cannot be started, or gives no answer.
    """
    try:
        answer = run_script(find_python(python) or python, _FOLDERS, json.dumps([[*names], [*folders]]))
        return {str(name): str(folder) for name, folder in json.loads(answer.stdout).items()}
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise OSError(f"{python} does not say where its packages are: {error}") from error


def run_script(
    path: str, script: str, *words: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a script, once more where the process was killed: a kill proves nothing about the interpreter.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it has not ended within 60 s.
    """
    for _ in range(2):
        # Not in the current directory: a checkout of PyTorch there would answer for the installed one.
        process = subprocess.run(
            [path, "-c", script, *words],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
            timeout=60,
            env=without_current_folder(os.environ if environ is None else environ),
        )
        if process.returncode != -signal.SIGKILL:
            break
    return process


def without_current_folder(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a Python of ours: an empty entry of PYTHONPATH means the current folder, which may be
    anybody's.

    It must go before Python starts: from 3.11 on ``sys.path`` has the folder's name in its place.
    """
    folders = environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = {"PYTHONPATH": os.pathsep.join(filter(None, folders))} if "PYTHONPATH" in environ else {}
    return {**environ, **kept}


def worker_environment(overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables of a worker: ours, then what a verdict needs, then ``overrides``.

    A worker that runs jobs as a user runs them (``AS_USER`` in ``overrides``) gets less.
    """
    environment = {settings.HASH_SEED: "0", settings.WAIT_POLICY: "PASSIVE"} | scratch.compile_environment(os.environ)
    for name in (ENTRY_SWITCH, settings.AS_USER, settings.WARNINGS):
        environment.pop(name, None)  # left over in a shell, it would run something else and call that a verdict
    overrides = overrides or {}
    # What g++ made is still shared, under a hash of its text.
    environment |= {
        settings.NVML_CHECK: "1",
        settings.SAFE_PATH: "1",
        **({} if settings.AS_USER in overrides else settings.VARIABLES),
    }
    variables = without_current_folder({**environment, **overrides})
    if not variables[settings.WAIT_POLICY]:
        del variables[settings.WAIT_POLICY]  # OpenMP warns about an empty text
    return variables


def start_worker(
    python: str, address: str, token: str, log: Path, environment: Mapping[str, str], words: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a worker's zygote in a session of its own, so that a Ctrl-C at the terminal is control's alone to handle.

    Args:
        python: its interpreter.
        address: control's socket.
        token: what it says there.
        log: what it prints.
        environment: its variables.
        words: further options of it.

    Raises:
        OSError: the interpreter cannot be started.
    """
    path = find_python(python)
    if path is None:
        raise FileNotFoundError(2, probe(python).get("error", "no such Python interpreter"), python)
    command = [path, str(WORKER), "--socket", address, "--token", token, *words]
    try:
        output: Any = append_regular(log)
    except OSError:  # neither a full disk nor a pipe that a case has put there may stop the run
        output = contextlib.nullcontext(subprocess.DEVNULL)
    with output as stream:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=environment,
            start_new_session=True,
        )


def run_process_tree(
    command: Sequence[str], *, timeout: float | None = None, tick: Callable[[], None] | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as ``subprocess.run`` does, and kill its whole process tree when the wait ends early.

    ``tick`` is called several times a second. What it raises ends the wait.

    Raises:
        subprocess.TimeoutExpired: with what it has written to a pipe.
        OSError: it cannot be started.
    """
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options) as child:
        try:
            output = _wait(child, timeout, tick)
        except BaseException as error:
            with interrupts.held():
                process_tree.kill_tree(child.pid)
                output, _ = child.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                error.output = output
            raise
    return subprocess.CompletedProcess(command, child.returncode, output)


def _wait(child: subprocess.Popen[bytes], timeout: float | None, tick: Callable[[], None] | None) -> bytes | None:
    """Return what a process has written once it has ended. ``communicate`` loses nothing where it is called again."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while tick is not None and deadline - time.monotonic() > TICK:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.communicate(timeout=TICK)[0]
        tick()
    return child.communicate(timeout=None if timeout is None else max(0.0, deadline - time.monotonic()))[0]


def tail(path: str | Path, size: int = 4096) -> str:
    """Return the last ``size`` bytes of a file as text; empty if it cannot be read, or is a link or no regular file."""
    try:
        with open_regular(path, links=False) as file:  # a case may have put a pipe in its place
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode(errors="backslashreplace")
    except OSError:
        return ""
