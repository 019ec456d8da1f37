"""Commands that only read, each in a fork of one process that has imported the command: an import takes longer than most of them.

Run as a program it is that process: a line of JSON for each command, and a line with the exit code for each answer.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

READING = ("diff", "history", "known", "list", "merge", "report", "repro", "schema", "score", "show", "validate")
"""Commands that start no process."""


class Forks:
    """The process that forks; it starts with the first command, and again when a command took too long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def run(
        self, words: Sequence[str], cwd: Path, environ: Mapping[str, str], limit: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``runner WORDS``; as ``subprocess.run`` does it, TimeoutExpired included."""
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
            words = [sys.executable, __file__, str(server_end.fileno())]
            self._server = subprocess.Popen(words, pass_fds=[server_end.fileno()], stdin=subprocess.DEVNULL)
        return own_end


def _serve(connection: socket.socket) -> None:
    """Fork for each order until the other end is closed."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    commands = importlib.import_module("runner.cli.main")
    main = commands.main
    for name in READING:
        commands.entrance(name)
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
            _be_command(main, json.loads(text), descriptors)
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


def _be_command(main: Any, order: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Be the command in this process."""
    for target, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["cwd"])
    sys.path[0] = os.getcwd()  # as python -m has it
    sys.argv[1:] = order["words"]
    code = 70
    try:
        code = main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        _serve(orders)
