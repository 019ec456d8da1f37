"""Candidates for smaller graphs, tried in eager PyTorch: many in one job of a worker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from runner.builder.source import build
from runner.cases.suites import SPEC
from runner.contract.graphs import Graph
from runner.contract.job import Job
from runner.contract.settings import HASH_SEED
from runner.engine import scratch
from runner.engine.messages import Engine, Outcome
from runner.files import write_anew
from runner.graphs.cases import write_graph
from runner.graphs.grains import digest_of
from runner.graphs.shrink import candidates
from runner.graphs.text import text_of
from runner.quote import QuoteError
from runner.session.collect import load
from runner.session.plan import Environment, Planned, job
from runner.session.scheduler import drive

BATCH = 50
TIMEOUT = 120.0
MEMORY = 4 << 30


class Shrinker:
    """Makes graphs smaller, as far as eager takes them."""

    def __init__(self, engine: Engine, environment: Environment, slots: int, bound: int) -> None:
        """Start nothing yet."""
        self._engine, self._environment, self._slots, self._bound = engine, environment, slots, bound
        self._jobs = 0
        self._answers: dict[str, bool] = {}  # whether eager takes a candidate, by its digest

    def shrink(self, graphs: Sequence[Graph], tick: Callable[[], None] | None = None) -> list[Graph]:
        """Return each graph with the smallest sizes that eager takes; as it is where it takes none."""
        smaller = list(graphs)
        waiting: dict[int, Iterator[Graph]] = {n: candidates(graph, self._bound) for n, graph in enumerate(graphs)}
        while waiting:
            tries = {number: next(each, None) for number, each in waiting.items()}
            graphs_to_try = {number: graph for number, graph in tries.items() if graph is not None}
            taken = self._accepted(graphs_to_try, tick)
            for number in taken:
                smaller[number] = graphs_to_try[number]
            waiting = {n: each for n, each in waiting.items() if n in graphs_to_try and n not in taken}
        return smaller

    def _accepted(self, graphs: Mapping[int, Graph], tick: Callable[[], None] | None) -> set[int]:
        """Return the numbers of the graphs that eager takes. Graphs with one digest are one case, so one is tried."""
        digests = {number: digest_of(graph) for number, graph in graphs.items()}
        firsts = {digest: number for number, digest in reversed(digests.items()) if digest not in self._answers}
        taken = self._taken({number: graphs[number] for number in firsts.values()}, tick)
        self._answers |= {digest: number in taken for digest, number in firsts.items()}
        return {number for number, digest in digests.items() if self._answers[digest]}

    def _taken(self, graphs: Mapping[int, Graph], tick: Callable[[], None] | None) -> set[int]:
        """Return the numbers of the graphs that eager takes. A batch whose process dies is halved."""
        jobs = _jobs_of(graphs, self._environment)
        size, numbers = max(1, min(BATCH, -(-len(jobs) // self._slots))), list(jobs)
        batches = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        return drive(self._engine, self._ask(jobs, batches), tick)

    def _ask(
        self, jobs: Mapping[int, Job], batches: list[list[int]]
    ) -> Generator[Sequence[Job], Sequence[Outcome], set[int]]:
        taken: set[int] = set()
        while batches:
            outcomes = yield [self._job([jobs[number] for number in batch]) for batch in batches]
            halves: list[list[int]] = []
            for batch, outcome in zip(batches, outcomes, strict=True):
                if outcome.ended == "result":
                    errors = outcome.result["errors"]
                    taken.update(number for number, error in zip(batch, errors, strict=True) if error is None)
                elif len(batch) > 1:
                    halves += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
            batches = halves
        return taken

    def _job(self, jobs: Sequence[Job]) -> Job:
        self._jobs += 1
        key = f"eager {self._jobs}"
        return Job(
            key=key, id=key, environment=self._environment.key, name="eager", source="",
            backend={"backend": "eager"}, timeout=TIMEOUT, memory=MEMORY, task="eager",
            arguments={"jobs": [each.to_json() for each in jobs]}, isolation="living", cacheable=False,
            variables={HASH_SEED: "0"},
        )  # fmt: skip


def _jobs_of(graphs: Mapping[int, Graph], environment: Environment) -> dict[int, Job]:
    """Return the judging job of each graph that is a whole case, by its number."""
    written = {number: write_graph(graph, f"case_{number}") for number, graph in graphs.items()}
    whole = [file for file in written.values() if file.case is not None and not file.faults]
    jobs: dict[int, Job] = {}
    with scratch.folder() as folder:
        paths = [folder / f"{n}{SPEC}" for n in range(-(-len(whole) // BATCH))]
        for n, path in enumerate(paths):
            try:
                write_anew(path, text_of(whole[n * BATCH : (n + 1) * BATCH]))
            except QuoteError:  # what no file can hold is no candidate
                write_anew(path, "cases: []\n")
        for variant in load([*map(str, paths)], everything=True).variants if paths else ():
            jobs[int(variant.case.name.removeprefix("case_"))] = job(Planned(variant, environment), build(variant))
    return jobs
