"""What the kernels that Inductor writes look like: a table of constructs, each with what its text always has.

The texts are those of torch 2.13 on the CPU, and of 2.11 on a GPU.
"""

from __future__ import annotations

import re

CONSTRUCTS = {
    "C++ parallel loop": r"#pragma omp for\b",
    # Each thread stores its own result where the others are joined to it.
    "C++ parallel reduction": r"\w+_arr\[tid\] = \w+_local;",
    "C++ vectorized loop": r"\bfor\(int64_t (x\d+)=[^\n]*\b\1\+=static_cast<int64_t>\((?!1L?\))",
    # What a vectorized loop leaves over: part of a vector, or an element at a time.
    "C++ masked tail": r"\bC10_UNLIKELY\([^\n]*\n\s*\{\n(?!\s*for \(int64_t x\d+_tail\b)",
    "C++ scalar tail": r"\bfor \(int64_t x\d+_tail\b",
    # An element may lie outside of the tensor. A function reads it only where a mask holds.
    "C++ masked load": r"\bauto tmp\d+ = \[&\]\n",
    "C++ transposed tile": r"\btranspose_mxn<",
    "C++ atomic addition": r"(?<![\w.])atomic_add(?:_vec<[^\n]*>)?\(",
    "Triton masked load": r"\btl\.load\([^\n]*mask",
    "Triton looped reduction": r"@triton_heuristics\.reduction\(",
    "Triton persistent reduction": r"@triton_heuristics\.persistent_reduction\(",
    "Triton cooperative reduction": r"@triton_heuristics\.cooperative_reduction\(",
    "Triton tile": r"\bYBLOCK ?: ?tl\.constexpr",
    "Triton atomic addition": r"\btl\.atomic_add\(",
}
"""Regular expressions by the name of a construct."""

_PATTERNS = {name: re.compile(pattern) for name, pattern in CONSTRUCTS.items()}


def constructs_of(code: str) -> set[str]:
    """Return the names of the constructs that generated code has."""
    return {name for name, pattern in _PATTERNS.items() if pattern.search(code)}
