"""What one run knows beside its settings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.cases.limits import Limits
from runner.cases.model import Suite
from runner.engine.fingerprint import Fingerprint
from runner.session.sample import Sample
from runner.session.settings import RunSettings


@dataclass(frozen=True, slots=True)
class RunContext:
    """Settings, and what follows from the machine, the files and the command line.

    Attributes:
        slots: processes at once.
        paths: folders at the end of the workers' path.
        suites: by name, for commands that reproduce a variant.
        default_python: the Python that needs no ``--python`` in such a command.
        deadline: when the run ends, on ``time.monotonic``'s clock.
        limits: of the settings, which are read once.
        fingerprints: by environment, where graphs that an earlier run compiled may be loaded; else none.
        sample: which passes of living processes are asked again.
    """

    settings: RunSettings = field(default_factory=RunSettings)
    slots: int = 1
    paths: tuple[str, ...] = ()
    suites: Mapping[str, Suite] = field(default_factory=dict)
    default_python: str = ""
    deadline: float | None = None
    limits: Limits = field(default_factory=Limits)
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    sample: Sample = field(default_factory=Sample)

    @property
    def most_failures(self) -> int | None:
        """After how many red verdicts nothing more begins; None for no bound."""
        return 1 if self.settings.exitfirst else self.settings.max_fail

    def time_is_up(self) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline
