"""A worker server, seen from control: its start and its hello, the jobs that it runs or will run, its death.

What ends a job is returned as an ``Outcome`` by whatever method noticed it.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.engine import children, kin, process
from runner.engine.children import Child, Task
from runner.engine.connections import Channel
from runner.engine.messages import Job, Outcome

STARTUP = 900.0
"""Seconds that a server may take to import and warm up before it counts as hung; the first compile is slow."""
RESTARTS = 5
"""How often a server is started again within a run."""


@dataclass(slots=True, eq=False)
class Server:
    """A worker server, or the wish for one, which connects to ``address``.

    ``failure`` says why it will never start (again).
    """

    python: str
    warm: str
    address: str
    environ: Mapping[str, str]
    log: Path
    token: str = ""  # a new one for each process
    channel: Channel | None = None
    hello: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""
    queue: deque[Task] = field(default_factory=deque)
    children: dict[int, Child] = field(default_factory=dict)  # by ticket
    _popen: subprocess.Popen[bytes] | None = None
    _started: float = 0.0
    _starts: int = 0

    # Its jobs.

    def add(self, task: Task) -> None:
        """Queue a job, and start if that has not happened."""
        self.queue.append(task)
        if self._popen is None and not self.failure:
            self._start()

    @property
    def ready(self) -> bool:
        """Whether it may take its next job now. A job whose server died under it runs alone the second time."""
        if not self.queue or self.failure or self.channel is None or not self.hello:
            return False
        suspect = self.queue[0].deaths > 0 or any(child.task.deaths for child in self.children.values())
        return not (suspect and self.children)

    def run(self, child: Child) -> None:
        """Ask for the process of a job, which is no longer queued."""
        assert self.channel is not None
        self.children[child.task.ticket] = child
        self.channel.send(child.order())  # a server that is gone is noticed when its connection is next read

    def cancel(self) -> list[Job]:
        """Kill what runs, drop what waits. Returns the jobs that will now have no outcome."""
        dropped = []
        for child in self.children.values():
            kin.end_family(child.pid)
            child.forget()
            dropped.append(child.task.job)
        dropped += [task.job for task in self.queue]
        self.children.clear()
        self.queue.clear()
        return dropped

    def give_up(self) -> list[Outcome]:
        """What becomes of the jobs that wait, once it is clear that there will be no server."""
        detail = "\n".join(filter(None, (self.failure, process.tail(self.log).strip())))
        outcomes = [Outcome(task.job, "broken", 0.0, detail=detail) for task in self.queue]
        self.queue.clear()
        return outcomes

    # What it says.

    def greet(self, channel: Channel, hello: Mapping[str, Any]) -> None:
        """It is up and has opened ``channel``, or says why it cannot."""
        channel.owner, self.channel = self, channel
        if "error" in hello:
            self.failure = hello["error"]
        else:
            self.hello = hello

    def take(self, message: Mapping[str, Any]) -> list[Outcome]:
        """Act on one of its messages about a job."""
        child = self.children.get(message.get("ticket", 0))
        if child is None:
            if "forked" in message:
                kin.end_family(message["forked"])  # cancelled before it began
        elif "forked" in message:
            child.pid = message["forked"]
        elif "refused" in message:
            child.broken = f"no process could be forked: {message['refused']}"
            return [self._finish(child, None)]
        elif "exit" in message:
            child.listen()  # its last words may still wait on its own connection
            return [self._finish(child, message["status"])]
        return []

    def _finish(self, child: Child, status: int | None) -> Outcome:
        outcome = child.conclude(status)
        self.children.pop(child.task.ticket, None)
        return outcome

    # Limits.

    def check_start(self, now: float) -> list[Outcome]:
        """Notice that it hangs, or has died, before it was up."""
        if self._popen is not None and not self.hello:
            if now - self._started > STARTUP:
                self.failure = f"the worker server of {self.python} was not up after {STARTUP:.0f} s"
                kin.end_family(self._popen.pid)
            if self._popen.poll() is not None:
                return self.died()
        return []

    def check_jobs(self, table: Mapping[int, kin.Process], now: float) -> list[Outcome]:
        """Hold its jobs to their limits."""
        outcomes = []
        for child in list(self.children.values()):
            if child.began is None:
                if now - child.sent > children.UNREAPED + child.task.job.timeout and self._popen is not None:
                    kin.end_family(self._popen.pid)  # it hangs or was stopped; its death is handled elsewhere
            elif not child.check(table, now):
                outcomes.append(self._finish(child, None))
        return outcomes

    # Its life.

    def _start(self) -> None:
        self._starts += 1
        self._started = time.monotonic()
        self.hello = {}
        self.token = secrets.token_hex(16)
        try:
            self._popen = process.start_worker(self.python, self.address, self.token, self.warm, self.log, self.environ)
        except OSError as error:
            self.failure = f"{self.python} cannot be started: {error.strerror or error}"

    def died(self) -> list[Outcome]:
        """Judge or queue again what ran under it, now that it is dead; start another one, if that may help."""
        self.end(0.5)
        status = self._popen.returncode if self._popen else None
        how = kin.signal_name(-status) if status is not None and status < 0 else f"exit status {status}"
        was_up, self._popen, self.channel = bool(self.hello), None, None
        outcomes = []
        for child in reversed(list(self.children.values())):
            child.listen()
            kin.end_family(child.pid)
            child.task.deaths += 1
            if child.decided:
                outcomes.append(self._finish(child, None))
            elif child.task.deaths > 1:
                child.detail = f"the worker server died twice while this job ran (the last time: {how})"
                outcomes.append(self._finish(child, None))
            else:
                child.forget()
                self.queue.appendleft(child.task)
        self.children.clear()
        if not self.failure and self._starts > (RESTARTS if was_up else 1):
            times = "" if was_up else " before it was up"
            self.failure = f"the worker server of {self.python} died {self._starts} times{times} (last: {how})"
        if not self.failure and self.queue:
            self._start()
        return outcomes

    def end(self, grace: float) -> None:
        """Wait ``grace`` seconds for it to end by itself, then kill it with all that it started."""
        if self._popen is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(grace)
        if self._popen.poll() is None:  # not reaped yet, so the number is still its own
            kin.end_family(self._popen.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(5)
