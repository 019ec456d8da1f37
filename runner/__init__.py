"""runner: does a torch.compile backend compute what eager PyTorch computes?

Three functions make a run and yield its events, and one compares two results; ``docs/library.md`` has an example of
each::

    import runner

    settings = runner.RunSettings(backend=("aot_eager",))
    plan = runner.plan(runner.collect(["suites/"], settings), settings)
    for event in runner.run(plan, settings):
        if isinstance(event, runner.VariantFinished):
            print(event.verdict, event.id)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from runner.checks import Verdict, check
    from runner.contract.finding import Finding
    from runner.library import capture
    from runner.pytest_plugin.parameters import ConformanceCase, conformance
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
    from runner.report.failure import Disagreement
    from runner.session.collect import Loaded, collect
    from runner.session.run import Plan, plan, run
    from runner.session.settings import RunSettings
    from runner.worker.judge.comparison import Comparison, compare

__all__ = [
    "Comparison", "ConformanceCase", "Disagreement", "Event", "Finding", "Loaded", "Notice", "Plan", "RunFinished",
    "RunResumed", "RunSettings", "RunStarted", "VariantFinished", "VariantPlanned", "VariantStarted", "Verdict",
    "__version__", "capture", "check", "collect", "compare", "conformance", "plan", "run",
]  # fmt: skip

_HOMES = {
    "plan": "runner.session.run",
    "run": "runner.session.run",
    "Plan": "runner.session.run",
    "RunSettings": "runner.session.settings",
    "Loaded": "runner.session.collect",
    "collect": "runner.session.collect",
    "Finding": "runner.contract.finding",
    "Comparison": "runner.worker.judge.comparison",
    "capture": "runner.library",
    "ConformanceCase": "runner.pytest_plugin.parameters",
    "Disagreement": "runner.report.failure",
    "Verdict": "runner.checks",
    "check": "runner.checks",
    "conformance": "runner.pytest_plugin.parameters",
    "compare": "runner.worker.judge.comparison",
}


def __getattr__(name: str) -> Any:
    """Return a part of the library, which is imported when it is asked for: ``runner --version`` needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module 'runner' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES.get(name, "runner.record.events")), name)
