"""The numbers of a heat map: one more run of the variant, which compares element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.diagnose.harness import VariantEngine, result_of
from runner.verdict import outcomes


def run_heat_map(engine: VariantEngine, tick: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run the variant once more and return the record of ``runner.worker.tasks.heatmap.run_picture``; ``tick`` as of ``ask``.

    A process that dies leaves no heat map: ``picture`` is None then, and ``reason`` says how it ended.

    Raises:
        UsageError: the case is wrong.
    """
    (outcome,) = engine.ask([engine.job("picture")], tick)
    if outcome.ended != "result":
        return {"picture": None, "reason": outcomes.describe(outcome), "inputs": []}
    return dict(result_of(outcome))
