"""Classes of another package than the case's own file: what libraries return and hold."""

from __future__ import annotations

import dataclasses
import functools
import threading
from typing import Any

import torch


class Layer:
    """A layer of a cache."""

    def __init__(self, keys: Any) -> None:
        self.keys, self.count = keys, 1


class Cache:
    """Keys and values, as a decoder returns them."""

    def __init__(self, layers: list[Layer], **others: Any) -> None:
        self.layers = layers
        vars(self).update(others)


class Vector:
    """An object with slots alone."""

    __slots__ = ("unset", "values")

    def __init__(self, values: Any) -> None:
        self.values = values


class Linked:
    """A part of a chain."""

    def __init__(self, value: Any) -> None:
        self.value, self.next = value, None


class Rows(list):
    """A list with attributes."""


@dataclasses.dataclass
class Table:
    """A dataclass, which may hold more than its fields."""

    a: torch.Tensor


class Lazy:
    """An object with what is no result."""

    def __init__(self, x: Any) -> None:
        self.x, self._number, self.lock, self.step = x, 3, threading.Lock(), torch.relu

    @functools.cached_property
    def total(self) -> Any:
        """Return what the object keeps from the first time on."""
        return float(self.x.sum())


_STORES: dict[int, Any] = {}


class Shelf:
    """A sequence without attributes: its elements lie elsewhere."""

    __slots__ = ()

    def __init__(self, values: list[Any]) -> None:
        _STORES[id(self)] = values

    def __len__(self) -> int:
        return len(_STORES[id(self)])

    def __getitem__(self, index: int) -> Any:
        return _STORES[id(self)][index]


@torch.compiler.disable
def results(y: Any) -> Any:
    """Return what nobody can look into without using it up."""
    return (part for part in (y, y))


@torch.compiler.assume_constant_result
def constant_answer() -> int:
    """Return what Dynamo keeps as a variable of the file whose code it compiles."""
    return 3
