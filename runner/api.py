"""What an extension imports: an oracle ``check``, ``Evidence`` and ``Finding``; a reporter ``Handler`` and the events.

An oracle runs in a worker, with torch. A reporter runs in control, without it. So a name is imported when it is asked
for, and brings nothing of the other half. ``docs/extending.md`` has an example of each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.contract.finding import Finding
    from runner.record.events import (
        Event,
        Notice,
        RunFinished,
        RunResumed,
        RunStarted,
        VariantFinished,
        VariantPlanned,
        VariantStarted,
    )
    from runner.report.handlers import Handler, LiveFile
    from runner.worker.comparison.compare import equal_bits
    from runner.worker.judge.evidence import Evidence
    from runner.worker.judge.judge import check

__all__ = [
    "Event", "Evidence", "Finding", "Handler", "LiveFile", "Notice", "RunFinished", "RunResumed", "RunStarted",
    "VariantFinished", "VariantPlanned", "VariantStarted", "check", "equal_bits",
]  # fmt: skip

_HOMES = {
    "Handler": "runner.report.handlers",
    "LiveFile": "runner.report.handlers",
    "equal_bits": "runner.worker.comparison.compare",
    "Evidence": "runner.worker.judge.evidence",
    "Finding": "runner.contract.finding",
    "check": "runner.worker.judge.judge",
}
"""Where a name is defined; all others are events."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'runner.api' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "runner.record.events")), name)
