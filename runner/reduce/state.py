"""States and attempts, the input and output of a pass, and the size of a case."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from runner.cases.model import Case
from runner.cases.serialize import KERNELS, plain
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

MANY = 1_000
"""How many literal values a tensor of a file is worth."""

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
    items = [item for _, table in tables_of(data) for item in table.values()]
    tensors = [tensor for _, tensor in tensors_of(data)]
    chain, calls = data.get("chain") or [], data.get("calls") or []
    operators, blocks = _counted(chain)
    return Size(
        operators=operators,
        blocks=blocks,
        calls=len(calls),
        inputs=len(items),
        outputs=_leaves(data.get("return")),
        elements=sum(math.prod(_shape(tensor)) for tensor in tensors),
        dimensions=sum(len(_shape(tensor)) for tensor in tensors),
        settings=sum(_leaves(item) for key, item in data.items() if key not in _NO_SETTINGS)
        + sum(map(_input_settings, items))
        + sum(_leaves(call.get(key)) for call in calls for key in _OF_CALLERS),
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
    if isinstance(value, dict) and "$fn" in value:
        yield value["$fn"]
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _functions(item)


def tensors_of(data: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the tensors of inputs and state, in all calls, and their paths: of a list or dict of inputs each."""
    return (pair for root, table in tables_of(data) for name in table for pair in _tensors(table[name], (*root, name)))


def _tensors(item: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(item, dict) and ("list" in item or "dict" in item):
        for place, inner in _parts(item):
            yield from _tensors(inner, (*path, *place))
    elif not (isinstance(item, dict) and "python" in item):
        yield path, item


def _parts(item: Mapping[str, Any]) -> list[tuple[Path, Any]]:
    """Return the inputs that a list or dict of inputs holds, and where; none of any other input."""
    inner: list[tuple[Path, Any]] = [(("list", place), part) for place, part in enumerate(item.get("list", ()))]
    return inner + [(("dict", key), part) for key, part in item.get("dict", {}).items()]


def _shape(tensor: Any) -> list[int]:
    if isinstance(tensor, dict) and "view_of" in tensor:
        return []
    if isinstance(tensor, dict) and "values" in tensor and "shape" not in tensor:
        return [tensor["tile"]] if "tile" in tensor else _nested(tensor["values"])
    shape = tensor.get("shape", []) if isinstance(tensor, dict) else tensor
    return [size if isinstance(size, int) else 2 for size in shape]


def _nested(values: Any) -> list[int]:
    """The shape of nested lists."""
    return [len(values), *_nested(values[0] if values else None)] if isinstance(values, list) else []


def value_rank(tensor: Any) -> int:
    """Return how hard the values of an input are to read: the place of its ``init`` in ``SIMPLE_INITS``, or more."""
    if isinstance(tensor, dict) and "file" in tensor:
        return len(SIMPLE_INITS) + MANY
    if isinstance(tensor, dict) and "values" in tensor:
        return len(SIMPLE_INITS) + _leaves(tensor["values"])
    return SIMPLE_INITS.index(init_name(tensor.get("init", "normal") if isinstance(tensor, dict) else "normal"))


def init_name(init: Any) -> str:
    """Return the name of an ``init``, which may have arguments."""
    return init if isinstance(init, str) else str(next(iter(init)))


def _input_settings(item: Any) -> int:
    """Return the weight of an input's settings besides its shape and its values."""
    if not isinstance(item, dict):
        return 0
    others = ("shape", "init", "values", "tile", "list", "dict")
    own = sum(_weight(value) for key, value in item.items() if key not in others)
    return own + sum(_input_settings(part) for _, part in _parts(item))


def _leaves(value: Any) -> int:
    """Return how many values a nested one holds; an empty one counts as one."""
    if isinstance(value, dict | list):
        return max(1, sum(map(_leaves, value.values() if isinstance(value, dict) else value)))
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
    code = value if value.startswith(("[", "${")) else ""
    return 1 + sum(char in ",:+-*/" for char in code) + sum(_weight(int(number)) for number in re.findall(r"\d+", code))


Pass = Callable[[State], Iterator[Attempt]]
"""What proposes attempts on one state, the largest removals first."""


def digest(text: str) -> str:
    """Return a short name of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
