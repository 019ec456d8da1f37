"""Values of a chain as eager made them, and inputs that can replace them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.cases.model import Input, Items, Literal, Ref, RefPath, Table, Value
from runner.diagnostics import Span


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A value of a chain as eager made it. ``low`` and ``high`` bound the finite elements.

    ``kind`` is tensor, python, list, fields (a named tuple) or other.
    """

    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    requires_grad: bool = False
    contiguous: bool = True
    low: float | None = None
    high: float | None = None
    value: Any = None
    items: tuple[ValueInfo, ...] = ()
    fields: Mapping[str, ValueInfo] = field(default_factory=dict)

    @staticmethod
    def of(data: Mapping[str, Any]) -> ValueInfo:
        """Return it from the worker's record (``runner/worker/tasks/eager.py``)."""
        names = ("kind", "dtype", "requires_grad", "contiguous", "low", "high", "value")
        items = data.get("items") or ()
        return ValueInfo(
            **{name: data[name] for name in names if name in data},
            shape=tuple(data.get("shape", ())),
            items=() if isinstance(items, dict) else tuple(map(ValueInfo.of, items)),
            fields={name: ValueInfo.of(item) for name, item in items.items()} if isinstance(items, dict) else {},
        )

    def is_like(self, substitute: ValueInfo | None) -> bool:
        """Return whether the other can replace it: a tensor of the same shape and dtype."""
        if substitute is None or self.kind != "tensor" or substitute.kind != "tensor":
            return False
        return (self.shape, self.dtype) == (substitute.shape, substitute.dtype)


def component(info: ValueInfo | None, path: RefPath) -> tuple[ValueInfo, RefPath] | None:
    """Return the info of ``$name.field`` or ``$name[0]``, and the part of the path that it leaves; None where
    unknown."""
    while info is not None and path:
        if info.kind == "fields":
            names = list(info.fields)
            field_name = names[path[0]] if isinstance(path[0], int) and -len(names) <= path[0] < len(names) else path[0]
            info = info.fields.get(str(field_name))
        elif info.kind == "list" and isinstance(path[0], int) and -len(info.items) <= path[0] < len(info.items):
            info = info.items[path[0]]
        else:
            break
        path = path[1:]
    return None if info is None else (info, path)


def input_like(info: ValueInfo, name: str, span: Span, dtype: str, grad: bool) -> Input | None:
    """Return an input like the value; None for a value that no input can be.

    Args:
        info: the value.
        name: of the input.
        dtype: the variant's, which an input need not name.
        grad: whether gradients count.
    """
    match info.kind:
        case "tensor":
            init, arguments = _initializer(info)
            return Input(
                name,
                "tensor",
                span,
                shape=tuple(map(Literal, info.shape)),
                dtype=None if info.dtype == dtype else info.dtype,
                init=init,
                init_args=tuple(map(Literal, arguments)),
                requires_grad=grad and info.requires_grad,
            )
        case "python":
            return Input(name, "python", span, python=Literal(info.value))
        case "list" if info.items:
            elements = [input_like(item, f"{name}_{place}", span, dtype, grad) for place, item in enumerate(info.items)]
            if all(item is not None for item in elements):
                return Input(name, "list", span, items=tuple(item for item in elements if item is not None))
    return None


def _initializer(info: ValueInfo) -> tuple[str | None, tuple[float, ...]]:
    """Return an ``init`` and its arguments that keep the next operators defined: roots, logarithms, indices."""
    if info.low is None or info.high is None or info.dtype == "bool" or info.dtype.startswith(("complex", "float8")):
        return None, ()
    if not info.dtype.startswith(("float", "bfloat")):
        return "randint", (int(info.low), int(info.high) + 1)
    if info.low < 0 < info.high:
        return None, ()
    if info.low == info.high == 0:
        return "zeros", ()
    if info.low >= 0 and info.high <= 2:
        return "uniform", ()
    low, high = math.floor(info.low), math.ceil(info.high)
    return "uniform", (low, max(high, low + 1))


def leaves(value: Value | None, path: str = "output") -> Iterator[tuple[str, Value]]:
    """Yield the values that a returned value is made of, in lists and mappings, each with the path that findings give
    it."""
    match value:
        case Items():
            for index, item in enumerate(value.items):
                yield from leaves(item, f"{path}[{index}]")
        case Table():
            for key, item in value.items:
                yield from leaves(item, f"{path}[{key!r}]")
        case _ if value is not None:
            yield path, value


def references(value: Value | None) -> list[Ref]:
    """Return the references that a returned value is made of, in order, in lists and mappings."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, Ref)]
