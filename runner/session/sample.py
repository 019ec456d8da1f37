"""Passes of living processes that are asked again in a process of their own: whether isolation holds in this very run.

Only a failure of such a process runs again anyway. What an earlier variant left behind may also let a wrong result
pass.
"""

from __future__ import annotations

import random

from runner.engine.messages import Outcome

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
