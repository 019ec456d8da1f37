"""What torch loads, probes and sets up in the course of its first compilations: a server does it before it forks."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterable
from typing import Any

from runner.worker.torch_private.doors import Door

CACHE_DIR = Door("torch._inductor.runtime.cache_dir_utils:cache_dir", "graphs are not kept from run to run")
DYNAMO = Door("torch._dynamo", "nothing is compiled")
_INDUCTOR = Door("torch._inductor.compile_fx", "Inductor compiles nothing")
_HEADER = Door(
    "torch._inductor.codecache:_precompile_header", "a precompiled header that was removed is not made again", ("2.13",)
)
_HEADER_DIR = Door(
    "torch._inductor.runtime.runtime_utils:default_cache_dir", "precompiled headers lie where torch puts them"
)
_GUARD_TIMING = Door("torch._dynamo.guards:profile_guard_manager", "guards are timed at each compilation")
_FORGET_FAKES = Door(
    "torch._subclasses.fake_tensor:FakeTensorMode.cache_clear",
    "torch keeps what it knows of the operators of other jobs",
)

LAZY = (
    "torch._dynamo.dce_extra_outputs",
    "torch._functorch._activation_checkpointing.remat_using_tags_for_fwd_loss_bwd_graph_pass",
    "torch._functorch._aot_autograd.subclass_codegen",
    "torch._higher_order_ops.passes",
    "torch._inductor.compiler_bisector",
    "torch.distributed.tensor.experimental._attention",
    "torch.export._trace",
    "torch.fx.experimental.validator",
)
"""What torch imports in the course of a compilation, as far as a version has it."""

LAZY_FOR_BACKWARDS = ("torch._inductor.pattern_matcher",)
"""The same for the partitioner of a backward, where none may run before a fork: 1.5 processor seconds of each child."""

LAZY_FOR_DEVICES = (
    "sympy.tensor.tensor",
    "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.cpp_wrapper_mps",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.codegen.halide",
    "torch._inductor.codegen.pallas",
    "torch._inductor.codegen.wrapper_fxir",
    "torch._inductor.cudagraph_trees",
    "torch._inductor.fx_passes.efficient_conv_bn_eval",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.fx_passes.quantization",
    "triton.compiler.code_generator",
    "triton.language.semantic",
)
"""The same for accelerators, where nothing may be compiled before a fork. None of them opens one."""


def load(names: Iterable[str]) -> None:
    """Import modules as far as there are any of these names."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def load_inductor() -> None:
    """Import Inductor, and let it make a precompiled header again that was removed since this process made it.

    Raises:
        ImportError: torch has no Inductor.
    """
    _INDUCTOR.need()
    original = _HEADER.now()
    if not hasattr(original, "cache_clear"):  # it is there already, or this torch has none
        return

    def precompile(*words: Any, **options: Any) -> str:
        path = str(original(*words, **options))
        if not os.path.exists(path):
            original.cache_clear()
            path = str(original(*words, **options))
        return path

    _HEADER.put(precompile)


def keep_headers_with_kernels() -> None:
    """Let Inductor keep precompiled headers in its cache folder, before it is imported.

    By itself it takes a temporary folder whose name any user can take first. Compilers read headers there.
    """
    cache_dir = CACHE_DIR.find()
    if cache_dir is not None and _HEADER_DIR.now() is not None:
        _HEADER_DIR.put(cache_dir)


def skip_guard_timing() -> None:
    """Keep torch from flushing the CPU's caches after each compilation to time its guards: 20 ms for a log line.

    The guards are still evaluated as often as before, all but the one time that is measured.
    """
    original = _GUARD_TIMING.now()
    if original is None or getattr(original, "quick", False):
        return

    def quick(root: Any, scope: Any, *iterations: int) -> float:
        if not iterations:  # torch 2.8 and older ask only when debugging, and then want the number
            return float(original(root, scope))
        original(root, scope, 0)
        return 0.0

    quick.quick = True  # type: ignore[attr-defined]
    _GUARD_TIMING.put(quick)


def forget_fakes() -> None:
    """Forget what fake tensors have told about operators."""
    _FORGET_FAKES.call()


# --- vector instructions ---

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
