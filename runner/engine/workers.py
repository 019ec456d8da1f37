"""A worker process, seen from control: one that was forked for a job and ends with it, or one that stays alive.

A living worker rests after a clean job and can take the next one. It ends itself after a failure, when it has grown too
much (``runner/worker/server/persistent.py``), and when control hangs up.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runner.contract.job import Job
from runner.engine import process_tree, running_job
from runner.engine.connections import Channel
from runner.engine.messages import Outcome
from runner.engine.running_job import RunningJob


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
    _channel: Channel | None = None
    _resting_memory: int | None = None  # bytes when it last rested
    _dismissed: float = 0.0

    def order(self, environ: Mapping[str, str], share: float | None) -> dict[str, Any]:
        """Return the message that tells the worker or its server to run ``current_job``."""
        assert self.current_job is not None
        last = self.growth is None or len(self.earlier_jobs) + 1 >= self.jobs
        return {
            **self.current_job.order(),
            "keep": None if last else self.growth,
            "environ": dict(environ),
            "share": share,
        }

    def serves(self, kind: Kind) -> bool:
        """Return whether the worker, at rest, may take a job of that kind."""
        return kind.living and self.kind == kind._replace(alone=self.kind.alone)

    @property
    def is_connected(self) -> bool:
        """Whether its process has opened a connection."""
        return self._channel is not None

    @property
    def resting(self) -> bool:
        """Whether the worker waits for its next job."""
        channel = self._channel
        return self.current_job is None and not self._dismissed and channel is not None and not channel.closed

    def age(self) -> int:
        """Return the ticket of the current job, else of the first one."""
        return self.current_job.task.ticket if self.current_job is not None else self.ticket

    def hand(self, current_job: RunningJob) -> None:
        """Give a resting worker its next job."""
        assert self._channel is not None
        self.current_job, self.clean = current_job, False
        current_job.earlier_jobs, current_job.base_memory = tuple(self.earlier_jobs), self._resting_memory
        self._channel.send(self.order({}, None))  # its server reports a worker that has ended

    def dismiss(self) -> None:
        """End a resting worker."""
        self._dismissed = time.monotonic()
        if self._channel is not None:
            self._channel.close()

    def overdue(self, now: float) -> bool:
        """Return whether it was dismissed and is still there, or hangs before a job that it was handed."""
        if self.current_job is None:
            return bool(self._dismissed) and now - self._dismissed > running_job.LINGER
        waits = self.current_job.began is None and bool(self.earlier_jobs)
        return waits and now - self.current_job.sent > running_job.LINGER + running_job.UNREAPED

    def begin(self, channel: Channel, pid: int) -> None:
        """Note that the worker runs its first job, as process ``pid``, and has opened ``channel``."""
        channel.owner, self._channel = self, channel
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
        messages = self._channel.receive()[0] if self._channel is not None else []
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
        if self._channel is not None:
            self._channel.close()
