"""``config:`` and ``options:``: which of torch's flags a case may set, and to what.

Some flags name programs, folders or servers (``cpp.cxx`` is the compiler that is run), so a stranger's file may set
numbers, switches and plain words only, and none whose name speaks of such things.
"""

from __future__ import annotations

import re

from runner.diagnostics import Span
from runner.spec.problems import Problems
from runner.spec.source import Mapping, Node, Scalar

MODULES = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config", "torch.fx.experimental._config",
           "torch._export.config")  # fmt: skip

PRECISION = ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32",
             "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
             "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction")  # fmt: skip
"""Switches that let libraries of a GPU round more than a dtype does. They are off on CUDA unless a case sets them."""

_REFUSED = re.compile(
    r"(^|[._])(cxx|path|paths|dir|dirs|folder|root|file|files|filename|cmd|command|url|host|remote|upload|download|save|dump|debug|trace|"
    r"package|extra|preload|lib|libs|library|import|module|modules|home|log|logs|record|repro|replay|benchmark|profile|external|"
    r"triton_dump|pass|hook|callback|cache|subprocess|worker|script|env|bundle|remove|ld|gcc|clang|nvcc|cutlass|cuda|rocm)([._]|$)",
    re.IGNORECASE,
)
_PARTS = frozenset({
    "aot_inductor", "aten_distributed_optimizations", "auto_chunker", "autoheuristic_collect", "autoheuristic_use", "cpp",
    "eager_numerics", "halide", "lookup_table", "test_configs", "triton", "xpu",
})  # fmt: skip
"""What may stand before a dot: the modules of flags also hold ``os`` and ``sys``, whose attributes are no flags."""

_ALLOWED_ANYWAY = frozenset({
    "torch._dynamo.config.accumulated_cache_size_limit",
    "torch._dynamo.config.cache_size_limit",
    "torch._dynamo.config.inline_inbuilt_nn_modules",
    "torch._inductor.config.force_disable_caches",
    "torch._inductor.config.fx_graph_cache",
    "torch._functorch.config.enable_autograd_cache",
})  # fmt: skip
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]{0,39}")  # not -O1: that is a compiler's own option


def check_flags(node: Node | None, problems: Problems, prefix: str = "") -> dict[str, bool | int | float | str | None]:
    """The flags of a mapping as plain data; each one that is refused is reported. ``prefix`` completes short names."""
    if not isinstance(node, Mapping):
        return {}
    flags = {}
    for key, value in node.entries:
        full = prefix + str(key.value)
        reason = refusal(full, value.value if isinstance(value, Scalar) else ...)
        if reason:
            _report(problems, key.span, full, reason)
        else:
            assert isinstance(value, Scalar)
            flags[str(key.value)] = value.value
    return flags


def refusal(name: str, value: object) -> str:
    """Why a case may not set flag ``name`` to ``value``; empty if it may."""
    if name in PRECISION:
        return "" if isinstance(value, bool) else "its value must be true or false"
    module = next((m for m in MODULES if name.startswith(m + ".")), None)
    if module is None:
        return f"flags live in {', '.join(MODULES)}"
    rest = name[len(module) + 1 :]
    part, dot, _ = rest.rpartition(".")
    if not re.fullmatch(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", rest, re.ASCII) or "__" in rest:
        return "its name is no flag's"
    if _REFUSED.search(rest) and name not in _ALLOWED_ANYWAY:
        return "it reaches files, programs, servers or hooks"
    if dot and part not in _PARTS:
        return "its name is no flag's"
    if value is None or isinstance(value, bool | int | float):
        return ""
    if isinstance(value, str) and _WORD.fullmatch(value):
        return ""
    return "its value must be a switch, a number or a plain word"


def _report(problems: Problems, span: Span, name: str, reason: str) -> None:
    problems.error(span, f"flag {name!r} is refused: {reason}")
