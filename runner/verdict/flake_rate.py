"""How often a variant is red, by the attempts of ``--stress``, and how sure that is.

The interval is Wilson's: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal
of the American Statistical Association 22 (1927). L. D. Brown, T. T. Cai and A. DasGupta, "Interval estimation for a
binomial proportion", Statistical Science 16 (2001), recommend it for few attempts, where the usual one is too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

from runner.record.events import RED

CONFIDENCE = 0.95
"""How often an interval made this way holds the true rate, at least about."""


@dataclass(frozen=True, slots=True)
class FlakeRate:
    """``red`` of ``count`` attempts were red."""

    red: int
    count: int

    @property
    def interval(self) -> tuple[float, float]:
        """Return the bounds between which the rate lies, from 0 to 1."""
        return wilson(self.red, self.count)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.red} of {self.count} red: {percent(self.red / self.count)}, "
            f"{CONFIDENCE:.0%} interval {percent(low)} to {percent(high)}"
        )


def flake_rate(tallies: Iterable[Mapping[str, int]]) -> FlakeRate | None:
    """Return the rate over several tallies of verdicts; None where they count nothing."""
    red = count = 0
    for tally in tallies:
        count += sum(tally.values())
        red += sum(number for verdict, number in tally.items() if verdict in RED)
    return FlakeRate(red, count) if count else None


def wilson(successes: int, count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return Wilson's score interval of a rate.

    Args:
        successes: from 0 to ``count``.
        count: at least 1.
        confidence: above 0 and below 1.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, spread = successes / count, z * z / count
    centre = (rate + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (rate * (1 - rate) + spread / 4)) / (1 + spread)
    # At the ends the bound is the end itself, which rounding would miss.
    return 0.0 if successes == 0 else centre - half, 1.0 if successes == count else centre + half


def percent(rate: float) -> str:
    """Return ``15.0 %``."""
    return f"{100 * rate:.1f} %"
