"""A job's process, freshly forked by the server: prepares itself, runs the job, reports its outcome, and exits.

Preparing means: a session of its own, output into the job's log, stacks at a crash, limits. Its messages go over a
connection of its own (see ``server.py``), each with the job's ticket. First comes who it is, then the job's phases.
Last comes ``{"outcome": record, "kin": whether processes are left}`` or ``{"broken": traceback}``. If processes are
left it waits until control has ended them and hangs up.

An order with ``keep`` (bytes that the process may grow by) makes a persistent worker. After a job that went well it
restores its state (``persistent.py``) and sends ``{"rest": bytes held}``. Then it reads its next order from the same
connection. It exits after any failure, or when control hangs up. Where its state cannot be restored it sends
``{"leaves": reason}`` and exits.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import io
import json
import os
import resource
import signal
import socket
import stat
import sys
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from runner.contract.job import Job
from runner.worker.processes import adopt_orphans, die_with_parent, encode
from runner.worker.server.persistent import Base, has_children, resident
from runner.worker.server.warm_up import load_entry

EXIT_BROKEN = 70
"""Exit status of a child whose harness failed (EX_SOFTWARE)."""

_THREAD_STACKS = 256 << 20
"""Bytes of private writable memory that a few threads' stacks may add: they count as data though never touched."""
_COMPILER = 2 << 30
"""Bytes that control always allows compilers (``ALLOWANCE`` in ``runner/engine/process_tree.py``)."""
_PATIENCE = 1.0
"""Seconds that a job's process waits until control has ended what is left of it."""
_DATA = resource.getrlimit(resource.RLIMIT_DATA)


def run_child(order: Mapping[str, Any], parent: int, address: str, token: str) -> NoReturn:
    """Run the job of ``order`` in this process, freshly forked by ``parent``. Then exit, or take the next one.

    For each job one of ``{"outcome": record}`` and ``{"broken": traceback}`` is sent, unless the process dies.
    """
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_BROKEN)  # it died before the request took effect
    adopt_orphans()
    _spare_others()
    os.environ.update(order.get("environ") or {})

    status = _Process(address, token).run(order)
    with contextlib.suppress(BaseException):  # the case may have spoilt anything
        ctypes.CDLL(None).fflush(None)  # os._exit would drop what native code printed
    os._exit(status)


class _Process:
    """This process as control knows it, over a connection of its own."""

    def __init__(self, address: str, token: str) -> None:
        self._address, self._token = address, token
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._orders = self._connection.makefile("rb")
        self._own = os.getpid()
        self._base: Base | None = None
        self._stack = -1

    def run(self, order: Mapping[str, Any]) -> int:
        """Run the job, and those that follow it. Return the exit status."""
        self._prepare(order)
        self._connection.connect(self._address)
        while True:
            failed, status = self._run_one(order)
            _flush()
            if failed or self._base is None or order.get("keep") is None:
                return status
            if reason := self._base.restore(order["keep"]):
                os.write(2, f"this process takes no other job: {reason}\n".encode())
                with contextlib.suppress(OSError):  # control is gone
                    self._send({"leaves": reason, "ticket": order["ticket"]})
                return 0
            try:
                self._send({"rest": resident(), "ticket": order["ticket"]})
                line = self._orders.readline()
            except OSError:
                return 0
            if not line:
                return 0  # control needs us no more, or is gone
            order = json.loads(line)
            self._prepare(order)

    def _run_one(self, order: Mapping[str, Any]) -> tuple[bool, int]:
        """Run a job and report it. Return whether anything failed, and the exit status if it was the last."""
        job, ticket = order["job"], order["ticket"]

        def send(message: dict[str, Any]) -> None:
            if os.getpid() != self._own:
                os._exit(EXIT_BROKEN)  # a copy forked by the case; the job is not its to report
            self._send({**message, "ticket": ticket})

        try:
            self._send({"job": job.get("key"), "ticket": ticket, "pid": self._own, "token": self._token})
            run_job = load_entry()
            if self._base is None:
                share = order.get("share")
                if share is not None:
                    _share_gpu(share)
                if order.get("keep") is not None:
                    self._base = Base(Job.from_json(job), share or 1.0)
            record = run_job(job, send)
            kin = has_children()
            line = encode({"outcome": record, "ticket": ticket, "kin": kin})
            failed = kin or any(record.get(key) for key in ("findings", "trust", "error"))
            status = 0
        except BaseException:  # noqa: BLE001 (SystemExit too: an end without a word is a riddle; a record without end)
            line = encode({"broken": _told(), "ticket": ticket})
            kin, failed, status = False, True, EXIT_BROKEN
        if os.getpid() != self._own:
            return True, status
        with contextlib.suppress(OSError):  # control is gone
            self._connection.sendall(line)
            if kin:
                self._connection.settimeout(_PATIENCE)
                self._orders.readline()
        return failed, status

    def _prepare(self, order: Mapping[str, Any]) -> None:
        """Redirect output into the job's log, report stacks at a crash, set limits."""
        redirect(order.get("log"))
        previous, self._stack = self._stack, _report_crashes(order.get("stack"))
        if previous >= 0:
            with contextlib.suppress(OSError):
                os.close(previous)
        _limit(order.get("limit") if order["job"].get("device", "cpu") == "cpu" else None)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._connection.sendall(encode(message))


def _told() -> str:
    """Return the exception that is handled now as text.

    The class may be the case's, and raise when it is asked for its name.
    """
    try:
        return traceback.format_exc()
    except BaseException:  # noqa: BLE001
        return "an exception of a class that raises when it is asked for its name"


def _flush() -> None:
    with contextlib.suppress(BaseException):  # the case may have closed or replaced them
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _share_gpu(share: float) -> None:
    """Take at most that part of the GPU's memory. If CUDA does not come up, the job will meet that itself."""
    with contextlib.suppress(Exception):
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(share)


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


def redirect(log: str | None) -> None:
    """Send descriptors 1 and 2 to ``log``, to nowhere if it cannot be opened; read from nowhere."""
    try:
        output = _open_log(log)
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


def _open_log(path: str | None) -> int:
    """Open a log of our own, which is made. Raises OSError without one, and for a link or a pipe that another case has
    put there."""
    # Appending, so that control can cut a log that grew too long and the next write starts at its new end.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path or "", flags, 0o600)  # no file has an empty name
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise FileExistsError(path)


def _report_crashes(stack: str | None) -> int:
    """Write Python's stacks to ``stack`` at a fatal signal and at SIGUSR1 (control's, just before it kills).

    Returns:
        The descriptor that must stay open for it.
    """
    try:
        descriptor = _open_log(stack)
    except OSError:
        descriptor = os.dup(2)
    faulthandler.enable(descriptor, all_threads=True)
    faulthandler.register(signal.SIGUSR1, descriptor, all_threads=True)
    return descriptor


def _spare_others() -> None:
    """Write no core files, and let the kernel kill the job rather than the server or control if memory runs out."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


def _limit(memory: int | None) -> None:
    """Allow ``memory`` bytes and a quarter of data beyond today's (control watches the finer limit).

    It stops one huge allocation that would hurt the machine before control looks. Compilers inherit the limit, so it is
    never below their own allowance. Accelerators have none: their runtimes reserve address space at will.
    """
    soft, hard = _DATA
    with contextlib.suppress(ValueError, OSError):  # a case may have lowered the hard limit
        resource.setrlimit(resource.RLIMIT_DATA, _DATA)  # off with the one of the job before
    if memory is None:
        return
    with open("/proc/self/status") as file:
        used = next((int(line.split()[1]) << 10 for line in file if line.startswith("VmData:")), 0)
    limit = max(used + memory + memory // 4, _COMPILER) + _THREAD_STACKS
    if soft == resource.RLIM_INFINITY or limit < soft:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
