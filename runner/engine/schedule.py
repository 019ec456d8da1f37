"""The next job to start, and its place: a resting worker or a free slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runner.engine.servers import Server
from runner.engine.workers import Kind, Worker


@dataclass(frozen=True, slots=True)
class Start:
    """The first job in ``server``'s queue of that kind may run: in a worker that rests, else in a new one in
    ``slot``."""

    server: Server
    kind: Kind
    slot: int
    resting: Worker | None = None


def next_start(servers: Sequence[Server], slots: int) -> Start | None:
    """Return the job to start now, None if none may start; dismiss a living worker that is in the way.

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
    for _, server, kind in heads:
        for worker in resting:
            if worker.serves(kind) and server.workers.get(worker.ticket) is worker:
                return Start(server, kind, worker.slot, worker)
    free = set(range(slots)) - {worker.slot for worker in workers}
    _, server, kind = heads[0]
    if free:
        return Start(server, kind, min(free))
    if resting and all(worker.resting or worker.current_job is not None for worker in workers):  # no worker is ending
        min(resting, key=lambda worker: worker.resting_since).dismiss()
    return None
