"""Where torch keeps compiled code, and the entries of its flags."""

from __future__ import annotations

import contextvars
import copy
import importlib
import itertools
import sys
from typing import Any

from runner.worker.torch_private.doors import Door

CACHE_DIR = Door("torch._inductor.runtime.cache_dir_utils:cache_dir", "graphs are not kept from run to run")
_FLAG_MODULE = Door(
    "torch.utils._config_module:ConfigModule", "flags that a case changes stay changed in a living process"
)
_flags: dict[str, Any] = {"last": "", "modules": []}
"""What ``flag_modules`` has found so far."""


def load_flags() -> None:
    """Import the modules of flags, so that all their names exist."""
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch._inductor.config")


def is_compiler_loaded() -> bool:
    """Return whether torch's compiler has been imported."""
    return "torch._dynamo" in sys.modules


def entry_of_flag(name: str) -> Any:
    """Return the entry of a flag, which knows its default and its environment variable.

    Raises:
        ImportError, AttributeError, KeyError: this torch has no such flag, or keeps flags in another form.
    """
    module, _, attribute = name.rpartition(".")
    return importlib.import_module(module)._config[attribute]


def flag_modules() -> list[Any]:
    """Return torch's modules of flags that are loaded. The search begins with the module that was last the time before.

    Every reading of the settings asks, and some thousand modules are loaded.
    """
    kind, last = _FLAG_MODULE.loaded(), _flags["last"]
    if kind is not None:
        names = list(itertools.takewhile(lambda name: name != last, reversed(sys.modules)))
        found = (module for name in reversed(names) if isinstance(module := sys.modules.get(name), kind))
        _flags.update(last=next(reversed(sys.modules)), modules=list(dict.fromkeys([*_flags["modules"], *found])))
    return list(_flags["modules"])


def flag_overrides(module: Any) -> list[Any] | None:
    """Return what decides on the values of a module's flags, in an order that stays: what has been set, and what is
    forced. Return None where this torch keeps it in another form."""
    try:
        entries = module._config.values()
        held = [entry.user_override for entry in entries] + [entry.env_value_force for entry in entries]
    except AttributeError:
        return None
    values = [value.get(None) if isinstance(value, contextvars.ContextVar) else value for value in held]
    return [copy.deepcopy(value) if isinstance(value, (list, dict, set)) else value for value in values]
