"""What a hunt draws next, by what its earlier rounds reached: rare operators, and changes of the cases that reached
something new.

``reached`` are names such as ``lowering aten.relu``, which a worker observes, and ``step torch.add`` and ``pair
torch.add torch.sum``, which the text of a case says: the second operator reads a value of the first.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.cases.limits import Limits
from runner.contract.lines import Lines, is_text
from runner.generate.files import Parents, read_parents
from runner.generate.mutations import Case, mutant_of
from runner.hunt.groups import spec_of
from runner.hunt.state import Round

SHARE = 0.5
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
        pools = [pool for pool in (self.given.cases, self.own) if pool]
        count = int(len(numbers) * SHARE) if pools else 0
        mutants, origin = {}, f"round {round_number} of a guided hunt"
        for number in numbers[len(numbers) - count :]:
            mutant = self._mutant(number, pools, origin, chance)
            if mutant is not None:
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
        pool = chance.choice(pools)
        donors = chance.choice(pools)
        tries = [
            mutant_of(chance.choice(pool), chance.choice(donors), chance, name, again)
            for _ in range(1 if pool is self.given.cases else CANDIDATES)
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
    cases = read_parents([str(path)], limits, "parents").cases
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
