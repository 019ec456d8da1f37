"""The twin of a model as Python: rewrites of a chain that leave each result bit for bit as it is.

A rewrite stands where a step gives a value with memory of its own (``runner/cases/twins.py``). Each is a function that
gives an equal tensor with equal strides and memory of its own: torch refuses some writes through views of views.
It leaves alone what is no dense tensor, or has a dtype for which it is not exact. Gradients are equal too, but a copy
may lay them out in another way, in which a product behind it rounds in another way.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from runner.cases.model import Step
from runner.cases.twins import doubled_value, gives_fresh

PREFIX = "_twin_"

_PLAIN = '''
def _twin_is_plain(x):
    """Return whether a rewrite takes a value."""
    return type(x) is torch.Tensor and x.layout == torch.strided and not x.is_quantized
'''

_SIGNED = '''
def _twin_is_signed(x):
    """Return whether a value has a sign in each element, and no imaginary part."""
    return _twin_is_plain(x) and x.dtype.is_signed and not x.is_complex()
'''

# The view gives x one gradient, as the product does: sums of several may round in another order otherwise.
_FUNCTIONS = {
    "double": """
def _twin_double(x):
    if not _twin_is_signed(x):
        return x * 2
    view = x.view_as(x)
    return view + view
""",
    "mask": """
def _twin_mask(x):
    if not _twin_is_plain(x):
        return x
    return torch.where((x == x) | (x != x), x, x.new_zeros(()))
""",
    "negate": """
def _twin_negate(x):
    return -(-x) if _twin_is_signed(x) else x
""",
    "reshape": """
def _twin_reshape(x):
    return x.reshape(-1).reshape(x.shape).clone() if _twin_is_plain(x) and x.is_contiguous() else x
""",
    "split": """
def _twin_split(x):
    if not _twin_is_plain(x) or x.ndim == 0 or not x.is_contiguous():
        return x
    half = x.shape[0] // 2
    return torch.cat(torch.split(x, [half, x.shape[0] - half]))
""",
    "transpose": """
def _twin_transpose(x):
    if not _twin_is_plain(x) or x.ndim < 2 or not x.is_contiguous():
        return x
    return x.transpose(0, -1).contiguous().transpose(0, -1).clone(memory_format=torch.contiguous_format)
""",
}

REORDER = "reorder"

_ASSIGNMENT = re.compile(r"( *)(\w+) = ([^\n]*)")


def rewritten(step: Step, text: str, operand: str, rewrites: Collection[str]) -> str:
    """Return the text of a step's value after the rewrites that may stand there.

    ``operand`` is the text of what the step doubles, empty where it does not.
    """
    if not gives_fresh(step):
        return text
    if "double" in rewrites and operand and doubled_value(step) is not None:
        text = f"{PREFIX}double({operand})"
    for name in rewrites:
        if name in _FUNCTIONS and name != "double":
            text = f"{PREFIX}{name}({text})"
    return text


def are_independent(first: str, second: str) -> bool:
    """Return whether two lines that assign what a pure step gives may stand in either order."""
    one, two = _ASSIGNMENT.fullmatch(first), _ASSIGNMENT.fullmatch(second)
    if one is None or two is None or one[1] != two[1] or one[2] == two[2]:
        return False
    return not (_reads(two[3], one[2]) or _reads(one[3], two[2]))


def _reads(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def functions_of(lines: Iterable[str]) -> list[str]:
    """Return the lines of the functions that a twin calls."""
    text = "\n".join(lines)
    names = [name for name in _FUNCTIONS if f"{PREFIX}{name}(" in text]
    signed = [_SIGNED] if {"double", "negate"} & {*names} else []
    blocks = [_PLAIN, *signed, *(_FUNCTIONS[name] for name in names)] if names else []
    return "\n".join(blocks).rstrip("\n").split("\n") if blocks else []
