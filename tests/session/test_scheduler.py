"""Generators of jobs on one engine: who gets which outcome, and what is asked again."""

from __future__ import annotations

from typing import Any

import pytest

from runner.contract.job import Job
from runner.engine.messages import Outcome
from runner.session.scheduler import Scheduler, Steps, with_reference
from tests.scripted import FakeEngine


def job(key: str, **changes: Any) -> Job:
    return Job(key, key, environment="0", name=key, source="", backend={}, **changes)


def answers(job: Job, purpose: str) -> dict[str, Any]:
    if "dies" in job.key and job.float64:
        return {"ended": "signal", "signal": "SIGSEGV", "phase": "float64"}
    return {}


def finish(engine: FakeEngine, *steps: Steps[Any]) -> dict[str, Any]:
    scheduler: Scheduler[Any] = Scheduler(engine)
    for number, step in enumerate(steps):
        scheduler.start(str(number), step)
    while len(scheduler):
        scheduler.wait(1.0)
    return dict(scheduler.results())


def keys(names: list[str]) -> Steps[list[str]]:
    outcomes = yield [job(name) for name in names]
    return [outcome.job.key for outcome in outcomes]


@pytest.mark.parametrize("place", [0, -1])
def test_each_generator_gets_its_outcomes_in_the_order_in_which_it_asked(place: int) -> None:
    results = finish(FakeEngine(answers, place), keys(["a", "b", "c"]), keys(["d"]), keys(["e", "f"]))
    assert results == {"0": ["a", "b", "c"], "1": ["d"], "2": ["e", "f"]}


def test_a_generator_may_ask_for_nothing() -> None:
    def steps() -> Steps[str]:
        yield []
        (outcome,) = yield [job("a")]
        assert (yield []) == []
        return outcome.job.key

    assert finish(FakeEngine(answers), steps()) == {"0": "a"}


def test_a_death_in_the_float64_reference_is_asked_again_without_it() -> None:
    heard: list[Outcome] = []
    engine = FakeEngine(answers)
    results = finish(engine, with_reference([job("a"), job("dies"), job("b"), job("dies too")], heard.append))
    assert [outcome.ended for outcome in results["0"]] == ["result"] * 4
    assert [(retry.key, retry.float64) for retry in engine.jobs[4:]] == [("dies", False), ("dies too", False)]
    assert len(heard) == 6 and [outcome.ended for outcome in heard].count("signal") == 2


def test_a_death_elsewhere_is_not() -> None:
    engine = FakeEngine(lambda job, purpose: {"ended": "signal", "signal": "SIGSEGV", "phase": "backend"})
    assert finish(engine, with_reference([job("a")]))["0"][0].ended == "signal" and len(engine.jobs) == 1


def test_what_is_cancelled_never_returns() -> None:
    class Cancelled(FakeEngine):
        def cancel_all(self) -> list[Job]:
            jobs, self.queue = self.queue, []
            return jobs

        def wait(self, timeout: float | None = None) -> list[Outcome]:
            return super().wait(timeout) if self.queue else []

    engine = Cancelled(answers)
    scheduler: Scheduler[list[str]] = Scheduler(engine)
    scheduler.start("a", keys(["a", "b"]))
    scheduler.wait(1.0)
    scheduler.cancel()
    scheduler.wait(1.0)
    assert (len(scheduler), scheduler.results(), engine.queue) == (0, [], [])
    scheduler.start("a", keys(["a"]))  # the engine is free for others
    scheduler.wait(1.0)
    assert scheduler.results() == [("a", ["a"])]
