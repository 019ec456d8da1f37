"""How a run differs from the plain one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.cases.limits import Limits


@dataclass(frozen=True, slots=True)
class Options:
    """How a run differs from the plain one. ``files`` maps a suite's name to its file, ``default_python`` needs no ``--python``.

    ``isolation`` is one of the engine's, or ``auto``: processes that live on for accelerators, a forked one a variant else.
    ``deadline`` is on ``time.monotonic``'s clock.
    """

    use_known: bool = True
    max_fail: int | None = None
    retries: int = 0
    stress: int = 1
    isolation: str = "auto"
    confirm: bool = False
    deadline: float | None = None
    slow: float = 60.0  # seconds of one process after which a variant is labelled
    imports: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    slots: int = 1
    seed: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    default_python: str = ""
    flags: tuple[str, ...] = ()  # further flags that reproducing needs
    names_backend: bool = False  # backends, and devices, were named on the command line
    names_device: bool = False
    limits: Limits = field(default_factory=Limits)

    def time_is_up(self) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline
