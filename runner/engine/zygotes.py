"""Zygotes, seen from control: processes that have imported torch, and fork the servers of one interpreter.

A server that is forked starts in no time. So a run imports torch once for its warm server, its cold one and that of
runs as a user.
"""

from __future__ import annotations

import secrets
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.contract import settings
from runner.engine import gpus, interpreters, process_tree, scratch
from runner.engine.connections import Channel
from runner.engine.kernel_caches import KernelCaches

_LATE = frozenset(
    {
        *settings.VARIABLES,
        settings.AS_USER,
        settings.CACHE_FOLDER,
        settings.TRITON_FOLDER,
        scratch.VARIABLE,
        gpus.VARIABLE,
    }
)
"""Variables that nobody reads while torch is imported: servers in which they differ may have one zygote."""

_PERIOD = 0.005  # seconds between two looks at a process that is to end


@dataclass(slots=True, eq=False)
class ServerProcess:
    """The process of a server, used as a ``subprocess.Popen``: a zygote is its parent and says how it ended."""

    zygote: Zygote
    returncode: int | None = None
    own_pid: int = 0

    @property
    def pid(self) -> int:
        """Its process; before it is forked its zygote, whose end is its own."""
        return self.own_pid or self.zygote.pid

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while it lives."""
        if self.returncode is None:
            self.zygote.read()
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it lives on.
        """
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() >= end:
                raise subprocess.TimeoutExpired(self.zygote.python, timeout)
            time.sleep(_PERIOD)
        return status


@dataclass(slots=True, eq=False)
class Zygote:
    """A zygote of ``python``, from its start. What it says arrives through ``channel``, once it has opened that."""

    python: str
    token: str
    log: Path
    popen: subprocess.Popen[bytes]
    channel: Channel | None = None
    _orders: deque[dict[str, Any]] = field(default_factory=deque)  # until it is up
    _servers: dict[int, ServerProcess] = field(default_factory=dict)  # by their tickets, those that have not ended
    _tickets: int = 0

    @property
    def pid(self) -> int:
        """Its process."""
        return self.popen.pid

    @property
    def is_alive(self) -> bool:
        """Return whether it can still fork."""
        return self.popen.poll() is None and (self.channel is None or not self.channel.closed)

    def fork(self, order: Mapping[str, Any]) -> ServerProcess:
        """Ask for a server."""
        self._tickets += 1
        ticket = self._tickets
        process = self._servers[ticket] = ServerProcess(self)
        self._orders.append({**order, "ticket": ticket})
        self._send()
        return process

    def greet(self, channel: Channel) -> None:
        """Note that it is up."""
        channel.owner, self.channel = self, channel
        self._send()

    def take(self, message: Mapping[str, Any]) -> None:
        """Act on what it says about a server."""
        process = self._servers.get(message.get("ticket", 0))
        if process is None:
            return
        if "forked" in message:
            process.own_pid = message["forked"]
        elif "refused" in message:
            process.returncode = 1
        elif "exit" in message:
            process.returncode = _exit_status(message["status"])
        if process.returncode is not None:
            del self._servers[message["ticket"]]

    def read(self) -> None:
        """Take in what has arrived. Servers end with their zygote, and it ends when it hangs up."""
        if self.channel is not None and not self.channel.closed:
            messages, hung_up = self.channel.receive()
            for message in messages:
                self.take(message)
            if hung_up:
                self.channel.close()
        if self.channel is not None and self.channel.closed and self.popen.poll() is None:
            process_tree.kill_tree(self.popen.pid)
        status = self.popen.poll()
        if status is None:
            return
        for ticket, process in [*self._servers.items()]:
            if not process.own_pid or not _lives(process.own_pid):
                process.returncode = status or 1
                del self._servers[ticket]

    def close(self) -> None:
        """End it, with the servers that it has."""
        if self.channel is not None:
            self.channel.close()
        process_tree.end(self.popen, 2.0 if self.channel is not None else 0.0)

    def _send(self) -> None:
        while self.channel is not None and self._orders:
            self.channel.send(self._orders.popleft())


class Zygotes:
    """The zygotes of an engine that listens at ``address``: one for each interpreter and what its import may depend
    on."""

    def __init__(self, address: str, caches: KernelCaches) -> None:
        """Start none yet."""
        self._address = address
        self._caches = caches
        self._zygotes: dict[tuple[str, frozenset[tuple[str, str]]], Zygote] = {}
        self._earlier: list[Zygote] = []  # that have ended

    def start_server(self, python: str, token: str, warm: str, log: Path, environ: Mapping[str, str]) -> ServerProcess:
        """Start a server that says ``token``, warms up as ``warm`` says, and prints to ``log``.

        Args:
            python: its interpreter.
            environ: variables over those of this process.

        Raises:
            OSError: the interpreter cannot be started.
        """
        folders = {} if settings.CACHE_FOLDER in environ else self._caches.variables(python)
        variables = interpreters.worker_environment({**folders, **environ})
        zygote = self._zygote(python, variables, log)
        return zygote.fork({"token": token, "warm": warm, "log": str(log), "environ": variables})

    def prepare(self, python: str, environ: Mapping[str, str], log: Path) -> None:
        """Start the zygote of servers that are yet to come. Raises OSError as ``start_server`` does.

        Its servers get the folders of compiled code that are checked meanwhile. It must not load anything from there.
        """
        self._caches.prepare(python)
        private = {settings.CACHE_FOLDER: str(self._caches.private)}
        self._zygote(python, interpreters.worker_environment({**private, **environ}), log)

    def _zygote(self, python: str, variables: Mapping[str, str], log: Path) -> Zygote:
        key = python, frozenset(item for item in variables.items() if item[0] not in _LATE)
        zygote = self._zygotes.get(key)
        if zygote is None or not zygote.is_alive:
            if zygote is not None:
                self._earlier.append(zygote)
            token = secrets.token_hex(16)
            popen = interpreters.start_worker(python, self._address, token, log, variables)
            zygote = self._zygotes[key] = Zygote(python, token, log, popen)
        return zygote

    def greet(self, channel: Channel, token: object) -> bool:
        """Bind a new connection to its zygote, which says ``token``. Return whether there is one."""
        zygote = next((each for each in self._zygotes.values() if each.token == token and each.channel is None), None)
        if zygote is not None:
            zygote.greet(channel)
        return zygote is not None

    def close(self) -> None:
        """End them all."""
        for zygote in (*self._zygotes.values(), *self._earlier):
            zygote.close()


def _exit_status(status: int) -> int:
    """Return a wait status as ``subprocess`` does."""
    return -(status & 0x7F) if status & 0x7F else status >> 8


def _lives(pid: int) -> bool:
    process = process_tree.stat(pid)
    return process is not None and not process.zombie
