"""The search: attempts in order, as many at once as there are slots, the first of them that holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runner.builder.source import Source
from runner.cases.model import Variant
from runner.cases.serialize import text_of_plain
from runner.reduce.passes import Pass
from runner.reduce.state import Attempt, Size, State, size_of


class Judge(Protocol):
    """Says of candidates whether they fail alike."""

    slots: int

    def start(self, number: int, variant: Variant, source: Source) -> None:
        """Begin to try a candidate."""

    def finished(self, timeout: float) -> list[tuple[int, bool]]:
        """What is known by now, after at most ``timeout`` seconds: numbers, and whether it fails alike."""

    def stop(self) -> None:
        """Forget what has begun."""


Read = Callable[[str], tuple[Variant, Source] | None]
"""The variant and the source of a text; None for one that is no valid case."""


@dataclass(frozen=True)
class Found:
    """An attempt that holds."""

    attempt: Attempt
    text: str
    variant: Variant
    source: Source
    size: Size
    place: int  # of the pass that proposed it


@dataclass
class Search:
    """Goes through passes, over and over, until nothing that any proposes holds, or ``deadline`` (monotonic) has come.

    ``tried`` maps texts to whether they fail alike; it may hold what an earlier search knew. ``keep`` is told each attempt that
    was tried, ``accept`` each step, and gives the state to go on from.
    """

    judge: Judge
    read: Read
    passes: Sequence[Pass]
    accept: Callable[[Found], State]
    deadline: float
    tried: dict[str, bool] = field(default_factory=dict)
    keep: Callable[[Found, bool], None] = lambda found, same: None
    tick: Callable[[], None] = lambda: None
    runs: int = 0

    def run(self, state: State) -> bool:
        """Search from ``state``; whether it came to its end by itself."""
        start = 0
        while time.monotonic() < self.deadline:
            found = self._first(state, self._attempts(state, start))
            if found is None:
                return time.monotonic() < self.deadline
            state = self.accept(found)
            start = found.place
        return False

    def _attempts(self, state: State, start: int) -> Iterator[Found]:
        """What is valid, smaller and not known to be of no use, from pass ``start`` on, all passes once."""
        before = size_of(state.data)
        seen: set[str] = set()
        for place in (*range(start, len(self.passes)), *range(start)):
            for attempt in self.passes[place](state):
                size = size_of(attempt.data)
                if size >= before:
                    continue
                text = text_of_plain(attempt.data)
                if text in seen or self.tried.get(text) is False:
                    continue
                seen.add(text)
                read = self.read(text)
                if read is None:
                    self.tried[text] = False
                    continue
                yield Found(attempt, text, *read, size, place)

    def _first(self, state: State, attempts: Iterable[Found]) -> Found | None:
        """The first attempt, in the order given, that holds: what comes after it is tried at the same time, and forgotten."""
        source = iter(attempts)
        flying: dict[int, Found] = {}
        number = 0
        holds: int | None = None
        exhausted = False
        while True:
            while not exhausted and holds is None and len(flying) < self.judge.slots:
                if time.monotonic() >= self.deadline:
                    break
                found = next(source, None)
                if found is None:
                    exhausted = True
                    break
                number += 1
                flying[number] = found
                if self.tried.get(found.text):  # an earlier search knows
                    holds = number
                    break
                self.runs += 1
                self.judge.start(number, found.variant, found.source)
            if holds is not None and not any(other < holds for other in flying):
                self.judge.stop()
                return flying[holds]
            if not flying or time.monotonic() >= self.deadline:
                self.judge.stop()
                return None
            for done, same in self.judge.finished(0.2):
                one = flying[done]
                self.tried[one.text] = same
                self.keep(one, same)
                if not same:
                    del flying[done]
                elif holds is None or done < holds:
                    holds = done
            self.tick()
