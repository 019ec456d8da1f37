"""A worker process and its running job, seen from control: messages, limits, and what an end means.

A worker was forked for a job and ends with it, or stays alive. A living one rests after a clean job and can take the
next one. It ends itself after a failure, when it has grown too much (``runner/worker/server/child.py``), and when
control hangs up.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from runner.contract.finding import signal_name
from runner.contract.job import Job
from runner.engine import process_tree
from runner.engine.interpreters import tail
from runner.engine.messages import Channel, Ended, Outcome, check_record
from runner.files import cut_regular

GRACE = 0.5
"""Seconds between the request for a stack and the kill, at a timeout."""
LINGER = 2.0
"""Seconds that a process may live on after its outcome."""
UNREAPED = 10.0
"""Seconds after its kill in which a process must vanish; one stuck in a driver may never."""
MAX_LOG = 64 << 20
"""Bytes of output at which a job's log is cut."""


@dataclass(slots=True, eq=False)
class Task:
    """A submitted job. ``deaths`` counts the servers that died while it ran."""

    job: Job
    ticket: int
    deaths: int = 0


@dataclass(slots=True, eq=False)
class RunningJob:
    """A job, from the order to run it on. Times are monotonic seconds, ``limit`` is in bytes.

    Both ``earlier_jobs`` and ``base_memory`` describe its process where that was not forked for this job: the ids of
    the jobs that it had run, and the bytes that it held.
    """

    task: Task
    limit: int
    log: Path
    stack: Path
    keep_log: bool
    sent: float = field(default_factory=time.monotonic)
    began: float | None = None
    pid: int = 0
    earlier_jobs: tuple[str, ...] = ()
    base_memory: int | None = None
    phase: str = "load"
    known: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] | None = None
    broken: str | None = None
    detail: str = ""
    _meter: process_tree.Meter | None = None
    _compiled: float = 0.0  # seconds, of compilations that have ended
    _compiling_since: float = math.inf
    _spoke: float = math.inf  # when its outcome came
    _cause: Literal["", "timeout", "memory"] = ""  # once control has decided to end it
    _kill_at: float = math.inf
    _killed: float = math.inf

    def begin(self, pid: int) -> None:
        """Note that the job runs, in process ``pid``."""
        self.pid = pid
        self.began = time.monotonic()

    def take(self, message: Mapping[str, Any]) -> None:
        """Act on one message of the job. After its outcome only phases count."""
        if "compiling" in message:
            self._note_compiling(message["compiling"])
        elif "phase" in message:
            self.phase = message["phase"]
        elif "known" in message:
            self.known = message["known"]
        elif self.outcome is None and self.broken is None and {"outcome", "broken"} & message.keys():
            self._spoke = time.monotonic()
            self.outcome, self.broken = message.get("outcome"), message.get("broken")
            if self.outcome is not None and self.task.job.task == "judge":
                try:
                    check_record(self.outcome)
                except ValueError as error:
                    self.spoil(f"the worker's record is refused: {error}")

    def spoil(self, reason: str) -> None:
        """Note that nothing counts that the process has said or will say."""
        self.outcome, self.broken = None, reason

    def _note_compiling(self, seconds: float | None) -> None:
        """Note that torch begins to compile (None), or how many seconds it has compiled in all."""
        now = time.monotonic()
        if seconds is None:
            self._compiling_since = now
            return
        self._compiled, self._compiling_since = seconds, math.inf
        if not self.decided:
            self._check_compiling(now)

    @property
    def decided(self) -> bool:
        """Whether it is known how the job ends: by its own message, or because control ends it."""
        return self.outcome is not None or self.broken is not None or bool(self._cause)

    @property
    def fine(self) -> bool:
        """Whether it has ended with a clean result: no finding, no error, no other verdict."""
        result = self.outcome
        return result is not None and not self._cause and not any(map(result.get, ("findings", "trust", "error")))

    def check(self, table: Mapping[int, process_tree.Process], now: float) -> bool:
        """Enforce the limits. Returns False if the job was killed long ago and its process still exists."""
        if now - self._killed > UNREAPED:
            self.detail += "; its process did not go away when killed"
            return False
        if now >= self._kill_at or now - self._spoke > LINGER:
            self._spoke = math.inf
            self._kill(now)
        elif self.began is not None and not self.decided:
            timeout = self.task.job.timeout
            if now - self.began > timeout:
                self._expire(now, f"no answer after {timeout:g} s")
            else:
                self._check_compiling(now)
            if not self.decided:
                self._check_memory(table, now)
        return True

    def _check_compiling(self, now: float) -> None:
        timeout = self.task.job.compile_timeout
        if timeout is not None and self._compiled + max(0.0, now - self._compiling_since) > timeout:
            self._expire(now, f"compiling took more than {timeout:g} s, the case's limit for compiling")

    def _expire(self, now: float, detail: str) -> None:
        self._cause, self.detail = "timeout", detail
        self._kill_at = now + GRACE
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)  # faulthandler writes all stacks

    def _check_memory(self, table: Mapping[int, process_tree.Process], now: float) -> None:
        """Its memory, and the disk that its log takes."""
        if self._meter is None:
            self._meter = process_tree.Meter(self.pid, self.base_memory)
        detail = process_tree.over_limit(*self._meter.read(table), self.limit)
        if detail:
            self._cause, self.detail = "memory", detail
            self._kill(now)
        with contextlib.suppress(OSError):
            cut_regular(self.log, MAX_LOG)

    def _kill(self, now: float) -> None:
        self._kill_at = math.inf
        self._killed = min(self._killed, now)
        process_tree.kill_tree(self.pid)

    def conclude(self, status: int | None) -> Outcome:
        """Return the outcome, now that the process has ended with wait status ``status`` (None if unknown, or if it
        rests)."""
        killed_by = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        exit_status = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None
        ended: Ended
        detail = self.detail
        if self._cause:
            ended = self._cause
        elif self.outcome is not None:
            ended = "result"
        elif self.broken is not None:
            ended, detail = "broken" if self.began is None else "worker-error", self.broken
        elif killed_by is not None and not detail:
            ended = "signal"
            if killed_by == signal.SIGKILL:
                detail = "killed from outside; when memory runs out the kernel does so"
        else:
            ended = "no-result"
            detail = detail or f"the process ended with exit status {exit_status} and without a result"
        now = time.monotonic()
        outcome = Outcome(
            self.task.job,
            ended,
            now - (self.began or now),
            self.phase,
            result=(self.outcome or {}) if ended == "result" else {},
            signal=signal_name(killed_by) if killed_by is not None and not self._cause else None,
            exit_status=exit_status,
            stack=tail(self.stack, 1 << 16),
            output=tail(self.log),
            detail=detail,
            earlier_jobs=self.earlier_jobs,
            busy=now - self.sent,
        )
        self.forget()
        return outcome

    def forget(self) -> None:
        """Remove its files that nobody will read."""
        with contextlib.suppress(OSError):
            self.stack.unlink(missing_ok=True)
            if not self.keep_log or self.log.lstat().st_size == 0:
                self.log.unlink()


class Kind(NamedTuple):
    """What decides which worker may run a job, and when. Jobs of one kind run in the order of their tickets."""

    living: bool
    needs_gpu: bool  # wants a GPU of its own: device ``cuda`` without an index
    alone: bool
    backend: str = ""  # of a living job, where it is not one of torch's: each has processes of its own

    @staticmethod
    def of(job: Job) -> Kind:
        """Return the kind of a job."""
        living = job.isolation == "living"
        backend = str(job.backend.get("backend", "")) if living and job.foreign else ""
        return Kind(living, job.device == "cuda", job.alone, backend)


@dataclass(slots=True, eq=False)
class Worker:
    """A process, from the moment when control asks for it. ``ticket`` is that of its first job; its server knows it by
    that.

    ``gpu`` is reserved for it, as CUDA_VISIBLE_DEVICES names it; empty if none is. It keeps slot and GPU until it has
    ended. ``growth`` is how many bytes more than at first it may hold when it rests; None if it ends with its job.
    """

    ticket: int
    slot: int
    gpu: str
    kind: Kind  # of the job that it was forked for
    growth: int | None
    jobs: int  # how many it may run in all
    current_job: RunningJob | None = None
    pid: int = 0
    earlier_jobs: list[str] = field(default_factory=list)
    resting_since: float = 0.0
    clean: bool = False  # whether its last job left no process behind
    departure: str = ""  # why it takes no other job although the last one went well
    channel: Channel | None = None
    _resting_memory: int | None = None  # bytes when it last rested
    _dismissed: float = 0.0

    def order(self, environ: Mapping[str, str], share: float | None) -> dict[str, Any]:
        """Return the message that tells the worker or its server to run ``current_job``."""
        assert self.current_job is not None
        return {
            "ticket": self.current_job.task.ticket,
            "job": self.current_job.task.job.to_json(),
            "log": str(self.current_job.log),
            "stack": str(self.current_job.stack),
            "limit": self.current_job.limit,
            "keep": None if self.growth is None or len(self.earlier_jobs) + 1 >= self.jobs else self.growth,
            "environ": dict(environ),
            "share": share,
        }

    def serves(self, kind: Kind) -> bool:
        """Return whether the worker, at rest, may take a job of that kind."""
        return kind.living and self.kind == kind._replace(alone=self.kind.alone)

    @property
    def resting(self) -> bool:
        """Whether the worker waits for its next job."""
        channel = self.channel
        return self.current_job is None and not self._dismissed and channel is not None and not channel.closed

    def age(self) -> int:
        """Return the ticket of the current job, else of the first one."""
        return self.current_job.task.ticket if self.current_job is not None else self.ticket

    def hand(self, current_job: RunningJob) -> None:
        """Give a resting worker its next job."""
        assert self.channel is not None
        self.current_job, self.clean = current_job, False
        current_job.earlier_jobs, current_job.base_memory = tuple(self.earlier_jobs), self._resting_memory
        self.channel.send(self.order({}, None))  # its server reports a worker that has ended

    def dismiss(self) -> None:
        """End a resting worker."""
        self._dismissed = time.monotonic()
        self.forget()

    def overdue(self, now: float) -> bool:
        """Return whether it was dismissed and is still there, or hangs before a job that it was handed."""
        if self.current_job is None:
            return bool(self._dismissed) and now - self._dismissed > LINGER
        waits = self.current_job.began is None and bool(self.earlier_jobs)
        return waits and now - self.current_job.sent > LINGER + UNREAPED

    def begin(self, channel: Channel, pid: int) -> None:
        """Note that the worker runs its first job, as process ``pid``, and has opened ``channel``."""
        channel.owner, self.channel = self, channel
        self.pid = pid
        if self.current_job is not None:
            self.current_job.begin(pid)

    def take(self, message: Mapping[str, Any]) -> list[Outcome]:
        """Act on one message; one about another job than the current job comes too late to count."""
        current_job = self.current_job
        if "unreadable" in message:
            if current_job is not None:
                current_job.spoil(message["unreadable"])
            self.kill()  # its server reports the end
            return []
        if current_job is None or message.get("ticket") != current_job.task.ticket:
            return []
        if "job" in message:
            current_job.begin(self.pid)
        elif "rest" in message:
            self._resting_memory, self.resting_since = message["rest"], time.monotonic()
            return [self._end_job(None)] if current_job.fine else []  # else it must go, and will
        elif "leaves" in message:
            self.departure = str(message["leaves"])
        else:
            self.clean = message.get("kin") is False
            current_job.take(message)
            if message.get("kin"):  # it adopts all its descendants, so that now all can be found
                process_tree.kill_descendants(self.pid)
                self.forget()  # and now it may go
        return []

    def listen(self) -> list[Outcome]:
        """Take what has arrived and was not read yet."""
        messages = self.channel.receive()[0] if self.channel is not None else []
        return [outcome for message in messages for outcome in self.take(message)]

    def conclude(self, status: int | None) -> Outcome:
        """Return the outcome of the job that it has, now that the process has ended with that wait status (None:
        unknown)."""
        if not self.clean or status != 0:
            process_tree.kill_tree(self.pid, reaped=status is not None)  # and what outlived it
        outcome = self._end_job(status)
        self.forget()
        return outcome

    def _end_job(self, status: int | None) -> Outcome:
        assert self.current_job is not None
        current_job, self.current_job = self.current_job, None
        self.earlier_jobs.append(current_job.task.job.id)
        return current_job.conclude(status)

    def kill(self) -> None:
        """End it with all that it has started."""
        process_tree.kill_tree(self.pid)

    def forget(self) -> None:
        """Close its connection."""
        if self.channel is not None:
            self.channel.close()
