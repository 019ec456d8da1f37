"""A running job, seen from control: its messages, its limits, and what its end means."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from runner.contract.finding import signal_name
from runner.contract.job import Job
from runner.engine import process_tree
from runner.engine.interpreters import tail
from runner.engine.memory import Meter
from runner.engine.messages import Ended, Outcome
from runner.engine.wire import check_record
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
    outcome: Mapping[str, Any] | None = None
    broken: str | None = None
    detail: str = ""
    _meter: Meter | None = None
    _compiled: float = 0.0  # seconds, of compilations that have ended
    _compiling_since: float = math.inf
    _spoke: float = math.inf  # when its outcome came
    _cause: Literal["", "timeout", "memory"] = ""  # once control has decided to end it
    _kill_at: float = math.inf
    _killed: float = math.inf

    def order(self) -> dict[str, Any]:
        """Return the message that hands the job to a worker."""
        job = self.task.job
        return {
            "ticket": self.task.ticket,
            "job": job.to_json(),
            "log": str(self.log),
            "stack": str(self.stack),
            "limit": self.limit,
        }

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
            self._check_time(now, now - self.began)
            if not self.decided:
                self._check_memory(table, now)
        return True

    def _check_time(self, now: float, seconds: float) -> None:
        timeout = self.task.job.timeout
        if seconds > timeout:
            self._expire(now, f"no answer after {timeout:g} s")
        else:
            self._check_compiling(now)

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
            self._meter = Meter(self.pid, self.base_memory)
        detail = self._meter.read(table).over(self.limit)
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
