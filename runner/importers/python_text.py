"""Python text of strangers: it is parsed, and never run.

Expressions are literals, names that the reader knows, and calls that it allows.
"""

from __future__ import annotations

import ast
import itertools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from runner.contract.graphs import UnsayableError
from runner.importers.arguments import Device, constant

DEEPEST = 60
"""Brackets within each other that a text may have."""
LONGEST = 100_000
"""Characters of one expression."""

Call = Callable[[list[Any], dict[str, Any]], Any]


class PythonError(Exception):
    """A text that is no Python, and its line and column, from one."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line, self.column = line, column


def parse(text: str) -> ast.Module:
    """Return the tree of a module.

    Raises:
        PythonError: it is no Python, or too deep.
    """
    depth = max(itertools.accumulate((char in "([{") - (char in ")]}") for char in text), default=0)
    if depth > DEEPEST:
        raise PythonError(f"brackets stand more than {DEEPEST} deep")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of 1if, which is a stranger's
            return ast.parse(text)
    except SyntaxError as error:
        raise PythonError(f"this is no Python: {error.msg}", error.lineno or 1, error.offset or 1) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise PythonError(f"this is no Python that can be read: {type(error).__name__}") from None


def parse_expression(text: str) -> ast.expr:
    """Return the tree of one expression.

    Raises:
        PythonError: it is something else.
    """
    if len(text) > LONGEST:
        raise PythonError(f"an expression has more than {LONGEST} characters")
    body = parse(text.strip()).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        raise PythonError("this is no expression of Python")
    return body[0].value


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` for a chain of attributes of a name; an empty text for anything else."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(words)]) if isinstance(node, ast.Name) else ""


class Literals:
    """Reads expressions. ``names`` has the values of names, and ``calls`` what may be called, both by dotted names."""

    def __init__(self, names: Mapping[str, Any], calls: Mapping[str, Call]) -> None:
        """Keep what is known."""
        self.names = names
        self.calls = {"slice": _slice, "device": _device, "torch.device": _device, "float": _float, **calls}

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression.

        Raises:
            UnsayableError: it is no literal.
        """
        match node:
            case ast.Constant():
                return self._constant(node.value)
            case ast.List():
                return [self.value(item) for item in node.elts]
            case ast.Tuple():
                return tuple(self.value(item) for item in node.elts)
            case ast.Dict():
                return {self._key(key): self.value(item) for key, item in zip(node.keys, node.values, strict=True)}
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return self._signed(node)
            case ast.Name() | ast.Attribute():
                return self.name(node)
            case ast.Call():
                return self.call(node)
        raise UnsayableError(f"{_kind(node)} is no value that a case can hold")

    def name(self, node: ast.expr) -> Any:
        """Return what a dotted name stands for.

        Raises:
            UnsayableError: nothing of this name is known.
        """
        name = dotted(node)
        if name in self.names:
            return self.names[name]
        value = constant(name.removeprefix("torch.")) if name.startswith("torch.") else None
        if value is None:
            raise UnsayableError(f"{name or _kind(node)} is no known name")
        return value

    def call(self, node: ast.Call) -> Any:
        """Return what a call gives.

        Raises:
            UnsayableError: it may not be called, or not so.
        """
        name = dotted(node.func)
        if name not in self.calls:
            raise UnsayableError(f"{name or _kind(node.func)} is called, which is no value")
        return self.calls[name](*self.arguments(node))

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call.

        Raises:
            UnsayableError: one is no value, or they are spread by ``*``.
        """
        if any(isinstance(item, ast.Starred) for item in node.args) or any(item.arg is None for item in node.keywords):
            raise UnsayableError("arguments are spread by * or **")
        keywords = {str(item.arg): self.value(item.value) for item in node.keywords}
        return [self.value(item) for item in node.args], keywords

    def _key(self, node: ast.expr | None) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise UnsayableError("a key of a dict is no text")

    def _constant(self, value: Any) -> Any:
        if isinstance(value, bytes | complex):
            raise UnsayableError(f"a {type(value).__name__} is no value that a case can hold")
        return value

    def _signed(self, node: ast.UnaryOp) -> Any:
        value = None if isinstance(node.operand, ast.UnaryOp) else self.value(node.operand)
        if not is_number(value):
            raise UnsayableError("a sign stands before something that is no number")
        return -value if isinstance(node.op, ast.USub) else value


def is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether a value is a plain number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_sizes(value: Any) -> TypeGuard[list[int] | tuple[int, ...]]:
    """Return whether a value is a list of sizes."""
    return isinstance(value, list | tuple) and all(type(item) is int and 0 <= item < 1 << 62 for item in value)


def _kind(node: ast.expr) -> str:
    return type(node).__name__


def _slice(positional: list[Any], keywords: dict[str, Any]) -> slice:
    if keywords or not 1 <= len(positional) <= 3:
        raise UnsayableError("slice takes one to three values")
    return slice(*positional)


def _device(positional: list[Any], keywords: dict[str, Any]) -> Device:
    name = positional[0] if positional else keywords.get("type")
    if not isinstance(name, str):
        raise UnsayableError("a device has no name")
    return Device(name.partition(":")[0])


def _float(positional: list[Any], keywords: dict[str, Any]) -> float:
    names = ("inf", "-inf", "nan")
    if keywords or len(positional) != 1 or positional[0] not in names:
        raise UnsayableError("float(...) is no constant")
    return float(positional[0])
