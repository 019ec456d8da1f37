"""What trials of mutants say of a suite.

The score is the share of killed mutants among those that could be planted and that nobody has judged equivalent. Its
interval is Wilson's of 95 % (E. B. Wilson, 1927), which holds for small counts too.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from runner.mutants.trial import Trial

_Z = 1.959964
"""Of the normal distribution, 95 % of which lie between -z and z."""
_LINE = re.compile(r"(?P<id>[0-9a-f]{10})\s+(?P<reason>\S.*)")


@dataclass(frozen=True, slots=True)
class Part:
    """Mutants of one kind, file or of all: how many count, and how many of them were killed."""

    name: str
    killed: int
    counted: int

    @property
    def share(self) -> float:
        """From 0 to 1; not a number where none counts."""
        return self.killed / self.counted if self.counted else math.nan


@dataclass(frozen=True, slots=True)
class Score:
    """The numbers of a report. ``plainly`` are those that a comparison of outputs by ``assert_close`` would kill."""

    whole: Part
    plainly: int
    invalid: int
    equivalent: int
    first: int  # killed by the first case that ran
    seconds: float
    reaching: float  # cases that reach a mutant's line, median
    kinds: Sequence[Part] = ()
    files: Sequence[Part] = ()
    oracles: Mapping[str, int] = field(default_factory=dict)
    survivors: Sequence[Trial] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the score as a plain dict."""
        low, high = interval(self.whole)
        parts = {name: [asdict(part) for part in getattr(self, name)] for name in ("kinds", "files")}
        return {
            **asdict(self.whole), "interval": [round(low, 4), round(high, 4)], "plainly": self.plainly,
            "invalid": self.invalid, "equivalent": self.equivalent, "first": self.first,
            "seconds": round(self.seconds, 1), "reaching": self.reaching, **parts, "oracles": dict(self.oracles),
            "survivors": [trial.to_json() for trial in self.survivors],
        }  # fmt: skip


def score(trials: Sequence[Trial], equivalent: Mapping[str, str]) -> Score:
    """Return the score of trials, without those whose mutants a person has judged equivalent: reasons by id."""
    valid = [trial for trial in trials if trial.fate != "invalid"]
    counted = [trial for trial in valid if trial.fate == "killed" or trial.mutant.id not in equivalent]
    killed = [trial for trial in counted if trial.fate == "killed"]
    return Score(
        whole=_part("all", counted),
        plainly=sum(trial.plainly for trial in killed),
        invalid=len(trials) - len(valid),
        equivalent=len(valid) - len(counted),
        first=sum(len(trial.tried) == 1 for trial in killed),
        seconds=sum(trial.seconds for trial in trials),
        reaching=median([trial.reaching for trial in valid] or [0]),
        kinds=_parts(counted, lambda trial: trial.mutant.kind),
        files=_parts(counted, lambda trial: trial.mutant.file),
        oracles=dict(Counter(trial.oracle for trial in killed).most_common()),
        survivors=[trial for trial in counted if trial.fate == "survived"],
    )


def interval(part: Part) -> tuple[float, float]:
    """Return the bounds between which the true share lies in 95 % of all draws."""
    n = part.counted
    if not n:
        return 0.0, 1.0
    centre = part.share + _Z * _Z / (2 * n)
    reach = _Z * math.sqrt(part.share * (1 - part.share) / n + _Z * _Z / (4 * n * n))
    whole = 1 + _Z * _Z / n
    return max(0.0, (centre - reach) / whole), min(1.0, (centre + reach) / whole)


def read_equivalent(text: str) -> dict[str, str]:
    """Return the reasons by mutant of a text with a line ``ID REASON`` for each; ``#`` begins a comment.

    Raises:
        ValueError: a line is neither; its number stands in the message.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise ValueError(f"line {number}: expected a mutant's ten digits and a reason")
            found[match["id"]] = match["reason"]
    return found


def _part(name: str, trials: Sequence[Trial]) -> Part:
    return Part(name, sum(trial.fate == "killed" for trial in trials), len(trials))


def _parts(trials: Sequence[Trial], name_of: Callable[[Trial], str]) -> list[Part]:
    names = Counter(map(name_of, trials))
    return [_part(name, [trial for trial in trials if name_of(trial) == name]) for name, _ in names.most_common()]
