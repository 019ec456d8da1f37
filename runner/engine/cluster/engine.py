"""The engine on a Ray cluster, or on a Ray of its own on this machine: the same jobs, on many nodes.

On each node an actor hosts a ``LocalEngine``, so jobs run, are limited and are judged as on one machine. A separate
process uses Ray (``driver.py``). The module imports neither Ray nor torch. The scheduler decides which node runs which
job, and what becomes of the jobs of a lost node.

A job that a lost node was running is a suspect. It runs once more, after all others and alone on its node, so that a
second loss has one culprit.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import runner
from runner import interrupts
from runner.contract.job import PHASES, Job
from runner.engine import process_tree, scratch
from runner.engine.interpreters import probe, tail, without_current_folder
from runner.engine.local import LocalEngine
from runner.engine.messages import Ended, Outcome
from runner.engine.processors import usable_processors
from runner.exit_codes import UsageError
from runner.record.events import Notice

GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Where Ray writes the accelerators that it has reserved for an actor."""
PASSED = ("TORCH", "PYTORCH", "TRITON", "AOT_")
"""Prefixes of the environment variables that change what torch does, and so are set on other machines too."""
PLACES = ("_DIR", "_PATH", "_HOME", "_FILE", "_CACHE", "_ROOT", "_TRACE")
"""Suffixes of variables that name a place on one machine; these are not passed."""


SHUTDOWN_TIMEOUT = 3.0
"""Seconds that actors may take to end their workers."""


@dataclass(frozen=True)
class Setup:
    """What every actor of a run needs.

    ``environments`` and ``options`` are arguments of ``LocalEngine``, ``expected`` is torch's build (2.13.0+cpu) by
    environment. ``folder`` is where workers start, with no other environment variables than ``variables``. Without a
    folder they start where Ray starts them, and ``variables`` are added to those of the node.
    """

    environments: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None


@dataclass(frozen=True)
class Report:
    """What a node did since its last report: outcomes without their jobs, and what runs now, both by ticket.

    ``running`` gives seconds and phase, ``environments`` those whose workers have started.
    """

    outcomes: Mapping[int, Outcome]
    running: Mapping[int, tuple[float, str]]
    environments: Sequence[str] = ()


class NodeActor:
    """Runs jobs on its node. All calls come from one thread."""

    def __init__(self, setup: Setup, slots: int, gpus: int = 0) -> None:
        """Undo what Ray did to this process and workers would inherit: variables, folder, blocked signals."""
        reserved = {name: os.environ[name] for name in GPU_VARIABLES if gpus and name in os.environ}
        inherited = {} if setup.folder else _node_variables()
        os.environ.clear()
        os.environ.update({**inherited, **setup.variables, **reserved})
        if setup.folder is not None:
            os.chdir(setup.folder)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._setup = setup
        self._slots = slots

    def prepare(self) -> str:
        """Create the engine. Return why this node cannot be used; empty if it can.

        Raises:
            UsageError: no temporary folder can be made.
        """
        environments = dict(self._setup.environments)
        for name, python in environments.items():
            environments[name], reason = interpreter(python, self._setup.expected.get(name))
            if reason:
                return reason
        self._engine = LocalEngine(environments, self._slots, **self._setup.options)
        return ""

    def step(self, jobs: Sequence[tuple[int, Job]], timeout: float) -> Report:
        """Take jobs with their tickets, then wait until one ends, at most ``timeout`` seconds."""
        for ticket, job in jobs:
            self._engine.submit(replace(job, key=str(ticket)))
        return Report(
            {
                int(outcome.job.key): replace(outcome, job=None)  # type: ignore[arg-type]
                for outcome in self._engine.wait(timeout)
            },
            {int(job.key): (seconds, phase) for job, seconds, phase in self._engine.running()},
            [name for name in self._setup.environments if self._engine.hello(name)],
        )

    def cancel(self) -> None:
        """Kill running jobs and drop waiting ones."""
        self._engine.cancel_all()

    def close(self) -> None:
        """End every process that the engine started."""
        self._engine.close()


def interpreter(python: str, build: str | None) -> tuple[str, str]:
    """Choose this node's interpreter for ``python``: the same path, else the Python that Ray runs.

    Args:
        python: a path.
        build: the build that torch must have. None: any, but only at the same path.

    Returns:
        The path and an empty text; or an empty path and the reason.
    """
    reasons = []
    for candidate in dict.fromkeys((python, sys.executable) if build else (python,)):
        facts = probe(candidate)
        if "error" not in facts and build in (None, facts["build"]):
            return candidate, ""
        reasons.append(facts.get("error") or f"{candidate} has torch {facts['build']}, not {build}")
    return "", "; ".join(reasons)


def passed_on(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the environment variables of control that other machines need too, so that verdicts agree."""
    return {n: v for n, v in variables.items() if n.startswith(PASSED) and not n.endswith(PLACES)}


def _node_variables() -> dict[str, str]:
    """Return the environment with which Ray was started on this node: the parent's, as Ray changes that of its
    workers."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            pairs = [os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0") if pair]
    except OSError:
        return dict(os.environ)
    return {name: value for name, _, value in pairs if name and not name.startswith("RAY_")}


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
        has_slot = not node.quarantined and len(node.tasks) < (1 if task.losses else node.slots)
        kind, _, number = task.job.device.partition(":")
        needed = (int(number) + 1 if number.isdigit() else 1) if kind == "cuda" else 0
        return has_slot and (
            node.gpus >= needed or all(peer.gpus < needed for peer in self.nodes.values() if not peer.refused)
        )

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
            outcomes.append(replace(outcome, job=task.job, host=node.name, lost=task.losses))
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


CONNECT = 60.0
"""Seconds within which a cluster must answer."""
SLOW = 10.0
"""Seconds after which a notice says that a node has no free CPUs for us yet."""
STEP, SUSPECT_STEP = 0.2, 0.02
"""Seconds after which a node reports though no job has ended; and one with a suspect, whose phase must be known."""
LEFT = "it left the cluster"
_PREFIX = "runner-ray-run-"
_START = "import sys; sys.path.insert(0, sys.argv[3]); from runner.engine.cluster.driver import main; main()"


class RayEngine(contextlib.AbstractContextManager["RayEngine"]):
    """Runs jobs on a cluster under the interpreters of ``environments``; used like a ``LocalEngine``."""

    def __init__(
        self,
        environments: Mapping[str, str],
        slots: int | None = None,
        *,
        address: str | None = None,
        gpus: bool = False,
        warm: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        log_folder: str | os.PathLike[str] | None = None,
        kernel_cache: str = "shared",
        expected: Mapping[str, str] | None = None,
        patience: float = 20.0,
    ) -> None:
        """Start a Ray on this machine, without waiting for it, or join a cluster.

        Args:
            environments, warm, environ, kernel_cache: as of a ``LocalEngine``, on each node (see ``docs/cluster.md``).
            slots: how many jobs run at once, all nodes together. None: this machine's cores, or all CPUs of the
            cluster. address: the cluster, as ``ray.init`` takes it; None, or ``local``: a Ray of our own, which ends
            with the engine. gpus: reserve the GPUs of a cluster's nodes. Without it jobs on ``cuda`` find none there.
            log_folder: where what jobs print is kept, on this machine only; nowhere if None.
            expected: torch's whole version (2.13.0+cpu) by environment; a node without it is not used.
            patience: seconds to wait for a new node when all have left the cluster.

        Raises:
            UsageError: Ray is not installed, the cluster does not answer, or no temporary folder can be made.
        """
        spec = importlib.util.find_spec("ray")
        if spec is None or spec.origin is None:  # a mere folder of that name has no origin
            raise UsageError("Ray is not installed: pip install 'torch-spec-runner[ray]'")
        self._address = None if address == "local" else address
        own = self._address is None
        if address is not None and not own:
            _check_listening(address)
        self._environments = dict(environments)
        self._gpus = gpus
        self._limit = None if own else slots
        self._patience = 0.0 if own else patience
        self._scheduler = Scheduler(self._limit)
        self._outcomes: list[Outcome] = []
        self._notices: list[str] = []
        self._calls = 0
        self._joined = False  # the cluster's nodes are known
        self._last_usable = math.inf  # when a node could run jobs, or else the cluster was joined
        self._failure = ""  # why nothing can run any more
        self._closed = False
        self.slots = slots or usable_processors()
        """How many jobs run at once; of a cluster known as soon as it is joined, later nodes not counted."""
        log_path = os.path.abspath(log_folder) if own and log_folder is not None else None
        options = {"warm": warm, "environ": environ, "log_folder": log_path, "kernel_cache": kernel_cache}
        variables = dict(os.environ) if own else passed_on(os.environ)
        setup = Setup(self._environments, options, dict(expected or {}), variables, os.getcwd() if own else None)
        package = str(Path(runner.__file__).resolve().parent)
        self._folder = scratch.make(_PREFIX, 16)  # Ray puts sockets deep in it, whose paths may have 107 bytes
        self._popen, self._driver = self._start(package, own)
        self._send(setup, self._address, package)
        if not own:
            self._await_cluster()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def submit(self, job: Job) -> None:
        """Queue a job.

        Raises:
            KeyError: the job names an environment that the engine does not have.
            RuntimeError: the engine is closed.
        """
        if self._closed:
            raise RuntimeError("the engine is closed")
        if job.environment not in self._environments:
            raise KeyError(job.environment)
        self._scheduler.add(job)

    def pending(self) -> int:
        """Return how many submitted jobs ``wait`` has not returned yet."""
        return len(self._scheduler.tasks()) + len(self._outcomes)

    def running(self) -> list[tuple[Job, float, str]]:
        """Return the jobs that run now, each with its seconds so far and its phase, as last reported."""
        now = time.monotonic()
        return [
            (task.job, task.seconds + now - node.reported, task.phase)
            for node in self._scheduler.nodes.values()
            for task in node.tasks.values()
            if task.running
        ]

    def notices(self) -> list[Notice]:
        """Return what a person should know since the last call: nodes that are lost, or not used, and why."""
        notices, self._notices = self._notices, []
        return [*map(Notice, notices)]

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """Wait until at least one job ends, ``timeout`` seconds pass (None: no limit), or none is left.

        Jobs are given to nodes, and their limits enforced, inside this call only, so call it again soon.
        """
        self._receive(0)
        self._await(lambda: bool(self._outcomes) or not self._scheduler.tasks(), timeout)
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def cancel_all(self) -> list[Job]:
        """Kill what runs, drop what waits. Return the jobs that will now have no outcome."""
        dropped = self._scheduler.cancel()
        for node in self._scheduler.nodes.values():
            if node.ready:
                self._call(node, "call", "cancel")
        return [task.job for task in dropped]

    def close(self) -> None:
        """End every process that the engine started, and remove its temporary folder. Can be called twice."""
        with interrupts.held():
            if self._closed:
                return
            self._closed = True
            self._scheduler.cancel()
            self._driver.close()  # upon which the driver ends
            if self._joined:  # else no job runs yet, and Ray may take its time to start
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._popen.wait(SHUTDOWN_TIMEOUT + 2)
            self._end()

    def _await(self, condition: Callable[[], bool], timeout: float | None) -> None:
        """Dispatch jobs and take answers until the condition holds, Ray fails or time is up."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        self._advance()
        while not condition() and not self._failure and (remaining := end - time.monotonic()) > 0:
            self._receive(min(remaining, 1.0))
            self._advance()

    def _advance(self) -> None:
        """Dispatch jobs, and give them up when no node is left."""
        if self._failure:
            self._outcomes += self._scheduler.give_up(f"Ray: {self._failure}")
        now = time.monotonic()
        for node, tasks in self._scheduler.dispatch():
            jobs = [(task.ticket, task.job) for task in tasks]
            self._call(node, "call", "step", jobs, SUSPECT_STEP if node.quarantined else STEP)
        if any(not node.refused for node in self._scheduler.nodes.values()):
            self._last_usable = now
        elif now - self._last_usable > self._patience:
            self._outcomes += self._scheduler.give_up(self._scheduler.reasons())

    def _call(self, node: Node, kind: str, *arguments: Any) -> None:
        """Send a command that the node's actor answers. The answer to an earlier command is ignored."""
        self._calls += 1
        node.call = self._calls
        self._send(kind, node.call, node.id, *arguments)

    def _lose(self, node: Node, how: str, *, blame: bool = True) -> None:
        """End a node's actor, which is gone or not wanted any more."""
        jobs = sum(task.running for task in node.tasks.values())
        self._outcomes += self._scheduler.lose(node, how, blame=blame)
        self._send("kill", node.id)
        if blame:
            again = f"; it was running {jobs} job{'s'[: jobs != 1]}" if jobs else ""
            self._notices.append(f"{node.label} was lost: {how}{again}")
        if node.refused not in ("", LEFT):
            self._notices.append(f"{node.label} is not used: {node.refused}")

    def _await_cluster(self) -> None:
        """Wait until the nodes can take jobs. Raise UsageError if none can."""
        nodes = self._scheduler.nodes
        self._await(lambda: self._joined, CONNECT)
        self._await(lambda: all(node.ready or node.refused for node in nodes.values()), SLOW)
        self.slots = sum(node.slots for node in nodes.values() if not node.refused)
        if self._failure or not self.slots:
            unusable = self._scheduler.reasons() if self._joined else f"no answer within {CONNECT:.0f} s"
            self.close()
            raise UsageError(f"no Ray cluster at {self._address}: {self._failure or unusable}")
        self.slots = min(self.slots, self._limit or self.slots)

    def _receive(self, timeout: float) -> None:
        """Take in what has arrived, after at most ``timeout`` seconds."""
        try:
            while not self._failure and not self._closed and self._driver.poll(timeout):
                with interrupts.held():
                    kind, *values = self._driver.recv()
                    getattr(self, f"_take_{kind}")(*values)
                timeout = 0
        except (EOFError, ConnectionResetError):
            self._take_failed(f"the process that speaks to Ray has ended\n{tail(self._folder / 'log')}".strip())

    def _take_failed(self, reason: str) -> None:
        self._failure = reason
        self._end()

    def _take_nodes(self, rows: Sequence[tuple[str, str, int, int]]) -> None:
        """Add new nodes, lose those that have left, and start actors on nodes without one."""
        nodes, now = self._scheduler.nodes, time.monotonic()
        self._joined, self._last_usable = True, min(now, self._last_usable)
        for key, name, cpus, gpus in rows:
            if key in nodes:
                continue
            if self._address is None:
                name, cpus = "", self.slots
            elif any(node.name == name for node in nodes.values()):
                name = f"{name} ({key[:6]})"
            nodes[key] = Node(key, name, min(max(1, cpus), self._limit or max(1, cpus)), gpus if self._gpus else 0)
        alive = {key for key, *_ in rows}
        for node in nodes.values():
            if node.id not in alive:
                node.refused = node.refused or LEFT
                if node.started is not None and not node.call:  # else the call will fail, and say how
                    self._lose(node, LEFT)
            elif node.started is None and not node.refused:
                node.started = now
                self._call(node, "start", node.slots, node.gpus)
            elif node.started is not None and not node.ready and not node.slow and now - node.started > SLOW:
                node.slow = True
                self._notices.append(f"{node.label}: its {node.slots} CPUs are not free yet")

    def _take_answer(self, number: int, answer: str | Report | None, loss: str, blame: bool) -> None:
        """Take what a node's actor has answered, or why it is lost."""
        node = next((node for node in self._scheduler.nodes.values() if node.call == number), None)
        if node is None:
            return  # the call is not of interest any more
        node.call = 0
        if loss:
            self._lose(node, loss, blame=blame)
        elif isinstance(answer, Report):
            self._outcomes += self._scheduler.finish(node, answer)
        elif answer is not None:  # of NodeActor.prepare
            node.ready, node.refused = not answer, answer
        if node.refused and node.started is not None:
            self._lose(node, node.refused, blame=False)

    def _start(self, package: str, own: bool) -> tuple[subprocess.Popen[bytes], Connection]:
        """Start the driver in a folder that is empty, or for a Ray of our own holds only our package.

        Ray puts that folder first in the ``sys.path`` of its workers on this machine; a person's may hold anything.
        """
        library, empty = self._folder / "lib", self._folder / "empty"
        library.mkdir()
        empty.mkdir()
        (library / "runner").symlink_to(package)
        connection, remote = Pipe()
        with remote, (self._folder / "log").open("ab") as log:
            popen = subprocess.Popen(
                [sys.executable, "-c", _START, str(remote.fileno()), str(self._folder), str(library)],
                cwd=library if own else empty,
                env=_variables(own),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[remote.fileno()],
                start_new_session=True,  # a Ctrl-C at the terminal is control's alone to handle
            )
        return popen, connection

    def _send(self, *message: Any) -> None:
        with interrupts.held(), contextlib.suppress(OSError):  # that the driver has ended is noticed by _receive
            self._driver.send(message)

    def _end(self) -> None:
        """End what is left of Ray, and remove its files."""
        process_tree.kill_tree(self._popen.pid, reaped=self._popen.poll() is not None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(5)
        self._driver.close()
        scratch.remove(self._folder)


def _check_listening(address: str) -> None:
    """Raise UsageError if nobody listens at an address: Ray itself would try for a minute or more."""
    with contextlib.suppress(ValueError):  # Ray will say what is wrong with the address
        parts = urlsplit(address if "://" in address else f"//{address}")
        if parts.hostname and parts.port:  # else it is a word such as "auto"
            try:
                socket.create_connection((parts.hostname, parts.port), timeout=10).close()
            except OSError as error:
                raise UsageError(f"no Ray cluster at {address}: {error.strerror or error}") from None


def _variables(own: bool) -> dict[str, str]:
    """Return the environment variables of the driver, and of a Ray of our own."""
    inherited = without_current_folder(os.environ)
    variables = {name: value for name, value in inherited.items() if not (own and name.startswith("RAY_"))}
    variables |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    if own:
        variables |= {
            # Nobody else on this machine may run code as us; and no token is written to the home folder.
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            # Jobs have limits of their own, and shall run as they would without Ray.
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_worker_niceness": "0",
            "RAY_worker_oom_score_adjustment": "0",
        }
    return variables
