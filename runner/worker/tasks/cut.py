"""Which operators of the captured graphs a failure needs, for any backend: the graphs are cut.

The first calls are compiled and the others run in eager; the fewest first calls that show the failure end with the
guilty one. A call that is right alone needs others before it: the last call from which on it fails is searched in the
same way, and then those between the two that it needs as well. Each question is a whole judgement, so that errors,
hangs, deaths, aliases, strides and gradients are found like wrong values.

A question may end in another failure, which hides the one that is asked about: delta debugging calls it unresolved. The
search goes on as if the part were right. What it ends with then counts only if a question of its own confirms it.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from runner.contract.job import Job
from runner.contract.oracles import row_of
from runner.worker.run.job import Send
from runner.worker.tasks.copies import Question, Stop

Ranges = tuple[tuple[int, int], ...]

EVERYTHING = 1 << 30
"""A number that no graph's call has."""

COUNT = "calls"
"""The key of answers under which their graphs' number of calls is kept."""


def run_cut(job: Job, send: Send) -> dict[str, Any]:
    """Cut the graphs that Dynamo hands to the job's backend.

    ``job.arguments``: as for ``Question``. ``answers`` may hold those of an earlier search, which guide this one: what
    it ends with is asked anew. After each question ``known`` is sent: ``answers``, and ``result`` as returned.

    Returns:
        ``operators``: the guilty calls, each with ``number`` (from 0, through all graphs), ``target`` (what torch calls
        it), ``name`` (of the node) and ``line`` (of the source, or null). ``calls``: how many there are. ``runs``: how
        often it was judged. ``alone``: whether the guilty calls fail as graphs of their own. ``confirmed``: whether all
        others are right without them. Both are null where nothing answers that. ``note``: why there is no more.
        ``error``: null.
    """
    send({"phase": "backend"})
    search = _Search(job, send)
    try:
        search.run()
    except Stop as stop:
        search.note = str(stop)
    return search.result()


class _Search:
    """What is known so far. ``within`` is the range that holds the last guilty call."""

    def __init__(self, job: Job, send: Send) -> None:
        self.question, self._send = Question(job, send, "cutting"), send
        self._earlier: dict[str, Any] = dict(job.arguments.get("answers") or {})
        self._answers: dict[str, Any] = {}
        self._remaining = 0
        self.question.is_quick = all(row_of(oracle).measured for oracle, *_ in self.question.marks)
        self._begin()

    def _begin(self) -> None:
        self.calls: Sequence[dict[str, Any]] = ()
        self.guilty: list[int] = []
        self.within: tuple[int, int] | None = None
        self.is_alone: bool | None = None
        self.is_confirmed: bool | None = None
        self.note = ""
        self._hiding: Counter[str] = Counter()
        """Other failures in which questions ended, and in how many."""

    def result(self) -> dict[str, Any]:
        """Return what ``run_cut`` returns."""
        is_sure = not self._hiding or self.is_alone or self.is_confirmed
        hiding = "" if is_sure else self._describe_hiding()
        return {
            "operators": [{"number": number, **self.calls[number]} for number in self.guilty] if is_sure else [],
            "within": [*self.within] if self.within and is_sure else None,
            "calls": len(self.calls),
            "runs": self.question.runs,
            "alone": self.is_alone if is_sure else None,
            "confirmed": self.is_confirmed,
            "note": "; ".join(filter(None, (self.note, hiding))),
            "error": None,
        }

    def _describe_hiding(self) -> str:
        """Say which other failure kept the search from an answer."""
        text, number = self._hiding.most_common(1)[0]
        return f"no call is named, as {number} questions ended in another failure: {text}"

    def run(self) -> None:
        """Search until the calls are known. Where answers of an earlier search lead astray, search without them.

        Raises:
            Stop: no further question is answered; what is known stays.
        """
        answer = self._answer(((0, EVERYTHING),), "all calls", anew=True)
        if answer is not False:
            self.note = "the failure did not show again" + ("" if answer is True else f", but another one: {answer}")
            return
        self.calls = [dict(call) for call in self.question.answer.calls]
        count = len(self.calls)
        if self._earlier.pop(COUNT, count) != count:
            self._earlier = {}
        self._answers[COUNT] = count
        if not count:
            self.note = "no graph was handed to the backend"
            return
        self._remaining = count.bit_length() + 2
        self.within = (0, count)
        if not self._is_right((), "no call"):
            self.within = None
            self.note = "the failure is there although the backend compiles nothing"
            return
        if not self._name(self._last(count), count):
            self._earlier, self.question.is_quick = {}, False
            self._begin()
            self.run()

    def _name(self, last: int, count: int) -> bool:
        """Find the guilty calls, of which ``last`` is the last one; return False where the search must begin anew."""
        self._remaining = 2
        if not self._is_right(_only([last]), f"call {last + 1} alone", anew=True):
            self.guilty, self.is_alone = [last], True
        elif self._hiding and self._answer(_without([last], count), f"all but call {last + 1}", anew=True) is not True:
            return not self._earlier
        else:
            self._remaining = last.bit_length() + 3
            first = self._first(last)
            self._remaining = 3
            self.guilty = self._needed(first, last)
        self._remaining = 1
        answer = self._answer(_without(self.guilty, count), "all others", anew=True)
        self.is_confirmed = answer if isinstance(answer, bool) else None
        if self.is_confirmed or not (self._earlier or self.question.is_quick):
            return True
        if self._earlier or self.guilty != [last]:
            return False
        self.question.is_quick = False  # others are wrong too, so that this one must surely be wrong alone
        return not self._is_right(_only([last]), f"call {last + 1} alone", anew=True)

    def _is_right(self, compiled: Ranges, text: str, together: bool = False, anew: bool = False) -> bool:
        """Return whether the failure does not show where these calls are compiled, hidden or not."""
        return self._answer(compiled, text, together, anew) is not False

    def _answer(self, compiled: Ranges, text: str, together: bool = False, anew: bool = False) -> bool | str:
        """Return what ``Question.put`` does where these calls are compiled.

        An earlier search may know, unless it is asked ``anew``.
        """
        key = json.dumps([compiled, together])
        if anew or key not in self._earlier:
            backend = {**self.question.job.backend, "compiled": compiled, **({"together": True} if together else {})}
            more = f", at most {self._remaining} more" if self._remaining else ""
            answer = self.question.put(f"{text}{more}", backend)
        else:
            answer = self._earlier[key]
        self._answers[key] = answer
        if isinstance(answer, str):
            self._hiding[answer] += 1
        self._remaining = max(self._remaining - 1, 0)
        self._send({"known": {"answers": self._answers, "result": self.result()}})
        return answer

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
            return not self._is_right(_only([first, *kept, last]), text, together=True)

        return [first, *smallest(between, fails), last]


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
