"""A job's process, freshly forked by the server: prepares itself, runs the job, says how it went, and exits.

Preparing means: a session of its own, output into the job's log, stacks at a crash, limits. What it says goes over a
connection of its own (see ``server.py``): who it is, the job's phases, and one ``{"outcome": record}`` or
``{"broken": traceback}``.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import io
import json
import math
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

ENTRY = "runner.worker.job:run_job"
"""``module:function`` that runs a job; RUNNER_WORKER_ENTRY names another (for tests: control passes on no other)."""

EXIT_BROKEN = 70
"""Exit status of a child whose harness failed (EX_SOFTWARE)."""

_PR_SET_PDEATHSIG = 1
_THREAD_STACKS = 256 << 20
"""Bytes of private writable memory that a few threads' stacks may add: they count as data though never touched."""
_COMPILER = 2 << 30
"""Bytes that control always allows compilers (``COMPILERS`` in ``runner/engine/memory.py``)."""


def run_child(message: Mapping[str, Any], parent: int, address: str, token: str) -> NoReturn:
    """Run the job of ``message`` in this process, freshly forked by ``parent``, and exit.

    Whatever happens, one of ``{"outcome": record}`` and ``{"broken": traceback}`` is sent, unless the process dies.
    """
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_BROKEN)  # it died before the request took effect
    _redirect(message.get("log"))
    _report_crashes(message.get("stack"))
    job = message["job"]
    _limit(message.get("limit") if job.get("device", "cpu") == "cpu" else None)

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)
    own = os.getpid()

    def send(data: dict[str, Any]) -> None:
        if os.getpid() != own:
            os._exit(EXIT_BROKEN)  # a copy forked by the case; the job is not its to report
        connection.sendall(encode(data))

    status = 0
    try:
        send({"job": job.get("key"), "ticket": message["ticket"], "pid": own, "token": token})
        answer: dict[str, Any] = {"outcome": load_entry()(job, send)}
    except BaseException:  # noqa: BLE001 (SystemExit too: an end without a word is a riddle)
        answer, status = {"broken": traceback.format_exc()}, EXIT_BROKEN
    try:
        line = encode(answer)
    except BaseException:  # noqa: BLE001 (a record that contains itself, an object whose repr raises)
        line, status = encode({"broken": traceback.format_exc()}), EXIT_BROKEN
    try:
        if os.getpid() == own:
            connection.sendall(line)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        ctypes.CDLL(None).fflush(None)  # os._exit would drop what native code printed
    except BaseException:  # noqa: BLE001
        pass  # control is gone, or the case closed a stream; nothing is left to say or nobody to hear it
    os._exit(status)


class _Quiet(io.RawIOBase):
    """A file descriptor that takes writes and never fails: a full disk under the log is not the case's error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return len(data)


def _redirect(log: str | None) -> None:
    """Send descriptors 1 and 2 to ``log``, to nowhere if it cannot be opened; read from nowhere."""
    try:
        if log is None:
            raise FileNotFoundError
        # Appending, so that control can cut a log that grew too long and the next write starts at its new end.
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        output = os.open(os.devnull, os.O_WRONLY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for descriptor in {nothing, output} - {0, 1, 2}:
        os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        buffered = io.BufferedWriter(_Quiet(descriptor))
        setattr(sys, name, io.TextIOWrapper(buffered, "utf-8", errors="backslashreplace", line_buffering=True))


def _report_crashes(stack: str | None) -> None:
    """Write Python's stacks to ``stack`` at a fatal signal and at SIGUSR1 (control's, just before it kills)."""
    try:
        if stack is None:
            raise FileNotFoundError
        descriptor = os.open(stack, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        descriptor = os.dup(2)
    faulthandler.enable(descriptor, all_threads=True)
    faulthandler.register(signal.SIGUSR1, descriptor, all_threads=True)


def _limit(memory: int | None) -> None:
    """No core files; at most ``memory`` bytes and a quarter of data beyond today's (control watches the finer limit).

    It stops one huge allocation that would hurt the machine before control looks. Never so low that a compiler, which
    inherits it, could not have its own allowance. Not on accelerators, whose runtimes reserve address space at will.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # if the kernel must choose, let it choose the job, not the server or control
    if memory is None:
        return
    with open("/proc/self/status") as file:
        used = next((int(line.split()[1]) << 10 for line in file if line.startswith("VmData:")), 0)
    wanted = max(used + memory + memory // 4, _COMPILER) + _THREAD_STACKS
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or wanted < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def load_entry() -> Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], dict[str, Any]]:
    """The function that runs a job.

    Raises:
        Exception: its module cannot be imported; whatever that raises.
    """
    module, _, function = os.environ.get("RUNNER_WORKER_ENTRY", ENTRY).partition(":")
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def encode(message: Mapping[str, Any]) -> bytes:
    """One message as a line of JSON. What JSON lacks (NaN, infinity, sets, tensors) goes as its repr.

    Raises:
        ValueError, RecursionError: the message contains itself.
    """
    try:
        text = json.dumps(message, allow_nan=False, default=repr)
    except (ValueError, TypeError):
        text = json.dumps(_plain(message), allow_nan=False)
    return text.encode() + b"\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return value if value is None or isinstance(value, (bool, int, str)) else repr(value)


def prctl(option: int, value: int) -> None:
    """Linux's prctl. A kernel that refuses is no error: what is asked for here is a second line of defence."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def die_with_parent(number: int) -> None:
    """Ask the kernel for signal ``number`` when the parent dies, even by SIGKILL. The caller re-checks its parent."""
    prctl(_PR_SET_PDEATHSIG, number)
