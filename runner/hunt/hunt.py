"""The order of a hunt: rounds while there is time for one more, between them reductions that keep to their share, then
reports.

In a round cases are drawn by their numbers and run, and what is red is kept. A guided hunt draws by what its earlier
rounds reached: rare operators, and changes of the cases that reached something new. ``reached`` are names such as
``lowering aten.relu``, which a worker observes, and ``step torch.add`` and ``pair torch.add torch.sum``, which the text
of a case says: the second operator reads a value of the first.
"""

from __future__ import annotations

import contextlib
import math
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from runner import interrupts
from runner.cases.limits import Limits
from runner.cases.model import Variant
from runner.contract.lines import Lines, is_text
from runner.diagnose.repro import script
from runner.diagnostics import InputError
from runner.engine.local import LocalEngine
from runner.files import replace_text
from runner.generate.generator import CaseGenerator, Parents, read_parents, text_of, with_python_beside
from runner.generate.mutations import Case, mutant_of
from runner.hunt.evidence import Share, reduce_group, report_group
from runner.hunt.groups import (
    CASE,
    FAILURES,
    SCRIPT,
    Group,
    Head,
    Ledger,
    Line,
    Red,
    Reduction,
    Report,
    Round,
    State,
    append_line,
    folder_of,
    groups_of,
    read_triage,
    request_of,
    spec_of,
    write_groups,
)
from runner.record.events import RED, RunFinished, VariantFinished
from runner.session.collect import collect
from runner.session.plan import Environment
from runner.session.run import plan
from runner.session.run import run as run_plan
from runner.session.settings import RunSettings
from runner.text import one_line, plural
from runner.verdict.signature import assess, worst_findings
from runner.verdict.stages import stage_of

MUTANTS = 0.5
"""Part of a round's cases that are mutants, where there is a parent."""
CANDIDATES = 4
"""Mutants of the hunt's own cases of which one is taken: the one with the most pairs of operators that no case had."""
PARENTS = 400
"""Parents from the hunt itself, at most: the last ones."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round draws: new cases with these numbers, of these operators, and mutants by their numbers."""

    numbers: Sequence[int]
    operators: Sequence[str]
    mutants: Mapping[int, Case]
    origin: str  # what the cases' docs say: no command draws them


@dataclass(slots=True)
class Guidance:
    """What was reached so far, and the cases that are worth a change: those of the files that a person names, and the
    hunt's own."""

    seed: int
    given: Parents
    reached: set[str] = field(default_factory=set)
    lines: Lines = field(default_factory=Lines)  # of the compiler's own source
    own: list[Case] = field(default_factory=list)

    def plan(self, round_number: int, numbers: Sequence[int], operators: Sequence[str]) -> Plan:
        """Return what a round draws. It depends on the seed and on what the rounds before gave, and on nothing else."""
        chance = random.Random(f"guided {self.seed} {round_number}")
        pools = [pool for pool in (self.given, self.own) if pool]
        count = int(len(numbers) * MUTANTS) if pools else 0
        mutants, origin = {}, f"round {round_number} of a guided hunt"
        for number in numbers[len(numbers) - count :]:
            if (mutant := self._mutant(number, pools, origin, chance)) is not None:
                mutants[number] = mutant
        unused = [name for name in operators if f"step {name}" not in self.reached]
        used = [name for name in operators if f"step {name}" in self.reached]
        beside = chance.sample(used, min(len(used), len(unused))) if unused else used
        return Plan(numbers[: len(numbers) - count], sorted([*unused, *beside]), mutants, origin)

    def _mutant(
        self, number: int, pools: Sequence[Sequence[Mapping[str, Any]]], again: str, chance: random.Random
    ) -> Case | None:
        """Return a mutant. A person's cases are parents as often as the hunt's own, which soon are many more.

        A mutant of a person's case stays near to it. Of the others, the best of some candidates is taken.
        """
        name = f"mutant_{self.seed}_{number:05d}"
        pool, donors = chance.choice(pools), chance.choice(pools)
        tries = [
            mutant_of(chance.choice(pool), chance.choice(donors), chance, name, again)
            for _ in range(1 if pool is self.given else CANDIDATES)
        ]
        mutants = [mutant for mutant in tries if mutant is not None]
        return max(mutants, key=lambda mutant: len(reached_by_text(mutant) - self.reached), default=None)

    def _take(self, reached: Iterable[str]) -> None:
        names = list(reached)
        self.reached.update(name for name in names if not is_text(name))
        self.lines.update(Lines(names))

    def learn(self, reached: Iterable[str], parents: Iterable[Case]) -> None:
        """Take up what a finished round reached, and its cases that are worth a change."""
        self._take(reached)
        self.own = [*self.own, *parents][-PARENTS:]

    def learn_again(self, folder: Path, rounds: Sequence[Round], limits: Limits) -> None:
        """Take up what a hunt's rounds gave before it was resumed.

        Raises UsageError, InputError for a file that was changed.
        """
        for record in rounds:
            self._take(record.reached)
        for record in reversed(rounds):
            if len(self.own) >= PARENTS:
                break
            self.own = [*parents_in(spec_of(folder, record.round), record.parents, limits), *self.own][-PARENTS:]


def parents_in(path: Path, numbers: Sequence[int], limits: Limits) -> list[Case]:
    """Return the cases with these numbers from the file of a round. Raises UsageError, InputError for a wrong file."""
    if not numbers:
        return []
    cases = read_parents([str(path)], limits, "parents")
    ends = [(case, case["name"].rpartition("_")[2]) for case in cases]  # people may add cases of their own
    return [case for case, end in ends if end.isdecimal() and int(end) in numbers]


def is_rare(name: str) -> bool:
    """Return whether a case that reaches this first is worth a change.

    Almost every case has a pair of operators that no other had.
    """
    return not name.startswith("pair ")


def reached_by_text(case: Mapping[str, Any]) -> set[str]:
    """Return the operators of a case, and the pairs of which the second one reads what the first one gives."""
    names: set[str] = set()
    givers: dict[str, str] = {}
    for operator, reads, gives in _calls(case.get("chain", ())):
        names.add(f"step {operator}")
        names |= {f"pair {givers[name]} {operator}" for name in reads if name in givers}
        givers |= dict.fromkeys(gives, operator)
    return names


def _calls(chain: Sequence[Any]) -> Iterator[tuple[str, set[str], set[str]]]:
    """Yield each operator with the names of the values that it reads and gives; a step without a value reads the last
    one."""
    for step in chain:
        if isinstance(step, str):
            yield step, {"_"}, {"_"}
        elif isinstance(step, dict) and isinstance(step.get("chain"), list):
            yield from _calls(step["chain"])
        elif isinstance(step, dict) and "." in (operator := next(iter(step))):
            out = step.get("out", [])
            reads = set(re.findall(r"\$(\w+)", str({key: value for key, value in step.items() if key != "out"})))
            yield operator, reads or {"_"}, {"_", *([out] if isinstance(out, str) else out)}


class Rounds(contextlib.AbstractContextManager["Rounds"]):
    """Runs rounds of a hunt.

    Its generator lives on between them, because torch's operator database takes seconds to import.
    """

    def __init__(
        self, folder: Path, head: Head, environment: Environment, settings: RunSettings, ledger: Ledger,
        say: Callable[[str], None], guidance: Guidance | None = None,
    ) -> None:  # fmt: skip
        """Start nothing yet. ``guidance`` knows what the rounds so far reached.

        ``say`` takes one line that says what is being done; behind a semicolon stands what changes often.
        """
        self.folder, self.head, self.settings, self.ledger, self.say = folder, head, settings, ledger, say
        self.guidance = guidance
        self._engine = LocalEngine(
            {environment.key: environment.python}, settings.slots(), warm={environment.key: "import"}
        )
        self.generator = CaseGenerator(self._engine, environment, request_of(head), settings.slots())
        self._torch = environment.torch
        self._operators: list[str] | None = None

    def __exit__(self, *about: object) -> None:
        """End the generator's processes."""
        with interrupts.held():
            self._engine.close()

    def run(self, number: int, has_group: Callable[[str], bool], deadline: float = math.inf) -> Round:
        """Draw and run a round, and write what its red results need.

        Args:
            number: of the round.
            has_group: whether a signature's group is there already, or known; a group that is neither gets its folder
            here.
            deadline: on ``time.monotonic``'s clock. What runs then is ended, and has no result.

        Raises:
            KeyboardInterrupt: it was cut short; nothing of it counts.
            UsageError: the generator cannot work, or a backend is missing.
        """
        began = time.monotonic()
        limit, backends = self.head.timeout, self.settings.backend
        cases = {n: adapted(case, limit, backends) for n, case in self._draw(number).items()}
        drawn = time.monotonic()
        path = spec_of(self.folder, number)
        results, variants = self._results(path, number, [*cases.values()], deadline) if cases else ([], {})
        by_name = {str(case["name"]): n for n, case in cases.items()}
        numbers = {id_: by_name[variant.case.name] for id_, variant in variants.items()}
        red = self._red(path, cases, numbers, results, variants, has_group)
        reached, parents = self._reached(cases, numbers, results, red)
        kept = [case for n, case in cases.items() if n in {*parents, *(each.number for each in red)}]
        if kept:
            _write_cases(path, kept)
        else:
            path.unlink(missing_ok=True)
        if self.guidance is not None:
            self.guidance.learn(reached, parents_in(path, parents, self.settings.limits()))
        verdicts = Counter[str](event.verdict for event in results)
        seconds = time.monotonic() - drawn
        return Round(
            number, len(cases), len(results), round(drawn - began, 3), round(seconds, 3), dict(verdicts), red, reached,
            parents, len(variants) - len(results)
        )  # fmt: skip

    def _draw(self, number: int) -> dict[int, Case]:
        """Return the valid cases of a round, by their numbers."""
        if self._operators is None:
            self._operators = self.generator.find_operators(partial(self.say, "reading torch's operator database"))
        first = number * self.head.batch
        numbers = range(first, first + self.head.batch)
        tick = partial(self.say, f"round {number}: drawing {self.head.batch} cases")
        if self.guidance is None:
            return self.generator.draw(numbers, tick)
        planned = self.guidance.plan(number, numbers, self._operators)
        return self.generator.draw(planned.numbers, tick, planned.operators, planned.origin, planned.mutants)

    def _results(
        self, path: Path, number: int, cases: Sequence[Case], deadline: float
    ) -> tuple[list[VariantFinished], Mapping[str, Variant]]:
        """Run the cases, and return their results and their variants by id."""
        _write_cases(path, cases)
        # Reductions and reports need no coverage, so it is a setting of these runs alone.
        settings = replace(
            self.settings, coverage=self.guidance is not None, coverage_lines=self.head.lines,
            budget=max(0.1, deadline - time.monotonic()) if math.isfinite(deadline) else None,
        )  # fmt: skip
        planned = plan(collect([path], settings), settings)
        results: list[VariantFinished] = []

        def tick(running: list[tuple[str, float, str]]) -> None:
            red = sum(event.verdict in RED for event in results)
            self.say(f"round {number}: running {len(planned.planned)} variants; {len(results)} ended, {red} red")

        with contextlib.closing(run_plan(planned, settings, tick=tick)) as events:
            for event in events:
                if isinstance(event, VariantFinished):
                    results.append(event)
                elif isinstance(event, RunFinished) and event.interrupted and time.monotonic() < deadline:
                    raise KeyboardInterrupt
        return results, {job.variant.id: job.variant for job in planned.planned}

    def _red(
        self, path: Path, cases: Mapping[int, Case], numbers: Mapping[str, int], results: list[VariantFinished],
        variants: Mapping[str, Variant], has_group: Callable[[str], bool],
    ) -> tuple[Red, ...]:  # fmt: skip
        """Return the red results, in the order of their cases."""
        events = [event if event.signature else assess(event) for event in results if event.verdict in RED]
        events.sort(key=lambda event: (numbers[event.id], event.id))
        reds: list[Red] = []
        for event in events:
            variant, number = variants[event.id], numbers[event.id]
            names = (event.signature, event.signature_id)
            is_failure = event.verdict in FAILURES
            known = self.ledger.explain(variant, self._torch, event.findings, signature=names) if is_failure else ""
            red = _red_of(event, f"rounds/{path.name}", number, known)
            is_there = has_group(red.signature_id) or any(each.signature_id == red.signature_id for each in reds)
            if not (known or is_there):
                own = folder_of(self.folder, red.signature_id)
                _write_cases(own / CASE, [cases[number]])
                with contextlib.suppress(InputError):  # a value without a place in Python text
                    if red.verdict in FAILURES:
                        replace_text(own / SCRIPT, script(variant, event, self.settings.seed, self.settings.imports))
            reds.append(red)
        return tuple(reds)

    def _reached(
        self, cases: Mapping[int, Case], numbers: Mapping[str, int], results: Sequence[VariantFinished],
        reds: Sequence[Red],
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:  # fmt: skip
        """Return what no earlier round reached, and the numbers of the cases that are worth a change.

        Those reached something first, or are the first of a signature in this round.
        """
        if self.guidance is None:
            return (), ()
        by_run: dict[int, set[str]] = defaultdict(set)
        for event in results:
            by_run[numbers[event.id]].update(event.reached)
        reached, lines = set[str](), Lines()
        parents = {*{red.signature_id: red.number for red in reversed(reds)}.values()}  # the first of each signature
        for number, case in cases.items():
            observed = by_run[number]
            names = {name for name in observed if not is_text(name)} | reached_by_text(case)
            names -= self.guidance.reached | reached
            own_lines = Lines(observed) - self.guidance.lines - lines
            reached |= names
            lines.update(own_lines)
            if own_lines or any(is_rare(name) for name in names):
                parents.add(number)
        return tuple(sorted([*reached, *lines.texts()])), tuple(sorted(parents))


def _write_cases(path: Path, cases: Sequence[Case]) -> None:
    """Write a spec file of cases, with their models in Python beside it."""
    replace_text(path, text_of(with_python_beside(cases, path.parent)))


def adapted(case: Case, timeout: float, backends: Sequence[str]) -> Case:
    """Return a case that may take this many seconds, unless it has a limit of its own or the hunt has none.

    A mode of torch.compile is left out unless all backends are torch's own: one of another package need not take it.
    """
    if any(stage_of(name) == "backend" for name in backends):
        own = {key: value for key, value in case.get("compile", {}).items() if key != "mode"}
        rest = {key: value for key, value in case.items() if key != "compile"}
        case = {**rest, "compile": own} if own else rest
    return {**case, "timeout": case.get("timeout", timeout)} if timeout else case


def _red_of(event: VariantFinished, file: str, number: int, known: str) -> Red:
    """Return what a hunt keeps of a result. Stage and oracle are those of the finding that its signature is made of."""
    finding = worst_findings(event.findings)[0] if event.findings else None
    return Red(
        f"{file}::{event.id.partition('::')[2]}",
        number,
        event.verdict,
        event.signature_id,
        event.signature,
        event.severity or "",
        (finding.stage if finding else None) or "",
        finding.oracle if finding else "",
        one_line(event.reason, 500),
        known,
    )


def settings_for(settings: RunSettings) -> RunSettings:
    """Return the settings of a hunt's runs: its seed is the generator's, its budget and its shard are of all rounds.

    No graph is stored, because every case is new.
    """
    return replace(settings, seed=0, budget=None, shard=None, coverage_lines=False, recompile=True, ledger=())


LEAST = 20.0
"""Seconds that a reduction needs to be worth its start, where the budget is no short one."""
REPORTING = 60.0
"""Seconds that a report needs to be worth its start.

Under inductor the script alone may take 40, because its kernels are built anew.
"""
SHARE = 1 / 3
"""Part of the time that reductions and reports may take."""
SLOTS = 2
"""Slots of a reduction or a report while others wait.

A reduction tries that many candidates at once, and drops those behind the first success.
"""
TICK = 0.5
"""Seconds between two looks at what goes on."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a hunt goes on: seconds or rounds, both counted from its first beginning.

    ``each`` bounds one reduction, and one report.
    """

    budget: float | None = None
    rounds: int | None = None
    each: float = 120.0


class Hunt:
    """A hunt in a folder. ``tell`` takes a line for each finished round, reduction and report."""

    def __init__(
        self, folder: Path, state: State, places: dict[str, str], rounds: Rounds, bounds: Bounds,
        tell: Callable[[str], None]
    ) -> None:  # fmt: skip
        """Take up what ``state`` has. Raises InputError for a triage that cannot be read."""
        self.folder, self.state, self.rounds, self.bounds, self.tell = folder, state, rounds, bounds, tell
        self._places, self._triage = places, read_triage(folder)
        self._earlier, self._began = state.hunting + state.reducing, time.monotonic()

    @property
    def elapsed(self) -> float:
        """Return the seconds of this hunt, those before it was resumed included."""
        return self._earlier + time.monotonic() - self._began

    def groups(self) -> list[Group]:
        """Return its groups as they are now.

        People may edit the triage meanwhile; half of an edit is no reason to end.
        """
        with contextlib.suppress(InputError):
            self._triage = read_triage(self.folder)
        return groups_of(self.state, self._places, self._triage)

    def run(self) -> None:
        """Hunt until the budget is used up. Raises KeyboardInterrupt when a person ends it."""
        while self.has_time():
            self._round()
            self._reduce(self.allowance())
        self._reduce(self._remaining())
        # At the end: a group without a reduced case is worth more than a report.
        report = partial(report_group, self.folder, self.rounds.settings)
        self._work("reporting", report, lambda group: group.is_unreported, REPORTING, self._remaining())
        write_groups(self.folder, self.state.head, self.groups())

    def has_time(self) -> bool:
        """Return whether one more round may begin: it lasts about as long as the last one, and reductions have their
        share."""
        rounds, bounds = self.state.rounds, self.bounds
        if bounds.rounds is not None and len(rounds) >= bounds.rounds:
            return False
        if bounds.budget is None or not rounds:
            return True
        return rounds[-1].drawing + rounds[-1].running <= self._for_a_round()

    def allowance(self) -> float:
        """Return the seconds that reductions may take now without passing their share of the time so far; without a
        budget, all."""
        if self.bounds.budget is None:
            return math.inf
        return min(SHARE / (1 - SHARE) * self.state.hunting - self.state.reducing, self._remaining())

    def _for_a_round(self) -> float:
        """Return the seconds that a round may take: what is left, without the share of reductions that may follow."""
        if self.bounds.budget is None:
            return math.inf
        groups = self.groups()
        wanted = REPORTING * sum(group.is_unreported for group in groups)
        if not self.state.rounds or any(group.is_pending for group in groups):
            wanted = math.inf
        return self._remaining() - max(0.0, min(wanted, SHARE * self.bounds.budget - self.state.reducing))

    def _remaining(self) -> float:
        return math.inf if self.bounds.budget is None else self.bounds.budget - self.elapsed

    def _round(self) -> None:
        groups = {group.id: group for group in self.groups()}

        def has_group(key: str) -> bool:
            return key in self._places or (key in groups and (folder_of(self.folder, key) / CASE).is_file())

        done = self.rounds.run(self.state.next_round, has_group, time.monotonic() + self._for_a_round())
        # The record says it, so that the hunt's status needs no --known.
        red = [replace(red, known=self._places.get(red.signature_id) or red.known) for red in done.red]
        self._add(done := replace(done, red=tuple(red)))
        fresh = [group for group in self.groups() if group.id not in groups and group.is_new]
        names = "".join(
            f"\n  new: {one_line(f'{group.id} {group.first.severity}: {group.first.signature}', 150)}"
            for group in fresh
        )
        late = f"; no time for {plural(done.unfinished, 'variant')}" if done.unfinished else ""
        self.tell(
            f"round {done.round}: {done.variants} variants, {len(done.red)} red, "
            f"{plural(len(fresh), 'new group')}{late}{names}"
        )

    def _reduce(self, seconds: float) -> None:
        """Reduce groups that wait while the seconds are enough for one more."""
        work = partial(reduce_group, self.folder, self.rounds.settings, self.rounds.ledger)
        least = min(LEAST, SHARE / 2 * (self.bounds.budget or math.inf))
        self._work("reducing", work, lambda group: group.is_pending, least, seconds)

    def _work(
        self, verb: str, work: Callable[[Group, Share, Callable[[], None]], Reduction | Report],
        waits: Callable[[Group], bool], least: float, seconds: float,
    ) -> None:  # fmt: skip
        """Do this with groups that wait for it, the worst first and several at once.

        ``work`` has a thread for each group. It calls its third argument several times a second, which may end it.
        ``least`` seconds are enough for one more.
        """
        deadline = time.monotonic() + seconds
        slots = self.rounds.settings.slots()
        width = max(1, slots // SLOTS)
        running: dict[Future[Reduction | Report], str] = {}
        is_ended = threading.Event()

        def tick() -> None:
            if is_ended.is_set():
                raise KeyboardInterrupt

        with ThreadPoolExecutor(width) as pool, contextlib.ExitStack() as stack:
            stack.callback(is_ended.set)  # where an exception ends this, the threads end too
            while True:
                waiting = [group for group in self.groups() if waits(group) and group.id not in running.values()]
                remaining = deadline - time.monotonic()
                if remaining < min(least, self.bounds.each):
                    waiting = []
                beside = min(width, len(running) + len(waiting))
                free = width - len(running)
                starting, waiting = waiting[:free], waiting[free:]
                for group in starting:
                    share = Share(min(remaining, self.bounds.each), max(1, slots // beside), beside)
                    running[pool.submit(work, group, share, tick)] = group.id
                if not running:
                    return
                self.rounds.say(
                    f"{verb} {plural(len(running), 'group')}; {', '.join(running.values())}; {len(waiting)} wait"
                )
                for future in wait(running, TICK, FIRST_COMPLETED).done:
                    key = running.pop(future)
                    done = future.result()
                    if not (done.problem and self._remaining() <= 0):  # else the same command tries it again
                        self._add(done)
                    self.tell(f"{key}: {done}")

    def _add(self, line: Line) -> None:
        """Record what is done. The groups' files follow: they can be made again, and the record cannot."""
        append_line(self.folder, line)
        self.state.add(line)
        write_groups(self.folder, self.state.head, self.groups())
