"""Which operators of the captured graphs a failure needs, for any backend: the graphs are cut.

The first calls are compiled and the others run in eager; the fewest first calls that show the failure end with the
guilty one. A call that is right alone needs others before it: the last call from which on it fails is searched in the
same way, and then those between the two that it needs as well. Each question is a whole judgement, so that errors,
hangs, deaths, aliases, strides and gradients are found like wrong values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from runner.contract.job import Job
from runner.worker.run.job import Send
from runner.worker.tasks.copies import Question, Stop

Ranges = tuple[tuple[int, int], ...]

EVERYTHING = 1 << 30
"""A number that no graph's call has."""


def run_cut(job: Job, send: Send) -> dict[str, Any]:
    """Cut the graphs that Dynamo hands to the job's backend.

    ``job.arguments``: as for ``Question``.

    Returns:
        ``operators``: the guilty calls, each with ``number`` (from 0, through all graphs), ``target`` (what torch calls
        it), ``name`` (of the node) and ``line`` (of the source, or null). ``calls``: how many there are. ``runs``: how
        often it was judged. ``alone``: whether the guilty calls fail as graphs of their own. ``confirmed``: whether all
        others are right without them. Both are null where that was not asked. ``note``: why there is no more.
        ``error``: null.
    """
    send({"phase": "backend"})
    search = _Search(job, send)
    note = ""
    try:
        search.run()
    except Stop as stop:
        note = str(stop)
    return {
        "operators": [{"number": number, **search.calls[number]} for number in search.guilty],
        "within": [*search.within] if search.within else None,
        "calls": len(search.calls),
        "runs": search.question.runs,
        "alone": search.is_alone,
        "confirmed": search.is_confirmed,
        "note": note or search.note,
        "error": None,
    }


class _Search:
    """What is known so far. ``within`` is the range that holds the last guilty call."""

    def __init__(self, job: Job, send: Send) -> None:
        self.question = Question(job, send, "cutting")
        self.calls: Sequence[dict[str, Any]] = ()
        self.guilty: list[int] = []
        self.within: tuple[int, int] | None = None
        self.is_alone: bool | None = None
        self.is_confirmed: bool | None = None
        self.note = ""

    def run(self) -> None:
        """Search until the calls are known.

        Raises:
            Stop: no further question is answered; what is known stays.
        """
        if self._is_right(((0, EVERYTHING),), "all calls"):
            self.note = "the failure did not show again"
            return
        self.calls = [dict(call) for call in self.question.answer.calls]
        count = len(self.calls)
        if not count:
            self.note = "no graph was handed to the backend"
            return
        if not self._is_right((), "no call"):
            self.note = "the failure is there although the backend compiles nothing"
            return
        last = self._last(count)
        if not self._is_right(_only([last]), f"call {last + 1} alone"):
            self.guilty, self.is_alone = [last], True
        else:
            first = self._first(last)
            self.guilty = self._needed(first, last)
        self.is_confirmed = self._is_right(_without(self.guilty, count), "all others")

    def _is_right(self, compiled: Ranges, text: str) -> bool:
        return self.question.is_right(text, {**self.question.job.backend, "compiled": compiled})

    def _last(self, count: int) -> int:
        """Return the last call that the failure needs: with it among the first calls it shows, and without it not."""
        low, high = 0, count
        while high - low > 1:
            self.within = (low, high)
            middle = (low + high) // 2
            if self._is_right(((0, middle),), f"the first {middle} of {count} calls"):
                low = middle
            else:
                high = middle
        self.within = (low, high)
        return high - 1

    def _first(self, last: int) -> int:
        """Return the last call from which on the failure shows."""
        low, high = 0, last
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_right(((middle, last + 1),), f"calls {middle + 1} to {last + 1}"):
                high = middle
            else:
                low = middle
        return low

    def _needed(self, first: int, last: int) -> list[int]:
        """Return the two ends, which are both needed, with the calls between them that are needed too."""
        self.guilty, between = [first, last], [*range(first + 1, last)]
        ends = f"calls {first + 1} and {last + 1}"
        self.is_alone = not between or not self._is_right(_only(self.guilty), f"{ends} alone")
        if self.is_alone:
            return self.guilty

        def fails(kept: Sequence[int]) -> bool:
            text = f"{ends} in one graph with {len(kept)} of the {len(between)} between"
            return not self._is_right_together([first, *kept, last], text)

        return [first, *smallest(between, fails), last]

    def _is_right_together(self, numbers: Sequence[int], text: str) -> bool:
        backend = {**self.question.job.backend, "compiled": _only(numbers), "together": True}
        return self.question.is_right(text, backend)


def smallest(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return items that fail together, by halving: log2 of their number of questions for each (Junker, 2004).

    Where more items never mend a failure, none of them can be left out.

    Args:
        items: known to fail, in order.
        fails: whether some of them do.
    """
    kept: list[int] = []
    while items and not fails(kept):
        low, high = 0, len(items)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fails([*items[:middle], *kept]) else (middle, high)
        kept, items = [items[high - 1], *kept], items[: high - 1]
    return kept


def _only(numbers: Sequence[int]) -> Ranges:
    return tuple((number, number + 1) for number in numbers)


def _without(numbers: Sequence[int], count: int) -> Ranges:
    """Return the ranges of all other calls."""
    ends = [-1, *numbers, count]
    pairs = ((a + 1, b) for a, b in itertools.pairwise(ends))
    return tuple((a, b) for a, b in pairs if a < b)
