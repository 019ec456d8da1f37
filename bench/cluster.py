"""How much of a cluster's time is not spent in jobs? The engine and the session of a run give out fake jobs that sleep.

    python bench/cluster.py                              # 100 nodes that a process stands in for
    python bench/cluster.py --ray 10 --slots 4           # 10 nodes of a Ray cluster on this machine

A stand-in answers as the driver and the actors of a cluster do, each answer 5 ms late, and keeps the time of the jobs.
So everything of control is measured: sources, scheduling, messages, verdicts, the journal and the JUnit file.
With ``--ray`` Ray's messages, the actors and a process for each job are measured too; every node is a raylet.

"Beside jobs" is the part of all slots' time in which no job slept, from the begin of the first job to that of the last.
Prints a table, and exits with 1 when more than 5 % is beside jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import scale
from commands import ROOT, command_line, option
from tabulate import tabulate

from runner.cases.limits import Limits
from runner.engine.cluster import engine as ray_engine
from runner.engine.cluster.engine import RayEngine, Report
from runner.engine.messages import Outcome
from runner.record.events import RunFinished, RunStarted
from runner.record.journal import Journal
from runner.report.junit import JUnitFile
from runner.session.collect import load
from runner.session.plan import Environment, RunContext, plan, planned_event
from runner.session.run import Session
from runner.session.settings import RunSettings

TARGET = 0.05
LATENCY = 0.005
"""Seconds by which a stand-in's answers are late: a network, and Ray's own processes."""

SURVEY = 2.0
"""Seconds between two lists of nodes, as of a driver."""

_TORCH = """
import types
__version__ = "9.9.9+fake"
version = types.SimpleNamespace(git_version="abc")
cuda = types.SimpleNamespace(is_available=lambda: False)
def get_num_threads(): return 2
def set_num_threads(count): pass
"""
_ENTRY = """
import random, time
def run_job(job, send):
    began = time.monotonic()
    time.sleep(random.Random(job["key"]).uniform(0.5, 1.5) * {seconds})
    return {{"findings": [], "trust": None, "comparisons": 3, "began": began, "ended": time.monotonic()}}
"""


# --- the stand-in --------------------------------------------------------------------------


@dataclass
class FakeNode:
    """A node whose jobs end by the clock. ``call`` is the unanswered step: its number, and when it must be answered."""

    jobs: list[tuple[float, int, float]] = field(default_factory=list)  # a heap: end, ticket, begin
    call: tuple[int, float] | None = None

    def due(self) -> float:
        """Return when the step is to be answered."""
        if self.call is None:
            return float("inf")
        return min(self.call[1], self.jobs[0][0]) if self.jobs else 0.0

    def report(self, now: float) -> Report:
        """Return what has ended, and what runs."""
        outcomes = {}
        while self.jobs and self.jobs[0][0] <= now:
            end, ticket, begin = heapq.heappop(self.jobs)
            result = {"findings": [], "trust": None, "comparisons": 3, "began": begin, "ended": end}
            outcomes[ticket] = Outcome(None, "result", end - begin, "judge", result=result)  # type: ignore[arg-type]
        return Report(outcomes, {ticket: (now - begin, "backend") for _, ticket, begin in self.jobs}, ["0"])


def stand_in(descriptor: int, count: int, slots: int, seconds: float) -> None:
    """Be the driver of ``count`` nodes, until control closes the connection."""
    control = Connection(descriptor)
    control.recv()
    nodes = {f"node{number:03}": FakeNode() for number in range(count)}
    rows = [(name, name, slots, 0) for name in nodes]
    late: list[tuple[float, int, tuple[Any, ...]]] = []  # answers under way
    numbers, survey = itertools.count(), 0.0
    try:
        while True:
            now = time.monotonic()
            if now >= survey:
                control.send(("nodes", rows))
                survey = now + SURVEY
            for node in nodes.values():
                if node.call is not None and node.due() <= now:
                    answer = ("answer", node.call[0], node.report(now), "", False)
                    heapq.heappush(late, (now + LATENCY, next(numbers), answer))
                    node.call = None
            while late and late[0][0] <= now:
                control.send(heapq.heappop(late)[2])
            wake = min(survey, *(late[:1] and [late[0][0]]), *(node.due() for node in nodes.values()))
            while control.poll(max(0.0, wake - time.monotonic())):
                kind, *values = control.recv()
                now, wake = time.monotonic(), 0.0
                if kind == "start":
                    heapq.heappush(late, (now, next(numbers), ("answer", values[0], "", "", False)))
                elif kind == "call":
                    number, name, _, jobs, timeout = values
                    nodes[name].call = number, now + timeout
                    for ticket, job in jobs:
                        end = now + random.Random(job.key).uniform(0.5, 1.5) * seconds
                        heapq.heappush(nodes[name].jobs, (end, ticket, now))
    except (EOFError, OSError):  # control has closed
        return


# --- control -------------------------------------------------------------------------------


class MeasuredEngine(RayEngine):
    """An engine that keeps when jobs began and ended."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.spans: list[tuple[float, float]] = []
        super().__init__(*arguments, **options)

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        """Wait as an engine does."""
        outcomes = super().wait(timeout)
        self.spans += [(outcome.result["began"], outcome.result["ended"]) for outcome in outcomes]
        return outcomes


class StandInEngine(MeasuredEngine):
    """An engine whose driver is ``stand_in``, in a process of its own."""

    def __init__(self, count: int, slots: int, seconds: float) -> None:
        self._words = [str(count), str(slots), str(seconds)]
        ray_engine.importlib.util.find_spec = lambda name: SimpleNamespace(origin="ray")  # type: ignore[attr-defined]
        super().__init__({"0": sys.executable}, address="auto")

    def _start(self, package: str, own: bool) -> tuple[subprocess.Popen[bytes], Connection]:
        connection, remote = Pipe()
        with remote:
            command = [sys.executable, __file__, "--inside", str(remote.fileno()), *self._words]
            popen = subprocess.Popen(command, pass_fds=[remote.fileno()], start_new_session=True)
        return popen, connection


@contextlib.contextmanager
def ray_nodes(folder: Path, count: int, slots: int, seconds: float) -> Iterator[MeasuredEngine]:
    """Start a Ray cluster of so many raylets on this machine, and an engine on it whose workers import no torch."""
    sys.path.insert(0, str(ROOT / "tests" / "engine" / "cluster"))
    from ray_cluster import RayCluster

    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(_TORCH)
    (folder / "entry.py").write_text(_ENTRY.format(seconds=seconds))
    environ = {
        "PYTHONPATH": str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder),
        "RUNNER_WORKER_ENTRY": "entry:run_job",
    }
    with (
        RayCluster(folder, *[str(slots)] * count) as cluster,
        MeasuredEngine({"0": sys.executable}, address=cluster.address, warm={"0": "none"}, environ=environ) as engine,
    ):
        yield engine


def run_jobs(engine: MeasuredEngine, folder: Path, count: int) -> dict[str, float]:
    """Run so many variants with their reports; return figures by name."""
    scale.write_many(folder, count)
    loaded = load([str(folder)], limits=Limits(**scale.LIMITS))
    planned = plan(loaded.variants, [Environment("0", sys.executable, "9.9.9", "9.9.9+fake", "3.11.2")])
    session = Session(planned, engine, RunContext(RunSettings(), slots=engine.slots))
    used, begun = time.process_time(), time.monotonic()
    with Journal(folder / "events.jsonl") as log:
        junit = JUnitFile(folder / "junit.xml")
        start = RunStarted("r", "0", ("runner",), "2026-01-02T03:04:05", "host", str(folder), ({"torch": "9.9.9"},))
        for event in itertools.chain([start], map(planned_event, planned), session.events(), [RunFinished(0, 1.0)]):
            log.write(event)
            junit.handle(event)
    assert len(engine.spans) == len(planned), f"{len(engine.spans)} of {len(planned)} jobs have ended"
    seconds = {"wall s": time.monotonic() - begun, "control, CPU s": time.process_time() - used}
    return {"jobs": len(planned), **seconds, **beside(engine.spans, engine.slots)}


def beside(spans: Sequence[tuple[float, float]], slots: int) -> dict[str, float]:
    """Return slot seconds in jobs and beside them, and the part of the second, until the last job begins."""
    first, last = min(spans)[0], max(spans)[0]
    within = sum(min(end, last) - begin for begin, end in spans)
    whole = slots * (last - first)
    return {"in jobs, slot s": within, "beside, slot s": whole - within, "part": (whole - within) / whole}


def measure(options: argparse.Namespace) -> Mapping[str, float]:
    """Run the jobs on a cluster of one kind or the other; return figures by name."""
    count, slots, seconds = options.ray or options.nodes, options.slots, options.seconds
    jobs = max(50, count * slots * options.rounds // 50 * 50)  # whole cases of bench/scale.py
    with tempfile.TemporaryDirectory(prefix="c") as name:  # Ray puts sockets deep in it, whose paths may have 107 bytes
        cluster, cases = Path(name, "r"), Path(name, "s")
        cluster.mkdir()
        cases.mkdir()
        nodes = ray_nodes(cluster, count, slots, seconds) if options.ray else StandInEngine(count, slots, seconds)
        with nodes as engine:
            return run_jobs(engine, cases, jobs)


def main() -> int:
    """Measure one cluster; 1 when the target is missed."""
    options = command_line(
        __doc__,
        option("--nodes", type=int, default=100, help="nodes of the stand-in"),
        option("--ray", type=int, metavar="N", help="nodes of Ray on this machine, without a stand-in"),
        option("--slots", type=int, default=4, help="of each node"),
        option("--seconds", type=float, default=3.0, help="of a job in the mean; each has half of it to 1.5 times"),
        option("--rounds", type=int, default=10, help="jobs for each slot"),
        option("--inside", nargs=4, help=argparse.SUPPRESS),
    ).parse_args()
    if options.inside:
        descriptor, nodes, slots, seconds = options.inside
        stand_in(int(descriptor), int(nodes), int(slots), float(seconds))
        return 0
    figures = measure(options)
    is_met = figures["part"] <= TARGET
    kind = ("Ray", options.ray) if options.ray else ("stand-in", options.nodes)
    row = [*kind, options.slots, options.seconds, *figures.values(), "yes" if is_met else "NO"]
    print(tabulate([row], headers=["nodes are", "nodes", "slots", "s a job", *figures, "met"], floatfmt=".3f"))
    return int(not is_met)


if __name__ == "__main__":
    sys.exit(main())
