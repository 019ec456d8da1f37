"""Where torch keeps compiled code, and the entries of its flags."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from runner.worker.torch_private.doors import Door

CACHE_DIR = Door("torch._inductor.runtime.cache_dir_utils:cache_dir", "graphs are not kept from run to run")
_FLAG_MODULE = Door(
    "torch.utils._config_module:ConfigModule", "flags that a case changes stay changed in a living process"
)


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
    """Return torch's modules of flags that are loaded."""
    kind = _FLAG_MODULE.loaded() or ()
    return [module for module in list(sys.modules.values()) if isinstance(module, kind)]
