"""Leaves that are no tensors: the value by which each is compared."""

from __future__ import annotations

import array
import datetime
import decimal
import enum
import fractions
import pickle
import random
import sys
import zlib
from typing import Any

import torch

from runner.worker.program.walk import PLAIN, class_name

FIXED = (
    *PLAIN,
    *(torch.Size, range, slice, decimal.Decimal, fractions.Fraction),
    *(datetime.date, datetime.time, datetime.timedelta, enum.Enum),
)
"""Values that nothing can change."""

_NUMPYS = frozenset({"Generator", "RandomState", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"})
_NUMBERS = frozenset({bool, int, float, complex, bytes, type(None)})

NOTHING = object()
"""Stands for the value of a leaf that has none."""


def python_value(leaf: Any, module: str) -> Any:
    """Return a value that is the same in every run, and that no later call changes; ``NOTHING`` for other leaves.

    An enumeration's member has its name, a class its full name, and a text that of the module under which the case's
    source was loaded only as ``source``.
    """
    cls = type(leaf)
    if cls in _NUMBERS:  # as most leaves are
        return leaf
    if issubclass(cls, enum.Enum):
        return leaf._name_ or repr(leaf._value_)
    if issubclass(cls, str):
        return str.replace(leaf, module, "source") if module and str.find(leaf, module) >= 0 else leaf
    if issubclass(cls, FIXED):
        return leaf
    if issubclass(cls, bytearray):
        return bytes(leaf)
    if issubclass(cls, array.array):
        return leaf.typecode, leaf.tobytes()
    if issubclass(cls, type):
        return class_name(leaf, module)
    if is_generator(cls):
        return _generator_state(leaf)
    return _set_value(leaf, module) if issubclass(cls, (set, frozenset)) else NOTHING


def is_generator(cls: type) -> bool:
    """Return whether objects of a class draw random numbers: torch's, Python's and NumPy's own."""
    is_numpys = cls.__name__ in _NUMPYS and cls is getattr(sys.modules.get("numpy.random"), cls.__name__, None)
    return is_numpys or cls is torch.Generator or cls is random.Random


def _generator_state(leaf: Any) -> str:
    """Return a few digits of the state of a generator, which decides the next random number."""
    if type(leaf) is torch.Generator:
        state = leaf.get_state().tolist()
    elif type(leaf) is random.Random:
        state = leaf.getstate()
    else:
        state = leaf.get_state() if hasattr(leaf, "get_state") else getattr(leaf, "bit_generator", leaf).state
    return f"the state {zlib.crc32(pickle.dumps(state)):08x}"


def _set_value(leaf: Any, module: str) -> Any:
    """Return a set of the values of its elements, ``NOTHING`` if one has none."""
    base = set if isinstance(leaf, set) else frozenset
    try:
        elements = [_element(element, module) for element in base.__iter__(leaf)]
        return NOTHING if any(element is NOTHING for element in elements) else frozenset(elements)
    except Exception:  # noqa: BLE001  a class of the case may have no hash
        return NOTHING


def _element(element: Any, module: str) -> Any:
    if type(element) is tuple:
        parts = tuple(_element(part, module) for part in element)
        return NOTHING if any(part is NOTHING for part in parts) else parts
    value = python_value(element, module)
    return "nan" if isinstance(value, float) and value != value else value
