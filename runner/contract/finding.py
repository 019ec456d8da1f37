"""A finding: one disagreement between eager and compiled code. How both halves name elements and signals."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One disagreement, as the worker measured it. ``stage`` and ``place`` are control's to fill.

    ``oracle`` is a word of the ledger (value, stride, compile-error, ...). ``path`` leads to the place (``call 0,
    output[1]``). ``numbers`` are JSON-safe. ``error`` holds ``type``, ``message``, ``chain`` (class names of the
    exception and its causes) and ``trace``. ``stage`` is the first stage of the ladder that shows it. ``place`` is the
    YAML ``file:line:column`` where known, the file absolute. ``severity`` is None where it is that of the oracle's row.
    ``line`` is of the generated source, where no error names it. ``choice`` is what a benchmark of torch chose, where
    the other choice does not show the finding: one of ``oracles.CHOICES``, and control's to fill.
    """

    oracle: str
    message: str
    path: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    stage: str | None = None
    place: str | None = None
    severity: str | None = None
    line: int | None = None
    choice: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a plain dict; ``line`` and ``choice`` only where there is one."""
        data = {name: getattr(self, name) for name in _FIELDS}
        return {name: value for name, value in data.items() if value is not None or name not in ("line", "choice")}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Finding:
        """Return the finding of a plain dict. Unknown keys are dropped."""
        return Finding(**{name: data[name] for name in _FIELDS if name in data})


_FIELDS = tuple(item.name for item in dataclasses.fields(Finding))


def index_of(flat: int, shape: Sequence[int]) -> list[int]:
    """Return the index of the element that stands at place ``flat`` of a tensor of that shape."""
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return index[::-1]


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGSEGV``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
