"""Functions and classes of Python, torch and this worker: whether a case has replaced one.

A case that replaces ``torch.nn.functional.relu`` or ``torch.equal`` changes what later jobs of its process compute, and
how it is compared itself. A living process therefore ends (``server/child.py``), and what the judge calls is put
back before it begins (``program/replacements.py``).
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

from runner.worker.torch_private.settings import GENERATED, HOOKS, is_inside, python_kernels

# The functions below call no builtin that a case has replaced.
__builtins__ = dict(vars(builtins))  # type: ignore[assignment]

_PACKAGES = frozenset(
    {"builtins", "functools", "functorch", "itertools", "math", "operator", "runner", "torch", "triton"}
)
_KINDS = (
    type,
    property,
    classmethod,
    staticmethod,
    types.BuiltinFunctionType,
    types.FunctionType,
    types.GetSetDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
_MISSING = object()


class Replacement(NamedTuple):
    """A definition that is another object now: ``key`` of ``holder``, a class or a table such as a module's."""

    name: str
    holder: Any
    key: Any
    original: Any
    value: Any

    def define(self, value: Any) -> None:
        """Define the original or the replacement. Raises what the holder raises."""
        if isinstance(self.holder, type):
            delattr(self.holder, self.key) if value is _MISSING else setattr(self.holder, self.key, value)
        elif value is _MISSING:
            del self.holder[self.key]
        else:
            self.holder[self.key] = value


class _Space(NamedTuple):
    """The definitions of a class, a module or a table of functions."""

    name: str
    holder: Any  # a class, or the mapping itself
    mapping: Mapping[Any, Any]
    keys: tuple[Any, ...]
    values: tuple[Any, ...]


class Definitions:
    """What is defined when this object is made: in modules, in their classes, and in their tables of functions.

    Of what is defined later three kinds are seen: a method that hides an inherited one, a hook of all modules, and a
    kernel of one of torch's operators.
    """

    def __init__(self, modules: Sequence[types.ModuleType] | None = None) -> None:
        """Remember the definitions of ``modules``; of all that are loaded, without the standard library's, if None.

        Of all, this takes 0.1 s for 95,000 to 125,000 objects, and a comparison takes 0.02 to 0.05 s.
        """
        self._spaces: list[_Space] = []
        self._classes: dict[type, frozenset[str]] = {}
        self._hooks: list[tuple[str, dict[Any, Any], int]] = []
        named = sys.modules if modules is None else {module.__name__: module for module in modules}
        self._packages = _PACKAGES | {name.partition(".")[0] for name in named if modules is not None}
        for name, module in list(named.items()):
            if type(module) is types.ModuleType and name.partition(".")[0] in self._packages and GENERATED not in name:
                self._keep_module(name, module)
        self._kernels = python_kernels()

    def _keep_module(self, name: str, module: types.ModuleType) -> None:
        self._keep(name, vars(module), vars(module))
        for key, value in list(vars(module).items()):
            full = f"{name}.{key}"
            if issubclass(type(value), type):
                if value not in self._classes and str(value.__module__).partition(".")[0] in self._packages:
                    self._classes[value] = frozenset(vars(value))
                    self._keep(full, value, vars(value))
            elif issubclass(type(value), dict) and not key.startswith("__"):
                self._keep(full, value, value)
                if full.startswith(HOOKS):
                    self._hooks.append((full, value, len(value)))

    def _keep(self, name: str, holder: Any, mapping: Mapping[Any, Any]) -> None:
        definitions = {key: value for key, value in list(mapping.items()) if issubclass(type(value), _KINDS)}
        if definitions:
            self._spaces.append(_Space(name, holder, mapping, tuple(definitions), tuple(definitions.values())))

    def replacements(self) -> Iterator[Replacement]:
        """Yield what is another object now, is gone, or is hidden by a method of a class below."""
        for name, holder, mapping, keys, values in self._spaces:
            if all(map(is_, map(mapping.get, keys), values)):  # a loop of Python takes twice as long
                continue
            for key, original in zip(keys, values, strict=True):
                value = mapping.get(key, _MISSING)
                if value is not original and not _is_own_change(name, value):
                    yield Replacement(f"{name}.{key}", holder, key, original, value)
        for kind, names in self._classes.items():
            full = f"{kind.__module__}.{kind.__qualname__}"
            for key in vars(kind).keys() - names:
                value = vars(kind)[key]
                hides = issubclass(type(value), _KINDS) and any(key in vars(base) for base in kind.__mro__[1:])
                if hides and not _is_own_change(full, value):
                    yield Replacement(f"{full}.{key}", kind, key, _MISSING, value)

    def replaced(self) -> str:
        """Return the name of something that is another object now, or hidden by one; empty without one."""
        for replacement in self.replacements():
            return replacement.name
        for name, space, count in self._hooks:
            if len(space) != count:
                return name
        return self.new_kernel()

    def new_kernel(self) -> str:
        """Return the name of a kernel that was registered for an operator of torch since, if any."""
        return min(python_kernels() - self._kernels, default="")


def _is_own_change(name: str, value: object) -> bool:
    """Return whether torch or Triton may have put an object of its own into a module of its insides, as at the first
    kernel of a GPU."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    while isinstance(value, functools.partial):  # as Inductor's at its first kernel for Triton
        value = value.func
    return is_inside(name) and str(getattr(value, "__module__", "")).partition(".")[0] in ("torch", "triton")
