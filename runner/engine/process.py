"""Python interpreters: finding one, asking what it has, starting a worker under it, reading what that printed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ENTRY_SWITCH = "RUNNER_WORKER_ENTRY"
"""Environment variable by which tests name another function that runs jobs (see ``runner/worker/child.py``)."""
WORKER = Path(__file__).resolve().parent.parent / "worker" / "__main__.py"
"""The worker's start, by absolute path: the interpreter that runs it has torch but not this project."""

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


def find_python(python: str) -> str | None:
    """The absolute path of an executable given by name or path, None if there is none. Links stay: a venv is a link."""
    found = shutil.which(os.path.expanduser(python))
    return os.path.abspath(found) if found else None


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
        # Not in the current directory: a checkout of PyTorch there would answer for the installed one.
        for _ in range(2):
            done = subprocess.run(
                [path, "-c", _PROBE], capture_output=True, stdin=subprocess.DEVNULL, cwd="/", timeout=60
            )
            if done.returncode != -signal.SIGKILL:
                break  # else somebody or the kernel did that, which says nothing of the interpreter
    except subprocess.TimeoutExpired:
        return {"error": f"{python} did not answer within 60 s"}
    except OSError as error:
        return {"error": f"{python} cannot be started: {error.strerror}"}
    try:
        answer = json.loads(done.stdout)
        found = {str(key): str(value) for key, value in answer.items()}
    except (ValueError, AttributeError):
        last = done.stderr.decode(errors="backslashreplace").strip().rpartition("\n")[2]
        return {"error": f"{python} does not work as a Python interpreter: {last or f'exit status {done.returncode}'}"}
    if "build" not in found:
        return {"error": f"{python} (Python {found.get('python')}) has no torch: {path} -m pip install torch"}
    return {"torch": found["build"].partition("+")[0], **found}


def worker_environment(python: str, overrides: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables of a worker run by ``python``: ours, then what a verdict needs, then ``overrides``."""
    environment = dict(os.environ)
    environment.pop(ENTRY_SWITCH, None)  # left over in a shell, it would run something else and call that a verdict
    # A verdict is about the compiler, not about an artifact that an earlier run cached. What g++ made is still shared,
    # under a hash of its text. One thread: a pool of compile processes would be forked again in every child.
    environment |= {
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    environment |= overrides or {}
    if not environment.get("TORCHINDUCTOR_CACHE_DIR"):
        environment["TORCHINDUCTOR_CACHE_DIR"] = _cache_folder(python)
    return environment


def _cache_folder(python: str) -> str:
    digest = hashlib.sha256((find_python(python) or python).encode(errors="surrogateescape")).hexdigest()[:16]
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    shared = os.path.join(tempfile.gettempdir(), f"torch-spec-runner-{os.getuid()}")
    for folder in (os.path.join(base, "torch-spec-runner", digest), os.path.join(shared, digest)):
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                if os.stat(folder).st_uid == os.getuid():  # code is loaded from there
                    return folder
        except OSError:
            continue  # a read-only home, a full disk
    return tempfile.mkdtemp(prefix="torch-spec-runner-")


def start_worker(
    python: str, address: str, token: str, warm: str, log: Path, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a worker's server in a session of its own, so that a Ctrl-C at the terminal is control's alone to handle.

    Raises:
        OSError: the interpreter cannot be started.
    """
    path = find_python(python)
    if path is None:
        raise FileNotFoundError(2, probe(python).get("error", "no such Python interpreter"), python)
    command = [path, str(WORKER), "--socket", address, "--warm", warm, "--token", token]
    try:
        output: Any = log.open("ab")
    except OSError:
        output = contextlib.nullcontext(subprocess.DEVNULL)  # a full disk must not stop the run
    with output as stream:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env=worker_environment(python, environ),
            start_new_session=True,
        )


def tail(path: str | Path, size: int = 4096) -> str:
    """The last ``size`` bytes of a file as text; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode(errors="backslashreplace")
    except OSError:
        return ""
