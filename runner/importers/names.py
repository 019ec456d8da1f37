"""What the YAML format calls a function that Python, a log or a program names in full."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from runner.builder.operators import is_operator

_SHORT = (
    ("torch.ops.aten.", "aten."),
    ("torch.ops.prims.", "prims."),
    ("torch.nn.functional.", "F."),
    ("torch._C._nn.", "F."),
    ("torch._C._linalg.linalg_", "torch.linalg."),
    ("torch._C._special.special_", "torch.special."),
    ("torch._C._fft.fft_", "torch.fft."),
    ("torch._C._TensorBase.", "Tensor."),
    ("torch._C._VariableFunctions.", "torch."),
    ("torch.Tensor.", "Tensor."),
    ("torch._tensor.Tensor.", "Tensor."),
    ("torch.functional.", "torch."),
    ("_operator.", "operator."),
    ("builtins.", "builtin."),
)
"""Starts of full names, and of the format's; the first that fits."""
_WITHOUT_SPACE = ("Tensor", "operator", "F", "aten")
"""Where else a name of ``torch`` may be meant: formats write methods and operators of Python so."""


@cache
def operator_named(name: str) -> str:
    """Return the operator of a dotted name as the format writes it.

    One that no case may call has the name that is nearest to it.
    """
    candidates = list(_candidates(name))
    return next((candidate for candidate in candidates if is_operator(candidate)), candidates[0])


def _candidates(name: str) -> Iterator[str]:
    if name.startswith("torch.ops.") and not name.startswith(("torch.ops.aten.", "torch.ops.prims.")):
        yield f"custom.{name.removeprefix('torch.ops.')}"
        return
    short = next((short + name.removeprefix(full) for full, short in _SHORT if name.startswith(full)), name)
    yield short
    space, _, member = short.partition(".")
    if space in ("torch", "operator", "Tensor"):
        plain = member.strip("_")
        yield from (f"{other}.{word}" for word in (member, plain, f"{plain}_") for other in _WITHOUT_SPACE)
