"""``${...}``: arithmetic over params and over numbers that are known when the model runs. Nothing else.

The text is parsed by Python's own parser and then checked node by node against a short list; nothing is
ever evaluated by Python. What names only params is folded to a number here, the rest is written out.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from runner.quote import literal

MAX_LENGTH = 500
"""Characters in one expression: far above any real one, far below what troubles the parser."""

MAX_BITS = 128
"""Size of an integer result; ``10 ** 10 ** 10`` is refused before it is computed."""

MAX_DEPTH = 100
"""How deep an expression may be nested; a sum of so many terms is that deep."""

FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "len": len, "abs": abs}

MATH: dict[str, Callable[..., Any]] = {
    "ceil": math.ceil,
    "floor": math.floor,
    "log2": math.log2,
    "prod": math.prod,
    "sqrt": math.sqrt,
}
"""Functions of Python's ``math``, which are written ``math.sqrt(...)``: Dynamo traces them over sizes."""


def cdiv(a: int, b: int) -> int:
    """Return ``a / b``, rounded up, as Triton has it. Raises TypeError for anything but integers."""
    return -(-_integer(a) // _integer(b))


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that holds ``n``, as Triton has it.

    Raises TypeError for anything but an integer.
    """
    return 1 << (n - 1).bit_length() if _integer(n) > 0 else 0


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError("cdiv and next_power_of_2 take integers")
    return value


LAUNCH_FUNCTIONS: dict[str, Callable[..., Any]] = {"cdiv": cdiv, "next_power_of_2": next_power_of_2}
"""What a kernel's grid, arguments and constants may call besides; the same as Triton's own."""

METHODS = frozenset({"size", "dim", "numel", "stride", "ndimension", "storage_offset", "element_size"})
ATTRIBUTES = frozenset({"shape", "ndim", "itemsize"})

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class ExpressionError(ValueError):
    """An expression that is not allowed or has no value; ``offset`` counts characters from its start."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


@lru_cache(maxsize=1024)
def parse(text: str, launch: bool = False) -> ast.expr:
    """Return the checked syntax tree of ``text``, which stands between the braces.

    The tree is cached, so nobody may change it. ``launch`` allows ``LAUNCH_FUNCTIONS`` too. Raises ExpressionError for
    anything but arithmetic, comparisons, ``min max len abs``, functions of ``math`` and shapes.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression has at most {MAX_LENGTH} characters, this one has {len(text)}")
    stripped = text.lstrip()
    shift = len(text) - len(stripped)
    try:
        tree = ast.parse(stripped, mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"not an expression: {error.msg}", shift + max((error.offset or 1) - 1, 0)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"not an expression: {error}") from None
    if _depth(tree) > MAX_DEPTH:
        raise ExpressionError(f"an expression is at most {MAX_DEPTH} operators deep", shift)
    _check(tree, shift, [*FUNCTIONS, *(LAUNCH_FUNCTIONS if launch else ())])
    return tree


@lru_cache(maxsize=1024)
def names(tree: ast.expr) -> frozenset[str]:
    """Return every name that the expression uses, functions left out; ``self.c`` counts as ``self``."""
    called = _called(tree)
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called)


@lru_cache(maxsize=1024)
def uses_math(tree: ast.expr) -> bool:
    """Return whether the expression calls a function of ``math``."""
    return any(isinstance(n, ast.Call) and _function_of_math(n.func) in MATH for n in ast.walk(tree))


def _called(tree: ast.expr) -> set[int]:
    """The ids of the names in a tree that are no values: of functions, and ``math`` before its own."""
    calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
    owners = [f.value for f in calls if isinstance(f, ast.Attribute) and _function_of_math(f) in MATH]
    return {id(n) for n in (*calls, *owners) if isinstance(n, ast.Name)}


def _function_of_math(node: ast.expr) -> str:
    """The name of what is called as ``math.<name>``; empty for anything else."""
    is_of_math = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "math"
    return node.attr if isinstance(node, ast.Attribute) and is_of_math else ""


@lru_cache(maxsize=1024)
def attributes_of_self(tree: ast.expr) -> frozenset[str]:
    """Return ``c`` for every ``self.c``, and an empty text for a ``self`` that stands alone."""
    owners = {
        id(n.value): n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    }
    return frozenset(owners.get(id(n), "") for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "self")


def is_static(tree: ast.expr, params: Mapping[str, Any]) -> bool:
    """Return whether the expression names nothing but params."""
    return names(tree) <= set(params)


def evaluate(tree: ast.expr, params: Mapping[str, Any]) -> Any:
    """Return the value over ``params``. Raises ExpressionError for a division by zero, a huge number, a wrong type."""
    value = _evaluated(tree, params)
    if isinstance(value, tuple):
        raise ExpressionError("the result is a list, and no number", tree.col_offset)
    return value


def _evaluated(tree: ast.expr, params: Mapping[str, Any]) -> Any:
    """Return what ``evaluate`` does, or a list."""
    try:
        value = _value(tree, params)
        if not isinstance(value, int | float | str | tuple | None):
            raise ExpressionError(f"the result is no number but {type(value).__name__}", tree.col_offset)
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise ExpressionError(f"the result has more than {MAX_BITS} bits", tree.col_offset)
    except ExpressionError:
        raise
    except ZeroDivisionError:
        raise ExpressionError("division by zero", tree.col_offset) from None
    except OverflowError:
        raise ExpressionError("the result is too large", tree.col_offset) from None
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ExpressionError(str(error), tree.col_offset) from None
    return value


def render(tree: ast.expr, params: Mapping[str, Any], rename: Callable[[str], str]) -> str:
    """Return Python text: a constant where only params are named, else the expression with params replaced and names
    renamed."""
    if is_static(tree, params):
        return number(evaluate(tree, params))
    # A copy, because the transformer works in place and a tree serves many variants.
    copy = ast.parse(ast.unparse(tree), mode="eval").body
    called = _called(copy)

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if id(node) in called:
                return node
            if node.id in params:
                return ast.parse(number(params[node.id]), mode="eval").body
            return ast.Name(rename(node.id), node.ctx)

        def visit(self, node: ast.AST) -> Any:
            """Return what a part is written as: one over lists of params as the number that it is."""
            if isinstance(node, ast.expr) and id(node) not in called and _is_over_lists(node, params):
                return ast.parse(number(_evaluated(node, params)), mode="eval").body
            return super().visit(node)

    return ast.unparse(Rename().visit(copy))


def _is_over_lists(tree: ast.expr, params: Mapping[str, Any]) -> bool:
    """Whether the expression names nothing but params, and a list among them."""
    return is_static(tree, params) and any(isinstance(params[name], tuple) for name in names(tree))


def number(value: Any) -> str:
    """Return a value as Python source that means the same: NaN and the infinities too."""
    return repr(str(value)) if isinstance(value, str) else literal(value)


def _depth(tree: ast.AST) -> int:
    """How many levels of nodes, counted without recursion."""
    depth, level = 0, [tree]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _check(node: ast.expr, shift: int, functions: Sequence[str]) -> None:
    offset = shift + getattr(node, "col_offset", 0)
    parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    match node:
        case ast.Constant() if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise ExpressionError(f"only numbers stand in an expression, not {node.value!r}", offset)
        case ast.Name() if node.id.startswith("__"):
            raise ExpressionError(f"no name {node.id!r} here", offset)
        case ast.BinOp() | ast.UnaryOp() if type(node.op) not in (*_BINARY, *_UNARY):
            raise ExpressionError("operators are + - * / // % ** and comparisons", offset)
        case ast.Compare() if any(type(op) not in _COMPARE for op in node.ops):
            raise ExpressionError("comparisons are < <= > >= == !=", offset)
        case ast.Call():
            parts = _checked_parts(node, offset, functions)
        case ast.Attribute():
            on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            if node.attr.startswith("_") or not (on_self or node.attr in ATTRIBUTES):
                known = ", ".join(sorted(ATTRIBUTES))
                raise ExpressionError(f"no attribute {node.attr!r} here; there are {known}", offset)
        case ast.Constant() | ast.Name() | ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Subscript():
            pass
        case _:
            raise ExpressionError("an expression is arithmetic over numbers, params and shapes", offset)
    for part in parts:
        _check(part, shift, functions)


def _checked_parts(node: ast.Call, offset: int, functions: Sequence[str]) -> list[ast.expr]:
    """The tensor of a method that may be called, and the arguments."""
    if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        raise ExpressionError("calls take plain positional arguments here", offset)
    if isinstance(node.func, ast.Name):
        if node.func.id not in functions:
            raise ExpressionError(f"no function {node.func.id!r} here; there are {', '.join(functions)}", offset)
        return node.args
    if isinstance(node.func, ast.Attribute):
        if _function_of_math(node.func) in MATH:
            return node.args
        if node.func.attr not in METHODS and _function_of_math(node.func):
            known = ", ".join(f"math.{name}" for name in MATH)
            raise ExpressionError(f"no function 'math.{node.func.attr}' here; there are {known}", offset)
        if node.func.attr not in METHODS:
            raise ExpressionError(f"no method {node.func.attr!r} here; there are {', '.join(sorted(METHODS))}", offset)
        return [node.func.value, *node.args]
    raise ExpressionError("only min, max, len, abs and a tensor's size methods are called here", offset)


def _value(node: ast.expr, params: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return params[node.id]
        case ast.BinOp():
            left_value, right_value = _value(node.left, params), _value(node.right, params)
            if isinstance(node.op, ast.Pow) and _bits(left_value, right_value) > MAX_BITS:
                raise ExpressionError(f"the power has more than {MAX_BITS} bits", node.col_offset)
            if not all(isinstance(v, int | float) for v in (left_value, right_value)):
                raise ExpressionError("arithmetic needs numbers on both sides", node.col_offset)
            result = _BINARY[type(node.op)](left_value, right_value)
            if isinstance(result, int) and result.bit_length() > MAX_BITS:
                raise ExpressionError(f"the result has more than {MAX_BITS} bits", node.col_offset)
            return result
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_value(node.operand, params))
        case ast.Compare():
            values = [_value(part, params) for part in (node.left, *node.comparators)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(node.ops, values, values[1:], strict=False))
        case ast.Subscript():
            return _value(node.value, params)[_value(node.slice, params)]
        case ast.Call(func=ast.Name(id=name)):
            return {**FUNCTIONS, **LAUNCH_FUNCTIONS}[name](*(_value(a, params) for a in node.args))
        case ast.Call(func=ast.Attribute() as function) if _function_of_math(function) in MATH:
            values = [_value(argument, params) for argument in node.args]
            if not all(isinstance(v, int | float) for value in values for v in _scalars(value)):
                raise ExpressionError("functions of math take numbers and lists of them", node.col_offset)
            return MATH[function.attr](*values)
    raise ExpressionError("this is known only when the model runs", node.col_offset)


def _scalars(value: Any) -> Iterator[Any]:
    """Yield the items of a list of numbers, however deep, or the number itself."""
    for item in value if isinstance(value, tuple) else ():
        yield from _scalars(item)
    if not isinstance(value, tuple):
        yield value


def _bits(base: Any, exponent: Any) -> float:
    if not isinstance(base, int | float) or not isinstance(exponent, int | float) or exponent <= 0 or base == 0:
        return 0
    return math.log2(abs(base)) * exponent if abs(base) > 1 else 0
