"""States and attempts, the input and output of a pass, the size of a case, and the search for the first attempt that
fails alike."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from runner.builder.source import Source
from runner.cases.model import Case, Variant
from runner.cases.serialize import KERNELS, plain, text_of_plain
from runner.reduce.chains import ValueInfos, named
from runner.verdict.signature import FailureSignature

SIMPLE_INITS = (
    "ones",
    "zeros",
    "arange",
    "full",
    "linspace",
    "eye",
    "integer",
    "normal",
    "uniform",
    "randint",
    "randperm",
    "special",
    "patterns",
)
"""Ways of making values, the one that says most at a glance first."""

Path = tuple[str | int, ...]
"""The keys and places that lead to a value of a case in plain data."""

_BLOCK_KEYS = frozenset({"with", "if", "do", "else", "chain"})


@dataclass(frozen=True)
class State:
    """A case that fails alike, in all the forms that passes need. ``measure`` returns the values of a named case."""

    case: Case
    signature: FailureSignature
    measure: Callable[[Case], ValueInfos] = lambda case: {}
    suspects: tuple[int, ...] = ()  # numbers of steps that the failure itself points to

    @cached_property
    def data(self) -> dict[str, Any]:
        """Return the case as plain data."""
        return plain(self.case)

    @cached_property
    def named(self) -> Case:
        """Return the case with a name for every value."""
        return named(self.case)

    @cached_property
    def value_infos(self) -> ValueInfos:
        """Return its values in eager, by their variables; measured when first needed."""
        return self.measure(self.named)


@dataclass(frozen=True)
class Attempt:
    """A change of a case, in words, and the changed case as plain data."""

    change: str
    data: Mapping[str, Any]


@dataclass(frozen=True, order=True)
class Size:
    """The size of a case, compared field by field, so that no smaller shape outweighs one more operator.

    ``elements`` counts those of inputs and state over all calls, ``arguments`` what stands in the chain besides
    operators.
    """

    operators: int
    blocks: int
    calls: int
    inputs: int
    outputs: int
    elements: int
    dimensions: int
    settings: int
    arguments: int
    values: int

    def summary(self) -> dict[str, int]:
        """Return the sizes that people ask for."""
        return {"operators": self.operators, "elements": self.elements, "inputs": self.inputs}


def tables_of(data: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the tables of inputs and state, those of all calls too, and their paths."""
    for key in ("inputs", "state"):
        yield (key,), data.get(key) or {}
    for number, call in enumerate(data.get("calls") or ()):
        yield ("calls", number, "inputs"), call.get("inputs") or {}


def size_of(data: Mapping[str, Any]) -> Size:
    """Return the size of a case in plain data (see ``runner.cases.serialize.plain``)."""
    tables = [table for _, table in tables_of(data)]
    tensors = [tensor for table in tables for item in table.values() for tensor in _tensors(item)]
    chain = data.get("chain") or []
    operators, blocks = _counted(chain)
    return Size(
        operators=operators,
        blocks=blocks,
        calls=len(data.get("calls") or ()),
        inputs=sum(map(len, tables)),
        outputs=_leaves(data.get("return")),
        elements=sum(math.prod(_shape(tensor)) for tensor in tensors),
        dimensions=sum(len(_shape(tensor)) for tensor in tensors),
        settings=sum(_leaves(item) for key, item in data.items() if key not in _NO_SETTINGS)
        + sum(_input_settings(item) for table in tables for item in table.values())
        + sum(_leaves(call.get(key)) for call in data.get("calls") or () for key in _OF_CALLERS),
        arguments=_weight(chain) + _weight(data.get("return")),
        values=sum(map(value_rank, tensors)),
    )


_OF_CALLERS = ("step", "load", "set", "hook", "train", "with", "thread")
_NO_SETTINGS = frozenset({"name", "chain", "return", "inputs", "state", "calls", "params", "module", KERNELS})


def _counted(chain: Any) -> tuple[int, int]:
    """Return how many operators a chain has with its blocks and functions, and how many blocks, contexts and
    functions."""
    operators = blocks = 0
    for step in chain or ():
        if isinstance(step, dict) and _BLOCK_KEYS & set(step):
            blocks += 1 + len(step.get("with") or ())
            parts = [_counted(step.get(key)) for key in ("chain", "do", "else")]
        else:
            operators += 1
            parts = [_counted(function.get("chain")) for function in _functions(step)]
            blocks += len(parts)
        operators += sum(inner[0] for inner in parts)
        blocks += sum(inner[1] for inner in parts)
    return operators, blocks


def _functions(value: Any) -> Iterator[Mapping[str, Any]]:
    """The outermost ``$fn`` of a step."""
    if isinstance(value, dict):
        if "$fn" in value:
            yield value["$fn"]
            return
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _functions(item)


def parts_of(item: Mapping[str, Any]) -> list[Any]:
    """Return the inputs that a list or dict of inputs holds; none of any other input."""
    return [*item.get("list", ()), *item.get("dict", {}).values()]


def _tensors(item: Any) -> Iterator[Any]:
    """The tensors of an input: of a list or dict each."""
    if isinstance(item, dict) and ("list" in item or "dict" in item):
        for inner in parts_of(item):
            yield from _tensors(inner)
    elif not (isinstance(item, dict) and "python" in item):
        yield item


def _shape(tensor: Any) -> list[int]:
    if isinstance(tensor, dict) and "view_of" in tensor:
        return []
    if isinstance(tensor, dict) and "values" in tensor and "shape" not in tensor:
        return [tensor["tile"]] if "tile" in tensor else _nested(tensor["values"])
    shape = tensor.get("shape", []) if isinstance(tensor, dict) else tensor
    return [size if isinstance(size, int) else 2 for size in shape]


def _nested(values: Any) -> list[int]:
    """The shape of nested lists."""
    shape = []
    while isinstance(values, list):
        shape.append(len(values))
        values = values[0] if values else None
    return shape


def value_rank(tensor: Any) -> int:
    """Return how hard the values of an input are to read: the place of its ``init`` in ``SIMPLE_INITS``, or more."""
    if not isinstance(tensor, dict) or ("init" not in tensor and "values" not in tensor):
        return SIMPLE_INITS.index("normal")
    if "values" in tensor:
        return len(SIMPLE_INITS) + _leaves(tensor["values"])
    return SIMPLE_INITS.index(init_name(tensor["init"]))


def init_name(init: Any) -> str:
    """Return the name of an ``init``, which may have arguments."""
    return init if isinstance(init, str) else str(next(iter(init)))


def _input_settings(item: Any) -> int:
    """Return the weight of an input's settings besides its shape and its values."""
    if not isinstance(item, dict):
        return 0
    inner = sum(map(_input_settings, parts_of(item)))
    others = ("shape", "init", "values", "tile", "list", "dict", "python")
    attributes = {key: value for key, value in item.items() if key not in others}
    return inner + sum(map(_weight, attributes.values())) + (_weight(item["python"]) if "python" in item else 0)


def _leaves(value: Any) -> int:
    """Return how many values a nested one holds; an empty one counts as one."""
    if isinstance(value, dict):
        return max(1, sum(map(_leaves, value.values())))
    if isinstance(value, list):
        return max(1, sum(map(_leaves, value)))
    return 0 if value is None else 1


def _weight(value: Any) -> int:
    """Return the weight of a value. Numbers count by size: 1 is less than 7, and 7 is less than 7.5."""
    if isinstance(value, dict):
        return sum(1 + _weight(item) for key, item in value.items() if key != "out")
    if isinstance(value, list):
        return sum(1 + _weight(item) for item in value)
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return min(2 + 2 * abs(value) + (value < 0), 1000)
    if isinstance(value, float):
        return 5 if value == 1.0 else 8 if value in (0.0, 0.5, 2.0) else 12
    if not value.startswith(("[", "${")):
        return 1
    return (
        1 + sum(char in ",:+-*/" for char in value) + sum(_weight(int(number)) for number in re.findall(r"\d+", value))
    )


class Judge(Protocol):
    """Says of candidates whether they fail alike."""

    slots: int

    def start(self, number: int, variant: Variant, source: Source) -> None:
        """Begin to try a candidate."""

    def finished(self, timeout: float) -> list[tuple[int, bool]]:
        """Return the candidates decided by now, after at most ``timeout`` seconds: number, and whether it fails
        alike."""

    def stop(self) -> None:
        """Forget what has begun."""


Pass = Callable[[State], Iterator[Attempt]]

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

    ``verdicts`` maps digests of texts to whether they fail alike; it may hold those of an earlier search.
    ``on_verdict`` gets each tried candidate. ``accept`` gets each success, and returns the state to go on from.
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
        """Yield the valid, smaller attempts that are not known to fail in another way, all passes once, from pass
        ``start`` on.
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
        while True:
            while first_success is None and len(running) < self.judge.slots and time.monotonic() < self.deadline:
                candidate = next(source, None)
                if candidate is None:
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
                if fails_alike:
                    first_success = min(number, first_success or number)
                else:
                    del running[number]
            self.tick()
