"""The worker's server: imports torch once, then forks one child for each job.

One process a job means that a crash, a hang or a leaked setting touches nobody else; forking from a process that has
torch loaded makes that cost about 0.1 s instead of several seconds.

Messages are JSON objects, one a line. The server's own connection carries ``{"hello": ...}``, then for each job line
``{"ticket", "job", "log", "stack", "limit"}`` that it reads: ``{"forked": pid}`` or ``{"refused": reason}``, and in the
end ``{"exit": pid, "status": wait status}``, each with the ticket. A child opens a connection of its own, on which the
job's phases and its outcome travel, so that no other process can garble them.

The server lives as long as control holds the other end of its connection, and takes its children along.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import io
import json
import math
import os
import platform
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

ENTRY = "runner.worker.job:run_job"
"""``module:function`` that runs a job; the environment variable RUNNER_WORKER_ENTRY names another."""

EXIT_BROKEN = 70
"""Exit status of a child whose harness failed (EX_SOFTWARE)."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_THREAD_STACKS = 256 << 20
"""Bytes of private writable memory that a few threads' stacks may add: they count as data though never touched."""


def main(argv: list[str] | None = None) -> int:
    """Serve until control closes the connection.

    Returns:
        0 at control's end, 1 if torch cannot be imported.

    Raises:
        OSError: control's socket cannot be reached.
    """
    parser = argparse.ArgumentParser(prog="runner-worker", description="started by runner; not for people")
    parser.add_argument("--socket", required=True, help="control's Unix socket")
    parser.add_argument("--token", required=True, help="shows control whose messages these are")
    parser.add_argument("--warm", choices=("none", "import", "inductor"), default="none", help="what to load first")
    options = parser.parse_args(argv)

    signal.signal(signal.SIGTERM, _end_own_group)
    _die_with_parent(signal.SIGTERM)  # not SIGKILL: a compiler started by the warm-up must go too
    # What a job leaves behind becomes ours and can be ended with us, instead of living on under init.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(options.socket)
    hello = describe(options.warm)
    hello.update(pid=os.getpid(), python=platform.python_version(), executable=sys.executable)
    server = Server(connection, options.socket, options.token)
    try:
        server.send({"hello": hello, "token": options.token})
        if "error" in hello:
            return 1
        gc.collect()
        gc.freeze()  # a child's collector would otherwise touch, and so copy, every page that holds an object
        server.serve()
    except (BrokenPipeError, ConnectionResetError):
        pass  # control is gone
    finally:
        server.end_children()
    return 0


def describe(warm: str) -> dict[str, Any]:
    """Import torch, as far as ``warm`` says, and describe what this interpreter can run.

    Returns:
        ``torch``, ``git``, ``devices`` (name to bool), ``gpus`` (count), ``warm_error`` (empty, or why warming
        failed); or only ``error`` if torch cannot be imported.
    """
    # Asked through NVML, "is there a GPU" leaves CUDA uninitialized, so that children can still open it after a fork.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    try:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)  # before any work: a child forked after OpenMP started its threads hangs
    except BaseException as error:
        traceback.print_exc()  # to the server's log, whose end control shows
        return {"error": f"torch cannot be imported by {sys.executable}: {type(error).__name__}: {error}"}
    warm_error = ""
    try:
        if warm != "none":
            importlib.import_module("torch._dynamo")
            importlib.import_module("torch._inductor.compile_fx")
            importlib.import_module(os.environ.get("RUNNER_WORKER_ENTRY", ENTRY).partition(":")[0])
        if warm == "inductor":
            _compile_once(torch)
    except Exception as error:  # the jobs will meet it again, one by one, and say more
        warm_error = f"{type(error).__name__}: {error}"
    cuda = bool(torch.cuda.is_available())
    return {
        "torch": str(torch.__version__),
        "git": str(getattr(torch.version, "git_version", None) or ""),
        "devices": {"cpu": True, "cuda": cuda},
        "gpus": int(torch.cuda.device_count()) if cuda else 0,
        "warm_error": warm_error,
    }


def _compile_once(torch: Any) -> None:
    """Compile one small graph on the CPU: the probes of the CPU's vectors and the precompiled header stay cached."""
    compiled = torch.compile(lambda x: (x + 1).relu().sum(), backend="inductor")
    compiled(torch.ones(64))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._inductor.metrics.reset()


class Server:
    """The loop that forks and reaps. ``connection`` leads to control, which listens at ``address``."""

    def __init__(self, connection: socket.socket, address: str, token: str) -> None:
        self._connection = connection
        self._address = address
        self._token = token
        self._children: dict[int, dict[str, Any]] = {}  # pid -> {ticket, job}
        self._wake_read, self._wake_write = socket.socketpair()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message to control.

        Raises:
            BrokenPipeError, ConnectionResetError: control is gone.
        """
        self._connection.sendall(encode(message))

    def serve(self) -> None:
        """Fork for each job line and report each end, until control closes the connection."""
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler nothing is written to the wakeup fd
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)
        buffer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._wake_read:
                        self._drain_wakeups()
                        continue
                    data = self._connection.recv(1 << 16)
                    if not data:
                        return
                    *lines, buffer = (buffer + data).split(b"\n")
                    for line in lines:
                        self._fork(json.loads(line))
                self._reap()

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_read.recv(4096):
                pass

    def _fork(self, message: dict[str, Any]) -> None:
        sys.stdout.flush()  # else the child would print our buffered text again
        sys.stderr.flush()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self.send({"refused": str(error), "ticket": message["ticket"]})
            return
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                for inherited in (self._connection, self._wake_read, self._wake_write):
                    inherited.close()  # control must see our end of the connection close when we die
                run_child(message, parent, self._address, self._token)
            finally:
                os._exit(EXIT_BROKEN)
        self._children[pid] = {"ticket": message["ticket"], "job": message["job"].get("key")}
        self.send({"forked": pid, **self._children[pid]})

    def _reap(self) -> None:
        """Collect every ended child, strays of jobs included; report those that were jobs."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            about = self._children.pop(pid, None)
            if about is not None:
                self.send({"exit": pid, "status": status, **about})

    def end_children(self) -> None:
        """Kill the jobs, their groups, and every process of theirs that has become our child. Takes up to 2 s."""
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            for pid in [*self._children, *_children_of(os.getpid())]:
                for kill in (os.killpg, os.kill):
                    with contextlib.suppress(OSError):
                        kill(pid, signal.SIGKILL)
            try:
                while True:
                    pid, _ = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    self._children.pop(pid, None)
            except ChildProcessError:
                return  # nobody is left
            time.sleep(0.01)


def _entry() -> Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], dict[str, Any]]:
    """The function that runs a job."""
    module, _, function = os.environ.get("RUNNER_WORKER_ENTRY", ENTRY).partition(":")
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def _children_of(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] != b"Z":
                found.append(int(name))
    return found


def _end_own_group(*_: object) -> None:
    """Handler of SIGTERM: go, and take a compiler started by the warm-up along, but never somebody else's group."""
    for pid in _children_of(os.getpid()):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(128 + signal.SIGTERM)


def run_child(message: Mapping[str, Any], parent: int, address: str, token: str) -> NoReturn:
    """Run the job of ``message`` in this process, freshly forked by ``parent``, and exit.

    Whatever happens, one of ``{"outcome": record}`` and ``{"broken": traceback}`` is sent, unless the process dies.
    """
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    _die_with_parent(signal.SIGKILL)
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
        answer: dict[str, Any] = {"outcome": _entry()(job, send)}
    except BaseException:  # SystemExit and KeyboardInterrupt too: an end without a word would be a riddle
        answer, status = {"broken": traceback.format_exc()}, EXIT_BROKEN
    try:
        line = encode(answer)
    except BaseException:  # a record that contains itself, an object whose repr raises
        line, status = encode({"broken": traceback.format_exc()}), EXIT_BROKEN
    try:
        if os.getpid() == own:
            connection.sendall(line)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        ctypes.CDLL(None).fflush(None)  # os._exit would drop what native code printed
    except BaseException:
        pass  # control is gone, or the case closed a stream; nothing is left to say or nobody to hear it
    os._exit(status)


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


def _prctl(option: int, value: int) -> None:
    """Linux's prctl. A kernel that refuses is no error: what is asked for here is a second line of defence."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _die_with_parent(number: int) -> None:
    """Ask the kernel for signal ``number`` when the parent dies, even by SIGKILL. The caller re-checks its parent."""
    _prctl(_PR_SET_PDEATHSIG, number)


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

    It stops one huge allocation that would hurt the machine before control looks. Not on accelerators, whose
    runtimes reserve address space at will.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # if the kernel must choose, let it choose the job, not the server or control
    if memory is None:
        return
    with open("/proc/self/status") as file:
        used = next((int(line.split()[1]) << 10 for line in file if line.startswith("VmData:")), 0)
    wanted = used + memory + memory // 4 + _THREAD_STACKS
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or wanted < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
