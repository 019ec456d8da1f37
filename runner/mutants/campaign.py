"""Many mutants side by side on one engine, each with the cases that reach its line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from runner.contract.lines import Lines
from runner.contract.mutant import Mutant
from runner.engine.messages import Engine
from runner.mutants.trial import Trial, try_mutant
from runner.session.plan import Planned, RunContext
from runner.session.scheduler import Scheduler

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Passed:
    """A case that passed without any mutant: what it took, in seconds, and the compiler's lines that it reached."""

    planned: Planned
    seconds: float
    lines: Lines


def choose_cases(mutant: Mutant, passes: Sequence[Passed], most: int) -> tuple[list[Passed], int]:
    """Return the cases that run under a mutant, and how many reach its line.

    Half of them are the fastest, in that order. The others are spread over the rest, so that one kind of case does not
    speak for all.
    """
    reaching = sorted(
        (case for case in passes if case.lines.holds(mutant.file, mutant.line)),
        key=lambda case: (case.seconds, case.planned.key),
    )
    return sample(reaching, most), len(reaching)


def sample(ordered: Sequence[_Item], most: int) -> list[_Item]:
    """Return at most so many items: the first half of them are the first ones, the others are spread over the rest."""
    if len(ordered) <= most:
        return [*ordered]
    half = most // 2
    later, count = ordered[half:], most - half
    return [*ordered[:half], *(later[n * len(later) // count] for n in range(count))]


def run_trials(
    mutants: Sequence[Mutant],
    passes: Sequence[Passed],
    most: int,
    engine: Engine,
    context: RunContext,
    tick: Callable[[Mapping[str, int]], None] | None = None,
) -> Iterator[Trial]:
    """Yield what becomes of each mutant, as it is known.

    When the deadline of the context passes, what runs is ended, and its mutants stay without a trial.

    Args:
        mutants: the changes.
        passes: the cases that passed.
        most: of them for each mutant.
        engine: runs the jobs.
        context: of the run, with the settings of the cases.
        tick: called several times a second with how many mutants wait and run.
    """
    queue = deque(mutants)
    scheduler: Scheduler[Trial] = Scheduler(engine)
    while queue or len(scheduler):
        while queue and len(scheduler) < 2 * context.slots and not context.time_is_up():
            mutant = queue.popleft()
            cases, reaching = choose_cases(mutant, passes, most)
            chosen = [(case.planned, case.seconds) for case in cases]
            scheduler.start(mutant.id, try_mutant(mutant, chosen, reaching, context))
        scheduler.wait(0.2)
        yield from (trial for _, trial in scheduler.results())
        if tick is not None:
            tick({"waiting": len(queue), "running": len(scheduler)})
        if context.time_is_up():
            scheduler.cancel()
            return
