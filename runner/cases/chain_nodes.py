"""The nodes of a chain and the values in their arguments: frozen dataclasses.

A value is a small expression node (``Literal``, ``Ref``, ...). The builder writes these nodes out, so that nobody reads
YAML twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runner.diagnostics import Span

# --- values in arguments -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal:
    """A plain scalar: None, bool, int, float, complex or text.

    ``span`` is where a text stands that is not marked as ``$text``.
    """

    value: Any
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Ref:
    """``$name``, ``$name.attr``, ``$name[0]``, ``$self.c``; ``name`` is ``_`` for the previous value.

    ``path`` holds attribute names (str) and items (int), in order.
    """

    name: str
    path: tuple[str | int, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Constant:
    """``torch.float16``, ``torch.channels_last``; ``$dtype`` and ``$device`` keep their dollar."""

    name: str
    span: Span


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``${...}``: the text between the braces, checked by ``expressions.parse``."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Index:
    """``"[:, 0]"``: one entry a dimension. An entry is an int, None, Ellipsis, a ``Ref``, an
    ``Arithmetic``, a list of ints, or a slice as a 3-tuple of those."""

    entries: tuple[Any, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class TensorLiteral:
    """``{$tensor: [1, 2], dtype: torch.int64}``."""

    value: Value
    options: tuple[tuple[str, Value], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Function:
    """``{$fn: {args, chain, return}}``."""

    args: tuple[str, ...]
    chain: tuple[Node, ...]
    result: Value | None
    span: Span


@dataclass(frozen=True, slots=True)
class Items:
    """A plain list."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A plain mapping."""

    items: tuple[tuple[str, Value], ...]


Value = Literal | Ref | Constant | Arithmetic | Index | TensorLiteral | Function | Items | Table

# --- steps ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of one call. ``bare`` means none were written: apply it to the previous value."""

    positional: tuple[Value, ...] = ()
    keywords: tuple[tuple[str, Value], ...] = ()
    bare: bool = False


@dataclass(frozen=True, slots=True)
class Initial:
    """How a parameter or buffer of an nn module is filled: by a way of ``init:``, or, where that is None, with one
    value."""

    name: str
    init: str | None
    arguments: tuple[Value, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Step:
    """One operator with its arguments; for ``nn.X`` these go to the constructor and ``call`` to the call."""

    operator: str
    arguments: Arguments
    span: Span
    out: tuple[str, ...] = ()  # () unnamed; one name; or several to unpack; "self.x" writes state
    unpack: bool = False
    call: Arguments | None = None
    id: str | None = None
    train: bool | None = None
    state: tuple[Initial, ...] = ()


@dataclass(frozen=True, slots=True)
class With:
    """``with: [contexts]`` around a chain."""

    contexts: tuple[Step, ...]
    chain: tuple[Node, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class If:
    """``if: condition`` with ``do:`` and ``else:``."""

    condition: Value
    do: tuple[Node, ...]
    otherwise: tuple[Node, ...]
    span: Span


Node = Step | With | If
