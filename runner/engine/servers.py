"""Worker servers and their zygotes, seen from control: their start, the jobs that wait, their workers, their death.

A zygote has imported torch, and forks the servers of one interpreter. A server that is forked starts in no time. So a
run imports torch once for its warm server, its cold one and that of runs as a user.

What ends a job is returned as an ``Outcome`` by whatever method noticed it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import interrupts
from runner.contract import settings
from runner.contract.finding import signal_name
from runner.contract.job import Job
from runner.engine import gpus, interpreters, process_tree, scratch
from runner.engine.caches import KernelCaches
from runner.engine.kept import Keep
from runner.engine.messages import Channel, Connections, Outcome
from runner.engine.workers import UNREAPED, Kind, RunningJob, Task, Worker
from runner.engine.zygotes import OwnZygote, ServerProcess, Zygote, end_process

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


class Home(contextlib.AbstractContextManager["Home"]):
    """A temporary folder, a socket in it, and the zygotes that connect there.

    There is a zygote for each interpreter and what its import may depend on.

    Attributes:
        folder: goes with ``close``.
        environ: variables of every worker.
        connections: those to the socket.
        caches: the folders of compiled code.
        keep: which zygotes outlive this run; none at first.
    """

    def __init__(self) -> None:
        """Make the folder and the socket. Raises UsageError if no temporary folder can be made."""
        self.environ: dict[str, str] = {}
        self.keep = Keep({})
        self._watched: dict[Path, tuple[int, int]] = {}  # descriptor, so that no other file gets its inode, and mode
        self._open()

    def _open(self) -> None:
        self.folder = scratch.make()
        self._work = self.folder / "work"  # for what jobs write
        self._work.mkdir()
        # Compilers that are killed leave files in the temporary folder.
        self.environ |= {scratch.VARIABLE: str(self._work), "TMPDIR": str(self._work)}
        self.connections = Connections(self.folder)
        self.caches = KernelCaches(self.folder / "kernels")
        self._zygotes: dict[tuple[str, frozenset[tuple[str, str]]], Zygote] = {}
        self._earlier: list[Zygote] = []  # that have ended
        self._is_closed = False
        for path in (self.folder, self._work, Path(self.connections.address)):
            self._watch(path)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def prepare(self, pythons: Iterable[str]) -> None:
        """Let interpreters import torch, each in the zygote of servers that are yet to come.

        Its servers get the folders of compiled code that are checked meanwhile. It must not load anything from there.
        What is wrong with an interpreter shows when a job needs it.
        """
        variables = interpreters.worker_environment({settings.CACHE_FOLDER: str(self.caches.private), **self.environ})
        for number, python in enumerate(pythons):
            with contextlib.suppress(OSError):
                path = interpreters.find_python(python) or python
                self.caches.prepare(path)
                self._zygote(path, variables, self.folder / f"zygote-{number}.log")

    def start_server(self, python: str, token: str, warm: str, log: Path, environ: Mapping[str, str]) -> ServerProcess:
        """Start a server that says ``token``, warms up as ``warm`` says, and prints to ``log``.

        Args:
            python: its interpreter.
            environ: variables over those of this process.

        Raises:
            OSError: the interpreter cannot be started.
        """
        folders = {} if settings.CACHE_FOLDER in environ else self.caches.prepare(python).result()
        variables = interpreters.worker_environment({**folders, **environ})
        order = {"token": token, "warm": warm, "log": str(log), "environ": variables}
        # What has opened an accelerator cannot be forked; and a folder of this run alone goes with it.
        is_lasting = not variables.get(gpus.VARIABLE, "-") and settings.CACHE_FOLDER not in environ
        zygote = self._kept(python, warm, variables, log) if is_lasting else None
        return (zygote or self._zygote(python, variables, log)).fork(order)

    def _kept(self, python: str, warm: str, variables: Mapping[str, str], log: Path) -> Zygote | None:
        if variables[settings.CACHE_FOLDER].startswith(str(self.folder)):
            return None
        kept = self.keep.zygote(python, warm, variables, log, secrets.token_hex(16), self.connections)
        if kept is not None:
            self._zygotes[kept[0], frozenset()] = kept[1]
        return kept[1] if kept is not None else None

    def _zygote(self, python: str, variables: Mapping[str, str], log: Path) -> Zygote:
        key = python, frozenset(item for item in variables.items() if item[0] not in _LATE)
        zygote = self._zygotes.get(key)
        if zygote is None or not zygote.is_alive:
            if zygote is not None:
                self._earlier.append(zygote)
            token = secrets.token_hex(16)
            popen = interpreters.start_worker(python, self.connections.address, token, log, variables)
            zygote = self._zygotes[key] = OwnZygote(python, token, log, popen=popen)
        return zygote

    def greet(self, channel: Channel, token: object) -> bool:
        """Bind a new connection to its zygote, which says ``token``. Return whether there is one."""
        zygote = next(
            (zygote for zygote in self._zygotes.values() if zygote.token == token and zygote.channel is None), None
        )
        if zygote is not None:
            channel.owner, zygote.channel = zygote, channel
            zygote.send_orders()
        return zygote is not None

    def work_folder(self, slot: int) -> Path:
        """Return the folder for what the jobs of a slot write. It is made for the first one."""
        path = self._work / str(slot)
        if path not in self._watched:
            with contextlib.suppress(OSError):  # then ``damage`` is not empty
                path.mkdir()
                self._watch(path)
        return path

    def _watch(self, path: Path) -> None:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
        self._watched[path] = descriptor, os.fstat(descriptor).st_mode

    def damage(self) -> str:
        """Return what somebody has removed or changed, so that processes cannot write or connect; empty if nothing."""
        for path, (descriptor, mode) in self._watched.items():
            try:
                status = os.lstat(path)
            except OSError:
                return f"{path} is gone"
            if not os.path.samestat(status, os.fstat(descriptor)) or status.st_mode != mode:
                return f"{path} is not what it was"
        return ""

    def renew(self) -> None:
        """Begin anew, with another folder. Raises UsageError if none can be made."""
        self.close()
        self._open()

    def close(self) -> None:
        """End the zygotes, and remove the folder. Can be called twice."""
        with interrupts.held():
            if self._is_closed:
                return
            self._is_closed = True
            for zygote in (*self._zygotes.values(), *self._earlier):
                zygote.close()
            self.connections.close()
            while self._watched:
                os.close(self._watched.popitem()[1][0])
            self.caches.close()
            scratch.remove(self.folder)


STARTUP = 900.0
"""Seconds that a server may take to import and warm up before it counts as hung; the first compile is slow."""
RESTARTS = 5
"""How often a server is started again in a row, while no job ends. A job that is blamed for a death has ended."""
EARLY = {"SIGKILL": 3}
"""How often a server that was never up is started again, by the signal that ended it; once for any other.

SIGKILL comes from a person, or from a kernel short of memory, and proves nothing about the Python.
"""

_COMPILING = frozenset({"aot", "backward", "inductor"})
"""The levels of ``warm_up.LEVELS`` that compile.

What they compile may crash, and a server whose warm-up did so is followed by one that only imports.
"""


@dataclass(slots=True, eq=False)
class Server:
    """A worker server that a zygote of ``home`` forks, or one that is yet to start.

    ``failure`` says why it will never start (again), ``warm_death`` what ended the one whose warm-up crashed.
    """

    python: str
    warm: str
    home: Home
    environ: Mapping[str, str]
    log: Path
    token: str = ""  # a new one for each start
    channel: Channel | None = None
    hello: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""
    warm_death: str = ""
    queues: dict[Kind, deque[Task]] = field(default_factory=lambda: defaultdict(deque))
    workers: dict[int, Worker] = field(default_factory=dict)  # by their tickets
    departures: Counter[str] = field(default_factory=Counter)  # why how many living workers ended early
    _popen: ServerProcess | None = None
    _zygote_log: Path | None = None
    _started: float = 0.0
    _starts: int = 0  # since a job ended
    _killed: bool = False  # by this engine, since it hung or was stopped

    def add(self, task: Task) -> None:
        """Queue a job, and start if that has not happened."""
        self.queues[Kind.of(task.job)].append(task)
        self.start()

    def start(self) -> None:
        """Start if that has not happened."""
        if self._popen is None and not self.failure:
            self._start()

    @property
    def waiting(self) -> list[Task]:
        """The jobs that wait, oldest first."""
        return sorted((task for queue in self.queues.values() for task in queue), key=lambda task: task.ticket)

    @property
    def unfinished(self) -> int:
        """How many jobs wait or run."""
        return sum(map(len, self.queues.values())) + len(self.running_jobs)

    @property
    def running_jobs(self) -> list[RunningJob]:
        """The jobs that run."""
        return [worker.current_job for worker in self.workers.values() if worker.current_job is not None]

    def ready(self) -> Iterator[tuple[Kind, Task]]:
        """Yield the next job of each kind that may run now.

        One whose server died under it runs alone the second time.
        """
        if self.failure or self.channel is None or not self.hello:
            return
        active = self.running_jobs
        suspect = any(job.task.deaths for job in active)
        if any(self.queues.values()) and self._is_stopped():
            return  # it is about to be replaced
        for kind, queue in self.queues.items():
            if queue and not (active and (suspect or queue[0].deaths)):
                yield kind, queue[0]

    def run(self, worker: Worker, environ: Mapping[str, str], share: float | None) -> None:
        """Ask the server for a worker, for a job that is no longer queued."""
        assert self.channel is not None
        self.workers[worker.ticket] = worker
        self.channel.send(worker.order(environ, share))  # a server that is gone is noticed when it is next read

    def cancel(self) -> list[Job]:
        """Kill what runs, drop what waits. Returns the jobs that will now have no outcome."""
        dropped = []
        for worker in list(self.workers.values()):
            if worker.current_job is not None:
                worker.kill()
                worker.forget()
                worker.current_job.forget()
                dropped.append(worker.current_job.task.job)
                del self.workers[worker.ticket]
        dropped += [task.job for task in self.waiting]
        self.queues.clear()
        return dropped

    def give_up(self) -> list[Outcome]:
        """Return failed outcomes for the jobs that wait, once it is clear that no server will come."""
        logs = filter(None, dict.fromkeys((self._zygote_log, self.log)))
        detail = "\n".join(filter(None, (self.failure, *(interpreters.tail(log).strip() for log in logs))))
        outcomes = [Outcome(task.job, "broken", 0.0, detail=detail) for task in self.waiting]
        self.queues.clear()
        return outcomes

    def greet(self, channel: Channel, hello: Mapping[str, Any]) -> None:
        """Note that the server is up and has opened ``channel``, or why it cannot."""
        channel.owner, self.channel = self, channel
        if "error" in hello:
            self.failure = hello["error"]
        else:
            self.hello = {**hello, "warm_error": hello.get("warm_error") or self.warm_death}

    def take(self, message: Mapping[str, Any]) -> list[Outcome]:
        """Act on one of its messages about a worker."""
        worker = self.workers.get(message.get("ticket", 0))
        if worker is None:
            if "forked" in message:
                process_tree.kill_tree(message["forked"])  # cancelled before it began
        elif "forked" in message:
            worker.pid = message["forked"]
            if worker.current_job is not None:
                worker.current_job.pid = worker.pid
        elif "refused" in message and worker.current_job is not None:
            worker.current_job.broken = f"no process could be forked: {message['refused']}"
            return [self._finish(worker, None)]
        elif "exit" in message:
            return self._ended(worker, message["status"])
        return []

    def _ended(self, worker: Worker, status: int) -> list[Outcome]:
        outcomes = worker.listen()  # its last messages may still wait on its own connection
        current_job = worker.current_job
        if current_job is not None and (
            current_job.began is not None or not worker.earlier_jobs or current_job.task.deaths
        ):
            return [*outcomes, self._finish(worker, status)]
        self.workers.pop(worker.ticket, None)
        worker.forget()
        if current_job is not None:
            self._again(current_job)  # it died while it rested, before the job reached it
        return outcomes

    def _again(self, current_job: RunningJob, deaths: int = 1) -> None:
        current_job.task.deaths += deaths
        current_job.forget()
        self.queues[Kind.of(current_job.task.job)].appendleft(current_job.task)

    def _finish(self, worker: Worker, status: int | None) -> Outcome:
        self.workers.pop(worker.ticket, None)
        self._starts = 1
        if worker.departure:
            self.departures[worker.departure] += 1
        return worker.conclude(status)

    # Limits.

    def check_start(self, now: float) -> list[Outcome]:
        """Notice that the server hangs, or has died, before it was up."""
        if self._popen is not None and not self.hello:
            if now - self._started > STARTUP:
                self.failure = f"the worker server of {self.python} was not up after {STARTUP:.0f} s"
                process_tree.kill_tree(self._popen.pid)
            if self._popen.poll() is not None:
                return self.died()
        return []

    def check_jobs(self, now: float) -> list[Outcome]:
        """Enforce the limits of its jobs, and kill a server that was stopped while it has any."""
        outcomes = []
        table = process_tree.trees(job.pid for job in self.running_jobs if job.pid)
        if table and self._popen is not None and (own := process_tree.stat(self._popen.pid)) is not None:
            table[own.pid] = own
        if self.unfinished and self._is_stopped():
            self._kill()  # its death is handled elsewhere, and so is that of its zygote
        for worker in list(self.workers.values()):
            if worker.overdue(now):
                worker.kill()
            current_job = worker.current_job
            if current_job is None:
                continue
            if current_job.began is None:
                if now - current_job.sent > UNREAPED + current_job.task.job.timeout:
                    self._kill()  # it hangs
            elif not current_job.check(table, now):
                outcomes.append(self._finish(worker, None))
        return outcomes

    def _is_stopped(self) -> bool:
        own = process_tree.stat(self._popen.pid) if self._popen is not None else None
        return own is not None and own.stopped

    def _kill(self) -> None:
        if self._popen is not None:
            self._killed = True
            process_tree.kill_tree(self._popen.pid)

    def _start(self) -> None:
        self._starts += 1
        self._killed = False
        self._started = time.monotonic()
        self.hello = {}
        self.token = secrets.token_hex(16)
        try:
            self._popen = self.home.start_server(self.python, self.token, self.warm, self.log, self.environ)
            self._zygote_log = self._popen.zygote.log
        except OSError as error:
            self.failure = f"{self.python} cannot be started: {error.strerror or error}"

    def died(self) -> list[Outcome]:
        """Judge or queue again what ran under it, now that it is dead; start another one, if that may help."""
        self.end(0.5)
        status = self._popen.returncode if self._popen else None
        how = signal_name(-status) if status is not None and status < 0 else f"exit status {status}"
        # A zygote of other runs may end at any time, which says nothing about the Python.
        is_blameless = not self.hello and self._popen is not None and self._popen.zygote.outlives_run
        self._starts -= is_blameless
        was_up, self._popen, self.channel = bool(self.hello), None, None
        if any(worker.earlier_jobs for worker in self.workers.values()):
            self._starts = 1  # jobs of living workers end without this server's knowledge
        outcomes = []
        for worker in sorted(self.workers.values(), key=Worker.age, reverse=True):  # so that the oldest waits first
            outcomes += worker.listen()
            worker.kill()
            current_job = worker.current_job
            waited = self._killed and current_job is not None and current_job.began is None  # nothing of it has run
            if current_job is None:
                worker.forget()
            elif current_job.decided or (current_job.task.deaths and not waited):
                if not current_job.decided:
                    current_job.detail = f"the worker server died twice while this job ran (the last time: {how})"
                outcomes.append(self._finish(worker, None))
            else:
                worker.forget()
                self._again(current_job, deaths=0 if waited else 1)
        self.workers.clear()
        if not self.failure and self._starts > (RESTARTS if was_up else EARLY.get(how, 1)):
            times = "" if was_up else " before it was up"
            self.failure = f"the worker server of {self.python} died {self._starts} times{times} (last: {how})"
        elif not (was_up or is_blameless) and how != "SIGKILL" and self.warm in _COMPILING:
            # A job that crashes alike then says so for itself.
            self.warm, self.warm_death = "import", f"it was ended by {how}"
        if not self.failure and any(self.queues.values()):
            self._start()
        return outcomes

    def end(self, grace: float) -> None:
        """Wait ``grace`` seconds for it to end by itself, then kill it with all that it started."""
        if self._popen is not None:
            end_process(self._popen, grace)
