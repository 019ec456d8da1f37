"""The worker's server: imports torch once, then forks one child for each job (what that does: ``child.py``).

One process a job means that a crash, a hang or a leaked setting touches nobody else. A fork of a process that has
torch loaded takes about 0.1 s instead of several seconds.

Messages are JSON objects, one a line. The server's own connection carries ``{"hello": ...}`` first. Each job line that it
reads is ``{"ticket", "job", "log", "stack", "limit"}``. The answer is ``{"forked": pid}`` or ``{"refused": reason}``,
and in the end ``{"exit": pid, "status": wait status}``, each with the ticket. A child opens a connection of its own. The
job's phases and its outcome travel on that, so that no other process can garble them.

The server lives as long as control holds the other end of its connection, and takes its children along.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import platform
import selectors
import signal
import socket
import sys
import time
import traceback
from typing import Any

from runner.worker.server.child import EXIT_BROKEN, adopt_orphans, die_with_parent, encode, run_child
from runner.worker.server.warm_up import ThreadsLeft, warm_up
from runner.worker.settings import DEFAULT_THREADS, NVML_CHECK


def main(argv: list[str] | None = None) -> int:
    """Serve until control closes the connection.

    Returns:
        0 at control's end, 1 if torch cannot be imported.

    Raises:
        OSError: control's socket cannot be reached.
    """
    words = sys.argv[1:] if argv is None else argv  # pairs that control writes, and nobody else
    options = {"--warm": "none", **dict(zip(words[::2], words[1::2], strict=True))}
    address, token, warm = options["--socket"], options["--token"], options["--warm"]

    signal.signal(signal.SIGTERM, _end_own_group)
    die_with_parent(signal.SIGTERM)  # not SIGKILL: a compiler started by the warm-up must go too
    # What a job leaves behind becomes ours and can be ended with us, instead of living on under init.
    adopt_orphans()

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)
    gc.disable()  # imports make little garbage, and looking for it takes a quarter of their time
    try:
        hello = describe(warm)
    except ThreadsLeft as error:
        print(f"starting again, to import and no more: {error}", file=sys.stderr, flush=True)
        words = [sys.executable, sys.argv[0], "--socket", address, "--token", token, "--warm", "import"]
        os.execv(sys.executable, words)  # the only way to be rid of them
    hello.update(pid=os.getpid(), python=platform.python_version(), executable=sys.executable)
    server = Server(connection, address, token)
    try:
        server.send({"hello": hello, "token": token})
        if "error" in hello:
            return 1
        gc.collect()
        gc.enable()
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

    Raises:
        ThreadsLeft: warming left threads, so that this process must not fork.
    """
    # Asked through NVML, "is there a GPU" leaves CUDA uninitialized, so that children can still open it after a fork.
    os.environ.setdefault(NVML_CHECK, "1")
    try:
        torch = importlib.import_module("torch")
        os.environ[DEFAULT_THREADS] = str(torch.get_num_threads())
        torch.set_num_threads(1)  # before any work: a child forked after OpenMP started its threads hangs
    except BaseException as error:  # noqa: BLE001 (a broken torch may raise anything, SystemExit too)
        traceback.print_exc()  # to the server's log, whose end control shows
        return {"error": f"torch cannot be imported by {sys.executable}: {type(error).__name__}: {error}"}
    warm_error = ""
    try:
        warm_up(warm)
    except ThreadsLeft:
        raise
    except Exception as error:  # noqa: BLE001 (the jobs will meet it again, one by one, and say more)
        warm_error = f"{type(error).__name__}: {error}"
    cuda = bool(torch.cuda.is_available())
    return {
        "torch": str(torch.__version__),
        "git": str(getattr(torch.version, "git_version", None) or ""),
        "devices": {"cpu": True, "cuda": cuda},
        "gpus": int(torch.cuda.device_count()) if cuda else 0,
        "warm_error": warm_error,
    }


class Server:
    """The loop that forks and reaps. ``connection`` leads to control, which listens at ``address``."""

    def __init__(self, connection: socket.socket, address: str, token: str) -> None:
        """Keep the connection and the address; ``serve`` begins the service."""
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


def _children_of(parent: int) -> list[int]:
    pids = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] != b"Z":
                pids.append(int(name))
    return pids


def _end_own_group(*_: object) -> None:
    """Handle SIGTERM: exit, and end a compiler started by the warm-up, but never somebody else's group."""
    for pid in _children_of(os.getpid()):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(128 + signal.SIGTERM)
