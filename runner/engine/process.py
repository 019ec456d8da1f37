"""Processes on Linux: interpreters, a worker's environment, the process table, how to end a job with all its kin."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_LINE = 64 << 20
"""Bytes of one message at which a connection is given up."""
SOCKET = "control"
"""The name of the engine's socket in its folder."""
WORKER = Path(__file__).resolve().parent.parent / "worker" / "__main__.py"
"""The worker's start, by absolute path: the interpreter that runs it has torch but not this project."""

_PREFIX = "torch-spec-runner-"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_COMPILERS = frozenset("ld collect2 as cc1plus cc1 g++ gcc c++ cc clang clang++ ld.lld nvcc ptxas icpx".split())  # noqa: SIM905
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


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table; ``resident`` is in bytes."""

    pid: int
    parent: int
    group: int
    session: int
    zombie: bool
    resident: int


@dataclass(slots=True, eq=False)
class Channel:
    """One connection that carries JSON lines; ``owner`` is whoever is at the other end, once that is known."""

    socket: socket.socket
    owner: Any = None
    buffer: bytearray = field(default_factory=bytearray)

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        """Every complete message that has arrived, and whether the other end is gone (or talks nonsense)."""
        if self.socket.fileno() < 0:
            return [], True
        closed = False
        while len(self.buffer) <= MAX_LINE:
            try:
                data = self.socket.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                closed = True
                break
            self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            return [{"broken": "the worker sent a line that is no JSON"}], True
        if len(self.buffer) > MAX_LINE:
            return [*messages, {"broken": f"the worker sent a message of more than {MAX_LINE >> 20} MiB"}], True
        return [message for message in messages if isinstance(message, dict)], closed

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message. An end that is gone, or reads nothing for 5 s, is left to be noticed by its silence."""
        line = json.dumps(message, default=_plain).encode() + b"\n"
        with contextlib.suppress(OSError):
            self.socket.settimeout(5)
            self.socket.sendall(line)
            self.socket.setblocking(False)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def socket_folder() -> Path:
    """A new folder, ours alone, whose path is short enough for a Unix socket (107 bytes).

    Raises:
        OSError: no temporary folder can be made.
    """
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > 70:
        base = "/tmp"
    _remove_stale_folders(Path(base))
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))


def _remove_stale_folders(base: Path) -> None:
    """Remove what engines killed by SIGKILL could not: folders of ours, an hour old, on whose socket nobody listens."""
    for address in base.glob(f"{_PREFIX}*/{SOCKET}"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
            about = address.stat()
            old = about.st_uid == os.getuid() and time.time() - about.st_mtime > 3600
            if old and asking.connect_ex(str(address)) == errno.ECONNREFUSED:
                shutil.rmtree(address.parent, ignore_errors=True)


def signal_name(number: int) -> str:
    """Such as ``SIGSEGV``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


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
        done = subprocess.run([path, "-c", _PROBE], capture_output=True, stdin=subprocess.DEVNULL, cwd="/", timeout=60)
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


def processes() -> dict[int, Process]:
    """The process table, by id. Costs about 20 microseconds a process."""
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has just ended
        state, parent, group, session = fields[:4]
        pid = int(name)
        table[pid] = Process(pid, int(parent), int(group), int(session), state in b"ZX", int(fields[21]) * _PAGE)
    return table


def family(pid: int, table: Mapping[int, Process]) -> list[Process]:
    """Process ``pid`` with its session, its group and all their descendants, dead ones left out; ``pid`` first."""
    members = {number for number, one in table.items() if pid in (number, one.session, one.group)}
    grew = True
    while grew:
        more = {number for number, one in table.items() if one.parent in members and number not in members}
        members |= more
        grew = bool(more)
    members -= {0, 1, os.getpid()}
    return [table[number] for number in sorted(members, key=lambda number: number != pid) if not table[number].zombie]


def resident(members: Iterable[Process]) -> int:
    """Bytes of memory that the processes hold together (pages they share count more than once)."""
    return sum(one.resident for one in members)


def end_family(pid: int, *, reaped: bool = False, grace: float = 0.2) -> int:
    """Kill a job's process with its session, its group and all their descendants. Ends nothing else.

    ``reaped`` says that the process itself has been collected, so that its number may be somebody else's by now. (As
    the number of a session or a group it is not given out again while that has members.)

    A compiler among them is asked first (SIGTERM, ``grace`` seconds) while the job itself stands still, and what it was
    writing is removed: else a half-written shared library would stay in Inductor's cache under a valid name, and
    the next job, an innocent one, would load it.

    Returns:
        How many processes had to be killed.
    """
    if pid <= 1:
        return 0
    doomed: set[int] = set()
    torn: set[str] = set()
    if not reaped:
        _signal(pid, signal.SIGSTOP)
    deadline = time.monotonic() + grace
    while helpers := [one.pid for one in family(pid, processes()) if one.pid != pid]:
        patient = time.monotonic() < deadline
        for helper in helpers:
            torn |= _written_by(helper)
            if not patient or helper not in doomed:
                _signal(helper, signal.SIGTERM if patient else signal.SIGKILL)
            doomed.add(helper)
        if time.monotonic() > deadline + 2:
            break  # in uninterruptible sleep; it goes when the kernel lets it
        time.sleep(0.005)
    for path in torn:
        with contextlib.suppress(OSError):
            os.unlink(path)
    if reaped:
        return len(doomed)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    if _signal(pid, signal.SIGKILL):
        doomed.add(pid)
    return len(doomed)


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _written_by(pid: int) -> set[str]:
    """The file that a compiler or linker is writing: its ``-o``."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
        folder = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return set()
    name = os.path.basename(words[0])
    if "-o" not in words[:-1] or not any(name == known or name.endswith(f"-{known}") for known in _COMPILERS):
        return set()
    return {os.path.join(folder, words[words.index("-o") + 1])}


def memory_total() -> int:
    """Bytes of memory this machine, or the container around us, has."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * _PAGE]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # absent, or the word "max"
            sizes.append(int(Path(path).read_text()))
    return min(sizes)


def tail(path: str | Path, size: int = 4096) -> str:
    """The last ``size`` bytes of a file as text; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode(errors="backslashreplace")
    except OSError:
        return ""
