"""Commands in forks of one process that has imported what they need: an import takes longer than most commands.

There are two such processes. One has the control half, for commands that only read. The other has torch as well: a command
there has a second fork for its first worker, which begins where torch and its compilers are imported.

Run as a program this is such a process: a line of JSON for each command, and a line with the exit code for each answer.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

READING = ("diff", "history", "known", "list", "merge", "report", "repro", "schema", "score", "show", "validate")
"""Commands that start no process."""
IMPORT = "torch"
"""The word for a process that imports torch."""
SCRIPT = "python"
"""The first word where the second one is a script."""
_NO_MATTER = ("CI", "COLUMNS", "FORCE_COLOR", "GITHUB_", "NO_COLOR", "PYTEST_", "RUNNER_", "TERM", "TMPDIR", "XDG_")
"""Beginnings of variables that nobody reads while torch is imported; ``runner.engine.servers`` has the others."""


class Forks:
    """The process that forks; it starts with the first command, and again when a command took too long.

    It runs commands only inside ``with``, so that it never outlives the tests that use it: others count processes.

    Args:
        words: of its own command line.
        environ: makes its variables; by default they are those of this process.
    """

    def __init__(self, *words: str, environ: Callable[[], Mapping[str, str] | None] = lambda: None) -> None:
        self._words, self._environ = words, environ
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._is_open = False

    def __enter__(self) -> None:
        self._is_open = True

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self.close()

    def run(
        self, words: Sequence[str], cwd: Path, environ: Mapping[str, str], limit: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``runner WORDS``; as ``subprocess.run`` does it, TimeoutExpired included."""
        assert self._is_open, "conftest.py of this folder needs the fixtures forks and torch_forks of tests/black_box"
        with self._lock, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            connection = self._connection = self._connection or self._start()
            order = {"words": [*words], "cwd": str(cwd), "environ": dict(environ)}
            socket.send_fds(connection, [b"\n"], [out.fileno(), err.fileno()])
            connection.sendall(json.dumps(order).encode() + b"\n")
            if not select.select([connection], [], [], limit)[0]:
                connection.close()  # at which it ends, with the command
                self._connection = None
                raise subprocess.TimeoutExpired(["runner", *words], limit)
            code = int(connection.recv(100))
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(["runner", *words], code, *texts)

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._server is not None:
            self._server.wait()
            self._server = None

    def _start(self) -> socket.socket:
        own_end, server_end = socket.socketpair()
        with server_end:
            words = [sys.executable, __file__, str(server_end.fileno()), *self._words]
            self._server = subprocess.Popen(
                words, pass_fds=[server_end.fileno()], stdin=subprocess.DEVNULL, env=self._environ()
            )
        return own_end


def _serve(connection: socket.socket, with_torch: bool) -> None:
    """Fork for each order until the other end is closed."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    commands = importlib.import_module("runner.cli.main")
    for name in commands.COMMANDS if with_torch else READING:
        commands.entrance(name)
    if with_torch:
        _import_torch()
    gc.collect()
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
        if not data:
            return
        text = b""
        while not text.endswith(b"\n"):
            text += connection.recv(1 << 20)
        child = os.fork()
        if child == 0:
            connection.close()
            _be_command(commands.main, json.loads(text), descriptors, with_torch)
        for descriptor in descriptors:
            os.close(descriptor)
        with select.epoll() as poll:
            ended = os.pidfd_open(child)
            poll.register(ended, select.EPOLLIN)
            poll.register(connection, select.EPOLLIN)  # nothing comes but its end
            if ended not in dict(poll.poll()):
                os.kill(child, signal.SIGKILL)
            os.close(ended)
        _, status = os.waitpid(child, 0)
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))


def _be_command(main: Any, order: dict[str, Any], descriptors: Sequence[int], with_torch: bool) -> NoReturn:
    """Be the command in this process."""
    base = dict(os.environ)
    for target, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["cwd"])
    tempfile.tempdir = None
    is_script = order["words"][:1] == [SCRIPT]
    if with_torch and not is_script:
        _lend_worker(base)
    sys.path[0] = os.getcwd()  # as python -m has it
    sys.argv[1:] = order["words"]
    code = 70
    try:
        code = _run_script(order["words"][1]) if is_script else main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run_script(path: str) -> int:
    """Run a script as Python does, without what is imported of this project; its exit code."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "runner"]:
        del sys.modules[name]
    sys.argv[:] = [path]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 (as Python does at a script's end)
        traceback.print_exc()
        return 1
    return 0


# --- workers that have torch when they start ---


def _import_torch() -> None:
    """Import torch and Dynamo, as servers of workers do before they fork. Nothing is compiled.

    Inductor decides where headers lie when it is imported, so each server imports it itself.
    """
    gc.disable()
    error, _ = importlib.import_module("runner.worker.server.server").import_torch()
    assert not error, error
    importlib.import_module("runner.worker.torch_private.preparation").DYNAMO.need()
    importlib.import_module("runner.worker.server.warm_up").load_entry()
    assert "torch._inductor.codecache" not in sys.modules
    gc.enable()


def _lend_worker(base: Mapping[str, str]) -> None:
    """Fork a process, and let the command have it as its first worker, where a new one would import the same.

    It is forked while the command has one thread. It ends when the command ends without it.

    Args:
        base: the variables with which torch was imported here.
    """
    interpreters = importlib.import_module("runner.engine.interpreters")
    start: Callable[..., subprocess.Popen[bytes]] = interpreters.start_worker
    late = importlib.import_module("runner.engine.servers")._LATE
    own_end, worker_end = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        own_end.close()
        _be_worker(worker_end, base)
    worker_end.close()

    def matters(variables: Mapping[str, str]) -> dict[str, str]:
        return {k: v for k, v in variables.items() if k not in late and not k.startswith(_NO_MATTER)}

    def start_worker(
        python: str, address: str, token: str, log: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        if own_end.fileno() < 0 or python != sys.executable or matters(environment) != matters(base):
            return start(python, address, token, log, environment)
        words = [python, str(interpreters.WORKER), "--socket", address, "--token", token]
        try:
            stream = interpreters.append_regular(log)
        except OSError:
            return start(python, address, token, log, environment)
        with own_end, stream:
            socket.send_fds(own_end, [b"\n"], [stream.fileno()])
            own_end.sendall(json.dumps({"words": words, "environ": dict(environment)}).encode() + b"\n")
        return _Lent(pid, words)

    interpreters.start_worker = start_worker


class _Lent(subprocess.Popen[bytes]):
    """A child that this process has forked itself."""

    def __init__(self, pid: int, words: Sequence[str]) -> None:
        self.pid, self.args, self.returncode = pid, words, None
        self.stdin = self.stdout = self.stderr = None
        self._waitpid_lock = threading.Lock()
        self._child_created = True


def _be_worker(connection: socket.socket, base: Mapping[str, str]) -> NoReturn:
    """Be a worker of the words and the variables that arrive."""
    status = 1
    try:
        data, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        if data:
            text = b""
            while not text.endswith(b"\n"):
                text += connection.recv(1 << 20)
            connection.close()
            status = _worker(json.loads(text), descriptors[0], base)
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def _worker(order: dict[str, Any], log: int, base: Mapping[str, str]) -> int:
    os.setsid()
    for target in (1, 2):
        os.dup2(log, target)
    os.closerange(3, 1 << 16)
    os.environ.clear()
    os.environ.update(order["environ"])
    tempfile.tempdir = None
    sys.argv[:] = order["words"][1:]
    sys.path[:] = [entry for entry in sys.path[1:] if entry]
    server = importlib.import_module("runner.worker.server.server")
    serve, compilers = server._serve, importlib.import_module("runner.contract.settings").VARIABLES

    def serve_alike(address: str, token: str, warm: str, threads: str = "") -> int:
        """Be a server. Where compilers read other variables when they are imported, it is a new process."""
        if any(os.environ.get(name) != base.get(name) for name in compilers):
            os.execv(sys.executable, [*order["words"][:2], "--socket", address, "--token", token, "--warm", warm])
        return serve(address, token, warm, threads)  # type: ignore[no-any-return]

    server._serve = serve_alike
    return server.main(order["words"][2:])  # type: ignore[no-any-return]


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        _serve(orders, IMPORT in sys.argv[2:])
