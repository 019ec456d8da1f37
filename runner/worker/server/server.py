"""The worker's servers: each warms up, then forks one child for each job (what that does: ``child.py``).

One process a job means that a crash, a hang or a leaked setting touches nobody else. A fork of a process that has
torch loaded takes about 0.1 s instead of several seconds.

A zygote forks the servers of an interpreter, so that torch is imported once for all of them.

Messages are JSON objects, one a line. The connection of a server carries ``{"hello": ...}`` first. Each job line that
it reads is ``{"ticket", "job", "log", "stack", "limit"}``. The answer is ``{"forked": pid}`` or ``{"refused":
reason}``, and in the end ``{"exit": pid, "status": wait status}``, each with the ticket. A child opens a connection of
its own. The job's phases and its outcome travel on that, so that no other process can garble them.

A zygote says ``{"zygote": pid}``. It reads ``{"ticket", "environ", "warm", "token", "log"}`` and answers as a server
does.

Both live as long as control holds the other end of their connection, and take their children along.
"""

from __future__ import annotations

import contextlib
import functools
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
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from runner.contract.settings import DEFAULT_THREADS, NVML_CHECK
from runner.worker.processes import adopt_orphans, children_of, die_with_parent, encode
from runner.worker.server import keeper
from runner.worker.server.child import EXIT_BROKEN, redirect, run_child
from runner.worker.server.warm_up import ThreadsLeft, missing_vectors, warm_up


def main(argv: list[str] | None = None) -> int:
    """Be a zygote, or a server where ``--warm`` says how it warms up, until control closes the connection.

    Returns:
        0 at control's end, 1 if a server cannot import torch.

    Raises:
        OSError: control's socket cannot be reached.
    """
    words = sys.argv[1:] if argv is None else argv  # pairs that control writes, and nobody else
    options = dict(zip(words[::2], words[1::2], strict=True))
    address, token, warm = options["--socket"], options["--token"], options.get("--warm")
    if "--keep" in options:
        gc.disable()
        return _keep(address, token, options["--warm"], options["--keep"], float(options["--rest"]))
    _end_with_parent(signal.SIGTERM if warm is None else signal.SIGKILL)
    gc.disable()  # imports make little garbage, and looking for it takes a quarter of their time
    return _zygote(address, token) if warm is None else _serve(address, token, warm, options.get("--threads", ""))


def _end_with_parent(number: int) -> None:
    """At SIGTERM, which the kernel sends when the parent dies, end with what was started here: by signal ``number``.

    A compiler that a warm-up started must go too. Servers of a zygote get SIGTERM, so that each ends its jobs.
    """
    signal.signal(signal.SIGTERM, functools.partial(_end_own_group, number))
    die_with_parent(signal.SIGTERM)
    # What a job leaves behind becomes ours and can be ended with us, instead of living on under init.
    adopt_orphans()


def _zygote(address: str, token: str) -> int:
    """Import torch, then fork a server for each order."""
    connection = _connect(address)
    import_torch()  # a server says why it failed
    gc.freeze()  # the collections of its servers then leave alone what the import made
    forks = Forks(connection, functools.partial(_run_server, address=address))
    forks.serve({"zygote": os.getpid(), "token": token})
    return 0


def _keep(address: str, token: str, warm: str, path: str, rest: float) -> int:
    """Be a zygote that stays warm; an ordinary one where the warm-up fails, or nobody could connect later.

    The run at ``address`` is the first one. It ends this process until it has heard of it.
    """
    signal.signal(signal.SIGTERM, functools.partial(_end_own_group, signal.SIGTERM))
    adopt_orphans()
    try:
        hello = describe(warm)
        if hello.get("error") or hello["warm_error"]:
            raise RuntimeError(hello.get("error") or hello["warm_error"])
        listener = keeper.listen(path)
    except Exception:  # noqa: BLE001 (whatever it is, a server meets it again, and says so)
        traceback.print_exc()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, sys.argv[0], "--socket", address, "--token", token])
    gc.collect()
    gc.freeze()  # the collections of its servers then leave alone what is warm
    try:
        first = _connect(address)
    except OSError:  # the run is gone
        os.unlink(path)
        return 1
    first.sendall(encode({"zygote": os.getpid(), "token": token}))
    fork = functools.partial(_run_warm_server, hello=hello)
    try:
        keeper.Keeper(path, listener, fork, rest, keeper.compiled_code()).serve(first)
    finally:
        _end_children({})
    os._exit(0)  # Python would take a second to let go of torch


def _run_warm_server(order: dict[str, Any], parent: int, hello: dict[str, Any]) -> NoReturn:
    """Be a server in this process, freshly forked by a zygote that is warm."""
    os.setsid()
    _end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_BROKEN)  # it died before the request took effect
    status = EXIT_BROKEN
    try:
        redirect(order["log"])
        keeper.become_server(order, import_torch()[1], DEFAULT_THREADS)
        status = _serve_jobs(_connect(order["address"]), order["address"], order["token"], hello)
    except BaseException:  # noqa: BLE001 (the process ends; control shows the log)
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


def _run_server(order: dict[str, Any], parent: int, address: str) -> NoReturn:
    """Be a server in this process, freshly forked by a zygote."""
    os.setsid()
    _end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_BROKEN)  # it died before the request took effect
    os.environ.clear()
    os.environ.update(order["environ"])
    redirect(order["log"])
    status = EXIT_BROKEN
    try:
        status = _serve(address, order["token"], order["warm"])
    except BaseException:  # noqa: BLE001 (the process ends; control shows the log)
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


def _connect(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)
    return connection


def _serve(address: str, token: str, warm: str, threads: str = "") -> int:
    """Be a server. ``threads`` says why the one before it, of the same process, could not be one."""
    connection = _connect(address)
    try:
        hello = describe(warm)
    except ThreadsLeft as error:
        print(f"starting again, to import and no more: {error}", file=sys.stderr, flush=True)
        words = ["--socket", address, "--token", token, "--warm", "import", "--threads", str(error)]
        os.execv(sys.executable, [sys.executable, sys.argv[0], *words])  # the only way to be rid of them
    if threads and "error" not in hello:
        hello["warm_error"] = threads
    return _serve_jobs(connection, address, token, hello)


def _serve_jobs(connection: socket.socket, address: str, token: str, hello: dict[str, Any]) -> int:
    """Say ``hello``, then fork for each job until control closes the connection."""
    hello.update(pid=os.getpid(), python=platform.python_version(), executable=sys.executable)
    forks = Forks(connection, functools.partial(run_child, address=address, token=token))
    if "error" in hello:
        with contextlib.suppress(OSError):
            forks.send({"hello": hello, "token": token})
        return 1
    gc.collect()
    gc.enable()
    gc.freeze()  # a child's collector would otherwise touch, and so copy, every page that holds an object
    forks.serve({"hello": hello, "token": token})
    return 0


@functools.cache
def import_torch() -> tuple[str, str]:
    """Import torch, once.

    Returns:
        Why it cannot be imported, or an empty text; and how many intra-op threads it takes by itself.
    """
    # Asked through NVML, "is there a GPU" leaves CUDA uninitialized, so that children can still open it after a fork.
    os.environ.setdefault(NVML_CHECK, "1")
    try:
        torch = importlib.import_module("torch")
        threads = str(torch.get_num_threads())
        torch.set_num_threads(1)  # before any work: a child forked after OpenMP started its threads hangs
    except BaseException as error:  # noqa: BLE001 (a broken torch may raise anything, SystemExit too)
        traceback.print_exc()  # to the server's log, whose end control shows
        return f"torch cannot be imported by {sys.executable}: {type(error).__name__}: {error}", ""
    return "", threads


def describe(warm: str) -> dict[str, Any]:
    """Import torch, as far as ``warm`` says, and describe what this interpreter can run.

    Returns:
        ``torch``, ``git``, ``devices`` (name to bool), ``gpus`` (count), ``warm_error`` (empty, or why warming
        failed), ``missing_vectors`` (empty, or a sentence); or only ``error`` if torch cannot be imported.

    Raises:
        ThreadsLeft: warming left threads, so that this process must not fork.
    """
    error, threads = import_torch()
    if error:
        return {"error": error}
    os.environ[DEFAULT_THREADS] = threads
    torch = importlib.import_module("torch")
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
        "missing_vectors": missing_vectors() if warm == "inductor" else "",
    }


class Forks:
    """The loop that forks and reaps. ``connection`` leads to control; ``run`` does what an order says in the child."""

    def __init__(self, connection: socket.socket, run: Callable[[dict[str, Any], int], NoReturn]) -> None:
        """Keep the connection; ``serve`` begins the service."""
        self._connection = connection
        self._run = run
        self._children: dict[int, int] = {}  # pid to ticket
        self._wake_read, self._wake_write = socket.socketpair()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message to control.

        Raises:
            BrokenPipeError, ConnectionResetError: control is gone.
        """
        self._connection.sendall(encode(message))

    def serve(self, greeting: dict[str, Any]) -> None:
        """Send ``greeting``. Then fork for each order and report each end, until control closes the connection.

        In the end the jobs are killed, their groups, and every process of the groups that has become our child.
        """
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # control is gone
                self.send(greeting)
                self._loop()
            if "zygote" in greeting:
                self._wait_for_children()  # control has hung up on servers too, and each ends its own
        finally:
            _end_children(self._children)

    def _loop(self) -> None:
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
                        with contextlib.suppress(BlockingIOError):
                            while self._wake_read.recv(4096):
                                pass
                        continue
                    data = self._connection.recv(1 << 16)
                    if not data:
                        return
                    *lines, buffer = (buffer + data).split(b"\n")
                    for line in lines:
                        self._fork(json.loads(line))
                self._reap()

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
                self._run(message, parent)
            finally:
                os._exit(EXIT_BROKEN)
        self._children[pid] = message["ticket"]
        self.send({"forked": pid, "ticket": message["ticket"]})

    def _reap(self) -> None:
        """Collect every ended child, strays of jobs included; report those that were jobs."""
        with contextlib.suppress(ChildProcessError):
            for pid, status in _ended_children():
                ticket = self._children.pop(pid, None)
                if ticket is not None:
                    self.send({"exit": pid, "status": status, "ticket": ticket})

    def _wait_for_children(self) -> None:
        """Wait up to 3 s until they have ended by themselves."""
        deadline = time.monotonic() + 3
        while self._children and time.monotonic() < deadline:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._reap()
            time.sleep(0.01)


def _end_children(pids: dict[int, int]) -> None:
    """Kill the children ``pids`` (the values are of no matter), all others, their groups, and whatever they leave to
    us."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        for pid in [*pids, *children_of(os.getpid())]:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)
        try:
            for pid, _ in _ended_children():
                pids.pop(pid, None)
        except ChildProcessError:
            return  # nobody is left
        time.sleep(0.01)


def _ended_children() -> Iterator[tuple[int, int]]:
    """Collect children that have ended: yield pid and wait status. Raises ChildProcessError where no child is left."""
    while (ended := os.waitpid(-1, os.WNOHANG))[0]:
        yield ended


def _end_own_group(number: int, *_: object) -> None:
    """Handle SIGTERM: exit, and send ``number`` to what was started here, but never to somebody else's group."""
    if number == signal.SIGKILL:
        _end_children({})  # what a job has left in another session becomes ours when the job is dead
    for pid in children_of(os.getpid()):
        with contextlib.suppress(OSError):
            os.killpg(pid, number)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(128 + signal.SIGTERM)
