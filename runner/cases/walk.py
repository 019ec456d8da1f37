"""Walks over the parts of a case: every value of a chain, an input or a function, to look at or to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from runner.cases import expressions
from runner.cases.model import (
    Arguments,
    Arithmetic,
    Function,
    If,
    Index,
    Input,
    Items,
    Node,
    Ref,
    Step,
    Table,
    TensorLiteral,
    Value,
    With,
)
from runner.diagnostics import Span
from runner.quote import literal

Change = Callable[[Value], Value]


def map_value(value: Value, change: Change) -> Value:
    """Return the value with ``change`` applied to each of its parts, but not to itself.

    The entries of an index are left to ``change``.
    """
    match value:
        case Items():
            return Items(tuple(map(change, value.items)))
        case Table():
            return Table(tuple((key, change(item)) for key, item in value.items))
        case TensorLiteral():
            return replace(
                value, value=change(value.value), options=tuple((key, change(option)) for key, option in value.options)
            )
        case Function():
            return replace(
                value,
                chain=map_nodes(value.chain, change),
                result=None if value.result is None else change(value.result),
            )
    return value


def map_step(step: Step, change: Change) -> Step:
    """Return the step with each of its arguments changed."""
    return replace(
        step,
        arguments=_arguments(step.arguments, change),
        call=None if step.call is None else _arguments(step.call, change),
        state=tuple(replace(part, arguments=tuple(map(change, part.arguments))) for part in step.state),
    )


def map_nodes(nodes: Iterable[Node], change: Change) -> tuple[Node, ...]:
    """Return the chain with each argument of its steps and blocks changed."""
    return map_steps(nodes, lambda step: map_step(step, change), change)


def map_steps(
    nodes: Iterable[Node], change: Callable[[Step], Step], condition: Change | None = None
) -> tuple[Node, ...]:
    """Return the chain with each step changed, in its blocks too.

    With ``condition``, contexts are changed like steps, and conditions by it.
    """

    def mapped(node: Node) -> Node:
        if isinstance(node, Step):
            return change(node)
        if isinstance(node, With):
            node = replace(node, chain=map_steps(node.chain, change, condition))
            return replace(node, contexts=tuple(map(change, node.contexts))) if condition else node
        do, otherwise = (map_steps(branch, change, condition) for branch in (node.do, node.otherwise))
        node = replace(node, do=do, otherwise=otherwise)
        return replace(node, condition=condition(node.condition)) if condition else node

    return tuple(map(mapped, nodes))


def change_value(value: Value, change: Change) -> Value:
    """Return the value with ``change`` applied to its parts first, and then to itself."""
    return change(map_value(value, lambda part: change_value(part, change)))


def change_nodes(nodes: Iterable[Node], change: Change) -> tuple[Node, ...]:
    """Return the chain with every value changed, in blocks and functions too."""
    return map_nodes(nodes, lambda value: change_value(value, change))


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


def _arguments(arguments: Arguments, change: Change) -> Arguments:
    return replace(
        arguments,
        positional=tuple(map(change, arguments.positional)),
        keywords=tuple((key, change(value)) for key, value in arguments.keywords),
    )


def change_input(item: Input, change: Change) -> Input:
    """Return the input with every value changed."""
    return replace(
        item,
        shape=None if item.shape is None else tuple(change_value(size, change) for size in item.shape),
        init_args=tuple(change_value(value, change) for value in item.init_args),
        values=None if item.values is None else change_value(item.values, change),
        python=None if item.python is None else change_value(item.python, change),
        items=tuple(change_input(part, change) for part in item.items),
        layout=change_nodes(item.layout, change),
    )


def all_steps(nodes: Iterable[Node]) -> Iterator[Step]:
    """Yield every step of a chain as it is written: contexts, blocks, and the functions among a step's arguments."""
    for node in nodes:
        if isinstance(node, With):
            yield from all_steps((*node.contexts, *node.chain))
        elif isinstance(node, If):
            yield from _steps_within(node.condition)
            yield from all_steps((*node.do, *node.otherwise))
        else:
            yield node
            for arguments in (node.arguments, node.call):
                if arguments is not None:
                    for value in (*arguments.positional, *(value for _, value in arguments.keywords)):
                        yield from _steps_within(value)


def _steps_within(value: Value | None) -> Iterator[Step]:
    """The steps of the functions in a value."""
    if isinstance(value, Function):
        yield from all_steps(value.chain)
        yield from _steps_within(value.result)
    elif isinstance(value, Items | Table | TensorLiteral):
        parts: list[Value] = []
        map_value(value, lambda part: parts.append(part) or part)  # type: ignore[func-returns-value]
        for part in parts:
            yield from _steps_within(part)


def values_of(nodes: Iterable[Node]) -> Iterator[Value]:
    """Yield every value of a chain, its blocks and its functions, parts before wholes, with the entries of indices."""
    values: list[Value] = []

    def note(value: Value) -> Value:
        values.append(value)
        if isinstance(value, Index):
            change_entry(value.entries, note)
        return value

    change_nodes(nodes, note)
    return iter(values)


def parts_of(value: Value) -> Iterator[Value]:
    """Yield a value and all its parts, as ``values_of`` does."""
    step = Step("", Arguments((value,)), getattr(value, "span", None))  # type: ignore[arg-type]
    return values_of((step,))


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


def names_made(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield every name that a chain, its blocks and its functions define."""
    yield from (name for name, _ in places_made(nodes))
    for value in values_of(nodes):
        if isinstance(value, Function):
            yield from (*value.args, *names_made(value.chain))
