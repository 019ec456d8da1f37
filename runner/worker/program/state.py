"""What a call can change besides its result: the arguments by name, and the state of a model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import torch

from runner.worker.program import modules
from runner.worker.program.arrays import is_array
from runner.worker.program.values import FIXED, NOTHING, python_value
from runner.worker.program.walk import Unread, Walk

_TABLES = (dict, list, set)
_COMPARED = (torch.Tensor, torch.nn.Parameter, Unread, bytearray, *FIXED)

_LONGEST = 1000
"""Elements of a container in a variable of the file beyond which it counts as a table that nobody changes: reading it
takes time."""


class State(NamedTuple):
    """What a model and its file hold at one moment."""

    structure: str
    leaves: list[tuple[str, Any]]
    containers: Mapping[str, Any]  # those that can change, by their paths


class Variable(NamedTuple):
    """A variable of a case's file: of the module, or of a class that it defines."""

    path: str
    holder: Any
    name: str
    loaded: Mapping[str, Any]  # its Python values by their paths


def unchanged_paths(variables: Sequence[Variable], leaves: Sequence[tuple[str, Any]]) -> frozenset[str]:
    """Return the paths of Python values in variables that no call has changed: they may hold the time of the import, or
    its name."""
    loaded = {path: value for variable in variables for path, value in variable.loaded.items()}
    pairs = [(path, leaf, loaded[path]) for path, leaf in leaves if path in loaded]
    return frozenset(path for path, leaf, first in pairs if leaf is first or _are_equal(leaf, first))


def _are_equal(leaf: Any, first: Any) -> bool:
    """Return whether two Python values are equal, without asking a class of the case."""
    return type(leaf) is type(first) and type(leaf) in FIXED and bool(leaf == first)


def file_variables(module: ModuleType) -> tuple[Variable, ...]:
    """Return the variables that a case's file has once it is loaded.

    Dynamo adds others, whose names begin with two underscores.
    """
    holders: list[tuple[str, Any]] = [("global ", module)]
    for name, value in vars(module).items():
        if issubclass(type(value), type) and value.__module__ == module.__name__ and not issubclass(value, Enum):
            holders.append((f"global {name}.", value))
    variables = []
    walk = Walk(module.__name__)
    for prefix, holder in holders:
        for name, value in vars(holder).items():
            if name.startswith("__") or _length(value) > _LONGEST or _is_torchs(value):
                continue
            leaves = walk.flatten(value, prefix + name)[1]
            loaded = {path: leaf for path, leaf in leaves if issubclass(type(leaf), FIXED)}
            variables.append(Variable(prefix + name, holder, name, loaded))
    return tuple(variables)


def _length(value: Any) -> int:
    """Return how many elements a builtin container has, also one whose class counts in its own way; 0 for others."""
    base = next((base for base in (list, tuple, dict, set) if issubclass(type(value), base)), None)
    return 0 if base is None else base.__len__(value)


def _is_torchs(value: Any) -> bool:
    """Return whether a container is one that torch keeps in a variable of its own, such as its counters."""
    return issubclass(type(value), _TABLES) and id(value) in _tables_of_torch(len(sys.modules))


@lru_cache(maxsize=1)
def _tables_of_torch(modules: int) -> Mapping[int, Any]:
    """Return the containers in variables of torch's modules, by id, while there are so many ``modules``."""
    named = [(name, vars(module)) for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)]
    spaces = [space for name, space in named if name == "torch" or name.startswith("torch.")]
    return {id(value): value for space in spaces for value in list(space.values()) if issubclass(type(value), _TABLES)}


def _is_compared(leaf: Any, module: str) -> bool:
    """Return whether a leaf of an attribute or variable is compared, or a note says why not."""
    cls = type(leaf)
    if cls in _COMPARED or issubclass(cls, _COMPARED) or is_array(cls):
        return True
    return issubclass(cls, (set, frozenset)) and python_value(leaf, module) is not NOTHING


def argument_names(model: torch.nn.Module, count: int) -> list[str]:
    """Return names such as ``input x``: as ``forward`` calls a positional argument, else its number."""
    code = getattr(type(model).forward, "__code__", None)
    named = list(code.co_varnames[1 : code.co_argcount]) if code is not None else []
    return [f"input {named[index] if index < len(named) else index}" for index in range(count)]


def state_leaves(model: torch.nn.Module, module: str, variables: Sequence[Variable] = ()) -> State:
    """Return parameters, buffers, and the tensors and Python values in attributes, of every submodule, and in
    ``variables``.

    Attributes and variables count that are such values, or containers of them: also objects of the case's own classes,
    optimizers, and modules that are not registered. One object is opened at its first place. The structure is a text,
    with the names of the modules in training mode.
    """
    every = modules.named_modules(model)
    parts = modules.distinct(every)
    state: dict[str, Any] = {}
    state.update((f"parameter {name}", value) for name, value in modules.parameters(every))
    state.update((f"buffer {name}", value) for name, value in modules.buffers(every))
    state.update((f"attribute {name}", value) for name, value in modules.attributes(parts) if not _is_torchs(value))
    state.update((path, vars(holder)[name]) for path, holder, name, _ in variables if name in vars(holder))
    state.update((f"hooks {name}", functions) for name, functions in modules.hooks(parts))
    walk = Walk(module, parts)
    structures = [f"modules in training mode: {[prefix or 'all' for prefix, part in parts if part.training]}"]
    leaves = []
    for name, value in state.items():
        structure, value_leaves = walk.flatten(value, name)
        plain = [(path, leaf) for path, leaf in value_leaves if _is_compared(leaf, module)]
        if plain or not value_leaves or name.startswith("hooks "):
            structures.append(f"{name}: {structure}")
            leaves += plain
    return State("; ".join(structures), leaves, walk.containers)
