"""Zygotes of one interpreter, and the servers that they fork, as processes that control starts, hears of and ends."""

from __future__ import annotations

import abc
import contextlib
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from runner.engine import process_tree
from runner.engine.messages import Channel

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


def end_process(process: subprocess.Popen[bytes] | ServerProcess, grace: float) -> None:
    """Wait ``grace`` seconds for a process to end by itself, then kill it with all that it started."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    if process.poll() is None:  # not reaped yet, so the number is still its own
        process_tree.kill_tree(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


@dataclass(slots=True, eq=False)
class Zygote(abc.ABC):
    """A zygote of ``python``, from its start. What it says arrives through ``channel``, once it has opened that."""

    python: str
    token: str
    log: Path
    channel: Channel | None = None
    _orders: deque[dict[str, Any]] = field(default_factory=deque)  # until it is up
    _servers: dict[int, ServerProcess] = field(default_factory=dict)  # by their tickets, those that have not ended
    _tickets: int = 0

    outlives_run: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def pid(self) -> int:
        """Its process, which ends with a server that it has not forked yet; 0 if that must not be."""

    @property
    @abc.abstractmethod
    def is_alive(self) -> bool:
        """Return whether it can still fork."""

    @abc.abstractmethod
    def read(self) -> None:
        """Take in what has arrived, and what its end means for its servers."""

    @abc.abstractmethod
    def close(self) -> None:
        """End the servers of this run."""

    def fork(self, order: Mapping[str, Any]) -> ServerProcess:
        """Ask for a server."""
        self._tickets += 1
        process = self._servers[self._tickets] = ServerProcess(self)
        self._orders.append({**order, "ticket": self._tickets})
        self.send_orders()
        return process

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
            status = message["status"]  # of ``wait``; ``subprocess`` has a signal as a negative number
            process.returncode = -(status & 0x7F) or status >> 8
        if process.returncode is not None:
            del self._servers[message["ticket"]]

    def send_orders(self) -> None:
        """Send what waited until it was up."""
        while self.channel is not None and self._orders:
            self.channel.send(self._orders.popleft())

    def receive(self) -> bool:
        """Take in what has arrived, and return whether it has hung up."""
        messages, hung_up = self.channel.receive() if self.channel is not None else ([], False)
        for message in messages:
            self.take(message)
        return hung_up

    def forget_ended(self, status: int) -> None:
        """Note the end of servers that are gone, now that nobody says how they ended."""
        for ticket, process in [*self._servers.items()]:
            own = process_tree.stat(process.own_pid) if process.own_pid else None
            if own is None or own.zombie:
                process.returncode = status
                del self._servers[ticket]


@dataclass(slots=True, eq=False)
class OwnZygote(Zygote):
    """A zygote that ends with its run."""

    popen: subprocess.Popen[bytes] = field(kw_only=True)

    @property
    def pid(self) -> int:
        """Its process."""
        return self.popen.pid

    @property
    def is_alive(self) -> bool:
        """Return whether it can still fork."""
        return self.popen.poll() is None and (self.channel is None or not self.channel.closed)

    def read(self) -> None:
        """Take in what has arrived. Servers end with their zygote, and it ends when it hangs up."""
        if self.receive() and self.channel is not None:
            self.channel.close()
            if self.popen.poll() is None:
                process_tree.kill_tree(self.popen.pid)
        status = self.popen.poll()
        if status is not None:
            self.forget_ended(status or 1)

    def close(self) -> None:
        """End it, with the servers that it has."""
        if self.channel is not None:
            self.channel.close()
        end_process(self.popen, 2.0 if self.channel is not None else 0.0)
