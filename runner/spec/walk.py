"""Walks over the parts of a case: every value of a chain, an input or a function, to look at or to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from runner.spec import expr
from runner.spec.model import (
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

Change = Callable[[Value], Value]


def change_value(value: Value, change: Change) -> Value:
    """The value with ``change`` applied to its parts and then to itself; entries of an index are the change's to see to."""
    if isinstance(value, Items):
        value = Items(tuple(change_value(item, change) for item in value.items))
    elif isinstance(value, Table):
        value = Table(tuple((key, change_value(item, change)) for key, item in value.items))
    elif isinstance(value, TensorLiteral):
        options = tuple((key, change_value(option, change)) for key, option in value.options)
        value = replace(value, value=change_value(value.value, change), options=options)
    elif isinstance(value, Function):
        result = None if value.result is None else change_value(value.result, change)
        value = replace(value, chain=change_nodes(value.chain, change), result=result)
    return change(value)


def change_arguments(arguments: Arguments, change: Change) -> Arguments:
    """The arguments with every value changed."""
    positional = tuple(change_value(value, change) for value in arguments.positional)
    keywords = tuple((key, change_value(value, change)) for key, value in arguments.keywords)
    return replace(arguments, positional=positional, keywords=keywords)


def change_step(step: Step, change: Change) -> Step:
    """The step with every value of its arguments changed."""
    call = None if step.call is None else change_arguments(step.call, change)
    return replace(step, arguments=change_arguments(step.arguments, change), call=call)


def change_nodes(nodes: Iterable[Node], change: Change) -> tuple[Node, ...]:
    """The chain with every value changed, in blocks and functions too."""
    made: list[Node] = []
    for node in nodes:
        if isinstance(node, Step):
            made.append(change_step(node, change))
        elif isinstance(node, With):
            contexts = tuple(change_step(step, change) for step in node.contexts)
            made.append(replace(node, contexts=contexts, chain=change_nodes(node.chain, change)))
        else:
            condition = change_value(node.condition, change)
            do, otherwise = change_nodes(node.do, change), change_nodes(node.otherwise, change)
            made.append(replace(node, condition=condition, do=do, otherwise=otherwise))
    return tuple(made)


def change_input(item: Input, change: Change) -> Input:
    """The input with every value changed."""
    return replace(
        item,
        shape=None if item.shape is None else tuple(change_value(size, change) for size in item.shape),
        init_args=tuple(change_value(value, change) for value in item.init_args),
        values=None if item.values is None else change_value(item.values, change),
        python=None if item.python is None else change_value(item.python, change),
        items=tuple(change_input(part, change) for part in item.items),
        layout=change_nodes(item.layout, change),
    )


def values_of(nodes: Iterable[Node]) -> Iterator[Value]:
    """Every value of a chain and of its blocks and functions, parts before wholes; entries of indices too."""
    found: list[Value] = []

    def note(value: Value) -> Value:
        found.append(value)
        if isinstance(value, Index):
            found.extend(_entries(value.entries))
        return value

    change_nodes(nodes, note)
    return iter(found)


def parts_of(value: Value) -> Iterator[Value]:
    """A value and all its parts, as ``values_of``."""
    step = Step("", Arguments((value,)), getattr(value, "span", None))  # type: ignore[arg-type]
    return values_of((step,))


def names_used(values: Iterable[Value]) -> set[str]:
    """The names that references and arithmetic among ``values`` speak of; ``self.c`` for state."""
    used: set[str] = set()
    for value in values:
        if isinstance(value, Ref):
            used.add(f"self.{value.path[0]}" if value.name == "self" and value.path else value.name)
        elif isinstance(value, Arithmetic):
            tree = expr.parse(value.text)
            used |= expr.names(tree) | {f"self.{name}" for name in expr.attributes_of_self(tree)}
    return used


def names_made(nodes: Iterable[Node]) -> Iterator[str]:
    """Every name that a chain, its blocks and its functions give."""
    for node in nodes:
        if isinstance(node, Step):
            yield from (name for name in node.out if name != "_")
        elif isinstance(node, With):
            yield from names_made(node.chain)
        elif isinstance(node, If):
            yield from names_made((*node.do, *node.otherwise))
    for value in values_of(nodes):
        if isinstance(value, Function):
            yield from (*value.args, *names_made(value.chain))


def _entries(entries: Iterable[Any]) -> Iterator[Any]:
    for entry in entries:
        if isinstance(entry, tuple | list):
            yield from _entries(entry)
        elif isinstance(entry, Ref | Arithmetic):
            yield entry
