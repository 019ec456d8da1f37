"""A job's process, freshly forked by the server: prepares itself, runs the job, reports its outcome, and exits.

Preparing means: a session of its own, output into the job's log, stacks at a crash, limits. Its messages go over a
connection of its own (see ``server.py``), each with the job's ticket. First comes who it is, then the job's phases.
Last comes ``{"outcome": record, "kin": whether processes are left}`` or ``{"broken": traceback}``. If processes are
left it waits until control has ended them and hangs up.

An order with ``keep`` (bytes that the process may grow by) makes a persistent worker. After a job that went well it
restores its state and sends ``{"rest": bytes held}``. Then it reads its next order from the same connection. It exits
after any failure, or when control hangs up. Where its state cannot be restored it sends ``{"leaves": reason}`` and
exits.

A job restores what it sets itself (``environment`` in ``load.py``). ``Base`` restores what a case may leave behind:
compiled code, flags, modes, the process's own state. A process in which a case has replaced a function of torch ends,
for a wrong result could pass there. Some state is not known here. That is why control runs a failure of such a process
again elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import io
import json
import os
import resource
import signal
import socket
import stat
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

from runner.contract.job import Job
from runner.worker.processes import adopt_orphans, die_with_parent, encode
from runner.worker.program import global_state
from runner.worker.program.definitions import Definitions
from runner.worker.server.warm_up import forget, load_entry
from runner.worker.torch_private.settings import is_compiler_loaded

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
        job, ticket, share = order["job"], order["ticket"], order.get("share")
        kin, failed, status = False, True, EXIT_BROKEN

        def send(message: dict[str, Any]) -> None:
            if os.getpid() != self._own:
                os._exit(EXIT_BROKEN)  # a copy forked by the case; the job is not its to report
            self._send({**message, "ticket": ticket})

        try:
            self._send({"job": job.get("key"), "ticket": ticket, "pid": self._own, "token": self._token})
            run_job = load_entry()
            if self._base is None:
                if share is not None:
                    _share_gpu(share)
                if order.get("keep") is not None:
                    self._base = Base(Job.from_json(job), share or 1.0)
            record = run_job(job, send)
            kin = has_children()
            line = encode({"outcome": record, "ticket": ticket, "kin": kin})
            failed, status = kin or any(record.get(key) for key in ("findings", "trust", "error")), 0
        except BaseException:  # noqa: BLE001 (SystemExit too: an end without a word is a riddle; a record without end)
            kin, line = False, encode({"broken": _told(), "ticket": ticket})
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


_NO_PACKAGE = ("threading", "runner", "")
"""First words of the modules whose threads are a case's: the standard library's and those that we make of a source."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MANY_MODULES = 20
"""So many new modules are worth setting their objects aside.

Each time what the caches of torch hold is set aside too, for good.
"""


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE


class Base:
    """The state that this process restores: the one in which this object is made."""

    def __init__(self, job: Job, share: float = 1.0) -> None:
        """Remember the state. What torch has is remembered only if its compiler is loaded.

        Args:
            job: the first one. What it imports may replace what it likes, as in any other process.
            share: which part of a GPU's memory this process may use.
        """
        self._resident: int | None = None  # after the first job: what is loaded once is no leak
        self._modules = 0  # that were loaded when objects were last set aside for the collector
        self._environ = dict(os.environ)
        self._folder = _folder()
        self._path = list(sys.path)
        self._recursion = sys.getrecursionlimit()
        self._warnings = warnings.catch_warnings()
        self._warnings.__enter__()
        self._torch = _Torch(sys.modules["torch"], job, share) if is_compiler_loaded() else None

    def restore(self, growth: int) -> str:
        """Restore the state as far as possible.

        Args:
            growth: bytes that the process may hold beyond what it held after its first job.

        Returns:
            Why no other job should run here; empty if one may.
        """
        if has_children():
            return "processes are left"
        if threads := _threads():
            return f"threads are left: {', '.join(threads)}"
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if _folder() != self._folder:
                os.chdir(self._folder)
            for name in os.environ.keys() - self._environ.keys():
                del os.environ[name]
            os.environ.update({name: value for name, value in self._environ.items() if os.environ.get(name) != value})
            sys.path[:] = self._path
            sys.setrecursionlimit(self._recursion)
            self._warnings.__exit__(None, None, None)
            self._warnings = warnings.catch_warnings()
            self._warnings.__enter__()
            reason = self._torch.restore() if self._torch else ""
            gc.collect()  # what is compiled lies in cycles and holds some of the device's memory
            if len(sys.modules) > self._modules + _MANY_MODULES:
                # What imports made stays for good, and the collector takes 0.3 s to look at all of Inductor.
                self._modules = len(sys.modules)
                gc.freeze()
            if self._torch:
                reason = reason or self._torch.clear_device()
        except Exception as error:  # noqa: BLE001 (whatever it is, a new process has not got it)
            return f"{type(error).__name__}: {error}"
        if self._resident is None:
            self._resident = resident()
        grown = resident() - self._resident
        return reason or (f"{grown >> 20} MiB more than at first" if grown > growth else "")


def _folder() -> str:
    """Return the current directory; empty if it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _threads() -> list[str]:
    """Return the names of threads that are left, without those that a package keeps for itself (such as tqdm's
    monitor)."""
    native = threading._DummyThread  # started by native code, such as autograd's for a device
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
        and not isinstance(thread, native)
        and type(thread).__module__.partition("_")[0] in _NO_PACKAGE
    ]


def has_children() -> bool:
    """Return whether a child of this process still runs; ended ones are collected."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


class _Torch:
    """torch's part of the state."""

    def __init__(self, torch: Any, job: Job, share: float) -> None:
        from runner.worker.program.load import environment

        self._torch, self._share = torch, share
        # What the job imports, and one compilation: torch's first one replaces functions of its own.
        with contextlib.suppress(Exception), environment(job):  # the job will meet an error itself, and report it
            torch.compile(torch.neg, backend="eager")(torch.ones(1))
        forget()
        self._definitions = Definitions()
        self._settings = global_state.read()
        self._random = torch.get_rng_state()

    def restore(self) -> str:
        """Restore all but the device's memory. Return why that is not enough, or nothing."""
        torch = self._torch
        forget()
        torch.set_default_device(None)
        global_state.restore(self._settings)
        torch.clear_autocast_cache()
        torch.set_rng_state(self._random)
        for setting in global_state.differences(self._settings):
            return f"{setting} stays changed"
        name = self._definitions.replaced()
        return f"{name} was replaced" if name else ""

    def clear_device(self) -> str:
        """Give cached memory back to the GPU. An error there (a poisoned process) goes to the caller.

        Returns:
            Why the process should end: a quarter of the memory that it may use is still taken.
        """
        cuda = self._torch.cuda
        if not cuda.is_initialized():
            return ""
        cuda.synchronize()
        cuda.empty_cache()
        for device in range(cuda.device_count()):
            reserved = cuda.memory_reserved(device)
            if reserved > cuda.get_device_properties(device).total_memory * self._share / 4:
                return f"{reserved >> 20} MiB of GPU memory stay taken"
        return ""
