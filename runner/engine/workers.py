"""A worker process, seen from control: one that was forked for a job and ends with it, or one that lives on.

A living worker, after a job that went well, says that it rests and can be handed the next job. It ends itself after a
failure and when it has grown too much (``runner/worker/server/persistent.py``), and when control hangs up.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.engine import process_tree, running_job
from runner.engine.connections import Channel
from runner.engine.messages import Outcome
from runner.engine.running_job import Child


@dataclass(slots=True, eq=False)
class Worker:
    """A process from the order to fork it on. ``ticket`` is that of its first job, by which its server knows it.

    ``gpu`` is the one leased to it, as CUDA_VISIBLE_DEVICES names it; empty if none is. It keeps slot and lease until
    it has ended. ``growth`` is how many bytes it may hold more than at first, when it rests; None if it does not live on.
    """

    ticket: int
    slot: int
    gpu: str
    leased: bool  # whether it was forked for jobs that want a lease
    growth: int | None
    jobs: int  # how many it may run in all
    child: Child | None = None
    pid: int = 0
    before: list[str] = field(default_factory=list)
    resting_since: float = 0.0
    clean: bool = False  # whether its last job said that no process of its own was left
    _channel: Channel | None = None
    _held: int | None = None  # bytes when it last rested
    _dismissed: float = 0.0

    def order(self, environ: Mapping[str, str], share: float | None) -> dict[str, Any]:
        """What the worker or its server is told, to run ``child``."""
        assert self.child is not None
        last = self.growth is None or len(self.before) + 1 >= self.jobs
        return {
            **self.child.order(),
            "keep": None if last else self.growth,
            "environ": dict(environ),
            "share": share,
        }

    @property
    def resting(self) -> bool:
        """Whether it waits for its next job."""
        channel = self._channel
        return self.child is None and not self._dismissed and channel is not None and not channel.closed

    def age(self) -> int:
        """The ticket of the job that it has, or had first."""
        return self.child.task.ticket if self.child is not None else self.ticket

    def hand(self, child: Child) -> None:
        """Give a resting worker its next job."""
        assert self._channel is not None
        self.child, self.clean = child, False
        child.before, child.held = tuple(self.before), self._held
        self._channel.send(self.order({}, None))  # one that is gone is noticed by its server's word

    def dismiss(self) -> None:
        """Let a resting worker go."""
        self._dismissed = time.monotonic()
        if self._channel is not None:
            self._channel.close()

    def overdue(self, now: float) -> bool:
        """Whether it was dismissed and is still there, or hangs before a job that it was handed."""
        if self.child is None:
            return bool(self._dismissed) and now - self._dismissed > running_job.LINGER
        waits = self.child.began is None and bool(self.before)
        return waits and now - self.child.sent > running_job.LINGER + running_job.UNREAPED

    # What it says.

    def begin(self, channel: Channel, pid: int) -> None:
        """It runs its first job, as process ``pid``, and has opened ``channel``."""
        channel.owner, self._channel = self, channel
        self.pid = pid
        if self.child is not None:
            self.child.begin(pid)

    def take(self, message: Mapping[str, Any]) -> list[Outcome]:
        """Act on one message; words about another job than the one it has now are too late to count."""
        child = self.child
        if child is None or message.get("ticket") != child.task.ticket:
            return []
        if "job" in message:
            child.begin(self.pid)
        elif "rest" in message:
            self._held, self.resting_since = int(message["rest"]), time.monotonic()
            return [self._end_job(None)] if child.fine else []  # else it must go, and will
        else:
            self.clean = message.get("kin") is False
            child.take(message)
            if message.get("kin"):  # it adopts what it has started, all the way down, so that now all can be found
                process_tree.end_helpers(self.pid)
                self.forget()  # and now it may go
        return []

    def listen(self) -> list[Outcome]:
        """Take what has arrived and was not read yet."""
        messages = self._channel.receive()[0] if self._channel is not None else []
        return [outcome for message in messages for outcome in self.take(message)]

    # Its end.

    def conclude(self, status: int | None) -> Outcome:
        """The outcome of the job that it has, now that the process has ended with that wait status (None: unknown)."""
        if not self.clean or status != 0:
            process_tree.end_family(self.pid, reaped=status is not None)  # and what outlived it
        outcome = self._end_job(status)
        self.forget()
        return outcome

    def _end_job(self, status: int | None) -> Outcome:
        assert self.child is not None
        child, self.child = self.child, None
        self.before.append(child.task.job.id)
        return child.conclude(status)

    def kill(self) -> None:
        """End it with all that it has started."""
        process_tree.end_family(self.pid)

    def forget(self) -> None:
        """Close its connection."""
        if self._channel is not None:
            self._channel.close()
