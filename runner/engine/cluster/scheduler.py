"""Which node runs which job, and what becomes of the jobs of a lost node. The module knows nothing of Ray.

A job that a lost node was running is a suspect. It runs once more, after all others and alone on its node, so that a
second loss has one culprit.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field

from runner.contract.job import PHASES, Job
from runner.engine.cluster.actor import Report
from runner.engine.messages import Ended, Outcome

FRUITLESS = 6
"""How many losses in a row, without a finished job between them, exclude a node."""


@dataclass(slots=True, eq=False)
class Task:
    """A submitted job. ``losses`` counts the nodes lost while it ran. ``running``, ``seconds``, ``phase``: as last
    reported.

    ``excused`` says that a node was lost while the job waited there. It excuses once: the job may have been too quick
    to be reported as running.
    """

    ticket: int
    job: Job
    losses: int = 0
    excused: bool = False
    running: bool = False
    seconds: float = 0.0
    phase: str = PHASES[0]

    def outcome(self, ended: Ended, detail: str, host: str = "") -> Outcome:
        """Return the outcome of a job that no node will report."""
        return Outcome(self.job, ended, self.seconds, self.phase, detail=detail, host=host, lost=self.losses)


@dataclass(slots=True, eq=False)
class Node:
    """A machine of the cluster. ``name`` is empty for this machine, ``refused`` says why the node is not used."""

    id: str
    name: str
    slots: int
    gpus: int = 0
    started: float | None = None  # when its actor was requested, on time.monotonic's clock
    slow: bool = False  # a notice said that its CPUs are not free
    ready: bool = False  # the actor takes jobs
    refused: str = ""
    call: int = 0  # number of the call that the actor has not answered
    tasks: dict[int, Task] = field(default_factory=dict)
    reported: float = 0.0  # when it reported last
    environments: set[str] = field(default_factory=set)  # those whose workers have started here
    fruitless: int = 0

    @property
    def quarantined(self) -> bool:
        """Whether it runs a suspect."""
        return any(task.losses for task in self.tasks.values())

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"node {self.name}" if self.name else "the Ray worker on this machine"


class Scheduler:
    """Assigns jobs to nodes, at most ``limit`` at once on all of them (None: as many as they have slots)."""

    def __init__(self, limit: int | None = None) -> None:
        self.nodes: dict[str, Node] = {}
        self.queue: list[Task] = []
        self._limit = limit
        self._tickets = 0

    def add(self, job: Job) -> None:
        """Queue a job."""
        self._tickets += 1
        self.queue.append(Task(self._tickets, job))

    def tasks(self) -> list[Task]:
        """Return the jobs that have no outcome yet."""
        return [task for node in self.nodes.values() for task in node.tasks.values()] + self.queue

    def running(self) -> list[tuple[Job, float, str]]:
        """Return the jobs that run now, each with its seconds so far and its phase."""
        now = time.monotonic()
        return [
            (task.job, task.seconds + now - node.reported, task.phase)
            for node in self.nodes.values()
            for task in node.tasks.values()
            if task.running
        ]

    def cancel(self) -> list[Task]:
        """Drop every job, and return them."""
        tasks, self.queue = self.tasks(), []
        for node in self.nodes.values():
            node.tasks = {}
        return tasks

    def dispatch(self) -> list[tuple[Node, list[Task]]]:
        """Assign jobs in order. Return the nodes that have jobs and no unanswered call, each with its new jobs."""
        idle = [node for node in self.nodes.values() if node.ready and not node.call]
        assigned: dict[str, list[Task]] = {node.id: [] for node in idle}
        active = sum(len(node.tasks) for node in self.nodes.values())
        has_room = [node for node in idle if len(node.tasks) < node.slots and not node.quarantined]
        for task in ([task for task in self.queue if not task.losses] or [*self.queue]) if has_room else ():
            # A hundred nodes ask several times a second, and thousands of jobs wait: most of these are not looked at.
            has_room = [node for node in has_room if len(node.tasks) < node.slots]
            if not has_room or active == self._limit:
                break
            nodes = [node for node in has_room if self._accepts(node, task)]
            if nodes:
                node = min(nodes, key=lambda node: len(node.tasks) / node.slots)
                self.queue.remove(task)
                node.tasks[task.ticket] = task
                assigned[node.id].append(task)
                active += 1
        return [(node, assigned[node.id]) for node in idle if node.tasks]

    def _accepts(self, node: Node, task: Task) -> bool:
        """Return whether the node has a free slot, and the GPU that the job names.

        A GPU that no node has is for a worker to report.
        """
        if node.quarantined or len(node.tasks) >= (1 if task.losses else node.slots):
            return False
        kind, _, number = task.job.device.partition(":")
        needed = (int(number) + 1 if number.isdigit() else 1) if kind == "cuda" else 0
        return node.gpus >= needed or all(peer.gpus < needed for peer in self.nodes.values() if not peer.refused)

    def finish(self, node: Node, report: Report) -> list[Outcome]:
        """Take a node's report. Return its outcomes, without those of cancelled jobs.

        Set ``node.refused`` if the node cannot start its workers while other nodes are ready: it would end all jobs,
        faster than other nodes run them.
        """
        node.environments |= set(report.environments)
        node.reported = time.monotonic()
        for ticket, task in node.tasks.items():
            task.running = ticket in report.running
            if task.running:
                task.seconds, task.phase = report.running[ticket]
        peers = any(peer.ready for peer in self.nodes.values() if peer is not node)
        outcomes = []
        for ticket, outcome in report.outcomes.items():
            if ticket not in node.tasks:
                continue  # cancelled
            task = node.tasks[ticket]
            if outcome.ended == "broken" and task.job.environment not in node.environments and peers:
                node.refused = (outcome.detail.splitlines() or ["its workers do not start"])[0]
                continue  # the job runs elsewhere
            del node.tasks[ticket]
            node.fruitless = 0
            outcomes.append(dataclasses.replace(outcome, job=task.job, host=node.name, lost=task.losses))
        return outcomes

    def lose(self, node: Node, how: str, *, blame: bool = True) -> list[Outcome]:
        """Queue the jobs of a node whose actor is gone. Return the outcome of a job that has now lost two nodes.

        Args:
            node: the node, without an actor from now on.
            how: what happened, for people.
            blame: whether a job may be the cause.
        """
        where = f", the last time {node.name}" if node.name else ""
        for task in node.tasks.values():
            task.losses += blame and (task.excused or task.job.environment in node.environments)
            task.excused |= blame
            task.running = False
        self.queue[:0] = [task for task in node.tasks.values() if task.losses < 2]
        outcomes = [
            task.outcome("no-result", f"the node that ran it was lost twice while it did so{where} ({how})", node.name)
            for task in node.tasks.values()
            if task.losses >= 2
        ]
        node.tasks, node.environments = {}, set()
        node.started, node.ready, node.call = None, False, 0
        node.fruitless = 0 if outcomes else node.fruitless + 1
        if node.fruitless >= FRUITLESS:
            node.refused = node.refused or f"lost {FRUITLESS} times in a row without a result (the last time: {how})"
        return outcomes

    def give_up(self, reason: str) -> list[Outcome]:
        """End every job as a failure of the harness. Return the outcomes."""
        return [task.outcome("broken", reason) for task in self.cancel()]

    def reasons(self) -> str:
        """Say why no node is of use."""
        nodes = [f"{node.label}: {node.refused}" for node in self.nodes.values()]
        return "no node can run jobs; " + ("; ".join(nodes) or "none has a CPU")
