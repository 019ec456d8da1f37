"""The process that uses Ray, one a run: it starts or joins a cluster, and passes calls on to the actors of its nodes.

Control does not import Ray. Ray's C++ core ends its process about a minute after the cluster's head is gone, starts two
dozen threads and installs handlers of signals; none of this may happen to a run.

Control sends pickled tuples, each a method of ``Driver`` with its arguments. The driver sends ``("nodes", rows)`` every
``SURVEY`` seconds, and for each call ``("answer", number, value, loss, blame)``, where ``loss`` says why the actor is
lost; or, when Ray does not start, ``("failed", reason)``. It ends when control closes the connection or dies, with all
that it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import queue
import re
import sys
import threading
import time
from concurrent import futures
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from runner.engine import process_tree
from runner.engine.cluster.engine import SHUTDOWN_TIMEOUT, NodeActor, Setup
from runner.files import remove_tree

SURVEY = 2.0
"""Seconds between two looks at which nodes the cluster has."""
STORE = 80 << 20
"""Bytes of the object store of a Ray of our own, about the least that Ray accepts."""
_PR_SET_CHILD_SUBREAPER = 36
_CAUSE = re.compile(r"The actor (?:is dead|died) because ([^.\n]+)")


def main() -> None:
    """Serve the control process at file descriptor ``argv[1]``, with the run's files in ``argv[2]``; never return."""
    descriptor, folder = int(sys.argv[1]), sys.argv[2]
    os.set_inheritable(descriptor, False)
    # A process that loses its parent becomes a child of this one, so _end finds it.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    control = Connection(descriptor)
    try:
        setup, address, package = control.recv()
    except EOFError:  # control has died
        _end(folder)
    commands: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(control, commands, folder), daemon=True).start()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # control is gone
        try:
            _join(address, package, folder)
        except (RuntimeError, ValueError, OSError, ImportError) as error:
            control.send(("failed", f"{type(error).__name__}: {error}"))
        else:
            Driver(setup, address is None, control, commands).run()
    _end(folder)


def _listen(control: Connection, commands: queue.SimpleQueue[tuple[Any, ...]], folder: str) -> None:
    """Queue what control sends, so that its sending never waits for ours. End this process when control is gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            commands.put(control.recv())
    commands.put(("close",))
    time.sleep(SHUTDOWN_TIMEOUT + 1)  # Ray may block the main thread for ever
    _end(folder)


def _end(folder: str) -> NoReturn:
    """End this process with all descendants, and remove its files."""
    process_tree.kill_tree(os.getpid(), reaped=True)
    deadline = time.monotonic() + 1
    with contextlib.suppress(ChildProcessError):  # all are collected; in a container nobody else may do it
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
    remove_tree(folder)
    os._exit(0)


def _join(address: str | None, package: str, folder: str) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "logging_level": logging.CRITICAL}
    if address is not None:
        ray.init(address=address, runtime_env={"py_modules": [package]}, **options)
        return
    ray.init(
        address="local",  # never one that RAY_ADDRESS or an earlier "ray start" offers
        num_cpus=1,  # for the one actor; each CPU more costs a process that waits for nothing
        num_gpus=0,  # left to the workers, as they are without Ray
        include_dashboard=False,
        object_store_memory=STORE,
        _temp_dir=os.path.join(folder, "ray"),
        **options,
    )


@dataclass
class Driver:
    """Keeps one actor on each node that control names, and calls its methods.

    Ray is up; ``own`` says that it was started for this run. ``events`` are commands of control and answers of Ray.
    """

    setup: Setup
    own: bool
    control: Connection
    events: queue.SimpleQueue[tuple[Any, ...]]
    actors: dict[str, Any] = field(default_factory=dict)
    survey: float = 0.0  # when to look for nodes next, on time.monotonic's clock

    def run(self) -> None:
        """Serve until control is gone.

        Raises:
            BrokenPipeError, ConnectionResetError: control is gone.
        """
        try:
            while True:
                if time.monotonic() >= self.survey:
                    self.control.send(("nodes", _nodes()))
                    self.survey = time.monotonic() + SURVEY
                try:
                    name, *arguments = self.events.get(timeout=max(0.0, self.survey - time.monotonic()))
                except queue.Empty:
                    continue
                if name == "close":
                    return
                getattr(self, name)(*arguments)
        finally:
            self._close()

    def start(self, number: int, node: str, slots: int, gpus: int) -> None:
        """Start an actor on a node, and prepare it.

        Ray neither restarts it nor repeats a call: a crash happens once.
        """
        resources = {"num_cpus": 1} if self.own else {"num_cpus": slots, "num_gpus": gpus}
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        remote = ray.remote(max_restarts=0, max_task_retries=0, scheduling_strategy=strategy, **resources)(NodeActor)
        self.actors[node] = remote.remote(self.setup, slots, gpus)
        self.call(number, node, "prepare")

    def call(self, number: int, node: str, method: str, *arguments: Any) -> None:
        """Call a method of a node's actor; the answer becomes an event."""
        future = getattr(self.actors[node], method).remote(*arguments).future()
        future.add_done_callback(lambda answer: self.events.put(("answer", number, answer)))

    def answer(self, number: int, answer: futures.Future[Any]) -> None:
        """Tell control how a call ended. Jobs cannot be blamed for an exception of our own code."""
        if (error := answer.exception()) is None:
            self.control.send(("answer", number, answer.result(), "", False))
        else:
            blame = isinstance(error, RayError) and not isinstance(error, RayTaskError)
            loss = _brief(error) if blame else str(error).strip() or repr(error)
            self.control.send(("answer", number, None, loss, blame))
            self.survey = 0.0  # control starts no actor there before it knows whether the node is alive

    def kill(self, node: str) -> None:
        """End a node's actor; its workers end with it."""
        with contextlib.suppress(RayError, KeyError):
            ray.kill(self.actors.pop(node))

    def _close(self) -> None:
        """Let actors end their workers; the rest ends with this process."""
        closing = [actor.close.remote() for actor in self.actors.values()]
        with contextlib.suppress(RayError):
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=SHUTDOWN_TIMEOUT)
            if not self.own:
                ray.shutdown()


def _nodes() -> list[tuple[str, str, int, int]]:
    """Return id, host name, free CPUs and free GPUs of each node that is alive and has a CPU."""
    free: dict[str, dict[str, float]] = {}
    with contextlib.suppress(AttributeError, RayError):  # not a public call: without it we wait for whole nodes
        free = ray._private.state.available_resources_per_node()
    rows = []
    for entry in ray.nodes():
        if entry["Alive"] and entry["Resources"].get("CPU", 0) >= 1:
            resources = free.get(entry["NodeID"], entry["Resources"])
            name = entry["NodeManagerHostname"] or entry["NodeManagerAddress"]
            rows.append((entry["NodeID"], name, int(resources.get("CPU", 0)), int(resources.get("GPU", 0))))
    return rows


def _brief(error: BaseException) -> str:
    """Return what Ray says, in a line: its messages have paragraphs."""
    cause = _CAUSE.search(str(error))
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return (cause[1] if cause else lines[0]).strip()[:300]
