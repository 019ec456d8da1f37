"""What a value of a chain is, as eager made it, and an input that can take its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.cases.chain_nodes import Items, Literal, Ref, Table, Value
from runner.cases.model import Input
from runner.diagnostics import Span


@dataclass(frozen=True, slots=True)
class Fact:
    """``kind``: tensor, python, list, fields (a named tuple) or other. ``low`` and ``high`` bound the finite elements."""

    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    requires_grad: bool = False
    contiguous: bool = True
    low: float | None = None
    high: float | None = None
    value: Any = None
    items: tuple[Fact, ...] = ()
    fields: Mapping[str, Fact] = field(default_factory=dict)

    @staticmethod
    def of(data: Mapping[str, Any]) -> Fact:
        """From the worker's record (``runner/worker/tasks/shapes.py``)."""
        values = {
            key: value
            for key, value in data.items()
            if key in ("kind", "dtype", "requires_grad", "contiguous", "low", "high")
        }
        items = data.get("items")
        if isinstance(items, dict):
            values["fields"] = {name: Fact.of(item) for name, item in items.items()}
        elif items is not None:
            values["items"] = tuple(map(Fact.of, items))
        return Fact(**values, shape=tuple(data.get("shape", ())), value=data.get("value"))

    def is_like(self, other: Fact | None) -> bool:
        """Whether the other can stand for it: a tensor of that shape and dtype."""
        if other is None or self.kind != "tensor" or other.kind != "tensor":
            return False
        return (self.shape, self.dtype) == (other.shape, other.dtype)


def part(fact: Fact | None, path: tuple[str | int, ...]) -> tuple[Fact, tuple[str | int, ...]] | None:
    """The fact of ``$name.field`` or ``$name[0]``, and what of the path is left to take from it; None where unknown."""
    while fact is not None and path:
        if fact.kind == "fields":
            names = list(fact.fields)
            key = names[path[0]] if isinstance(path[0], int) and -len(names) <= path[0] < len(names) else path[0]
            fact = fact.fields.get(str(key))
        elif fact.kind == "list" and isinstance(path[0], int) and -len(fact.items) <= path[0] < len(fact.items):
            fact = fact.items[path[0]]
        else:
            break
        path = path[1:]
    return None if fact is None else (fact, path)


def made_like(fact: Fact, name: str, span: Span, dtype: str, grad: bool) -> Input | None:
    """An input like the value; None for what no input can be. ``dtype`` is the variant's, ``grad`` whether gradients count."""
    if fact.kind == "tensor":
        init, arguments = _init(fact)
        return Input(
            name,
            "tensor",
            span,
            shape=tuple(map(Literal, fact.shape)),
            dtype=None if fact.dtype == dtype else fact.dtype,
            init=init,
            init_args=tuple(map(Literal, arguments)),
            requires_grad=grad and fact.requires_grad,
        )
    if fact.kind == "python":
        return Input(name, "python", span, python=Literal(fact.value))
    if fact.kind == "list" and fact.items:
        parts = [made_like(item, f"{name}_{place}", span, dtype, grad) for place, item in enumerate(fact.items)]
        if all(item is not None for item in parts):
            return Input(name, "list", span, items=tuple(item for item in parts if item is not None))
    return None


def _init(fact: Fact) -> tuple[str | None, tuple[float, ...]]:
    """How to fill it so that the operators after it are still defined on it: roots, logarithms, indices."""
    if fact.low is None or fact.high is None or fact.dtype == "bool" or fact.dtype.startswith(("complex", "float8")):
        return None, ()
    if not fact.dtype.startswith(("float", "bfloat")):
        return "randint", (int(fact.low), int(fact.high) + 1)
    if fact.low < 0 < fact.high:
        return None, ()
    if fact.low == fact.high == 0:
        return "zeros", ()
    if fact.low >= 0 and fact.high <= 2:
        return "uniform", ()
    low, high = math.floor(fact.low), math.ceil(fact.high)
    return "uniform", (low, max(high, low + 1))


def references(value: Value | None) -> list[Ref]:
    """The references that a returned value is made of, in order, in lists and mappings."""
    if isinstance(value, Ref):
        return [value]
    if isinstance(value, Items):
        return [ref for item in value.items for ref in references(item)]
    if isinstance(value, Table):
        return [ref for _, item in value.items for ref in references(item)]
    return []
