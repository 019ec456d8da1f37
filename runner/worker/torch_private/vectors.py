"""Which vector instructions torch compiles for: it probes them once in a process, and keeps the answers."""

from __future__ import annotations

import os
from typing import Any

from runner.worker.torch_private.doors import Door

_UNPROBED = "vector instructions are not probed before the first kernel"
_CHECKER = Door("torch._inductor.cpu_vec_isa:x86_isa_checker", _UNPROBED)
_KNOWN = Door("torch._inductor.cpu_vec_isa:supported_vec_isa_list", _UNPROBED)
_VALID = Door("torch._inductor.cpu_vec_isa:valid_vec_isa_list", "kernels without vectors are not told")
_PICK = Door("torch._inductor.codecache:pick_vec_isa", "the first kernel precompiles the header")
_COMPILE = Door(
    "torch._inductor.codecache:CppPythonBindingsCodeCache.load_pybinding", "the first kernel precompiles the header"
)

VECTORS_OK = "torch._inductor.config.cpp.vec_isa_ok"
"""The flag that says what the probes would. Torch reads it before its first kernel, and never again."""


_KERNEL = 'extern "C" void kernel(const float* in_ptr0, float* out_ptr0) { out_ptr0[0] = in_ptr0[0]; }\n'


def candidates() -> list[Any]:
    """Return torch's vector instruction sets that this processor knows, the one it would pick first.

    The list is empty if torch has no such list.
    """
    checker, known = _CHECKER.now(), _KNOWN.now()
    if checker is None or known is None or os.uname().machine != "x86_64":
        return []
    flags = checker()
    return [isa for isa in known if all(flag in flags for flag in str(isa).split())]


def probe() -> None:
    """Let torch probe the processor's vector instructions: a second of each process that is forked afterwards.

    What torch would then take is left open, because it depends on flags. A probe that says no is forgotten, so that
    each process asks for itself: torch takes any failure of a probe for the processor's answer.
    """
    if not all([bool(isa) for isa in candidates()]):
        forget_answers()


def forget_answers() -> None:
    """Let torch probe every instruction set anew, and pick anew. Does nothing before torch has loaded what probes."""
    if not _KNOWN.is_loaded():
        return
    classes = {kind for isa in _KNOWN.now() or () for kind in type(isa).__mro__}
    for function in (*(function for kind in classes for function in vars(kind).values()), _VALID.now()):
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def has_picked_none() -> bool:
    """Return whether torch has picked no instruction set. It is False before torch has picked."""
    pick = _VALID.now()
    return pick is not None and pick.cache_info().currsize > 0 and not pick()


def compile_a_kernel(isa: Any) -> None:
    """Compile the smallest kernel as for ``isa``, unprobed: torch precompiles its header on the way.

    Nothing else may compile meanwhile. Raises ImportError where torch lacks a name, and whatever the compiler raises.
    """
    with _PICK.replaced(lambda: isa):
        _COMPILE.need()(["const float*", "float*"], _KERNEL)
