"""The database of operators with which torch tests itself, and the tables of the compiler."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch

from runner.worker.torch_private.doors import Door

_DATABASE = Door("torch.testing._internal.common_methods_invocations:op_db", "no operator of the database is drawn")
_DECOMPOSITIONS = Door("torch._inductor.decomposition:select_decomp_table", "decompositions are not listed")
_LOWERINGS = Door("torch._inductor.lowering:lowerings", "lowerings are not listed")
_APPLY = Door(
    "torch.fx.experimental.proxy_tensor:maybe_handle_decomp", "decompositions that a run reaches are not noted"
)

_DEVELOPERS = "expecttest"
"""A package that torch's module of the database imports for tests of its own, and that users do not have."""


def entries() -> list[Any]:
    """Return the entries of the database.

    Raises:
        ImportError: a package that the database needs, such as numpy, is not installed.
    """
    if _DEVELOPERS not in sys.modules and find_spec(_DEVELOPERS) is None:
        substitute = types.ModuleType(_DEVELOPERS)
        substitute.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules[_DEVELOPERS] = substitute
    frozen = torch.backends.flags_frozen()
    importlib.import_module(_DATABASE.module)
    # It forbids everybody in this process to set flags of torch.backends, which a case may ask for.
    torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = not frozen
    return _DATABASE.need()  # type: ignore[no-any-return]


def tables() -> dict[str, list[str]]:
    """Return the names of all decompositions that Inductor asks for, and of all operators that it lowers."""
    return {
        "decomposition": sorted({name_of(op) for op in _DECOMPOSITIONS.call() or ()}),
        "lowering": sorted({name_of(op) for op in _LOWERINGS.find() or () if hasattr(op, "_schema")}),
    }


@contextlib.contextmanager
def noting_decompositions(note: Callable[[str], object]) -> Iterator[None]:
    """Give ``note`` the name of each operator that is decomposed while the block lasts, such as ``aten.gelu``."""
    apply = _APPLY.now()
    if apply is None:
        yield
        return

    def watched(mode: Any, op: Any, *rest: Any) -> Any:
        result = apply(mode, op, *rest)
        if result is not NotImplemented:
            note(name_of(op))
        return result

    with _APPLY.replaced(watched):
        yield


def name_of(op: Any) -> str:
    """Return the name of an overload without the overload: ``aten.gelu``."""
    return str(op).rpartition(".")[0]
