"""The search for the first attempt in order that fails alike, with as many runs at once as there are slots."""

from __future__ import annotations

import hashlib
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
        """Return the candidates decided by now, after at most ``timeout`` seconds: number, and whether it fails alike."""

    def stop(self) -> None:
        """Forget what has begun."""


Read = Callable[[str], tuple[Variant, Source] | None]
"""The variant and the source of a text; None for one that is no valid case."""


def digest(text: str) -> str:
    """Return a short name of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Candidate:
    """An attempt that is a valid, smaller case. ``place`` is that of the pass that proposed it."""

    attempt: Attempt
    text: str
    variant: Variant
    source: Source
    size: Size
    place: int


@dataclass
class Search:
    """Goes through the passes until no attempt fails alike any more, or ``deadline`` (monotonic seconds) has come.

    ``verdicts`` maps digests of texts to whether they fail alike; it may hold those of an earlier search. ``on_verdict``
    gets each tried candidate. ``accept`` gets each success, and returns the state to go on from.
    """

    judge: Judge
    read: Read
    passes: Sequence[Pass]
    accept: Callable[[Candidate], State]
    deadline: float
    verdicts: dict[str, bool] = field(default_factory=dict)
    on_verdict: Callable[[Candidate, bool], None] = lambda candidate, same: None
    tick: Callable[[], None] = lambda: None
    runs: int = 0

    def run(self, state: State) -> bool:
        """Search from ``state``; return whether the search ended by itself."""
        start = 0
        while time.monotonic() < self.deadline:
            candidate = self._first(state, self._attempts(state, start))
            if candidate is None:
                return time.monotonic() < self.deadline
            state = self.accept(candidate)
            start = candidate.place
        return False

    def _attempts(self, state: State, start: int) -> Iterator[Candidate]:
        """Yield the valid, smaller attempts that are not known to fail in another way, all passes once, from pass ``start``
        on.
        """
        size_limit = size_of(state.data)
        proposed: set[str] = set()
        for place in (*range(start, len(self.passes)), *range(start)):
            for attempt in self.passes[place](state):
                size = size_of(attempt.data)
                if size >= size_limit:
                    continue
                text = text_of_plain(attempt.data)
                key = digest(text)
                if key in proposed or self.verdicts.get(key) is False:
                    continue
                proposed.add(key)
                parsed = self.read(text)
                if parsed is None:
                    self.verdicts[key] = False
                else:
                    yield Candidate(attempt, text, *parsed, size, place)

    def _first(self, state: State, attempts: Iterable[Candidate]) -> Candidate | None:
        """Return the first attempt in order that fails alike. Later ones run at the same time, and are dropped then."""
        source = iter(attempts)
        running: dict[int, Candidate] = {}
        started = 0
        first_success: int | None = None
        exhausted = False
        while True:
            while not exhausted and first_success is None and len(running) < self.judge.slots:
                if time.monotonic() >= self.deadline:
                    break
                candidate = next(source, None)
                if candidate is None:
                    exhausted = True
                    break
                started += 1
                running[started] = candidate
                if self.verdicts.get(digest(candidate.text)):  # an earlier search knows
                    first_success = started
                    break
                self.runs += 1
                self.judge.start(started, candidate.variant, candidate.source)
            if first_success is not None and not any(number < first_success for number in running):
                self.judge.stop()
                return running[first_success]
            if not running or time.monotonic() >= self.deadline:
                self.judge.stop()
                return None
            for number, fails_alike in self.judge.finished(0.2):
                candidate = running[number]
                self.verdicts[digest(candidate.text)] = fails_alike
                self.on_verdict(candidate, fails_alike)
                if not fails_alike:
                    del running[number]
                elif first_success is None or number < first_success:
                    first_success = number
            self.tick()
