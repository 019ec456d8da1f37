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
from runner.session.affected import Block, LineMap, candidate, select
from runner.session.plan import Planned, RunContext
from runner.session.scheduler import Scheduler

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Passed:
    """A case that passed without any mutant: the seconds of its processes, and of the slot that it held, and the
    compiler's lines that it reached."""

    planned: Planned
    seconds: float
    slot_seconds: float
    lines: Lines


Cases = tuple[list[Passed], int]
"""Cases in the order in which they run, and how many there are to choose from."""


def choose_cases(mutant: Mutant, passes: Sequence[Passed], most: int) -> Cases:
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


def affected_cases(passes: Sequence[Passed]) -> Callable[[Mutant], Cases]:
    """Return what chooses the cases that ``runner run --affected-by`` selects for a change of the mutant's line."""
    by_id = {case.planned.variant.id: case for case in passes}
    line_map = LineMap.of((id_, case.lines) for id_, case in by_id.items())
    candidates = [candidate(case.planned.variant, case.slot_seconds) for case in passes]

    def choose(mutant: Mutant) -> Cases:
        selection = select(line_map, [Block(mutant.file, (mutant.line,))], candidates)
        return [by_id[id_] for id_ in selection.reasons], len(line_map.variants_of(mutant.file, mutant.line))

    return choose


def run_trials(
    mutants: Sequence[Mutant],
    choose: Callable[[Mutant], Cases],
    engine: Engine,
    context: RunContext,
    tick: Callable[[Mapping[str, int]], None] | None = None,
) -> Iterator[Trial]:
    """Yield what becomes of each mutant, as it is known.

    When the deadline of the context passes, what runs is ended, and its mutants stay without a trial.

    Args:
        mutants: the changes.
        choose: returns the cases that run under a mutant, in order, and how many reach its line.
        engine: runs the jobs.
        context: of the run, with the settings of the cases.
        tick: called several times a second with how many mutants wait and run.
    """
    queue = deque(mutants)
    scheduler: Scheduler[Trial] = Scheduler(engine)
    while queue or len(scheduler):
        while queue and len(scheduler) < 2 * context.slots and not context.time_is_up():
            mutant = queue.popleft()
            cases, reaching = choose(mutant)
            chosen = [(case.planned, case.seconds) for case in cases]
            scheduler.start(mutant.id, try_mutant(mutant, chosen, reaching, context))
        scheduler.wait(0.2)
        yield from (trial for _, trial in scheduler.results())
        if tick is not None:
            tick({"waiting": len(queue), "running": len(scheduler)})
        if context.time_is_up():
            scheduler.cancel()
            return
