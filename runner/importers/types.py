"""Types that printed graphs write beside values, such as ``f32[2, s0][s0, 1]cpu``, and the sizes that symbols have."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runner.contract.graphs import Tensor
from runner.importers.arguments import DTYPES, Name
from runner.importers.python_text import PythonError, dotted, parse_expression

_TENSOR = re.compile(
    r"(?:\w+ )?\"?(?P<dtype>[a-z]\w*)\[(?P<shape>[^][]*)\](?:\[(?P<stride>[^][]*)\])?[\w:]*\"?", re.ASCII
)
_SYMBOL = re.compile(r"Sym\((?P<size>[^][]{1,200})\)", re.ASCII)
STEP = 8
"""A symbol that nothing gives a value has a multiple of this one, each another one: most guards hold for these."""
_OPERATORS: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"Max": max, "Min": min, "FloorDiv": operator.floordiv,
                                                "Mod": operator.mod}  # fmt: skip
_LARGEST = 1 << 40
_DEEPEST = 20


class Symbols:
    """The values of symbols, and where a tensor has one as its size."""

    def __init__(self) -> None:
        """Know no symbol."""
        self.values: dict[str, int] = {}
        self.places: dict[str, Name] = {}

    def tensor(self, text: str) -> Tensor | None:
        """Return the tensor of a type; None for another type, or sizes that nobody knows."""
        match = _TENSOR.fullmatch(text.strip())
        dtype = DTYPES.get(match["dtype"], "") if match else ""
        shape = self.sizes(match["shape"]) if match and dtype else None
        if match is None or shape is None:
            return None
        stride = None if match["stride"] is None else self.sizes(match["stride"])
        return Tensor(shape, dtype, stride if stride is not None and len(stride) == len(shape) else None)

    def size(self, text: str) -> int | None:
        """Return the size of ``Sym(s0)``; None for another type."""
        match = _SYMBOL.fullmatch(text.strip())
        sizes = self.sizes(match["size"]) if match else None
        return sizes[0] if sizes and len(sizes) == 1 else None

    def sizes(self, text: str) -> tuple[int, ...] | None:
        """Return the sizes of a list without its brackets; None if one is not known."""
        if not text.strip():
            return ()
        try:
            node = parse_expression(f"({text},)")
        except PythonError:
            return None
        sizes = [self.number(item) for item in node.elts] if isinstance(node, ast.Tuple) else [None]
        known = [size for size in sizes if size is not None]
        return tuple(known) if len(known) == len(sizes) else None

    def number(self, node: ast.expr, depth: int = 0) -> int | None:
        """Return the value of arithmetic over symbols; None where it has none, or is no size."""
        value = self._number(node, depth)
        return value if value is not None and 0 <= value < _LARGEST else None

    def _number(self, node: ast.expr, depth: int) -> int | None:
        if depth > _DEEPEST:
            return None
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return value
            case ast.Name(id=name) if re.fullmatch(r"[su]\d+", name):
                return self.values.setdefault(name, STEP * (len(self.values) + 1))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._computed(_OPERATORS[type(op)], [left, right], depth)
            case ast.Call(func=func, args=arguments) if dotted(func) in _FUNCTIONS and arguments:
                return self._computed(_FUNCTIONS[dotted(func)], arguments, depth)
        return None

    def _computed(self, function: Callable[..., int], nodes: Sequence[ast.expr], depth: int) -> int | None:
        values = [self._number(node, depth + 1) for node in nodes]
        known = [value for value in values if value is not None and abs(value) < _LARGEST]
        is_zero = function in (operator.floordiv, operator.mod) and known[1:] == [0]
        return function(*known) if len(known) == len(values) > 1 and not is_zero else None

    def note_sizes(self, name: str, text: str) -> None:
        """Remember which size of an input is which symbol."""
        match = _TENSOR.fullmatch(text.strip())
        for place, part in enumerate(match["shape"].split(",") if match else ()):
            if re.fullmatch(r"s\d+", part.strip()):
                self.places.setdefault(part.strip(), Name(f"${{{name}.shape[{place}]}}"))

    def written(self, text: str) -> Any:
        """Return how a case writes the symbol of ``Sym(s0)``: a size of an input, or the number."""
        match = _SYMBOL.fullmatch(text.strip())
        return self.places.get(match["size"].strip(), self.size(text)) if match else None
