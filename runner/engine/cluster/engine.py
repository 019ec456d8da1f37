"""The engine on a Ray cluster, or on a Ray of its own on this machine: the same jobs, spread over nodes.

On each node an actor hosts a ``LocalEngine`` (``host.py``). A process of its own speaks to Ray (``cluster.py``) and
deals the jobs out (``spread.py``): Ray starts threads, takes over signals, prints, and ends its process when the
cluster's head is gone, none of which may happen to a run.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import math
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import runner
from runner.engine import process_tree
from runner.engine.cluster.actor import Setup, passed_on
from runner.engine.cluster.driver import FAREWELL, News, Order
from runner.engine.interpreters import tail
from runner.engine.messages import Job, Outcome
from runner.exit_codes import UsageError

CONNECT = 60.0
"""Seconds within which a cluster must answer."""
_PREFIX = "runner-ray-"
_START = "import sys; sys.path.insert(0, sys.argv[2]); from runner.engine.cluster.driver import main; main()"


class RayEngine:
    """Runs jobs on a cluster under the interpreters of ``environments``; used like a ``LocalEngine``."""

    def __init__(
        self,
        environments: Mapping[str, str],
        slots: int | None = None,
        *,
        address: str | None = None,
        gpus: bool = False,
        warm: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        log_folder: str | os.PathLike[str] | None = None,
        kernel_cache: str = "shared",
        expected: Mapping[str, str] | None = None,
        patience: float = 20.0,
    ) -> None:
        """Start a Ray on this machine, without waiting for it, or join a cluster.

        Args:
            environments: a name to the Python executable that has torch. A cluster's node where that is missing, or has
                another torch than ``expected``, uses the Python that Ray runs there, if its torch is the expected one;
                else the node is not used, and a notice says so.
            slots: how many jobs run at once, all nodes together. None: this machine's cores, or all CPUs of the cluster.
            address: the cluster, as ``ray.init`` takes it; None, or ``local``, starts a Ray of our own, which ends with the engine.
            gpus: reserve the GPUs of a cluster's nodes. Without it jobs on ``cuda`` find none there.
            warm: environment to ``none``, ``import`` or ``inductor``: what its CPU server loads.
            environ: environment variables for the workers, over those that they have anyway.
            log_folder: where what jobs print is kept, on this machine only; nowhere if None.
            kernel_cache: ``shared`` with other runs on the same node, or ``private``: new, and gone in the end.
            expected: torch's whole version (2.13.0+cpu) by environment.
            patience: seconds to wait for a new node when all have left the cluster.

        Raises:
            UsageError: Ray is not installed, or the cluster does not answer.
            OSError: no temporary folder can be made.
        """
        if not _installed():
            raise UsageError("Ray is not installed: pip install 'torch-spec-runner[ray]'")
        if address == "local":
            address = None
        elif address is not None:
            _ask_for(address)
        self._environments = dict(environments)
        self._address = address
        self._jobs: dict[int, Job] = {}
        self._done: list[Outcome] = []
        self._notices: list[str] = []
        self._hellos: dict[str, Mapping[str, Any]] = {}
        self._running: dict[str, tuple[float, Mapping[int, tuple[float, str]]]] = {}  # by node; when it said so
        self._tickets = 0
        self._up = False
        self._failure = ""  # why nothing can run any more
        self._cancelled = 0
        self._closed = False
        own = address is None
        self.slots = slots or os.cpu_count() or 1
        """How many jobs run at once; of a cluster known as soon as it is joined, later nodes not counted."""
        self._folder = _folder()
        self._lock = _locked(self._folder / "lock")
        setup = Setup(
            self._environments,
            self.slots,
            warm=dict(warm or {}),
            environ=dict(environ or {}),
            expected=dict(expected or {}),
            log_folder=os.path.abspath(log_folder) if own and log_folder is not None else None,
            kernel_cache=kernel_cache,
            variables=dict(os.environ) if own else None,
            passed={} if own else passed_on(os.environ),
            folder=os.getcwd() if own else None,
            check=not own,
        )
        package = str(Path(runner.__file__).resolve().parent)
        order = Order(setup, address, str(self._folder), package, None if own else slots, gpus, patience)
        self._popen, self._cluster = self._start(package, own)
        self._send(order)
        if not own:
            self._await_cluster()

    def __enter__(self) -> RayEngine:
        """The engine itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    # What the caller does.

    def submit(self, job: Job) -> None:
        """Queue a job.

        Raises:
            KeyError: the job names an environment that the engine does not have.
            RuntimeError: the engine is closed.
        """
        if self._closed:
            raise RuntimeError("the engine is closed")
        if job.environment not in self._environments:
            raise KeyError(job.environment)
        self._tickets += 1
        self._jobs[self._tickets] = job
        self._send(("submit", [(self._tickets, job)]))

    def pending(self) -> int:
        """How many submitted jobs ``wait`` has not returned yet."""
        return len(self._jobs) + len(self._done)

    def running(self) -> list[tuple[Job, float, str]]:
        """The jobs that run now, each with its seconds so far and its phase, as last heard."""
        now = time.monotonic()
        return [
            (self._jobs[ticket], seconds + now - heard, phase)
            for heard, states in self._running.values()
            for ticket, (seconds, phase) in states.items()
            if ticket in self._jobs
        ]

    def hello(self, environment: str) -> Mapping[str, Any]:
        """What the environment's workers said of themselves (torch, devices, ...), on the first node; empty before."""
        return self._hellos.get(environment, {})

    def notices(self) -> list[str]:
        """What a person should know since the last call: nodes that are lost, or not used, and why."""
        notices, self._notices = self._notices, []
        return notices

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """Wait until at least one job ends, ``timeout`` seconds pass (None: no limit), or none is left."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        self._hear(0)
        while self._jobs and not self._done and (left := end - time.monotonic()) > 0:
            self._hear(min(left, 60.0))
        done, self._done = self._done, []
        return done

    def cancel_all(self) -> list[Job]:
        """Kill what runs, drop what waits. Returns the jobs that will now have no outcome."""
        dropped = list(self._jobs.values())
        self._jobs.clear()
        self._running.clear()
        self._tickets += 1
        self._send(("cancel", self._tickets))
        end = time.monotonic() + FAREWELL
        while self._up and not self._failure and self._cancelled < self._tickets and time.monotonic() < end:
            self._hear(0.1)
        return dropped

    def close(self) -> None:
        """End every process that the engine started, and remove its temporary folder. Can be called twice."""
        if self._closed:
            return
        self._closed = True
        self._jobs.clear()
        self._cluster.close()  # which it hears
        if self._up:  # else nothing runs yet, and Ray may take its time to start
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(FAREWELL + 2)
        self._end()

    # The process that speaks to Ray.

    def _start(self, package: str, own: bool) -> tuple[subprocess.Popen[bytes], Connection]:
        """Start it where its own folder holds nothing, or for a Ray of our own nothing but our package.

        Ray puts that folder first in the ``sys.path`` of its workers on this machine; a person's may hold anything.
        """
        library, empty = self._folder / "lib", self._folder / "empty"
        library.mkdir()
        empty.mkdir()
        (library / "runner").symlink_to(package)
        ours, its = Pipe()
        with its, (self._folder / "log").open("ab") as log:
            popen = subprocess.Popen(
                [sys.executable, "-c", _START, str(its.fileno()), str(library)],
                cwd=library if own else empty,
                env=_variables(own),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[its.fileno()],
                start_new_session=True,  # a Ctrl-C at the terminal is control's alone to handle
            )
        return popen, ours

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # that it has gone is noticed when it is next heard
            self._cluster.send(message)

    def _await_cluster(self) -> None:
        end = time.monotonic() + CONNECT
        while not self._up and not self._failure and time.monotonic() < end:
            self._hear(0.5)
        if not self._up:
            reason = self._failure or f"no answer within {CONNECT:.0f} s"
            self.close()
            raise UsageError(f"no Ray cluster at {self._address}: {reason}")

    def _hear(self, timeout: float) -> None:
        """Take in what has arrived, after at most ``timeout`` seconds."""
        try:
            while not self._failure and not self._closed and self._cluster.poll(timeout):
                self._take(self._cluster.recv())
                timeout = 0
        except (EOFError, ConnectionResetError):
            self._fail(f"the process that speaks to Ray has ended\n{tail(self._folder / 'log')}".strip())
        if self._failure:
            self._done += [Outcome(job, "broken", 0.0, detail=f"Ray: {self._failure}") for job in self._jobs.values()]
            self._jobs.clear()

    def _take(self, message: tuple[str, Any]) -> None:
        kind, what = message
        if kind == "up":
            self._up = True
            self.slots = what
        elif kind == "failed":
            self._fail(what)
        elif kind == "cancelled":
            self._cancelled = what
        elif kind == "news":
            self._learn(what)

    def _learn(self, news: News) -> None:
        self._notices += news.notices
        self._hellos = {**news.hellos, **self._hellos}
        if news.node:
            self._running[news.node] = (time.monotonic(), news.running)
        for ticket, outcome in news.outcomes:
            job = self._jobs.pop(ticket, None)
            if job is not None:  # else it was cancelled
                self._done.append(replace(outcome, job=job))

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._end()

    def _end(self) -> None:
        """End what is left of Ray, and remove its files."""
        reaped = self._popen.poll() is not None
        process_tree.kill_tree(self._popen.pid, reaped=reaped)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(5)
        self._cluster.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()


def _installed() -> bool:
    found = importlib.util.find_spec("ray")
    return found is not None and found.origin is not None  # a mere folder of that name has none


def _ask_for(address: str) -> None:
    """Raise UsageError if nobody listens there: Ray itself would try for a minute or more."""
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        where = (place.hostname, place.port)
    except ValueError:
        return  # Ray will say what is wrong with it
    if where[0] and where[1]:  # else it is a word such as "auto"
        try:
            socket.create_connection((where[0], where[1]), timeout=10).close()
        except OSError as error:
            raise UsageError(f"no Ray cluster at {address}: {error.strerror or error}") from None


def _variables(own: bool) -> dict[str, str]:
    """Environment variables of the process that speaks to Ray, and of a Ray of our own."""
    variables = dict(os.environ)
    variables |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    if own:
        variables = {name: value for name, value in variables.items() if not name.startswith("RAY_")}
        variables |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            # Nobody else on this machine may run code as us; and no token is written to the home folder.
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            # Jobs have limits of their own, and shall run as they would without Ray.
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_worker_niceness": "0",
            "RAY_worker_oom_score_adjustment": "0",
        }
    return variables


def _folder() -> Path:
    """A new folder, ours alone, with a short path: Ray puts sockets deep in it, whose paths may have 107 bytes."""
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > 20:
        base = "/tmp"
    for lock in Path(base).glob(f"{_PREFIX}*/lock"):
        with contextlib.suppress(OSError):  # not ours, or its run lives; else one killed by SIGKILL with all its Ray
            if lock.stat().st_uid == os.getuid() and time.time() - lock.stat().st_mtime > 3600:
                _locked(lock).close()
                shutil.rmtree(lock.parent, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))


def _locked(path: Path) -> Any:
    """The open file, locked as long as it is open. Raises OSError if another process has it."""
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file
