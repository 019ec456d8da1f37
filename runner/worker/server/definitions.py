"""Functions and classes of Python, torch and this worker: whether a case has replaced one.

A case that replaces ``torch.nn.functional.relu`` or ``torch.equal`` changes what later jobs of its process compute, and
how they are compared. Nothing here is put back: the process ends.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Mapping
from typing import Any

_PACKAGES = frozenset(
    {"builtins", "functools", "functorch", "itertools", "math", "operator", "runner", "torch", "triton"}
)
_GENERATED = "torch._inductor.runtime.compile_tasks."
"""How the modules of compiled kernels are named: another kernel may take the place of one."""
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
_HOOKS = "torch.nn.modules.module._global_"
"""How the hooks of all modules are named: one more changes each model."""


class Definitions:
    """What is defined when this object is made: in modules, in their classes, and in their tables of functions.

    Of what is defined later three kinds are seen: a method that hides an inherited one, a hook of all modules, and a
    kernel of one of torch's operators.
    """

    def __init__(self) -> None:
        """Remember 95,000 to 125,000 objects. This takes 0.1 s, and a comparison takes 0.02 to 0.05 s."""
        self._spaces: list[tuple[str, Mapping[Any, Any], tuple[Any, ...], tuple[Any, ...]]] = []
        self._classes: dict[type, frozenset[str]] = {}
        self._hooks: list[tuple[str, dict[Any, Any], int]] = []
        for name, module in list(sys.modules.items()):
            if type(module) is types.ModuleType and name.partition(".")[0] in _PACKAGES and _GENERATED not in name:
                self._keep_module(name, module)
        self._kernels = _kernels()

    def _keep_module(self, name: str, module: types.ModuleType) -> None:
        self._keep(name, vars(module))
        for key, value in list(vars(module).items()):
            full = f"{name}.{key}"
            if issubclass(type(value), type):
                if value not in self._classes and str(value.__module__).partition(".")[0] in _PACKAGES:
                    self._classes[value] = frozenset(vars(value))
                    self._keep(full, vars(value))
            elif issubclass(type(value), dict) and not key.startswith("__"):
                self._keep(full, value)
                if full.startswith(_HOOKS):
                    self._hooks.append((full, value, len(value)))

    def _keep(self, name: str, space: Mapping[Any, Any]) -> None:
        kept = {key: value for key, value in list(space.items()) if issubclass(type(value), _KINDS)}
        if kept:
            self._spaces.append((name, space, tuple(kept), tuple(kept.values())))

    def replaced(self) -> str:
        """Return the name of something that is another object now, or hidden by one; empty if there is none."""
        for name, space, keys, values in self._spaces:
            if all(map(operator.is_, map(space.get, keys, values), values)):  # a loop of Python takes twice as long
                continue
            for key, value in zip(keys, values, strict=True):
                if space.get(key, value) is not value and not _is_own_change(name, space[key]):
                    return f"{name}.{key}"
        for kind, names in self._classes.items():
            full = f"{kind.__module__}.{kind.__qualname__}"
            for key in vars(kind).keys() - names:
                value = vars(kind)[key]
                hides = issubclass(type(value), _KINDS) and any(key in vars(base) for base in kind.__mro__[1:])
                if hides and not _is_own_change(full, value):
                    return f"{full}.{key}"
        for name, space, count in self._hooks:
            if len(space) != count:
                return name
        return min(_kernels() - self._kernels, default="")


def _is_own_change(name: str, value: object) -> bool:
    """Return whether torch or Triton may have put an object of theirs into a module of their insides, as at the first kernel of a GPU."""
    inside = name.startswith(("triton", "torch.cuda")) or ("._" in name and not name.startswith("torch._C"))
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    while isinstance(value, functools.partial):  # as Inductor's at its first kernel for Triton
        value = value.func
    return inside and str(getattr(value, "__module__", "")).partition(".")[0] in ("torch", "triton")


def _kernels() -> frozenset[str]:
    """Return the kernels that Python code has registered for torch's operators, such as ``aten/relu/CPU``.

    Those of vmap (FuncTorchBatched) and of CUDA are left out: torch registers some at its first use of either.
    """
    names = getattr(sys.modules.get("torch.library"), "_impls", ())
    ours = (name for name in names if name.startswith("aten/") and not name.endswith("/CUDA"))
    return frozenset(name for name in ours if "/FuncTorch" not in name)
