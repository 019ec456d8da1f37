"""Values that a run adds to torch's public modules and classes, such as a table kept in ``torch.nn.Linear``.

Every run loads the case's source anew, and so computes again what it keeps there. What it keeps in torch would stay:
eager would fill a table and compiled code only read it. So it is removed before the source is loaded again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from runner.worker.program.walk import PYTHON

_MODULES = ("torch", "torch.nn", "torch.nn.functional", "torch.optim")
_DATA = (torch.Tensor, dict, list, tuple, set, *PYTHON)
"""Functions, classes and modules may be a package's own, which it adds once."""


class Additions:
    """What torch's modules and classes hold when this object is made."""

    def __init__(self) -> None:
        """Remember the names in 300 holders."""
        self._names = [(holder, frozenset(vars(holder))) for holder in _holders()]

    def remove(self) -> None:
        """Remove values that were added since."""
        for holder, names in self._names:
            for name in vars(holder).keys() - names:
                if issubclass(type(vars(holder)[name]), _DATA) and not name.startswith("__"):
                    delattr(holder, name)


def _holders() -> Iterator[Any]:
    modules = [sys.modules[name] for name in _MODULES]
    classes = {value for module in modules for value in list(vars(module).values()) if issubclass(type(value), type)}
    yield from modules
    yield from (value for value in classes if value.__module__.partition(".")[0] == "torch")
