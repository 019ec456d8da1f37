"""Names of torch that are not public, and what is not checked where a version of torch lacks one."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import sys
from collections.abc import Iterator
from functools import reduce
from typing import Any

# The functions below call no builtin that a case has replaced.
__builtins__ = dict(vars(builtins))  # type: ignore[assignment]

BOTH = ("2.6", "2.13")
"""The versions that this project is tested on."""

DOORS: list[Door] = []
_absences: dict[str, None] = {}


class Door:
    """A name of torch, as ``module:name`` or as a module alone."""

    def __init__(self, name: str, unchecked: str, known: tuple[str, ...] = BOTH) -> None:
        """Keep the name.

        Args:
            name: such as ``torch._dynamo.utils:counters``.
            unchecked: what a run lacks without it, as a clause: ``graphs are not counted``.
            known: the versions of torch that have the name, and those between.
        """
        self.name, self.unchecked, self.known = name, unchecked, known
        self.module, _, path = name.partition(":")
        self.dotted = name.replace(":", ".")
        self._path = path.split(".") if path else []
        self._found: Any = None
        DOORS.append(self)

    def find(self) -> Any:
        """Return what torch has under the name, imported if need be; None where it has nothing, which is reported if it
        was expected."""
        if self._found is None:
            self._found = self.now()
        return self._found

    def now(self) -> Any:
        """Return the same, looked up anew: a number of a module may be another one by now."""
        try:
            holder: Any = importlib.import_module(self.module)
        except ImportError:
            holder = None
        found = reduce(lambda value, name: getattr(value, name, None), self._path, holder)
        if found is None and self.is_expected():
            report(self._absence())
        return found

    def call(self, *args: Any) -> Any:
        """Return what torch's function under the name returns; None where torch has none."""
        function = self.find()
        return None if function is None else function(*args)

    def _absence(self) -> str:
        return f"torch {version()} has no {self.dotted}: {self.unchecked}"

    def put(self, value: Any) -> None:
        """Let torch have another object under the name, which it has."""
        setattr(reduce(getattr, self._path[:-1], importlib.import_module(self.module)), self._path[-1], value)

    @contextlib.contextmanager
    def replaced(self, value: Any) -> Iterator[None]:
        """Let torch have another object under the name while the block lasts. Raises ImportError as ``need`` does."""
        self.need()
        original = self.now()
        self.put(value)
        try:
            yield
        finally:
            self.put(original)

    def need(self) -> Any:
        """Return what ``find`` does, for what no run can do without.

        Raises:
            ImportError: torch has nothing under the name.
        """
        found = self.find()
        if found is None:
            raise ImportError(self._absence())
        return found

    def is_expected(self) -> bool:
        """Return whether the torch at hand is to have the name: it is one of the known versions, between them, or
        newer."""
        here = _numbers(version())
        return _numbers(self.known[0]) <= here and (self.known[-1] == BOTH[-1] or here <= _numbers(self.known[-1]))

    def is_loaded(self) -> bool:
        """Return whether its module has been imported."""
        return self.module in sys.modules

    def loaded(self) -> Any:
        """Return what ``find`` does if its module has been imported already; else None, and nothing is imported or
        reported."""
        return self.find() if self.is_loaded() else None


def version() -> str:
    """Return torch's version. A server imports this module before torch."""
    return str(importlib.import_module("torch").__version__)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def report(absence: str) -> None:
    """Keep a sentence about what this torch lacks and what is not checked therefore. A run says each once."""
    _absences[absence] = None


def absences() -> tuple[str, ...]:
    """Return what was reported in this process so far."""
    return tuple(_absences)
