"""What a call can change besides its result: the arguments by name, and the state of a model."""

from __future__ import annotations

import array
import itertools
import linecache
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import EnumMeta
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from runner.worker.program import modules
from runner.worker.program.snapshot import FIXED, NOTHING, is_generator, python_value
from runner.worker.program.walk import Unread, Walk, class_name, is_array

_TABLES = (dict, list, set)
_FUNCTIONS = (FunctionType, BuiltinFunctionType)
_COMPARED = (torch.Tensor, torch.nn.Parameter, Unread, bytearray, array.array, type, *_FUNCTIONS, *FIXED)

_HIDDEN = re.compile(r"__\w*__|__\w*\d\w*")
"""Names that Python gives a module or a class, and those that Dynamo adds, as of functions: they are numbered."""

_BY_NAME = r"\b(globals|setattr|vars|exec|__dict__|sys\.modules|import_module)\b"
"""How Python code makes a variable whose name it may compute."""

_LONGEST = 1000
"""Elements of a container in a variable of the file beyond which it counts as a table that nobody changes: reading it
takes time."""


class State(NamedTuple):
    """What a model and its file hold at one moment."""

    structure: str
    leaves: list[tuple[str, Any]]
    containers: Mapping[str, Any]  # those that can change, by their paths


class Holder(NamedTuple):
    """What has variables in a case's file: the module, or a class that it defines."""

    prefix: str  # of the paths of its variables
    space: Any
    names: tuple[str, ...]  # of the variables that it has once it is loaded
    ignored: frozenset[str]  # the names that are not compared
    loaded: Mapping[str, Any]  # Python values in its variables by their paths

    def variables(self) -> Iterator[tuple[str, Any]]:
        """Yield the variables that it has now, with their paths: those of the file, then what calls have added.

        The names that Dynamo adds are no identifiers, or begin with two underscores.
        """
        held = _variables(self.space)
        others = sorted(held.keys() - self.ignored.union(self.names))
        added = (name for name in others if name.isidentifier() and not name.startswith("__"))
        own = (name for name in added if _is_read(held[name]) and self._is_own(held[name]) and self._may_make(name))
        return ((self.prefix + name, held[name]) for name in (*self.names, *own) if name in held)

    def _may_make(self, name: str) -> bool:
        """Return whether the file may make a variable: it names it, or reaches variables by their names.

        Dynamo keeps constants of functions of any file in the one whose code it compiles.
        """
        if not isinstance(self.space, ModuleType):
            return True
        text = "".join(linecache.getlines(self.space.__file__ or ""))
        return not text or re.search(rf"(?<![.\w]){re.escape(name)}\b|{_BY_NAME}", text) is not None

    def _is_own(self, value: Any) -> bool:
        """Return whether a value may be the file's own: Triton's interpreter adds its classes to a kernel's file."""
        home = self.space.__name__ if isinstance(self.space, ModuleType) else self.space.__module__
        return not issubclass(type(value), (type, *_FUNCTIONS)) or value.__module__ == home


def unchanged_paths(holders: Sequence[Holder], leaves: Sequence[tuple[str, Any]]) -> frozenset[str]:
    """Return the paths of Python values in variables that no call has changed: they may hold the time of the import, or
    its name. No class of the case is asked whether two are equal."""
    loaded = {path: value for holder in holders for path, value in holder.loaded.items()}
    pairs = [(path, leaf, loaded[path]) for path, leaf in leaves if path in loaded]
    return frozenset(
        path
        for path, leaf, first in pairs
        if leaf is first or (type(leaf) is type(first) and type(leaf) in FIXED and bool(leaf == first))
    )


def file_holders(module: ModuleType) -> tuple[Holder, ...]:
    """Return what has variables in a case's file, once that is loaded: the module, and its classes at any depth."""
    spaces: dict[int, tuple[str, Any]] = {id(module): ("global ", module)}
    waiting = list(spaces.values())
    for prefix, space in waiting:
        for name, value in _variables(space).items():
            if issubclass(type(value), type) and value.__module__ == module.__name__ and id(value) not in spaces:
                spaces[id(value)] = (f"{prefix}{name}.", value)
                waiting.append(spaces[id(value)])
    walk = Walk(module.__name__)
    holders = []
    for prefix, space in waiting:
        held = _variables(space)
        launching = ("launch", *held["KERNELS"]) if type(held.get("KERNELS")) is list else ()
        names = tuple(
            name
            for name, value in held.items()
            # What launches kernels becomes an operator of torch where a backend compiles it.
            if not _HIDDEN.fullmatch(name) and _is_read(value) and not (name in launching and callable(value))
        )
        leaves = [leaf for name in names for leaf in walk.flatten(held[name], prefix + name)[1]]
        loaded = {path: _named(leaf) for path, leaf in leaves if issubclass(type(leaf), (*FIXED, type, *_FUNCTIONS))}
        holders.append(Holder(prefix, space, names, frozenset(held.keys() - set(names)), loaded))
    return tuple(holders)


def _variables(space: Any) -> Mapping[str, Any]:
    """Return the variables of a module or a class by their names; of an enumeration its members too."""
    if not issubclass(type(space), EnumMeta):
        return {name: value for name, value in list(vars(space).items()) if type(name) is str}
    public = {name: value for name, value in vars(space).items() if not name.startswith("_")}
    return {**public, **space._member_map_}


def _is_read(value: Any) -> bool:
    return _length(value) <= _LONGEST and not _is_torchs(value)


def _named(leaf: Any) -> Any:
    """Return the name of a function, by which it is compared, and any other leaf as it is."""
    return f"function {leaf.__module__}.{leaf.__name__}" if type(leaf) in _FUNCTIONS else leaf


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
    if cls in _COMPARED or issubclass(cls, _COMPARED) or is_array(cls) or is_generator(cls):
        return True
    return issubclass(cls, (set, frozenset)) and python_value(leaf, module) is not NOTHING


def argument_names(model: torch.nn.Module, count: int) -> list[str]:
    """Return names such as ``input x``: as ``forward`` calls a positional argument, else its number."""
    code = getattr(type(model).forward, "__code__", None)
    named = list(code.co_varnames[1 : code.co_argcount]) if code is not None else []
    return [f"input {named[index] if index < len(named) else index}" for index in range(count)]


def state_leaves(model: torch.nn.Module, module: str, holders: Sequence[Holder] = ()) -> State:
    """Return parameters, buffers, and the tensors and Python values in attributes, of every submodule, and in the
    variables of ``holders``.

    Attributes and variables count that are such values, or containers of them: also objects of the case's own classes,
    optimizers, and modules that are not registered. One object is opened at its first place. The structure is a text,
    with the names of the modules in training mode, and the classes of all.
    """
    every = modules.named_modules(model)
    parts = modules.distinct(every)
    state: dict[str, Any] = dict(
        itertools.chain(
            ((f"parameter {name}", value) for name, value in modules.parameters(every)),
            ((f"buffer {name}", value) for name, value in modules.buffers(every)),
            ((f"attribute {name}", value) for name, value in modules.attributes(parts) if not _is_torchs(value)),
            (variable for holder in holders for variable in holder.variables()),
            ((f"hooks {name}", functions) for name, functions in modules.hooks(parts)),
        )
    )
    walk = Walk(module, parts)
    structures = [f"modules in training mode: {[prefix or 'all' for prefix, part in parts if part.training]}"]
    structures += [f"buffers outside state_dict: {names}" for names in [modules.unsaved_buffers(parts)] if names]
    leaves = []
    for name, value in state.items():
        structure, value_leaves = walk.flatten(value, name)
        plain = [(path, _named(leaf)) for path, leaf in value_leaves if _is_compared(leaf, module)]
        if plain or not value_leaves or name.startswith("hooks "):
            structures.append(f"{name}: {structure}")
            leaves += plain
    # A reference of a kernel is another model of the same file: the class of the whole model is no state.
    structures += [f"module {prefix}: {class_name(type(part), module)}" for prefix, part in parts if prefix]
    return State("; ".join(structures), leaves, walk.containers)
