"""What the steps of a chain are made of: values, indices, sizes, functions; each as the format writes it and as Python
takes it."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch


class RefusedStepError(Exception):
    """The step cannot be part of the chain."""


@dataclass(eq=False)
class Value:
    """A name of the chain, and what it holds now: a tensor, or a number."""

    name: str
    data: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return tuple(self.data.shape)

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return int(self.data.ndim)

    @property
    def floating(self) -> bool:
        """Whether it is a tensor of floats."""
        return isinstance(self.data, torch.Tensor) and self.data.is_floating_point()

    def shares_memory(self, other: Value) -> bool:
        """Whether another value lies in the storage of this one, which is a tensor."""
        storage = self.data.untyped_storage().data_ptr()
        return isinstance(other.data, torch.Tensor) and other.data.untyped_storage().data_ptr() == storage


@dataclass
class Index:
    """What stands in brackets: integers, slices, ``...``, None, and values."""

    parts: list[Any]

    def text(self) -> str:
        """As the format writes it."""
        return f"[{', '.join(map(self._part, self.parts))}]"

    def data(self) -> tuple[Any, ...]:
        """As Python takes it."""
        return tuple(part.data if isinstance(part, (Value, Size)) else part for part in self.parts)

    @staticmethod
    def _part(part: Any) -> str:
        if isinstance(part, slice):
            bounds = ["" if bound is None else str(bound) for bound in (part.start, part.stop)]
            return ":".join([*bounds, str(part.step)] if part.step is not None else bounds)
        if isinstance(part, Value):
            return f"${part.name}"
        return "..." if part is Ellipsis else part.text() if isinstance(part, Size) else str(part)


@dataclass
class Size:
    """The length of a dimension of a value, which stays an expression where sizes change from call to call."""

    value: Value
    dim: int
    plus: int = 0

    @property
    def data(self) -> int:
        """The length now."""
        return int(self.value.data.shape[self.dim]) + self.plus

    def text(self) -> str:
        """As the format writes it."""
        more = f" {'+' if self.plus > 0 else '-'} {abs(self.plus)}" if self.plus else ""
        return f"${{{self.value.name}.shape[{self.dim}]{more}}}"


@dataclass
class Function:
    """A function of one or more tensors: the format's text, and the same in Python."""

    args: list[str]
    chain: list[Any]
    data: Callable[..., Any]


@dataclass
class Literal:
    """A tensor that is written out in the chain."""

    values: list[Any] | float
    dtype: torch.dtype

    @property
    def data(self) -> torch.Tensor:
        """The tensor."""
        return torch.tensor(self.values, dtype=self.dtype)


def find(name: str) -> Callable[..., Any]:
    """Return the function that an operator's name of the format means."""
    space, _, rest = name.partition(".")
    if space == "operator":
        return _call_with_index if rest in ("getitem", "setitem") else getattr(operator, rest)
    roots = {"torch": torch, "F": torch.nn.functional, "Tensor": torch.Tensor, "aten": torch.ops.aten}
    member: Any = functools.reduce(getattr, rest.split("."), roots[space])
    return member if callable(member) else lambda tensor: getattr(tensor, rest)


def _call_with_index(tensor: torch.Tensor, index: Any, *values: Any) -> Any:
    if values:
        tensor[index] = values[0]
        return None
    return tensor[index]


def data_of(argument: Any) -> Any:
    """An argument as Python takes it."""
    match argument:
        case Index():
            return argument.data()
        case Value() | Size() | Function() | Literal():
            return argument.data
        case list() | tuple():
            return [data_of(item) for item in argument]
        case _:
            return argument


def text_of(argument: Any) -> Any:
    """An argument as the format writes it."""
    match argument:
        case torch.device():
            return "$device"
        case Value():
            return f"${argument.name}"
        case Size() | Index():
            return argument.text()
        case Function():
            return {"$fn": {"args": argument.args, "chain": argument.chain}}
        case Literal():
            return {"$tensor": argument.values, "dtype": str(argument.dtype)}
        case list() | tuple():
            return [text_of(item) for item in argument]
        case torch.dtype() | torch.memory_format():
            return str(argument)
        case _:
            return argument


def values_of(argument: Any) -> Iterator[Value]:
    """Every value that an argument reads."""
    match argument:
        case Value():
            yield argument
        case Size():
            yield argument.value
        case list() | tuple():
            for item in argument:
                yield from values_of(item)
        case Index():
            yield from values_of(argument.parts)


def run(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an operator. Raises RefusedStepError for whatever it raises."""
    try:
        return find(name)(*data_of(args), **{key: data_of(value) for key, value in kwargs.items()})
    except Exception as error:
        raise RefusedStepError(f"{name}: {type(error).__name__}: {error}") from error
