"""Which vector instructions torch compiles for: it probes them once in a process, and keeps the answers."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

VECTORS_OK = "torch._inductor.config.cpp.vec_isa_ok"
"""The flag that says what the probes would. Torch reads it before its first kernel, and never again."""


def candidates() -> list[Any]:
    """Return torch's vector instruction sets that this processor knows, the one it would pick first.

    The list is empty if torch has no such list.
    """
    module: Any = importlib.import_module("torch._inductor.cpu_vec_isa")
    checker, known = getattr(module, "x86_isa_checker", None), getattr(module, "supported_vec_isa_list", None)
    if checker is None or known is None or os.uname().machine != "x86_64":
        return []
    flags = checker()
    return [isa for isa in known if all(flag in flags for flag in str(isa).split())]


def probe() -> None:
    """Let torch probe the processor's vector instructions: a second of each process that is forked afterwards.

    What torch would then take is left open, because it depends on flags. A probe that says no is forgotten, so that each process
    asks for itself: torch takes any failure of a probe for the processor's answer.
    """
    if not all([bool(isa) for isa in candidates()]):
        forget_answers()


def forget_answers() -> None:
    """Let torch probe every instruction set anew, and pick anew. Does nothing before torch has loaded what probes."""
    module: Any = sys.modules.get("torch._inductor.cpu_vec_isa")
    if module is None:
        return
    classes = {kind for isa in getattr(module, "supported_vec_isa_list", ()) for kind in type(isa).__mro__}
    functions = [function for kind in classes for function in vars(kind).values()]
    for function in (*functions, getattr(module, "valid_vec_isa_list", None)):
        if hasattr(function, "cache_clear"):
            function.cache_clear()
