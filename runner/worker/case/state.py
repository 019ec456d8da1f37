"""What a call can change besides its result: the arguments by name, and the state of a model."""

from __future__ import annotations

from typing import Any

import torch

from runner.worker.case.snapshot import PYTHON, flatten

_INSIDES = frozenset({*vars(torch.nn.Module()), "_is_torch_compile", "_compiled_call_impl"})
"""Attributes that torch gives modules: tables of parameters, buffers and hooks, ``training``, and marks of what it compiled."""


def argument_names(model: torch.nn.Module, count: int) -> list[str]:
    """Return names such as ``input x``: as ``forward`` calls a positional argument, else its number."""
    code = getattr(type(model).forward, "__code__", None)
    named = list(code.co_varnames[1 : code.co_argcount]) if code is not None else []
    return [f"input {named[index] if index < len(named) else index}" for index in range(count)]


def state_leaves(model: torch.nn.Module, module: str) -> tuple[str, list[tuple[str, Any]]]:
    """Return parameters, buffers, and the tensors and Python values in attributes, of every submodule.

    Attributes count that are such values, or containers of them: also objects of the case's own classes, optimizers, and modules
    that are not registered. The first part is their structure as a text, the second their leaves with paths.
    """
    state: dict[str, Any] = {}
    state.update((f"parameter {name}", value) for name, value in model.named_parameters(remove_duplicate=False))
    state.update((f"buffer {name}", value) for name, value in model.named_buffers(remove_duplicate=False))
    for prefix, part in model.named_modules():
        for name, value in vars(part).items():
            if name not in _INSIDES:
                state[f"attribute {prefix + '.' if prefix else ''}{name}"] = value
    parts, leaves = [], []
    for name, value in state.items():
        structure, value_leaves = flatten(value, name, module, (model,))
        plain = [(path, leaf) for path, leaf in value_leaves if isinstance(leaf, (torch.Tensor, *PYTHON))]
        if plain or not value_leaves:
            parts.append(f"{name}: {structure}")
            leaves += plain
    return "; ".join(parts), leaves
