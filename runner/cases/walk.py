"""Walks over the parts of a case: every value of a chain, an input or a function, to look at or to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar, get_args

from runner.cases import expressions
from runner.cases.model import (
    Arguments,
    Arithmetic,
    Call,
    Case,
    Change,
    Function,
    If,
    Index,
    Initial,
    Input,
    Items,
    Node,
    PythonModule,
    Ref,
    Step,
    Table,
    TensorLiteral,
    Value,
    With,
)
from runner.diagnostics import Span
from runner.quote import literal

P = TypeVar("P")
ValueChange = Callable[[Value], Value]
Part: TypeAlias = "Value | Node | Arguments | Input | Change | Call | PythonModule | Case | Sequence[Part] | None"
"""Something with values in it, or several of such."""

_VALUES = get_args(Value)
_PARTS: Mapping[type, tuple[str, ...]] = {
    Items: ("items",),
    Table: ("items",),
    TensorLiteral: ("value", "options"),
    Function: ("chain", "result"),
    Arguments: ("positional", "keywords"),
    Initial: ("arguments",),
    Step: ("arguments", "call", "state"),
    With: ("chain", "contexts"),
    If: ("do", "otherwise", "condition"),
    Input: ("shape", "init_args", "values", "python", "items", "layout"),
    Change: ("value",),
    Call: ("inputs", "step", "changes", "hooks", "contexts"),
    PythonModule: ("args",),
    Case: ("inputs", "state", "chain", "result", "module", "calls"),
}
"""The fields of each class that hold values, or parts in which there are values."""
_WHOLES = frozenset((tuple, list, *_PARTS))
"""Types of what may have parts: most parts are names and numbers, or empty."""
_WORTH_A_LOOK = _WHOLES | frozenset(_VALUES)


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda part: (read(part),)


_READERS = {kind: _reader(names) for kind, names in _PARTS.items()}


def _parts(part: object) -> Sequence[Any]:
    reader = _READERS.get(type(part))
    return reader(part) if reader is not None else part if isinstance(part, tuple | list) else ()


def map_parts(part: P, change: ValueChange) -> P:
    """Return a part of a case (a value, a step, a chain, an input or a tuple) with the values in it changed.

    ``change`` gets each value that is nearest: neither ``part`` itself nor the parts of values. The entries of an index
    are left to it.
    """

    def changed(inner: Any) -> Any:
        return change(inner) if isinstance(inner, _VALUES) else map_parts(inner, change)

    if isinstance(part, tuple):
        return tuple(map(changed, part))  # type: ignore[return-value]
    names = _PARTS.get(type(part))
    return replace(part, **{name: changed(getattr(part, name)) for name in names}) if names else part  # type: ignore


def inputs_of(case: Case) -> Iterator[Input]:
    """Yield the inputs and the state of a case, those of further calls and the items of lists included."""
    pending = [*case.inputs, *case.state, *(item for call in case.calls for item in call.inputs)]
    while pending:
        item = pending.pop()
        yield item
        pending += item.items


def change_value(value: Value, change: ValueChange) -> Value:
    """Return the value with ``change`` applied to its parts first, and then to itself."""
    return change(change_parts(value, change))


def change_parts(part: P, change: ValueChange) -> P:
    """Return a part of a case with every value in it changed, in blocks and functions too, but not itself."""
    return map_parts(part, lambda value: change_value(value, change))


def map_steps(nodes: Iterable[Node], change: Callable[[Step], Step]) -> tuple[Node, ...]:
    """Return the chain with each step changed, in its blocks too, but not the contexts of these."""

    def mapped(node: Node) -> Node:
        if isinstance(node, Step):
            return change(node)
        if isinstance(node, With):
            return replace(node, chain=map_steps(node.chain, change))
        return replace(node, do=map_steps(node.do, change), otherwise=map_steps(node.otherwise, change))

    return tuple(map(mapped, nodes))


def change_entry(entry: Any, change: Callable[[Ref | Arithmetic], Any]) -> Any:
    """Return an entry of an index with ``change`` applied to the references and the arithmetic in it."""
    if isinstance(entry, tuple | list):
        return type(entry)(change_entry(part, change) for part in entry)
    return change(entry) if isinstance(entry, Ref | Arithmetic) else entry


def entry_text(entry: Any, write: Callable[[Ref | Arithmetic], str]) -> str:
    """Return an entry of an index as it stands between the brackets, in YAML and in Python; ``write`` gives its
    references and arithmetic."""
    if isinstance(entry, tuple):
        start, stop, step = ("" if part is None else entry_text(part, write) for part in entry)
        return f"{start}:{stop}" + (f":{step}" if step else "")
    if isinstance(entry, list):
        return f"[{', '.join(entry_text(part, write) for part in entry)}]"
    if isinstance(entry, Ref | Arithmetic):
        return write(entry)
    return "..." if entry is Ellipsis else literal(entry)


_AS_WRITTEN: Mapping[type, Callable[[Any], Sequence[Any]]] = {
    With: attrgetter("contexts", "chain"),
    If: attrgetter("condition", "do", "otherwise"),
}
"""The parts of a block in the order in which they are written."""


def all_steps(part: Part) -> Iterator[Step]:
    """Yield every step of a chain as it is written: contexts, blocks, and the functions among a step's arguments."""
    pending = [part]
    while pending:
        part = pending.pop()
        if isinstance(part, Step):
            yield part
        read = _AS_WRITTEN.get(type(part))
        inner = _parts(part) if read is None else read(part)
        pending += [each for each in reversed(inner) if each and type(each) in _WHOLES]


def values_of(part: Part) -> Iterator[Value]:
    """Yield every value of a part of a case, such as a chain with its blocks and functions: parts before wholes, with
    the entries of indices."""
    for inner in _parts(part):
        if type(inner) in _WORTH_A_LOOK:
            yield from values_of(inner)
    if isinstance(part, _VALUES):
        yield part
        if isinstance(part, Index):
            yield from values_of(part.entries)


def with_previous(arguments: Arguments, span: Span) -> Arguments:
    """Return keywords that name no value, as in ``F.softmax: {dim: -1}``, behind the value of the step before."""
    tensors = Ref | Arithmetic | TensorLiteral | Function | Index
    has_value = arguments.positional or any(isinstance(value, tensors) for value in values_of(arguments))
    is_complete = has_value or not arguments.keywords
    return arguments if is_complete else replace(arguments, positional=(Ref("_", (), span),))


def without_previous(arguments: Arguments) -> Arguments:
    """Return the keywords alone where ``with_previous`` gives the arguments back."""
    match arguments.positional:
        case (Ref(span=span),) if arguments.keywords:
            keywords = replace(arguments, positional=())
            return keywords if with_previous(keywords, span) == arguments else arguments
    return arguments


def names_used(values: Iterable[Value]) -> set[str]:
    """Return the names that references and arithmetic among ``values`` use; ``self.c`` for state."""
    used: set[str] = set()
    for value in values:
        if isinstance(value, Ref):
            used.add(f"self.{value.path[0]}" if value.name == "self" and value.path else value.name)
        elif isinstance(value, Arithmetic):
            tree = expressions.parse(value.text)
            used |= expressions.names(tree) | {f"self.{name}" for name in expressions.attributes_of_self(tree)}
    return used


def nodes_of(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield every node of a chain and its blocks, in order, wholes before parts, but not those of functions."""
    for node in nodes:
        yield node
        if isinstance(node, With):
            yield from nodes_of(node.chain)
        elif isinstance(node, If):
            yield from nodes_of((*node.do, *node.otherwise))


def steps_of(nodes: Iterable[Node]) -> Iterator[Step]:
    """Yield the steps among ``nodes_of``."""
    return (node for node in nodes_of(nodes) if isinstance(node, Step))


def places_made(nodes: Iterable[Node]) -> Iterator[tuple[str, Span]]:
    """Yield every ``out:`` name of a chain and its blocks, and where it stands; those of functions are left out."""
    return ((name, step.span) for step in steps_of(nodes) for name in step.out if name != "_")


def names_made(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield every name that a chain, its blocks and its functions define."""
    yield from (name for name, _ in places_made(nodes))
    for value in values_of(nodes):
        if isinstance(value, Function):
            yield from (*value.args, *names_made(value.chain))
