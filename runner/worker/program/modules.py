"""What torch's modules hold, read from their own tables: methods such as ``named_parameters`` may be overridden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from runner.worker.torch_private.dispatch import COMPILED_MODULE

_TABLES = vars(torch.nn.Module())
MARKS = frozenset({"_is_torch_compile", "_compiled_call_impl"})
"""Attributes by which torch marks modules that it compiled."""
_INSIDES = frozenset({*_TABLES, *MARKS})
"""Attributes that torch gives modules: tables of parameters, buffers and hooks, ``training``, and its marks."""

_HOOKS = tuple(name for name in _TABLES if name.endswith("_hooks"))
_MOST = 10_000
"""Modules of a model: one that holds itself in several places has more paths than can be counted."""

Named = Sequence[tuple[str, torch.nn.Module]]
"""Modules with their paths."""


def named_modules(model: torch.nn.Module) -> Named:
    """Return a model and the modules below it, in the order of ``torch.nn.Module.named_modules``, as often as they
    stand there."""
    modules: list[tuple[str, torch.nn.Module]] = []
    stack: list[tuple[str, torch.nn.Module, tuple[int, ...]]] = [("", model, ())]
    while stack and len(modules) < _MOST:
        prefix, part, above = stack.pop()
        modules.append((prefix, part))
        ids = (*above, id(part))
        children = [(name, child) for name, child in _table(part, "_modules").items() if child is not None]
        stack += [(_path(prefix, name), child, ids) for name, child in reversed(children) if id(child) not in ids]
    return modules


def distinct(modules: Named) -> Named:
    """Return each module once, under its first path."""
    seen: dict[int, tuple[str, torch.nn.Module]] = {}
    for prefix, part in modules:
        seen.setdefault(id(part), (prefix, part))
    return list(seen.values())


def parameters(modules: Named) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield the parameters of modules with their paths."""
    return _tensors(modules, "_parameters")


def buffers(modules: Named) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buffers of modules with their paths."""
    return _tensors(modules, "_buffers")


def unsaved_buffers(modules: Named) -> list[str]:
    """Return the paths of the buffers that ``state_dict`` leaves out."""
    pairs = [(prefix, vars(part).get("_non_persistent_buffers_set") or ()) for prefix, part in modules]
    return [_path(prefix, name) for prefix, names in pairs for name in sorted(names)]


def _tensors(modules: Named, table: str) -> Iterator[tuple[str, Any]]:
    pairs = ((prefix, pair) for prefix, part in modules for pair in _table(part, table).items())
    return ((_path(prefix, name), tensor) for prefix, (name, tensor) in pairs if tensor is not None)


def attributes(modules: Named) -> Iterator[tuple[str, Any]]:
    """Yield what else modules hold, with paths. A wrapper that ``torch.compile`` gives has nothing of its own."""
    own = ((prefix, list(vars(part).items())) for prefix, part in modules if not isinstance(part, COMPILED_MODULE))
    return ((_path(prefix, name), value) for prefix, items in own for name, value in items if name not in _INSIDES)


def hooks(modules: Named) -> Iterator[tuple[str, list[Any]]]:
    """Yield the hooks of modules, for each table that has any."""
    tables = ((_path(prefix, name), _table(part, name)) for prefix, part in modules for name in _HOOKS)
    return ((path, list(table.values())) for path, table in tables if table)


def _path(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _table(part: torch.nn.Module, name: str) -> Mapping[str, Any]:
    """Return a table of a module. Those of a ScriptModule are no attributes of the object itself."""
    table = vars(part).get(name)
    return table if table is not None else getattr(part, name, None) or {}
