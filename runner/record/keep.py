"""How many runs are kept, as a person writes it: ``50 runs, 2 GiB``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from runner.cases.limits import parse_size, show_size
from runner.exit_codes import UsageError
from runner.text import plural

VARIABLE = "RUNNER_KEEP"
"""Environment variable with the rule for all runs."""

_RUNS = re.compile(r"([0-9]{1,9}) *runs?")


@dataclass(frozen=True, slots=True)
class Keep:
    """At most so many runs of at most so many bytes together; None is no bound."""

    runs: int | None = None
    size: int | None = None

    def __str__(self) -> str:
        parts = [plural(self.runs, "run")] if self.runs is not None else []
        return ", ".join([*parts, show_size(self.size)] if self.size is not None else parts) or "all"

    def holds(self, runs: int, size: int) -> bool:
        """Return whether so many runs of so many bytes may stay."""
        return (self.runs is None or runs <= self.runs) and (self.size is None or size <= self.size)


USUAL = Keep(50, 2 << 30)


def parse(text: str) -> Keep:
    """Return the rule that a text says: ``50 runs``, ``2 GiB``, both with a comma between them, or ``all``.

    Raises ValueError.
    """
    if text.strip() == "all":
        return Keep()
    runs = size = None
    for part in (part.strip() for part in text.split(",")):
        match = _RUNS.fullmatch(part)
        if match and runs is None and int(match[1]):
            runs = int(match[1])
        elif match or size is not None or part[-1:].isdigit():  # 50 alone is no 50 bytes
            raise ValueError(_refusal(text))
        else:
            try:
                size = parse_size(part)
            except ValueError:
                raise ValueError(_refusal(text)) from None
    return Keep(runs, size)


def from_environment(environ: Mapping[str, str] | None = None) -> Keep:
    """Return the rule of RUNNER_KEEP, or the usual one. Raises UsageError where the variable says something else."""
    text = (os.environ if environ is None else environ).get(VARIABLE)
    if text is None:
        return USUAL
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"environment variable {VARIABLE}: {error}") from None


def _refusal(text: str) -> str:
    shown = repr(text if len(text) <= 40 else text[:37] + "...")
    return f"{shown} is no rule such as '50 runs, 2 GiB', '50 runs', '2 GiB' or 'all'"
