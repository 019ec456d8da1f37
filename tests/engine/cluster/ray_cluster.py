"""A Ray cluster on this machine, for tests: started by a process of its own, which obeys the words on its input.

``python ray_cluster.py CPUS...`` starts a node for each number of CPUs, such as ``2`` or, with GPUs, ``2/1`` (the
first is the head), and prints the address. A line ``N`` ends node N as a power cut would. The end of the input ends all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from runner.engine import process_tree


class RayCluster:
    """A cluster in a process of its own; ``folder`` must have a short path."""

    def __init__(self, folder: Path, *cpus: str) -> None:
        # Without a token of its own, Ray would write one into the home folder.
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="t" * 32)
        self._process = subprocess.Popen(
            [sys.executable, __file__, *cpus],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("wb"),
            text=True,
            env={**os.environ, "RAY_TMPDIR": str(folder)},  # else it would become the default of every later ray.init()
            start_new_session=True,
        )
        self.address = self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("answer "):
                return line.split()[1]
        raise RuntimeError("the cluster has ended; see its log")

    def kill(self, node: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{node}\n")
        self._process.stdin.flush()
        self._answer()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        process_tree.kill_tree(self._process.pid)
        self._process.wait()
        del os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"]


def main(*cpus: str) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    nodes = []
    for number, text in enumerate(cpus):
        count, _, gpus = text.partition("/")
        head = {"include_dashboard": False} if number == 0 else {}
        nodes.append(cluster.add_node(num_cpus=int(count), num_gpus=int(gpus or 0), **head))
    print("answer", cluster.address, flush=True)
    for line in sys.stdin:
        table = process_tree.processes()
        doomed = {nodes[int(line)].all_processes["raylet"][0].process.pid}
        while children := {process.pid for process in table.values() if process.parent in doomed} - doomed:
            doomed |= children
        for pid in doomed:
            os.kill(pid, signal.SIGKILL)
        print("answer done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
