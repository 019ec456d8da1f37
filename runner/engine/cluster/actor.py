"""The Ray actor of a node: it hosts a ``LocalEngine``, so jobs run, are limited and are judged as on one machine.

The module imports neither Ray nor torch. Control imports it too, and only the node's workers need torch.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.contract.job import Job
from runner.engine.interpreters import probe
from runner.engine.local import LocalEngine
from runner.engine.messages import Outcome

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
            self._engine.submit(dataclasses.replace(job, key=str(ticket)))
        return Report(
            {
                int(outcome.job.key): dataclasses.replace(outcome, job=None)  # type: ignore[arg-type]
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
