"""Which node of a cluster runs which job, and what becomes of the jobs of a node that is lost. Knows nothing of Ray.

A job that was running on a lost node is run once more, with nothing beside it on its node, so that a second loss has
one culprit. Jobs that were only waiting there just run elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from runner.engine.cluster.actor import Report
from runner.engine.messages import PHASES, Job, Outcome

FRUITLESS = 6
"""How often in a row a node may be lost without having finished a job, before it is left alone."""
UNSEEN = 2
"""How often a job may be lost while it waited, before it counts as suspect too: it may have died too fast to be seen."""


@dataclass(slots=True, eq=False)
class Task:
    """A submitted job.

    ``deaths`` counts the nodes that were lost while it ran, ``unseen`` those while it waited there. ``phase`` is the
    furthest that it is known to have come, after ``seconds``.
    """

    ticket: int
    job: Job
    deaths: int = 0
    unseen: int = 0
    phase: str = PHASES[0]
    seconds: float = 0.0

    @property
    def suspect(self) -> bool:
        """Whether it runs alone on its node."""
        return self.deaths > 0 or self.unseen >= UNSEEN


@dataclass(slots=True, eq=False)
class Node:
    """A machine of the cluster. ``call`` is what its host was asked and has not answered yet.

    ``refused`` says why it is not used (any more). ``tasks`` are those it was given, in that order. ``name`` is empty
    for this machine.
    """

    id: str
    name: str
    slots: int
    gpus: int = 0
    actor: Any = None
    call: Any = None
    asked: float = 0.0  # when its host was asked for, monotonic seconds
    waited: bool = False  # whether it was told that this takes long
    ready: bool = False
    refused: str = ""
    tasks: dict[int, Task] = field(default_factory=dict)
    running: dict[int, tuple[float, str]] = field(default_factory=dict)
    up: set[str] = field(default_factory=set)  # environments whose workers came up here
    fruitless: int = 0

    @property
    def room(self) -> int:
        """How many tasks it may still be given: a few more than run, so that no slot waits for control."""
        return self.slots + max(2, self.slots // 4) - len(self.tasks)

    @property
    def quarantined(self) -> bool:
        """Whether it holds a suspect."""
        return any(task.suspect for task in self.tasks.values())

    def label(self) -> str:
        """For people."""
        return f"node {self.name}" if self.name else "the Ray worker on this machine"


class Spread:
    """Queues, and the nodes that empty them. At most ``limit`` jobs are given out at once (None: no limit)."""

    def __init__(self, limit: int | None = None) -> None:
        """No nodes, no jobs."""
        self.nodes: dict[str, Node] = {}
        self._limit = limit
        self._queue: deque[Task] = deque()
        self._suspects: deque[Task] = deque()
        self._ward: Node | None = None

    # Jobs come in.

    def add(self, ticket: int, job: Job) -> None:
        """Queue a job."""
        self._queue.append(Task(ticket, job))

    def waiting(self) -> bool:
        """Whether jobs wait for a node."""
        return bool(self._queue or self._suspects)

    def cancel(self) -> None:
        """Forget every job."""
        self._queue.clear()
        self._suspects.clear()
        for node in self.nodes.values():
            node.tasks.clear()
            node.running.clear()

    # Jobs go out.

    def deal(self) -> dict[str, list[Task]]:
        """Give jobs to nodes that listen, in the order in which they came; by node id."""
        given: dict[str, list[Task]] = defaultdict(list)
        listening = [node for node in self.nodes.values() if node.ready and node.call is None]
        self._choose_ward()
        for node in listening:
            if not node.tasks and (node is self._ward or not self._queue) and self._may():
                suspect = next((task for task in self._suspects if self._fits(task.job, node)), None)
                if suspect is not None:
                    self._suspects.remove(suspect)
                    self._give(node, suspect, given)
        left: deque[Task] = deque()
        while self._queue and self._may():
            task = self._queue.popleft()
            able = [node for node in listening if node is not self._ward and not node.quarantined and node.room > 0]
            if not able:
                left.append(task)
                break
            able = [node for node in able if self._fits(task.job, node)]
            if able:
                self._give(min(able, key=lambda node: len(node.tasks) / node.slots), task, given)
            else:
                left.append(task)
        self._queue.extendleft(reversed(left))
        return given

    def _may(self) -> bool:
        return self._limit is None or sum(len(node.tasks) for node in self.nodes.values()) < self._limit

    @staticmethod
    def _give(node: Node, task: Task, given: dict[str, list[Task]]) -> None:
        node.tasks[task.ticket] = task
        given[node.id].append(task)

    def _choose_ward(self) -> None:
        """One node is kept free for suspects as long as there are any."""
        if not self._suspects:
            self._ward = None
        elif self._ward is None or not self._ward.ready or not self._fits(self._suspects[0].job, self._ward):
            usable = [node for node in self.nodes.values() if node.ready and self._fits(self._suspects[0].job, node)]
            self._ward = min(usable, key=lambda node: (not node.quarantined, len(node.tasks)), default=None)

    def _fits(self, job: Job, node: Node) -> bool:
        """Whether the node has the GPU that the job names. One that no node has is the worker's to report."""
        kind, _, number = job.device.partition(":")
        if kind != "cuda":
            return True
        needed = int(number) + 1 if number.isdigit() else 1
        return node.gpus >= needed or all(other.gpus < needed for other in self.nodes.values() if not other.refused)

    # News come back.

    def take(self, node: Node, report: Report) -> list[tuple[int, Outcome]]:
        """What a node has said of its jobs; the outcomes that stand."""
        node.up |= set(report.hellos)
        node.running = {ticket: state for ticket, state in report.running.items() if ticket in node.tasks}
        standing = []
        for ticket, outcome in report.outcomes:
            task = node.tasks.pop(ticket, None)
            if task is None:
                continue  # cancelled
            if outcome.ended == "broken" and self._blames_node(node, task):
                # Else a node whose torch cannot be imported would swallow the whole run, faster than others work.
                node.refused = (outcome.detail.splitlines() or ["its workers do not start"])[0]
                (self._suspects if task.suspect else self._queue).appendleft(task)
                continue
            node.fruitless = 0
            standing.append((ticket, dataclasses.replace(outcome, host=node.name, lost=task.deaths)))
        return standing

    def _blames_node(self, node: Node, task: Task) -> bool:
        others = [other for other in self.nodes.values() if other is not node and other.ready]
        return task.job.environment not in node.up and bool(others)

    def lose(self, node: Node, how: str, *, blame: bool = True) -> list[tuple[int, Outcome]]:
        """A node's host is gone. Its jobs are queued again, but for one that has now lost two nodes.

        Args:
            node: the node, which has no host from now on.
            how: what happened, for people.
            blame: whether a job may have been the cause.
        """
        outcomes, again = [], []
        alone = len(node.tasks) == 1 and node.quarantined
        for ticket, task in node.tasks.items():
            seconds, phase = node.running.get(ticket, (0.0, task.phase))
            task.seconds, task.phase = max((task.seconds, task.phase), (seconds, phase), key=_progress)
            seen = blame and (ticket in node.running or alone)
            task.deaths += seen
            task.unseen += blame and not seen
            if task.deaths > 1:
                where = f", the last time {node.name}" if node.name else ""
                detail = f"the node that ran it was lost twice while it did so{where} ({how})"
                outcomes.append((ticket, _outcome(task, "no-result", detail, node.name)))
            elif task.suspect:
                self._suspects.append(task)
            else:
                again.append(task)
        self._queue.extendleft(reversed(again))
        node.tasks, node.running = {}, {}
        node.actor, node.call, node.ready, node.up = None, None, False, set()
        node.fruitless = 0 if outcomes else node.fruitless + 1
        if node.fruitless >= FRUITLESS:
            node.refused = f"lost {FRUITLESS} times in a row without a result (the last time: {how})"
        return outcomes

    def give_up(self, reason: str) -> list[tuple[int, Outcome]]:
        """No node is left: the outcomes of all jobs that wait."""
        tasks = [*self._suspects, *self._queue]
        self._suspects.clear()
        self._queue.clear()
        return [(task.ticket, _outcome(task, "broken", reason)) for task in tasks]


def _progress(state: tuple[float, str]) -> int:
    """How far a job has come."""
    return PHASES.index(state[1]) if state[1] in PHASES else -1


def _outcome(task: Task, ended: str, detail: str, host: str = "") -> Outcome:
    """An outcome, without its job, of a task that no host will report."""
    job: Any = None
    return Outcome(job, ended, task.seconds, task.phase, detail=detail, host=host, lost=task.deaths)
