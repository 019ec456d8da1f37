"""A zygote that stays warm between runs: it warms up once, then forks the servers of one run after another.

It never runs a job. A server is a fork of it, with the variables, the folder and the log of its run. A job is a fork of
that server, as in any run. So a job finds the same process whether its run was the first or the tenth.

Runs connect to a socket in a folder of this user alone, and the kernel says whose process is at the other end. The
messages are those of a zygote (``server.py``); an order also has the ``address`` and the ``folder`` of its run.
``{"end": true}`` ends it. It ends by itself after some time without a run, when compiled code that it may remember has
changed, and at SIGTERM. The servers of a run that hangs up end too.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from runner.contract.peers import peer_of
from runner.contract.settings import CACHE_FOLDER, PASSED
from runner.worker.processes import children_of, encode

_LONGEST = 4 << 20
"""Bytes of an order, which holds the variables of a run."""
_MOST = 32
"""Runs at once."""
_GRACE = 3.0
"""Seconds in which the servers of a run that hung up end by themselves."""
_PATIENCE = 5.0
"""Seconds that a run may take to read an answer."""
_CHANGING = frozenset({"fxgraph", "aotautograd", PASSED})
"""Folders of graphs, which runs remove when they are old. No process remembers a graph."""

Stamps = dict[str, tuple[int, ...]]


def listen(path: str) -> socket.socket:
    """Return a socket that listens at ``path``, in place of one that nobody serves any more. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    beside = f"{path}.{os.getpid()}"
    listener.bind(beside)
    os.chmod(beside, 0o600)
    listener.listen(_MOST)
    listener.setblocking(False)
    os.rename(beside, path)  # nobody connects before it can answer
    return listener


def compiled_code(folder: str | None = None) -> Stamps:
    """Return the stamps of the files in the folder of compiled code, which a warm process may remember."""
    stamps: Stamps = {}
    for place, folders, names in os.walk(folder if folder is not None else os.environ.get(CACHE_FOLDER, "")):
        folders[:] = [name for name in folders if name not in _CHANGING]
        for path in (os.path.join(place, name) for name in names if not name.endswith((".tmp", ".lock"))):
            with contextlib.suppress(OSError):
                stamps[path] = _stamp(path)
    return stamps


def _stamp(path: str) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns


def has_changed(stamps: Stamps) -> bool:
    """Return whether a file is gone or is another one."""
    try:
        return any(_stamp(path) != stamp for path, stamp in stamps.items())
    except OSError:
        return True


@dataclass(slots=True, eq=False)
class _Run:
    """A run at the other end of a connection, and its servers by their processes, each with its ticket."""

    connection: socket.socket
    buffer: bytes = b""
    servers: dict[int, int] = field(default_factory=dict)
    ended: float | None = None  # when it hung up

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. One that cannot be sent is lost: the run is gone, or reads nothing."""
        with contextlib.suppress(OSError):
            self.connection.settimeout(_PATIENCE)
            self.connection.sendall(encode(message))
            self.connection.setblocking(False)


@dataclass(slots=True)
class Keeper:
    """Serves runs. ``fork`` is what a new server does with its order, in the fork.

    ``rest`` are the seconds without a run after which it ends, ``stamps`` those of the code that it may remember.
    """

    path: str
    listener: socket.socket
    fork: Callable[[dict[str, Any], int], NoReturn]
    rest: float
    stamps: Stamps
    _runs: list[_Run] = field(default_factory=list)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _is_ending: bool = False
    _is_stale: bool = False
    _inode: int = 0
    _wake: tuple[socket.socket, ...] = ()

    def serve(self, first: socket.socket) -> None:
        """Serve the run at ``first``, and those that connect, until it is time to end. The servers end with it."""
        self._inode = os.lstat(self.path).st_ino
        self._wake = wake_read, wake_write = socket.socketpair()
        for end in self._wake:
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        self._selector.register(wake_read, selectors.EVENT_READ, functools.partial(_drain, wake_read))
        self._selector.register(self.listener, selectors.EVENT_READ, self._accept)
        self._add(first)
        rested = time.monotonic()
        try:
            while not self._is_ending and time.monotonic() - rested < (0 if self._is_stale else self.rest):
                for key, _ in self._selector.select(min(1.0, self.rest)):
                    key.data()
                self._reap()
                self._end_orphans()
                if self._runs:
                    rested = time.monotonic()
        finally:
            self._retire()
            for run in self._runs:
                run.connection.close()

    def _retire(self) -> None:
        """Let no other run connect."""
        if self.listener.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            if os.lstat(self.path).st_ino == self._inode:  # not of one that has taken its place
                os.unlink(self.path)
        self._selector.unregister(self.listener)
        self.listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self.listener.accept()
            if peer_of(connection).user != os.getuid() or len(self._runs) >= _MOST:
                connection.close()
            else:
                self._add(connection)

    def _add(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        run = _Run(connection)
        self._runs.append(run)
        self._selector.register(connection, selectors.EVENT_READ, functools.partial(self._read, run))

    def _read(self, run: _Run) -> None:
        try:
            data = run.connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, run.buffer = (run.buffer + data).split(b"\n")
        try:
            for line in lines:
                self._take(run, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):  # not a run of ours
            data = b""
        if not data or len(run.buffer) > _LONGEST:
            self._hang_up(run)

    def _hang_up(self, run: _Run) -> None:
        if run.ended is None:
            run.ended = time.monotonic()
            self._selector.unregister(run.connection)
            run.connection.close()

    def _take(self, run: _Run, order: dict[str, Any]) -> None:
        if order.get("end"):
            self._is_ending = True
            return
        ticket = int(order["ticket"])
        if self._is_stale or has_changed(self.stamps):
            self._is_stale = True  # the run starts a server of its own; others keep theirs to their end
            self._retire()
            run.send({"refused": "compiled code has changed", "ticket": ticket})
            return
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            run.send({"refused": str(error), "ticket": ticket})
            return
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                for inherited in (self.listener, *self._wake, *(run.connection for run in self._runs)):
                    inherited.close()
                self.fork(order, parent)
            finally:
                os._exit(70)
        run.servers[pid] = ticket
        run.send({"forked": pid, "ticket": ticket})

    def _reap(self) -> None:
        """Report servers that have ended. What a job has left behind has become ours, and is killed."""
        ended = [*_ended_children()]
        for pid, status in ended:
            for run in self._runs:
                ticket = run.servers.pop(pid, None)
                if ticket is not None and run.ended is None:
                    run.send({"exit": pid, "status": status, "ticket": ticket})
        servers = {pid for run in self._runs for pid in run.servers}
        for pid in {*children_of(os.getpid())} - servers if ended else ():
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)

    def _end_orphans(self) -> None:
        """Kill the servers of runs that hung up, if they do not end by themselves; forget runs without servers."""
        for run in self._runs:
            if run.ended is not None and time.monotonic() - run.ended > _GRACE:
                for pid in run.servers:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGTERM)  # it takes its jobs along
        self._runs = [run for run in self._runs if run.ended is None or run.servers]


def _drain(end: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while end.recv(4096):
            pass


def _ended_children() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def become_server(order: dict[str, Any], threads: str, name: str) -> None:
    """Take over the variables and the folder of a run, in a fork. ``name`` is the variable that holds ``threads``.

    Raises:
        OSError: the folder is gone.
    """
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environ"])
    os.environ[name] = threads
    tempfile.tempdir = None  # that of the first run is gone
