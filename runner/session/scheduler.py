"""Generators that yield the jobs they want and are sent the outcomes: many of them, on one engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from runner.contract.job import Job
from runner.engine.messages import Engine, Outcome
from runner.verdict.outcomes import died_in_float64

T = TypeVar("T")

Steps = Generator[Sequence[Job], Sequence[Outcome], T]
"""Yields jobs that may run at once, is sent their outcomes in the same order, and returns a ``T``."""


def with_reference(jobs: Sequence[Job], account: Callable[[Outcome], None] = lambda _: None) -> Steps[list[Outcome]]:
    """Ask for jobs, and once more without the float64 reference for those whose process died in it.

    Such a death says nothing about the case: the reference is ours. ``account`` is called with every outcome.
    """
    outcomes = list((yield jobs))
    for outcome in outcomes:
        account(outcome)
    places = [n for n, outcome in enumerate(outcomes) if died_in_float64(outcome) and outcome.job.float64]
    if places:
        repeated = yield [replace(outcomes[n].job, float64=False) for n in places]
        for place, outcome in zip(places, repeated, strict=True):
            outcomes[place] = outcome
            account(outcome)
    return outcomes


def drive(engine: Engine, steps: Steps[T], tick: Callable[[], None] | None = None) -> T:
    """Run one generator of jobs to its result. ``tick`` is called several times a second."""
    scheduler: Scheduler[T] = Scheduler(engine)
    scheduler.start("", steps)
    while len(scheduler):
        scheduler.wait(0.2)
        if tick is not None:
            tick()
    ((_, result),) = scheduler.results()
    return result


@dataclass(slots=True)
class _Thread(Generic[T]):
    """A generator between two of its steps: the jobs that it waits for, and the outcomes that are there already."""

    name: str
    steps: Steps[T]
    jobs: Sequence[Job] = ()
    outcomes: dict[str, Outcome] = field(default_factory=dict)


class Scheduler(Generic[T]):
    """Runs generators of jobs side by side. The keys of jobs that are asked for at one time must differ."""

    def __init__(self, engine: Engine) -> None:
        """Start nothing yet."""
        self.engine = engine
        self._threads: dict[str, _Thread[T]] = {}  # by name
        self._owners: dict[str, _Thread[T]] = {}  # by the key of a job that runs or waits
        self._results: list[tuple[str, T]] = []

    def __len__(self) -> int:
        """Return how many generators have not returned."""
        return len(self._threads)

    def start(self, name: str, steps: Steps[T]) -> None:
        """Run a generator up to its first jobs. Its result may be there at once."""
        thread = self._threads[name] = _Thread(name, steps)
        self._resume(thread, None)

    def wait(self, timeout: float) -> None:
        """Hand outcomes of at most ``timeout`` seconds to the generators that wait for them."""
        for outcome in self.engine.wait(timeout) if self._owners else ():
            thread = self._owners.pop(outcome.job.key)
            thread.outcomes[outcome.job.key] = outcome
            if len(thread.outcomes) == len(thread.jobs):
                outcomes = [thread.outcomes[job.key] for job in thread.jobs]
                thread.outcomes = {}
                self._resume(thread, outcomes)

    def results(self) -> list[tuple[str, T]]:
        """Return the names and results of generators that have returned since the last call."""
        results, self._results = self._results, []
        return results

    def cancel(self) -> None:
        """End the jobs of all generators; these never return."""
        if self._owners:
            self.engine.cancel_all()
            self.engine.wait(0)
        self._threads.clear()
        self._owners.clear()
        self._results.clear()

    def _resume(self, thread: _Thread[T], outcomes: Sequence[Outcome] | None) -> None:
        try:
            thread.jobs = next(thread.steps) if outcomes is None else thread.steps.send(outcomes)
            while not thread.jobs:
                thread.jobs = thread.steps.send([])
        except StopIteration as end:
            del self._threads[thread.name]
            self._results.append((thread.name, end.value))
            return
        for job in thread.jobs:
            self._owners[job.key] = thread
            self.engine.submit(job)
