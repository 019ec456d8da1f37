"""The engine on this machine: slots, one forked process a job, time and memory limits, and what each death means.

Single-threaded: everything happens inside ``wait``. Each environment has at most two worker servers (see
``runner/worker/server.py``), one for the CPU and one for jobs on accelerators, which must not compile before it forks.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from runner.engine import process
from runner.engine.messages import Job, Outcome

GRACE = 0.5
"""Seconds between the request for a stack and the kill, at a timeout."""
LINGER = 2.0
"""Seconds that a process may live on after its outcome."""
STARTUP = 900.0
"""Seconds that a server may take to import and warm up before it counts as hung; the first compile is slow."""
UNREAPED = 10.0
"""Seconds after its kill in which a process must vanish; one stuck in a driver may never."""
RESTARTS = 5
"""How often a server is started again within a run."""
MAX_LOG = 64 << 20
"""Bytes of output at which a job's log is cut."""
_GIB = 1 << 30


@dataclass(slots=True)
class _Task:
    """A submitted job. ``deaths`` counts the servers that died while it ran."""

    job: Job
    ticket: int
    deaths: int = 0


@dataclass(slots=True)
class _Child:
    """The process of a job. Times are monotonic seconds; ``baseline`` is the server's resident set in bytes."""

    task: _Task
    limit: int
    log: Path
    stack: Path
    sent: float
    began: float | None = None
    pid: int = 0
    channel: process.Channel | None = None
    phase: str = "load"
    baseline: int | None = None
    outcome: Mapping[str, Any] | None = None
    broken: str | None = None
    spoke: float = math.inf  # when its last word came
    cause: str = ""  # "timeout" or "memory", once control has decided to end it
    detail: str = ""
    kill_at: float = math.inf
    killed: float = math.inf


@dataclass(slots=True)
class _Server:
    """A worker server, or the wish for one. ``failure`` says why it will never start (again)."""

    python: str
    warm: str
    log: Path
    token: str = ""  # a new one for each process
    popen: subprocess.Popen[bytes] | None = None
    channel: process.Channel | None = None
    hello: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    starts: int = 0
    failure: str = ""
    queue: deque[_Task] = field(default_factory=deque)
    children: dict[int, _Child] = field(default_factory=dict)


class LocalEngine:
    """Runs jobs on this machine, at most ``slots`` at a time, under the interpreters of ``environments``.

    Args:
        environments: a name to the Python executable that has torch.
        slots: how many jobs run at once.
        warm: environment to ``none``, ``import`` or ``inductor`` (for jobs that use it): what its CPU server loads.
        environ: environment variables for the workers, over control's own.
        log_folder: where what jobs print is kept (one file a job, empty ones removed); nowhere if None.
    """

    def __init__(
        self,
        environments: Mapping[str, str],
        slots: int = 1,
        *,
        warm: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        log_folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._environments = dict(environments)
        self._slots = max(1, slots)
        self._warm = dict(warm or {})
        self._environ = dict(environ or {})
        # Never less than a compile needs: with many slots, or where memory grows on demand, the share would be tiny.
        self._default_memory = max(process.memory_total() * 8 // 10 // self._slots, 2 * _GIB)
        self._folder = process.socket_folder()
        self._logs = self._folder
        if log_folder is not None:
            with contextlib.suppress(OSError):  # a log is not worth a run
                Path(log_folder).mkdir(parents=True, exist_ok=True)
            self._logs = Path(log_folder).absolute()
        self._keep_logs = log_folder is not None
        self._servers: dict[tuple[str, bool], _Server] = {}
        self._strangers: list[process.Channel] = []
        self._done: list[Outcome] = []
        self._tickets = 0
        self._next_look = 0.0
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(str(self._folder / process.SOCKET))
        self._listener.listen(1024)
        self._selector.register(self._listener, selectors.EVENT_READ)

    probe = staticmethod(process.probe)

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What the caller does.

    def submit(self, job: Job) -> None:
        """Queue a job; its server begins to start at once.

        Raises:
            KeyError: the job names an environment that the engine does not have.
            RuntimeError: the engine is closed.
        """
        if self._closed:
            raise RuntimeError("the engine is closed")
        self._tickets += 1
        server = self._server(job)
        server.queue.append(_Task(job, self._tickets))
        if server.popen is None and not server.failure:
            self._start_server(server)

    def pending(self) -> int:
        """How many submitted jobs ``wait`` has not returned yet."""
        waiting = sum(len(server.queue) + len(server.children) for server in self._servers.values())
        return waiting + len(self._done)

    def running(self) -> list[tuple[Job, float, str]]:
        """The jobs that run now, each with its seconds so far and its phase."""
        now = time.monotonic()
        return [
            (child.task.job, now - child.began, child.phase)
            for child in self._children()
            if child.began is not None and child.outcome is None
        ]

    def hello(self, environment: str) -> Mapping[str, Any]:
        """What the environment's server said of itself (torch, python, devices, gpus, ...); empty before it is up."""
        found = [server.hello for (name, _), server in self._servers.items() if name == environment and server.hello]
        return found[0] if found else {}

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """Run jobs until at least one ends, ``timeout`` seconds pass (None: no limit), or none is left.

        Limits are enforced inside this call only, so call it again soon.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            self._start_jobs()
            self._look()
            if self._done or not self.pending() or time.monotonic() >= end:
                break
            self._poll(max(0.0, min(end, self._next_look) - time.monotonic()))
        self._start_jobs()  # the slots stay busy while the caller digests
        done, self._done = self._done, []
        return done

    def cancel_all(self) -> list[Job]:
        """Kill what runs, drop what waits. Returns the jobs that will now have no outcome."""
        dropped = []
        for server in self._servers.values():
            for child in server.children.values():
                process.end_family(child.pid)
                self._forget(child)
                dropped.append(child.task.job)
            dropped += [task.job for task in server.queue]
            server.children.clear()
            server.queue.clear()
        return dropped

    def close(self) -> None:
        """End every process that the engine started, and remove its temporary folder. Can be called twice."""
        if self._closed:
            return
        self._closed = True
        self.cancel_all()
        for server in self._servers.values():
            if server.channel is not None:
                self._drop(server.channel)  # a server that is up ends its children, then itself
        for server in self._servers.values():
            self._end_server(server, 2.0 if server.hello else 0.0)
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Servers.

    def _server(self, job: Job) -> _Server:
        key = (job.environment, job.device != "cpu")
        if key not in self._servers:
            python = self._environments[job.environment]
            warm = self._warm.get(job.environment, "import")
            if key[1] and warm == "inductor":
                warm = "import"  # compiling, even for the CPU, would spoil CUDA for forked children
            log = self._folder / f"server-{len(self._servers)}.log"
            self._servers[key] = _Server(python, warm, log)
        return self._servers[key]

    def _start_server(self, server: _Server) -> None:
        server.starts += 1
        server.started = time.monotonic()
        server.hello = {}
        server.token = secrets.token_hex(16)
        address = str(self._folder / process.SOCKET)
        try:
            server.popen = process.start_worker(
                server.python, address, server.token, server.warm, server.log, self._environ
            )
        except OSError as error:
            server.failure = f"{server.python} cannot be started: {error.strerror or error}"

    def _end_server(self, server: _Server, grace: float) -> None:
        """Wait ``grace`` seconds for a server to end by itself, then kill it with all that it started."""
        if server.popen is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.popen.wait(grace)
        if server.popen.poll() is None:  # not reaped yet, so the number is still its own
            process.end_family(server.popen.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.popen.wait(5)

    def _server_died(self, server: _Server) -> None:
        """Judge or queue again what ran under a dead server, and start another one, if that may help."""
        self._end_server(server, 0.5)
        status = server.popen.returncode if server.popen else None
        how = process.signal_name(-status) if status is not None and status < 0 else f"exit status {status}"
        was_up, server.popen, server.channel = bool(server.hello), None, None
        for child in reversed(list(server.children.values())):
            if child.channel is not None:
                self._read(child.channel)
            process.end_family(child.pid)
            child.task.deaths += 1
            if child.outcome is not None or child.broken is not None or child.cause:
                self._finish(server, child, None)
            elif child.task.deaths > 1:
                child.detail = f"the worker server died twice while this job ran (the last time: {how})"
                self._finish(server, child, None)
            else:
                self._forget(child)
                server.queue.appendleft(child.task)
        server.children.clear()
        if not server.failure and server.starts > (RESTARTS if was_up else 1):
            times = "" if was_up else " before it was up"
            server.failure = f"the worker server of {server.python} died {server.starts} times{times} (last: {how})"
        if not server.failure and server.queue:
            self._start_server(server)

    # Jobs.

    def _children(self) -> list[_Child]:
        return [child for server in self._servers.values() for child in server.children.values()]

    def _start_jobs(self) -> None:
        for server in self._servers.values():
            while server.failure and server.queue:
                detail = "\n".join(filter(None, (server.failure, process.tail(server.log).strip())))
                self._done.append(Outcome(server.queue.popleft().job, "broken", 0.0, detail=detail))
        while len(self._children()) < self._slots:
            ready = [server for server in self._servers.values() if server.queue and _can_start(server)]
            if not ready:
                return
            server = min(ready, key=lambda one: one.queue[0].ticket)
            self._start_job(server, server.queue.popleft())

    def _start_job(self, server: _Server, task: _Task) -> None:
        job = task.job
        name = f"{task.ticket:05d}-" + re.sub(r"[^\w.-]+", "_", job.name)[:80]
        limit = job.memory or self._default_memory
        log = self._logs / f"{name}.log"
        child = _Child(task, limit, log, self._folder / f"{name}.stack", time.monotonic())
        with contextlib.suppress(OSError):
            log.unlink(missing_ok=True)
        server.children[task.ticket] = child
        message = {
            "ticket": task.ticket,
            "job": {one.name: getattr(job, one.name) for one in fields(job)},
            "log": str(log),
            "stack": str(child.stack),
            "limit": limit,
        }
        assert server.channel is not None
        server.channel.send(message)  # a server that is gone is noticed when its connection is next read

    def _look(self) -> None:
        """Enforce the limits, at most every 0.1 s (less often where the process table is so long that it costs)."""
        now = time.monotonic()
        if now < self._next_look:
            return
        for server in list(self._servers.values()):
            if server.popen is not None and not server.hello:
                if now - server.started > STARTUP:
                    server.failure = f"the worker server of {server.python} was not up after {STARTUP:.0f} s"
                    process.end_family(server.popen.pid)
                if server.popen.poll() is not None:
                    self._server_died(server)
        if any(server.children for server in self._servers.values()):
            table = process.processes()
            for server in list(self._servers.values()):
                for child in list(server.children.values()):
                    self._check(server, child, table, now)
        self._next_look = now + max(0.1, 20 * (time.monotonic() - now))

    def _check(self, server: _Server, child: _Child, table: Mapping[int, process.Process], now: float) -> None:
        if now - child.killed > UNREAPED:
            child.detail += "; its process did not go away when killed"
            self._finish(server, child, None)
        elif now >= child.kill_at or now - child.spoke > LINGER:
            child.kill_at = child.spoke = math.inf
            child.killed = min(child.killed, now)
            process.end_family(child.pid)
        elif child.began is None:
            if now - child.sent > UNREAPED + child.task.job.timeout and server.popen is not None:
                process.end_family(server.popen.pid)  # the server hangs or was stopped; its death is handled elsewhere
        elif not child.cause and child.outcome is None and child.broken is None:
            self._check_limits(server, child, table, now, child.began)

    def _check_limits(
        self, server: _Server, child: _Child, table: Mapping[int, process.Process], now: float, began: float
    ) -> None:
        job = child.task.job
        if now - began > job.timeout:
            child.cause, child.detail = "timeout", f"still running after {job.timeout:g} s"
            child.kill_at = now + GRACE
            with contextlib.suppress(OSError):
                os.kill(child.pid, signal.SIGUSR1)  # faulthandler writes all stacks
            return
        if child.baseline is None and server.popen is not None and server.popen.pid in table:
            child.baseline = table[server.popen.pid].resident
        held = process.resident(process.family(child.pid, table)) - (child.baseline or 0)
        if held > child.limit:
            child.cause = "memory"
            child.detail = f"resident set {held / _GIB:.1f} GiB passed the limit of {child.limit / _GIB:.1f} GiB"
            child.kill_at = math.inf
            child.killed = now
            process.end_family(child.pid)
        with contextlib.suppress(OSError):
            if child.log.stat().st_size > MAX_LOG:
                os.truncate(child.log, 0)

    def _finish(self, server: _Server, child: _Child, status: int | None) -> None:
        """Make the outcome of a job whose process has ended; ``status`` is its wait status, None if unknown."""
        process.end_family(child.pid, reaped=status is not None)  # and what outlived it
        server.children.pop(child.task.ticket, None)
        killed_by = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        exit_status = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None
        ended, detail = child.cause, child.detail
        if ended:
            pass
        elif child.outcome is not None:
            ended = "result"
        elif child.broken is not None:
            ended, detail = "broken", child.broken
        elif killed_by is not None and not detail:
            ended = "signal"
            if killed_by == signal.SIGKILL:
                detail = "killed from outside; when memory runs out the kernel does so"
        else:
            ended = "no-result"
            detail = detail or f"the process ended with exit status {exit_status} and without a result"
        now = time.monotonic()
        outcome = Outcome(
            child.task.job,
            ended,
            now - (child.began or now),
            child.phase,
            result=(child.outcome or {}) if ended == "result" else {},
            signal=process.signal_name(killed_by) if killed_by is not None and not child.cause else None,
            exit_status=exit_status,
            stack=process.tail(child.stack, 1 << 16),
            output=process.tail(child.log),
            detail=detail,
        )
        self._forget(child)
        self._done.append(outcome)

    def _forget(self, child: _Child) -> None:
        """Close a child's connection and remove its files that nobody will read."""
        if child.channel is not None:
            self._drop(child.channel)
        with contextlib.suppress(OSError):
            child.stack.unlink(missing_ok=True)
            if not self._keep_logs or child.log.stat().st_size == 0:
                child.log.unlink()

    # Messages.

    def _poll(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for messages, and act on them."""
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._accept()
            elif key.data.socket.fileno() >= 0:  # not closed meanwhile, by a message before it
                self._read(key.data)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                channel = process.Channel(connection)
                self._strangers.append(channel)
                self._selector.register(connection, selectors.EVENT_READ, channel)

    def _read(self, channel: process.Channel) -> None:
        messages, closed = channel.receive()
        for message in messages:
            if channel.owner is None:
                self._introduce(channel, message)
            elif isinstance(channel.owner, _Server):
                self._from_server(channel.owner, message)
            else:
                self._from_child(channel.owner, message)
        if closed:
            self._drop(channel)
            if isinstance(channel.owner, _Server) and channel.owner.channel is channel:
                self._server_died(channel.owner)

    def _drop(self, channel: process.Channel) -> None:
        if channel in self._strangers:
            self._strangers.remove(channel)
        if channel.socket.fileno() >= 0:
            self._selector.unregister(channel.socket)
            channel.socket.close()

    def _introduce(self, channel: process.Channel, message: Mapping[str, Any]) -> None:
        """The first message of a connection says whose it is; the token shows that it is one of ours."""
        server = next((one for one in self._servers.values() if one.token == message.get("token")), None)
        if channel in self._strangers:
            self._strangers.remove(channel)
        if server is None:
            self._drop(channel)
        elif "hello" in message:
            channel.owner, server.channel = server, channel
            if "error" in message["hello"]:
                server.failure = message["hello"]["error"]
            else:
                server.hello = message["hello"]
        elif (child := server.children.get(message.get("ticket", 0))) is not None:
            channel.owner, child.channel = child, channel
            child.pid = message["pid"]
            child.began = time.monotonic()
        else:
            self._drop(channel)  # cancelled meanwhile

    def _from_server(self, server: _Server, message: Mapping[str, Any]) -> None:
        child = server.children.get(message.get("ticket", 0))
        if child is None:
            if "forked" in message:
                process.end_family(message["forked"])  # cancelled before it began
        elif "forked" in message:
            child.pid = message["forked"]
        elif "refused" in message:
            child.broken = f"no process could be forked: {message['refused']}"
            self._finish(server, child, None)
        elif "exit" in message:
            # Its last words may still wait on its own connection, even on one not accepted yet.
            self._accept()
            for channel in list(self._strangers):
                self._read(channel)
            if child.channel is not None:
                self._read(child.channel)
            self._finish(server, child, message["status"])

    def _from_child(self, child: _Child, message: Mapping[str, Any]) -> None:
        if "phase" in message:
            child.phase = str(message["phase"])
        elif child.outcome is None and child.broken is None:
            if isinstance(message.get("outcome"), dict):
                child.outcome, child.spoke = message["outcome"], time.monotonic()
            elif "broken" in message:
                child.broken, child.spoke = str(message["broken"]), time.monotonic()


def _can_start(server: _Server) -> bool:
    """Whether the server may take its next job now. A job whose server died under it runs alone the second time."""
    if server.failure or server.channel is None or not server.hello:
        return False
    suspect = server.queue[0].deaths > 0 or any(child.task.deaths for child in server.children.values())
    return not (suspect and server.children)
