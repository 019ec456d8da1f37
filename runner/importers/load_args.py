"""What a script of torch's minifier loads: ``load_args`` of ``repro.py`` and ``fx_graph_runnable.py``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runner.contract.graphs import Statistics, Tensor, UnsayableError
from runner.importers.arguments import Constant
from runner.importers.python_text import Literals, dotted, is_sizes
from runner.importers.types import Symbols


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: a tensor, or a Python value. ``fault`` says why it is not known."""

    tensor: Tensor | None = None
    python: Any = None
    fault: str = ""
    values: Any = None
    statistics: Statistics | None = None


def read_arguments(tree: ast.Module, symbols: Symbols) -> list[Argument] | None:
    """Return the arguments in order; None for a text that loads none. ``symbols`` gets the sizes that are loaded."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "load_args":
            return list(_loaded(node, symbols))
    assignments = (node for node in tree.body if isinstance(node, ast.Assign))
    lists = (
        node.value.elts
        for node in assignments
        if isinstance(node.value, ast.List) and [dotted(target) for target in node.targets] == ["args"]
    )
    return next(([_made(item, symbols) for item in items] for items in lists), None)


def _loaded(function: ast.FunctionDef, symbols: Symbols) -> Iterator[Argument]:
    storages: dict[str, tuple[int, str | None]] = {}
    reader = _Reader(symbols, storages)
    for statement in function.body:
        value = statement.value if isinstance(statement, ast.Assign | ast.Expr) else None
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            continue
        kind = value.func.attr
        if kind == "storage" and isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            hints = [item.value for item in value.keywords if item.arg == "dtype_hint"]
            name = dotted(hints[0]).removeprefix("torch.") if hints else None
            storages[statement.targets[0].id] = len(storages), name
        elif kind in _KINDS:
            try:
                yield _KINDS[kind](reader, value)
            except UnsayableError as error:
                yield Argument(fault=str(error))


class _Reader(Literals):
    """Reads the calls of ``reader``. Arithmetic is that of sizes."""

    def __init__(self, symbols: Symbols, storages: Mapping[str, tuple[int, str | None]]) -> None:
        super().__init__({}, {})
        self.symbols, self.storages = symbols, storages

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression; a name of a symbol is its size."""
        if isinstance(node, ast.BinOp | ast.Name) and dotted(node) not in self.storages:
            size = self.symbols.number(node)
            if size is None:
                raise UnsayableError("a size of it is not known")
            return size
        return dotted(node) if isinstance(node, ast.Name) else super().value(node)

    def tensor(self, node: ast.Call) -> Argument:
        """Return the tensor that ``reader.tensor(storage, shape, ...)`` gives."""
        positional, keywords = self.arguments(node)
        storage, shape, stride = (*positional, None, None, None)[:3]
        stride = keywords.get("stride", stride)
        number, hint = self.storages.get(storage, (None, None)) if isinstance(storage, str) else (None, None)
        dtype = keywords.get("dtype") or Constant(hint or "float32")
        offset = keywords.get("storage_offset") or 0
        is_strided = stride is None or (is_sizes(stride) and is_sizes(shape) and len(stride) == len(shape))
        if not is_sizes(shape) or not is_strided or not is_sizes([offset]) or not isinstance(dtype, Constant):
            raise UnsayableError("a tensor is reader.tensor(storage, sizes, stride=sizes, dtype=torch.X)")
        return Argument(
            Tensor(
                tuple(shape),
                dtype.name,
                None if stride is None else tuple(stride),
                offset,
                requires_grad=keywords.get("requires_grad") is True,
                storage=number,
                leaf=keywords.get("is_leaf") is not False,
            )
        )

    def size(self, node: ast.Call) -> Argument:
        """Return the number that ``reader.symint(4, expr='s0')`` gives."""
        positional, keywords = self.arguments(node)
        value, symbol = positional[0] if positional else None, keywords.get("expr")
        if type(value) is not int:
            raise UnsayableError("reader.symint takes an integer")
        if isinstance(symbol, str) and symbol.isidentifier():
            self.symbols.values[symbol] = value
        return Argument(python=value)

    def unknown(self, node: ast.Call) -> Argument:
        """Raise: the text does not hold the value."""
        raise UnsayableError(f"{dotted(node.func)} loads it from elsewhere")


_KINDS = {"tensor": _Reader.tensor, "symint": _Reader.size, "const": _Reader.unknown, "generator": _Reader.unknown,
          "opaque": _Reader.unknown, "unsupported": _Reader.unknown}  # fmt: skip


def _made(node: ast.expr, symbols: Symbols) -> Argument:
    """Return one of ``args``: ``((2, 3), (3, 1), torch.float32, 'cpu')``, alone or given to ``rand_strided``."""
    reader = _Reader(symbols, {})
    try:
        values = reader.arguments(node)[0] if isinstance(node, ast.Call) else reader.value(node)
    except UnsayableError as error:
        return Argument(fault=str(error))
    match values:
        case [shape, stride, Constant() as dtype, *more] if is_sizes(shape) and is_sizes(stride):
            return Argument(Tensor(tuple(shape), dtype.name, tuple(stride), requires_grad=more[1:2] == [True]))
        case int():
            return Argument(python=values)
    return Argument(fault="it is no tuple of sizes, strides and a dtype")
