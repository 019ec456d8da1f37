"""What a Ray actor does on its node: it hosts a ``LocalEngine``, so that jobs run, are limited and judged as they are locally.

Imports nothing of Ray, and no torch: the node's workers have that.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.engine.interpreters import probe
from runner.engine.local import LocalEngine
from runner.engine.messages import Job, Outcome

GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Where Ray writes which accelerators are ours."""
PASSED = ("TORCH", "PYTORCH", "TRITON", "AOT_")
"""How the names of environment variables begin that change what torch does, and so go along to other machines."""
PLACES = ("_DIR", "_PATH", "_HOME", "_FILE", "_CACHE", "_ROOT", "_TRACE")
"""How names end that say where something is on one machine; these do not go along."""


@dataclass(frozen=True)
class Setup:
    """What a host must know.

    ``variables`` are all environment variables of its workers (None: those of the node, and ``passed``), ``folder`` is
    where they start (None: where Ray starts them); ``warm``, ``environ``, ``log_folder`` and ``kernel_cache`` are those
    of ``LocalEngine``. ``expected`` holds torch's build by environment, such as 2.13.0+cpu.
    ``check`` asks to look for the interpreters first; ``gpus`` says that Ray has given us some.
    """

    environments: Mapping[str, str]
    slots: int
    warm: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)
    log_folder: str | None = None
    kernel_cache: str = "shared"
    variables: Mapping[str, str] | None = None
    passed: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    check: bool = False
    gpus: bool = False


@dataclass(frozen=True)
class Report:
    """What has happened on a host since its last report. Jobs go by their tickets, outcomes come without their jobs."""

    outcomes: Sequence[tuple[int, Outcome]]
    running: Mapping[int, tuple[float, str]]  # seconds, phase
    hellos: Mapping[str, Mapping[str, Any]]  # of the environments whose workers are up


class Host:
    """Runs what it is given on its node. All calls come from one thread."""

    def __init__(self, setup: Setup) -> None:
        """Undo what Ray did to this process and what workers would inherit: variables, folder, blocked signals."""
        ours = {name: os.environ[name] for name in GPU_VARIABLES if setup.gpus and name in os.environ}
        variables = setup.variables if setup.variables is not None else {**_node_variables(), **setup.passed}
        os.environ.clear()
        os.environ.update({**variables, **ours})
        if setup.folder is not None:
            os.chdir(setup.folder)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        self._setup = setup
        self._engine: LocalEngine | None = None
        self._told: set[tuple[str, str]] = set()  # job and phase

    def prepare(self) -> str:
        """Get ready. Why this node cannot be used, empty if it can.

        Raises:
            OSError: no temporary folder or socket can be made.
        """
        setup = self._setup
        environments = dict(setup.environments)
        for name, python in setup.environments.items() if setup.check else ():
            found, reason = interpreter(python, setup.expected.get(name))
            if reason:
                return reason
            environments[name] = found
        self._engine = LocalEngine(
            environments,
            setup.slots,
            warm=setup.warm,
            environ=setup.environ,
            log_folder=setup.log_folder,
            kernel_cache=setup.kernel_cache,
        )
        return ""

    def step(self, jobs: Sequence[tuple[int, Job]], timeout: float, tick: float) -> Report:
        """Take jobs, then wait until one ends, begins or comes to its next phase, at most ``timeout`` seconds.

        An end is told at once, anything else within ``tick`` seconds.
        """
        engine = self._engine
        assert engine is not None
        for ticket, job in jobs:
            engine.submit(dataclasses.replace(job, key=str(ticket)))
        end = time.monotonic() + timeout
        while True:
            outcomes = engine.wait(min(tick, max(0.0, end - time.monotonic())))
            running = {job.key: (seconds, phase) for job, seconds, phase in engine.running()}
            phases = {(key, phase) for key, (_, phase) in running.items()}
            if outcomes or phases != self._told or not engine.pending() or time.monotonic() >= end:
                break
        self._told = phases
        return Report(
            [(int(one.job.key), dataclasses.replace(one, job=None)) for one in outcomes],  # type: ignore[arg-type]
            {int(key): value for key, value in running.items()},
            {name: hello for name in self._setup.environments if (hello := engine.hello(name))},
        )

    def cancel(self) -> None:
        """Kill what runs, drop what waits."""
        if self._engine is not None:
            self._engine.cancel_all()
        self._told = set()

    def close(self) -> None:
        """End every process that the host started."""
        if self._engine is not None:
            self._engine.close()


def interpreter(python: str, build: str | None) -> tuple[str, str]:
    """The interpreter of this node that stands for ``python`` and whose torch is ``build`` (None: any).

    Returns:
        Its path, and an empty text; or an empty path and why there is none.
    """
    reasons = []
    for candidate in dict.fromkeys((python, sys.executable)):
        facts = probe(candidate)
        if "error" in facts:
            reasons.append(facts["error"])
        elif build is not None and facts["build"] != build:
            reasons.append(f"{candidate} has torch {facts['build']}, not {build}")
        elif build is None and candidate != python:
            reasons.append(f"{candidate} has torch {facts['build']}, and which is wanted is not known")
        else:
            return candidate, ""
    return "", "; ".join(reasons)


def passed_on(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of control's environment variables that other machines need too, so that verdicts agree."""
    return {n: v for n, v in variables.items() if n.startswith(PASSED) and not n.endswith(PLACES)}


def _node_variables() -> dict[str, str]:
    """The environment with which Ray was started on this node: that of our parent, without what Ray has set for us."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            pairs = [os.fsdecode(pair).partition("=") for pair in file.read().split(b"\0") if pair]
    except OSError:
        return dict(os.environ)
    return {name: value for name, _, value in pairs if name and not name.startswith("RAY_")}
