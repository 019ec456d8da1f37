"""What goes over the wire between control and worker: one JSON object a line, both ways.

Control to worker: a ``Job``. Worker to control: ``{"phase": name}`` whenever a new part begins, then
exactly one ``{"outcome": {...}}``. A job with a ``compile_timeout`` also says ``{"compiling": null}`` when torch begins
to compile, and ``{"compiling": seconds}``, all so far, when it has ended. A worker that ends without an outcome is an
error, whatever its exit status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runner.contract.job import Job
from runner.contract.record import Record

Ended = Literal["result", "signal", "timeout", "memory", "no-result", "worker-error", "broken", "damage"]
"""How a job ended: ``result`` with the worker's record, ``damage`` when it removed or changed the engine's temporary
folder, ``worker-error`` when the worker raised, or said what control cannot read: most often by what the case has done
to its process, ``broken`` when the harness had no process for it, else how its process died."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    ``detail`` says how the harness or the worker failed, if one did. ``phase`` is the last one begun.
    """

    job: Job
    ended: Ended
    seconds: float
    phase: str = "load"
    result: Mapping[str, Any] = field(default_factory=dict)
    signal: str | None = None
    exit_status: int | None = None
    stack: str = ""  # faulthandler's, for a signal or a timeout
    output: str = ""  # the last of stdout and stderr
    detail: str = ""
    # Ids of the jobs that the same process had run before, oldest first (living workers).
    earlier_jobs: tuple[str, ...] = ()
    host: str = ""  # the node, when it was not this machine
    lost: int = 0  # how many nodes went away while they ran it, before this one
    busy: float = 0.0  # seconds of a slot, from the order until the slot was free again
    cached: str = ""  # the run that this outcome comes from, when nothing was run

    @property
    def record(self) -> Record:
        """Return ``result``, that of a job which compares; an empty one without it."""
        return Record.from_json(self.result)
