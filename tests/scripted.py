"""A session whose engine answers as scripted, for tests of sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.cases.model import Variant
from runner.contract.job import Job
from runner.engine.messages import Outcome
from runner.record.events import Event, VariantFinished
from runner.session.plan import RunContext, plan, planned_event
from runner.session.run import Session
from runner.session.settings import RunSettings
from tests.handmade import environment

Script = Callable[[Job, str], dict[str, Any]]
"""A job and what it is for, to fields of its outcome; ``findings`` and ``trust`` make a result."""


class FakeEngine:
    """Ends jobs as scripted, one at a time."""

    def __init__(self, script: Script, place: int = 0) -> None:
        self.script, self.jobs, self.queue = script, [], []  # type: ignore[var-annotated]
        self.place = place  # of the job in the queue that ends next

    def submit(self, job: Job) -> None:
        assert job.key not in [queued.key for queued in self.queue]
        self.jobs.append(job)
        self.queue.append(job)

    def wait(self, timeout: float | None = None) -> list[Outcome]:
        assert self.queue, "the session waits for nothing"
        job = self.queue.pop(self.place)
        fields = {"ended": "result", "phase": "judge", "seconds": 1.0, **self.script(job, purpose(job))}
        parts = ("findings", "trust", "labels", "notes", "stored_graphs", "unchecked", "benchmarked")
        record = {key: fields.pop(key) for key in parts if key in fields}
        return [Outcome(job, result=record, **fields)]

    def running(self) -> list[tuple[Job, float, str]]:
        return [(job, 1.0, "eager") for job in self.queue[:1]]

    def asked(self) -> list[tuple[str, str]]:
        return [(purpose(job), job.backend["backend"]) for job in self.jobs]


def purpose(job: Job) -> str:
    return job.key.rpartition(" ")[2]


def run(
    chosen: list[Variant], script: Script, torches: tuple[str, ...] = ("2.13.0",), **options: Any
) -> tuple[int, FakeEngine, list[Event]]:
    engine = FakeEngine(script)
    planned = plan(chosen, [environment(t) for t in torches])
    session = Session(planned, engine, context(**options))
    events: list[Event] = [*map(planned_event, planned), *session.events()]
    return session.code, engine, events


def context(confirm: bool = False, **options: Any) -> RunContext:
    """Fields of the settings, and of what a run knows beside them, by their names."""
    names = RunSettings.__dataclass_fields__
    settings = RunSettings(confirm=confirm, **{name: value for name, value in options.items() if name in names})
    return RunContext(settings, **{name: value for name, value in options.items() if name not in names})


def verdicts(events: list[Event]) -> list[VariantFinished]:
    return [event for event in events if isinstance(event, VariantFinished)]


def passes(job: Job, purpose: str) -> dict[str, Any]:
    return {}


def wrong(oracle: str = "value", **numbers: Any) -> dict[str, Any]:
    return {"findings": [{"oracle": oracle, "message": "it differs", "path": "call 0, output", "numbers": numbers}]}


def only(*purposes: str, **answer: Any) -> Script:
    """That answer for these purposes, a pass for others."""
    return lambda job, purpose: answer if purpose in purposes else {}
