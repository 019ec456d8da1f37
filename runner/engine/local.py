"""The engine on this machine: slots, a process for each job, time and memory limits, and what each death means.

Single-threaded: everything happens inside ``wait``. Each environment has at most two warm worker servers (see
``runner/worker/server/server.py``): one for the CPU, and one for jobs on accelerators, which must not compile before it
forks. Cold servers, which have imported torch and its compilers and compiled nothing, run ``fresh`` jobs.

The engine gives jobs to servers (``servers.py``). A server has workers, each in a slot of its own. A worker has one
running job (``workers.py``). Servers and workers connect through ``messages.py``. ``next_start`` decides which job
starts next, and ``gpus.py`` which GPU it gets. Jobs that need variables set before anything is imported (Triton's
interpreter) have servers of their own, so that no other job sees these variables.

A command makes the home of its engine early, so that torch is imported while it reads its files.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner import exit_codes, interrupts
from runner.contract import settings
from runner.contract.job import Isolation, Job
from runner.engine import gpus, scratch
from runner.engine.messages import Channel, Outcome
from runner.engine.process_tree import machine_memory
from runner.engine.servers import Home, Server
from runner.engine.workers import Kind, RunningJob, Task, Worker
from runner.engine.zygotes import Zygote
from runner.record.events import Notice
from runner.text import one_line


def next_start(servers: Sequence[Server], slots: int) -> tuple[Server, Kind, Worker | int] | None:
    """Return the job to start now, None if none may start; dismiss a living worker that is in the way.

    It is the first in the server's queue of that kind. It runs in a worker that rests, or in a new one in a slot.

    Jobs start in the order of their tickets, with two exceptions. A resting worker takes the next job of its kind
    before an older job of another kind. A worker is replaced after some number of jobs, so that the older job gets its
    turn. Jobs that must be alone run one after the other, once nothing else runs.
    """
    workers = [worker for server in servers for worker in server.workers.values()]
    running_jobs = [worker.current_job.task.job for worker in workers if worker.current_job is not None]
    if any(job.alone for job in running_jobs):
        return None
    heads = [(task.ticket, server, kind) for server in servers for kind, task in server.ready()]
    heads.sort(key=lambda head: (bool(running_jobs) or not head[2].alone, head[0]))
    if not heads:
        return None
    if heads[0][2].alone:
        if running_jobs:
            return None  # until they have ended; what is younger waits too, else its turn might never come
        heads = heads[:1]
    else:
        heads = [head for head in heads if not head[2].alone]
    resting = [worker for worker in workers if worker.resting]
    for (_, server, kind), worker in itertools.product(heads, resting):
        if worker.serves(kind) and server.workers.get(worker.ticket) is worker:
            return server, kind, worker
    free = set(range(slots)) - {worker.slot for worker in workers}
    _, server, kind = heads[0]
    if free:
        return server, kind, min(free)
    if resting and all(worker.resting or worker.current_job is not None for worker in workers):  # no worker is ending
        min(resting, key=lambda worker: worker.resting_since).dismiss()
    return None


GROWTH_PART = 4
"""A living worker is replaced once it holds more than at first by one part in so many of a job's default limit."""
RENEWALS = 5
"""How often in a row a temporary folder is made anew that went while no job ran."""
DAMAGE = "the case removed or changed the temporary folder of the run, which RUNNER_SCRATCH is a part of"
FREQUENT = 5
"""How many living processes end early for one reason before a notice says so; a case or two may well ask for it."""
COLD = {"none": "none", "import": "compilers", "inductor": "compilers"}
"""How far a server of fresh processes goes, by the level of the environment's warm server; ``capture`` beside all other
levels.

What ``torch.compile`` imports anyway takes three processor seconds, which each of these processes would spend again.
"""


class LocalEngine(contextlib.AbstractContextManager["LocalEngine"]):
    """Runs jobs on this machine, at most ``slots`` at a time, under the interpreters of ``environments``."""

    def __init__(
        self,
        environments: Mapping[str, str],
        slots: int = 1,
        *,
        warm: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        log_folder: str | os.PathLike[str] | None = None,
        kernel_cache: str = "shared",
        living_jobs: int = 50,
        home: Home | None = None,
    ) -> None:
        """Make the engine's folder and socket; processes are started by the first jobs.

        Args:
            environments: a name to the Python executable that has torch.
            slots: how many jobs run at once.
            warm: environment to one of ``worker.server.warm_up.LEVELS``: how far its CPU server goes before it forks.
            environ: environment variables for the workers, over control's own.
            log_folder: where what jobs print is kept (one file a job, empty ones removed); nowhere if None.
            kernel_cache: ``shared`` with other runs of the same Python, or ``private``: new, and gone when we close.
            living_jobs: after how many jobs a living worker is replaced.
            home: made before, and closed with the engine; a new one if None.

        Raises:
            UsageError: no temporary folder can be made.
        """
        self._environments = dict(environments)
        self._slots = max(1, slots)
        self._living_jobs = max(1, living_jobs)
        self._warm = dict(warm or {})
        self._environ = dict(environ or {})
        # Never less than a compile needs: with many slots, or where memory grows on demand, the share would be tiny.
        self._default_memory = max(machine_memory() * 8 // 10 // self._slots, 2 << 30)
        self._home = home or Home()
        self._private_kernels = kernel_cache == "private"
        self._logs = None if log_folder is None else Path(log_folder).absolute()
        self._servers: dict[tuple[str, bool, str, tuple[tuple[str, str], ...]], Server] = {}
        self._outcomes: list[Outcome] = []
        self._tickets = 0
        self._next_check = 0.0
        self._renewals = self._vain_renewals = 0
        self._damage = ""  # the last one
        self._closed = False

    def __exit__(self, *exception: object) -> None:
        self.close()

    def submit(self, job: Job) -> None:
        """Queue a job; its server begins to start at once.

        Raises:
            KeyError: the job names an environment that the engine does not have.
            RuntimeError: the engine is closed.
        """
        if self._closed:
            raise RuntimeError("the engine is closed")
        self._tickets += 1
        self._server(job.environment, job.isolation, job.device != "cpu", job.variables).add(Task(job, self._tickets))

    def prepare(self, environment: str, isolation: Isolation, variables: Mapping[str, str]) -> None:
        """Let the server of jobs on the CPU start that are yet to come. Raises KeyError as ``submit`` does."""
        self._server(environment, isolation, False, variables).start()

    def pending(self) -> int:
        """Return how many submitted jobs ``wait`` has not returned yet."""
        return sum(server.unfinished for server in self._servers.values()) + len(self._outcomes)

    def running(self) -> list[tuple[Job, float, str]]:
        """Return the jobs that run now, each with its seconds so far and its phase."""
        now = time.monotonic()
        return [
            (job.task.job, now - job.began, job.phase)
            for server in self._servers.values()
            for job in server.running_jobs
            if job.began is not None and job.outcome is None
        ]

    def known(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what long tasks that run now know so far, by the keys of their jobs."""
        jobs = (job for server in self._servers.values() for job in server.running_jobs)
        return {job.task.job.key: job.known for job in jobs if job.known}

    def hello(self, environment: str) -> Mapping[str, Any]:
        """Return what the environment's server said of itself (torch, python, devices, gpus, ...); empty before it is
        up."""
        hellos = (server.hello for (name, *_), server in self._servers.items() if name == environment and server.hello)
        return next(hellos, {})

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """Run jobs until at least one ends, ``timeout`` seconds pass (None: no limit), or none is left.

        Limits are enforced inside this call only, so call it again soon.

        Raises:
            UsageError: the temporary folder goes again and again while no job runs.
        """
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            self._start_jobs()
            self._enforce_limits()
            if self._outcomes and (damage := self._home.damage()):
                self._renew(damage)
            if self._outcomes or not self.pending() or time.monotonic() >= end:
                break
            for channel in self._home.connections.wait(max(0.0, min(end, self._next_check) - time.monotonic())):
                if not channel.closed:  # meanwhile, by a message before it
                    self._read(channel)
        self._start_jobs()  # so that the slots stay busy while the caller works
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def _renew(self, damage: str) -> None:
        """Begin anew with another temporary folder. No outcome that is not returned yet counts.

        Each job that ran runs again, alone. One that was alone already is to blame: what remains of it is an outcome
        that says so.
        """
        suspects = [outcome.job for outcome in self._outcomes if outcome.seconds]
        suspects += [
            job.task.job for server in self._servers.values() for job in server.running_jobs if job.began is not None
        ]
        unheard = [outcome.job for outcome in self._outcomes if not outcome.seconds]
        keys = {job.key for job in suspects}
        waiting = [job for job in self.cancel_all() if job.key not in keys]
        self._renewals += 1
        self._vain_renewals = 0 if suspects else self._vain_renewals + 1
        if self._vain_renewals > RENEWALS:
            raise exit_codes.UsageError(
                f"{damage}: another program removes the temporary folder again and again", exit_codes.INTERNAL
            )
        self._damage = damage
        self._end_servers()
        self._home.renew()
        self._outcomes = [Outcome(job, "damage", 0.0, detail=DAMAGE) for job in suspects if job.alone]
        for job in (*(replace(job, alone=True) for job in suspects if not job.alone), *unheard, *waiting):
            self.submit(job)

    def cancel_all(self) -> list[Job]:
        """Kill what runs, drop what waits. Returns the jobs that will now have no outcome."""
        return [job for server in self._servers.values() for job in server.cancel()]

    def dismiss_foreign(self) -> None:
        """End living processes at rest that have imported code from outside torch: it may be another one by now."""
        for server in self._servers.values():
            for worker in server.workers.values():
                if worker.resting and worker.kind.backend:
                    worker.dismiss()

    def close(self) -> None:
        """End every process that the engine started, and remove its temporary folder. Can be called twice.

        A signal that comes meanwhile raises KeyboardInterrupt only when all is gone.
        """
        with interrupts.held():
            if self._closed:
                return
            self._closed = True
            self.cancel_all()
            self._end_servers()
            self._home.close()

    def _end_servers(self) -> None:
        for server in self._servers.values():
            if server.channel is not None:
                server.channel.close()  # a server that is up ends its children, then itself
        for server in self._servers.values():
            server.end(2.0 if server.hello else 0.0)
        self._servers.clear()

    def notices(self) -> list[Notice]:
        """Return what a person should know of the folders of compiled code, and of each server.

        It could not warm up, or compiles without vectors, or its living workers end early, many for the same reason.
        """
        texts: list[str] = []
        for server in self._servers.values():
            error, vectors = server.hello.get("warm_error"), server.hello.get("missing_vectors")
            if error:
                texts.append(
                    f"{server.python}: every job is slow, since no warm-up was possible: {one_line(error, 300)}"
                )
            if vectors:
                texts.append(f"{server.python}: {vectors}")
            texts += [
                f"{server.python}: {count} living processes ended early, and others had to start: {reason}"
                for reason, count in server.departures.items()
                if count >= FREQUENT
            ]
        if self._renewals:
            texts.append(
                f"{self._damage}: a temporary folder was made anew {self._renewals} times, and what ran then ran again"
            )
        return [*self._home.caches.notices(), *self._home.keep.notices(), *map(Notice, dict.fromkeys(texts))]

    def _server(
        self, environment: str, isolation: Isolation, accelerated: bool, variables: Mapping[str, str]
    ) -> Server:
        warm = self._warm.get(environment, "import")
        if isolation == "fresh":
            warm = COLD.get(warm, "capture")
        elif accelerated and warm not in ("none", "import"):
            warm = "import"  # compiling, even for the CPU, would spoil CUDA for forked children
        elif variables and warm not in ("none", "dynamo"):
            warm = "import"  # what is compiled under other settings is of no use
        key = (environment, accelerated, warm, tuple(sorted(variables.items())))
        if key not in self._servers:
            environ = {**self._home.environ, **self._environ, **variables}
            if not accelerated:
                # Where a GPU is in sight every compilation opens CUDA, even one for the CPU, and what a server has
                # opened fails in its children. And a verdict about the CPU must not depend on the machine's GPU.
                environ[gpus.VARIABLE] = ""
            if self._private_kernels:  # one each, for code of one Python must not be loaded by another
                folder = self._home.caches.private / str(list(self._environments).index(environment))
                environ |= {settings.CACHE_FOLDER: str(folder), settings.TRITON_FOLDER: str(folder / "triton")}
            log = self._home.folder / f"server-{len(self._servers)}.log"
            self._servers[key] = Server(self._environments[environment], warm, self._home, environ, log)
        return self._servers[key]

    def _start_jobs(self) -> None:
        """Fill the slots, in the order in which jobs were submitted as far as servers are ready."""
        for server in self._servers.values():
            if server.failure:
                self._outcomes += server.give_up()
        while (start := next_start([*self._servers.values()], self._slots)) is not None:
            server, kind, place = start
            task = server.queues[kind].popleft()
            if isinstance(place, Worker):
                place.hand(self._running_job(task))
            else:
                self._fork(server, kind, task, place)

    def _fork(self, server: Server, kind: Kind, task: Task, slot: int) -> None:
        environ = {"RUNNER_SLOT": str(slot), scratch.VARIABLE: str(self._home.work_folder(slot))}
        gpu, share = "", 1.0
        if kind.needs_gpu:
            given = self._environ.get(gpus.VARIABLE, os.environ.get(gpus.VARIABLE))
            visible = gpus.visible_gpus(given, int(server.hello.get("gpus", 0)))
            workers = [worker for candidate in self._servers.values() for worker in candidate.workers.values()]
            gpu = gpus.choose_gpu(visible, [worker.gpu for worker in workers])
            if gpu:
                environ[gpus.VARIABLE] = gpu
                share = gpus.memory_share(self._slots, len(visible))
        growth = self._default_memory // GROWTH_PART if kind.living else None
        worker = Worker(task.ticket, slot, gpu, kind, growth, self._living_jobs, self._running_job(task))
        server.run(worker, environ, share if share < 1 else None)

    def _running_job(self, task: Task) -> RunningJob:
        name = f"{task.ticket:05d}-" + re.sub(r"[^\w.-]+", "_", task.job.name)[:80]
        limit = task.job.memory or self._default_memory
        log = (self._logs or self._home.folder) / f"{name}.log"
        with contextlib.suppress(OSError):  # a log is not worth a run
            if self._logs is not None:
                self._logs.mkdir(parents=True, exist_ok=True)  # each time: a case may have removed it
            log.unlink(missing_ok=True)
        return RunningJob(task, limit, log, self._home.folder / f"{name}.stack", self._logs is not None)

    def _enforce_limits(self) -> None:
        """Enforce the limits, at most every 0.1 s (less often where the process table is so long that it costs)."""
        now = time.monotonic()
        if now < self._next_check:
            return
        # This process may have been stopped meanwhile: what jobs have said in time counts.
        for channel in (*self._home.connections.wait(0), *self._home.connections.strangers()):
            if not channel.closed:
                self._read(channel)
        for server in self._servers.values():
            self._outcomes += [*server.check_start(now), *server.check_jobs(now)]
        self._next_check = now + max(0.1, 20 * (time.monotonic() - now))

    def _read(self, channel: Channel) -> None:
        messages, hung_up = channel.receive()
        for message in messages:
            if channel.owner is None:
                self._introduce(channel, message)
            elif isinstance(channel.owner, Worker):
                self._outcomes += channel.owner.take(message)
            elif isinstance(channel.owner, Zygote):
                channel.owner.take(message)
            else:
                if "exit" in message:  # the job may have spoken without our knowing yet which connection is its own
                    for stranger in self._home.connections.strangers():
                        self._read(stranger)
                self._outcomes += channel.owner.take(message)
        if hung_up:
            channel.close()
            if isinstance(channel.owner, Server) and channel.owner.channel is channel:
                self._outcomes += channel.owner.died()
            elif isinstance(channel.owner, Zygote):
                channel.owner.read()

    def _introduce(self, channel: Channel, message: Mapping[str, Any]) -> None:
        """Bind a connection to its zygote, server or worker, which its first message names; the token shows that it is
        one of ours."""
        if "zygote" in message and self._home.greet(channel, message.get("token")):
            return
        server = next(
            (candidate for candidate in self._servers.values() if candidate.token == message.get("token")), None
        )
        if server is None:
            channel.close()
        elif "hello" in message and server.channel is None:
            server.greet(channel, message["hello"])
        elif "job" in message and (worker := server.workers.get(message.get("ticket", 0))) and worker.channel is None:
            worker.begin(channel, message["pid"])
        else:
            channel.close()  # cancelled meanwhile, or a case that speaks in the name of another process
