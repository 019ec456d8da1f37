"""What the YAML format calls the functions of a graph."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from runner.contract.graphs import UnsayableError
from runner.worker.torch_private.graphs import COMPILED, overload_name

SPACES = (
    ("F", "torch.nn.functional"),
    *(("torch" + part, "torch" + part) for part in (
        "", ".special", ".linalg", ".fft", ".sparse", ".signal.windows", ".nested", ".masked", ".func",
        ".nn.utils.rnn", ".nn.attention.flex_attention",
    )),
    ("torch.utils.checkpoint", "torch.utils.checkpoint"),
)  # fmt: skip
"""How the format writes the public modules of torch, the preferred one first."""

_TYPES = {torch.Size: "torch.Size"}
_BUILTINS = (abs, bool, float, int, len, max, min, round, sum)
_ATTRIBUTE = "getattr"


@cache
def _public() -> dict[int, str]:
    """Return the format's names of the public functions of torch, by their identity."""
    names: dict[int, str] = {}
    for short, full in SPACES:
        module: Any = torch
        for part in full.split(".")[1:]:
            module = getattr(module, part, None)
        for name, value in vars(module).items() if module is not None else ():
            if callable(value) and not name.startswith("__") and not isinstance(value, type):
                names.setdefault(id(value), f"{short}.{name}")
    return names


def operator_of(node: Node) -> str:
    """Return the operator that a node calls, as the format writes it.

    Raises:
        UnsayableError: it has no name there.
    """
    target: Any = node.target
    word = str(getattr(target, "__name__", ""))
    if node.op == "call_method":
        return f"Tensor.{target}"
    if node.op != "call_function":
        raise UnsayableError("a module that is no part of the graph is called")
    if target is getattr:
        return f"Tensor.{node.args[1]}"
    if isinstance(target, type) and target in _TYPES:
        return _TYPES[target]
    if target in _BUILTINS:
        return f"builtin.{word}"
    name = overload_name(target)
    if name and name.split(".")[0] not in ("aten", "prims"):
        raise UnsayableError("it is an operator of a package: a case of your own may call it, and runs with --import")
    if name:
        return name
    name = _public().get(id(target)) or _compiled(target)
    if name:
        return name
    if word and getattr(operator, word, None) is target:
        return f"operator.{word}"
    raise UnsayableError("it is no public function of torch")


def torch_name(node: Node) -> str:
    """Return what torch calls the target of a node, for people."""
    target: Any = node.target
    if isinstance(target, str) or overload_name(target):
        return target if isinstance(target, str) else overload_name(target)
    module = getattr(target, "__module__", None) or type(target).__module__
    return f"{module}.{getattr(target, '__qualname__', None) or getattr(target, '__name__', None) or target}"


def _compiled(target: Any) -> str:
    """Return ``F.x`` for a function of torch's compiled part that has this public name, too."""
    module, name = getattr(target, "__module__", None), getattr(target, "__name__", "")
    if module not in COMPILED:
        return ""
    space = "F" if module == "torch._C._nn" else f"torch.{module.rpartition('._')[2]}"
    member = name.removeprefix(f"{space.rpartition('.')[2]}_")
    return f"{space}.{member}"


def without_private(
    target: Callable[..., Any] | str, positional: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call without those of private parameters, such as ``_stacklevel``.

    What follows one by position goes by keyword then.
    """
    if isinstance(target, str) or not inspect.isfunction(target):
        return positional, keywords
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        return positional, keywords
    kept = {key: value for key, value in keywords.items() if not key.startswith("_")}
    place = next((n for n, parameter in enumerate(parameters) if parameter.name.startswith("_")), len(positional))
    for parameter, value in zip(parameters[place:], positional[place:], strict=False):
        if not parameter.name.startswith("_") and not _is_default(parameter, value):
            kept[parameter.name] = value
    return positional[:place], kept


def _is_default(parameter: inspect.Parameter, value: Any) -> bool:
    return type(value) is type(parameter.default) and bool(value == parameter.default)
