"""The process that speaks to Ray, one a run: it starts or joins a cluster and keeps a host on every node of it.

Started by ``RayEngine`` (``ray.py``), with which it exchanges pickled tuples. Down come an ``Order``, then
``("submit", [(ticket, job)])`` and ``("cancel", number)``. Up go ``("up", slots)`` or ``("failed", reason)``, then
``("news", News)`` and ``("cancelled", number)``.

It ends when control closes the connection or dies, with all that it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import logging
import os
import queue
import re
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from runner.engine import process_tree
from runner.engine.cluster.actor import Host, Report, Setup
from runner.engine.cluster.scheduler import Node, Spread
from runner.engine.messages import Outcome

SURVEY = 2.0
"""Seconds between two looks at which nodes there are."""
LISTEN = 0.02
"""Seconds that control's words may wait while Ray is listened to."""
STEP = 0.25
"""Seconds after which a host answers though nothing has happened."""
TICK, CLOSE_TICK = 0.1, 0.01
"""Seconds within which a host tells that a job begins or comes to its next phase; and that a suspect does so."""
SLOW = 10.0
"""Seconds after which a person is told that a node has no room for us yet."""
FAREWELL = 3.0
"""Seconds that hosts may take to end what they run."""
STORE = 80 << 20
"""Bytes of the object store of a Ray of our own, about the least that it accepts."""
LEFT = "it left the cluster"
_PR_SET_CHILD_SUBREAPER = 36
_CAUSE = re.compile(r"The actor (?:is dead|died) because ([^.\n]+)")


@dataclass(frozen=True)
class Order:
    """What control wants of Ray.

    ``setup`` is every host's. ``address`` names a cluster; with None one is started for this run, in ``folder``, where
    everything of the run lies and which is removed in the end. ``package`` is the folder of the package ``runner``,
    which a cluster's nodes are sent. ``limit`` is how many jobs may run at once on all nodes together (None: as many as
    the nodes have CPUs), ``gpus`` asks to reserve the GPUs of nodes, ``patience`` is in seconds: how long to wait for
    a new node when none is left.
    """

    setup: Setup
    address: str | None
    folder: str
    package: str
    limit: int | None = None
    gpus: bool = False
    patience: float = 20.0


@dataclass(frozen=True)
class News:
    """What has happened. Outcomes come without their jobs; ``running`` is of the node whose id is ``node``."""

    outcomes: list[tuple[int, Outcome]] = field(default_factory=list)
    node: str = ""
    running: Mapping[int, tuple[float, str]] = field(default_factory=dict)
    hellos: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def main() -> None:
    """Serve the control process at the other end of file descriptor ``argv[1]``; never returns."""
    os.set_inheritable(int(sys.argv[1]), False)
    # Whoever loses its parent becomes our child, and so is found in the end.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    control = Connection(int(sys.argv[1]))
    order: Order = control.recv()
    words: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(control, words, order), daemon=True).start()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # control is gone
        try:
            ray = importlib.import_module("ray")
            _join(ray, order)
        except (RuntimeError, ValueError, OSError, ImportError) as error:
            control.send(("failed", f"{type(error).__name__}: {error}"))
            _end(order)
        cluster = Cluster(ray, order, control, words)
        try:
            cluster.run()
        finally:
            cluster.close()
    _end(order)


def _listen(control: Connection, words: queue.SimpleQueue[tuple[Any, ...]], order: Order) -> None:
    """Take in what control says, so that it never has to wait; once it is gone, see to our end."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            words.put(control.recv())
    words.put(("close",))
    time.sleep(FAREWELL + 1)  # the main thread may be inside of Ray and never come back
    _end(order)


def _end(order: Order) -> NoReturn:
    """End this process with its whole family, and remove its files."""
    process_tree.kill_tree(os.getpid(), reaped=True)
    deadline = time.monotonic() + 1
    with contextlib.suppress(ChildProcessError):  # all are collected; in a container nobody else may do it
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
    shutil.rmtree(order.folder, ignore_errors=True)
    os._exit(0)


def _join(ray: Any, order: Order) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.CRITICAL}
    if order.address is None:
        ray.init(
            address="local",  # never one that RAY_ADDRESS or an earlier "ray start" offers
            num_cpus=1,  # for the one actor: each CPU more costs a process that waits for nothing
            num_gpus=0,  # left to the workers, as they are without Ray
            include_dashboard=False,
            object_store_memory=STORE,
            _temp_dir=os.path.join(order.folder, "ray"),
            **options,
        )
    else:
        ray.init(address=order.address, runtime_env={"py_modules": [order.package]}, **options)


class Cluster:
    """Carries jobs from control to hosts, and outcomes back."""

    def __init__(self, ray: Any, order: Order, control: Connection, words: queue.SimpleQueue[tuple[Any, ...]]) -> None:
        """Ray is up; no host is yet."""
        self._ray = ray
        self._order = order
        self._control = control
        self._words = words
        self._spread = Spread(order.limit)
        self._next_survey = 0.0
        self._last_used = time.monotonic()  # when a node was last of use, or might have been

    def run(self) -> None:
        """Serve until control closes.

        Raises:
            BrokenPipeError, ConnectionResetError: control is gone.
        """
        slots, reason = self._muster()
        if reason:
            self._control.send(("failed", reason))
            return
        self._control.send(("up", min(slots, self._order.limit or slots)))
        while self._obey():
            self._survey()
            for number, tasks in self._spread.deal().items():
                self._step(self._spread.nodes[number], [(task.ticket, task.job) for task in tasks])
            self._hear()
            self._check_hope()

    def _muster(self) -> tuple[int, str]:
        """Wait a little for all hosts. How many slots they have, or why there will be none."""
        nodes = self._spread.nodes
        end = time.monotonic() + SLOW
        while not nodes or any(not (node.ready or node.refused) for node in nodes.values()):
            self._survey()
            self._hear()
            if not nodes or time.monotonic() > end:
                break
        slots = sum(node.slots for node in nodes.values() if not node.refused)
        return slots, "" if slots else self._why()

    # Control.

    def _obey(self) -> bool:
        """Do what control says; False at its end. Waits for its words while there is nothing else to do."""
        busy = self._spread.waiting() or any(node.call or node.tasks for node in self._spread.nodes.values())
        with contextlib.suppress(queue.Empty):
            word = self._words.get(timeout=0.001 if busy else SURVEY)
            while True:
                if word[0] == "close":
                    return False
                if word[0] == "submit":
                    for ticket, job in word[1]:
                        self._spread.add(ticket, job)
                elif word[0] == "cancel":
                    self._cancel()
                    self._control.send(("cancelled", word[1]))
                word = self._words.get_nowait()
        return True

    def _tell(self, **news: Any) -> None:
        if any(news.values()):
            self._control.send(("news", News(**news)))

    # Nodes.

    def _survey(self) -> None:
        """See which nodes there are, and put a host where none is."""
        now = time.monotonic()
        if now < self._next_survey:
            return
        self._next_survey = now + SURVEY
        nodes = self._spread.nodes
        alive = {entry["NodeID"]: entry for entry in self._ray.nodes() if entry["Alive"]}
        for number, entry in alive.items():
            if number not in nodes and (node := self._describe(number, entry)) is not None:
                nodes[number] = node
        for number, node in nodes.items():
            if number not in alive:
                node.refused = node.refused or LEFT
                if node.actor is not None and node.call is None:  # else its call will say so, and how
                    self._lose(node, LEFT)
            elif node.actor is None and not node.refused:
                self._employ(node)
            elif not node.ready and not node.waited and not node.refused and now - node.asked > SLOW:
                node.waited = True
                self._tell(notices=[f"{node.label()}: its {node.slots} CPUs are not free yet"])

    def _describe(self, number: str, entry: Mapping[str, Any]) -> Node | None:
        """The node of an entry of ``ray.nodes()``; None if it has no CPU for anybody."""
        if self._order.address is None:
            return Node(number, "", self._order.setup.slots)
        free = {**entry["Resources"], **self._available(number)}
        if entry["Resources"].get("CPU", 0) < 1:
            return None
        name = entry["NodeManagerHostname"] or entry["NodeManagerAddress"]
        if any(node.name == name for node in self._spread.nodes.values()):
            name = f"{name} ({number[:6]})"
        slots = max(1, int(free.get("CPU", 0)))
        if self._order.limit is not None:
            slots = min(slots, self._order.limit)
        return Node(number, name, slots, int(free.get("GPU", 0)) if self._order.gpus else 0)

    def _available(self, number: str) -> Mapping[str, float]:
        """What others have left of a node. Ray has no public call for this; without it we wait for the whole node."""
        try:
            left = self._ray._private.state.available_resources_per_node()[number]
        except (AttributeError, KeyError, self._ray.exceptions.RayError):
            return {}
        return {"CPU": left.get("CPU", 0.0), "GPU": left.get("GPU", 0.0)}

    def _employ(self, node: Node) -> None:
        """Ask for a host. It is never started again by Ray, nor is a call ever repeated: a crash happens once."""
        options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0, "num_cpus": 1}
        if self._order.address is not None:
            affinity = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
            options |= {
                "num_cpus": node.slots,
                "num_gpus": node.gpus,
                "scheduling_strategy": affinity(node.id, soft=False),
            }
        setup = dataclasses.replace(self._order.setup, slots=node.slots, gpus=node.gpus > 0)
        node.actor = self._ray.remote(Host).options(**options).remote(setup)
        node.call = node.actor.prepare.remote()
        node.asked = time.monotonic()

    def _lose(self, node: Node, how: str, *, blame: bool = True) -> None:
        """A host is gone, or shall be."""
        actor, jobs = node.actor, len(node.running)
        outcomes = self._spread.lose(node, how, blame=blame)
        if actor is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        again = f"; it was running {jobs} job{'s'[: jobs != 1]}" if jobs else ""
        notices = [f"{node.label()} was lost: {how}{again}"] if blame else []
        if node.refused not in ("", LEFT):
            notices.append(f"{node.label()} is not used: {node.refused}")
        self._tell(outcomes=outcomes, node=node.id, notices=notices)
        self._next_survey = 0.0

    def _check_hope(self) -> None:
        """Give up on what waits, once no node is left and none comes."""
        now = time.monotonic()
        used = [node for node in self._spread.nodes.values() if not node.refused]
        if used:
            self._last_used = now
        elif self._spread.waiting():
            nodes = self._spread.nodes.values()
            may_come = self._order.address is not None and (not nodes or any(node.refused == LEFT for node in nodes))
            if now - self._last_used > (self._order.patience if may_come else 0):
                self._tell(outcomes=self._spread.give_up(self._why()))

    def _why(self) -> str:
        """Why no node is of use."""
        reasons = [f"{node.label()}: {node.refused}" for node in self._spread.nodes.values()]
        return "no node can run jobs; " + ("; ".join(reasons) or "none has a CPU")

    # Hosts.

    def _step(self, node: Node, jobs: list[tuple[int, Any]]) -> None:
        node.call = node.actor.step.remote(jobs, STEP, CLOSE_TICK if node.quarantined else TICK)

    def _hear(self) -> None:
        """Wait a moment for answers of hosts."""
        for node in self._spread.nodes.values():
            if node.ready and node.call is None and node.tasks:
                self._step(node, [])
        calls = {node.call: node for node in self._spread.nodes.values() if node.call is not None}
        if not calls:
            return
        ready, _ = self._ray.wait(list(calls), num_returns=1, timeout=LISTEN)
        if ready:
            ready, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
        for call in ready:
            node = calls[call]
            try:
                answer = self._ray.get(call)
            except self._ray.exceptions.RayTaskError as error:  # our own code failed there
                self._lose(node, str(error).strip(), blame=False)
            except self._ray.exceptions.RayError as error:
                self._lose(node, _brief(error))
            else:
                node.call = None
                self._answer(node, answer)

    def _answer(self, node: Node, answer: str | Report | None) -> None:
        if isinstance(answer, Report):
            outcomes = self._spread.take(node, answer)
            self._tell(outcomes=outcomes, node=node.id, running=node.running, hellos=answer.hellos)
            if node.refused:
                self._lose(node, node.refused, blame=False)
        elif isinstance(answer, str) and answer:
            node.refused = answer
            self._lose(node, answer, blame=False)
        elif answer == "":
            node.ready = True

    def _cancel(self) -> None:
        self._spread.cancel()
        for node in self._spread.nodes.values():
            if node.ready:
                node.call = node.actor.cancel.remote()  # after what it is doing

    def close(self) -> None:
        """Let hosts end what they run; the rest goes with this process."""
        asked = [node.actor.close.remote() for node in self._spread.nodes.values() if node.ready]
        with contextlib.suppress(self._ray.exceptions.RayError):
            if asked:
                self._ray.wait(asked, num_returns=len(asked), timeout=FAREWELL)
            if self._order.address is not None:
                for node in self._spread.nodes.values():
                    if node.actor is not None:
                        self._ray.kill(node.actor)
                self._ray.shutdown()


def _brief(error: Exception) -> str:
    """What Ray says, in a line: its messages run to paragraphs."""
    found = _CAUSE.search(str(error))
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return (found[1] if found else lines[0]).strip()[:300]
