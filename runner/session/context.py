"""What one run knows beside its settings: its context, what its variants are called, and which passes it asks again."""

from __future__ import annotations

import dataclasses
import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.cases.limits import Limits
from runner.cases.model import Backend, Suite, Unclaimed
from runner.contract.settings import HASH_SEED
from runner.diagnostics import shown_path
from runner.engine.fingerprint import Fingerprint
from runner.engine.messages import Outcome
from runner.quote import operand, shell_words
from runner.record.events import VariantPlanned
from runner.session.plan import Planned
from runner.session.settings import RunSettings

EVERY = 50
"""Of so many passes about one is asked again: a living process runs as many variants, so that each is looked at once on
average.

If every process is spoilt halfway, half of these looks show it. Ten looks then miss it once in a thousand runs.
"""

SHARE = 0.03
"""Part of the seconds of living processes that these looks may take, beyond the first one: the throughput falls by as
much.

A process of its own takes 5 to 50 times as long as a variant in a living one, so that in long runs this bound decides.
A run of 40,000 variants of 0.3 s then has a minute for each 2000 seconds: 40 to 200 looks.
"""


class Sample:
    """Draws passes at random, and counts what that costs."""

    def __init__(self, seed: int = 0, planned: int = 0) -> None:
        """Draw the first within the first half of ``planned`` variants, so that small runs have one too."""
        self._random = random.Random(seed)
        self._due = self._random.randint(1, max(1, min(EVERY, planned // 2)))
        self._living = self._spent = 0.0

    def draws(self, outcome: Outcome) -> bool:
        """Count a pass of a living process, and return whether to ask again.

        One that had run nothing before needs no look.
        """
        self._living += outcome.busy
        if not outcome.earlier_jobs:
            return False
        self._due -= 1
        if self._due > 0 or self._spent > SHARE * self._living:
            return False
        self._due = self._random.randint(1, 2 * EVERY - 1)
        return True

    def spend(self, seconds: float) -> None:
        """Count the seconds of a process that was asked."""
        self._spent += seconds


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


def planned_event(planned: Planned) -> VariantPlanned:
    """The event that announces a planned variant."""
    variant = planned.variant
    return VariantPlanned(
        id=variant.id,
        case=sys.intern(variant.case_id),  # one text for all variants of a case
        suite=variant.suites[0],
        suites=variant.suites,
        backend=variant.backend.name,
        torch=planned.environment.torch,
        python=planned.environment.python,
        device=variant.device,
        dtype=variant.dtype,
        label=variant.label,
        file=variant.case.file,
        line=variant.case.span.line,
        column=variant.case.span.column,
        number=planned.number,
    )


def repro(planned: Planned, context: RunContext) -> str:
    """The command that runs this variant alone.

    The suite stands before the id where its file alone would mean another thing.
    """
    variant, settings = planned.variant, context.settings
    suite = context.suites.get(variant.suites[0])
    name = variant.backend.name
    # What is not claimed says which variants run, and not how.
    is_plain = dataclasses.replace(variant.backend, unclaimed=Unclaimed()) == Backend(name, name)
    own = suite is None or suite.file == variant.case.file or (is_plain and not suite.has_defaults)
    words = [
        *order_words(),
        "runner",
        "run",
        operand(variant.id if own or suite is None else f"{shown_path(suite.file)}::{variant.id}"),
    ]
    words += settings.flags()
    words += ["--backend", name] if ":" in name else []  # code runs for who types it
    if planned.environment.python != context.default_python:
        words += ["--python", planned.environment.python]
    return shell_words(words)


def order_words() -> list[str]:
    """Return what stands before a command so that it runs under the order of sets that somebody chose for this
    process."""
    order = os.environ.get(HASH_SEED)
    return [f"{HASH_SEED}={order}"] if order else []
