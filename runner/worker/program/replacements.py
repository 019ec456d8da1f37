"""What a case's Python replaces: in force while that Python runs, and at no other time.

A case may replace ``torch.equal``, ``torch.Tensor.__ne__``, ``json.dumps`` or ``time.monotonic``, in eager and compiled
code alike. The judge and this worker call these functions too, and so must find the original ones: with others a wrong
result could pass. Functions that neither this worker nor torch's top level names, such as those of
``torch.nn.functional``, stay as a case leaves them.

Every run loads the case's source anew, and so computes again what it keeps there. What it keeps in torch, such as a
table in ``torch.nn.Linear``, would stay: eager would fill it and compiled code only read it. So it is removed before
the source is loaded again (``Additions``).
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from runner.worker.program.definitions import Definitions, Replacement
from runner.worker.program.walk import PYTHON
from runner.worker.torch_private.dispatch import (
    DEVICE_MODE,
    count_function_modes,
    enter_function_mode,
    leave_function_mode,
)


class Replacements:
    """A context in which a case's Python runs; it can be entered again and again, but not while it is entered."""

    def __init__(self) -> None:
        """Remember 14,000 definitions in 15 ms. Each end of the context takes 1 to 2 ms."""
        self._definitions = Definitions(_modules())
        self._replacements: tuple[Replacement, ...] = ()
        self._modes: list[Any] = []
        self._doubt = ""
        self._depth = 0

    def __enter__(self) -> None:
        """Put in force what the case has replaced so far, and the modes that it has entered and not left."""
        for replacement in self._replacements:
            replacement.define(replacement.value)
        self._depth = count_function_modes()
        for mode in self._modes:
            enter_function_mode(mode)

    def __exit__(self, *raised: object) -> None:
        """Put the originals back. What cannot be put back is a doubt."""
        self._replacements = tuple(self._definitions.replacements())
        for replacement in self._replacements:
            try:
                replacement.define(replacement.original)
            except Exception as error:  # noqa: BLE001  of a class, or a metaclass, of the case
                self._doubt = f"the case replaces {replacement.name}, which cannot be put back: {type(error).__name__}"
        extra = count_function_modes() - self._depth
        self._modes = [leave_function_mode() for _ in range(extra)][::-1]

    def doubt(self) -> str:
        """Return why a pass proves nothing, if so: the judge may have called something of the case."""
        if any(isinstance(mode, DEVICE_MODE) and mode.device.type == "meta" for mode in self._modes):
            return "the case sets the default device to meta, where nothing has a value"
        name = self._definitions.new_kernel()
        return self._doubt or (f"the case registers a kernel for {name}, which the judge may call" if name else "")


def _modules() -> list[types.ModuleType]:
    """Return this worker's modules, and those that they name."""
    own = [module for name, module in list(sys.modules.items()) if name.startswith("runner.worker")]
    named = [value for module in own for value in list(vars(module).values()) if type(value) is types.ModuleType]
    return [builtins, *own, *named]


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
