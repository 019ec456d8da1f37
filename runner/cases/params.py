"""Params: the axes that a case declares itself, and the places in a case that they may take.

Most references to a param are values, which the builder writes. Some stand where a case holds no value, such as a whole
shape: ``chosen`` puts those in, once for each variant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.cases.chains_and_inputs import dtype_name
from runner.cases.model import (
    FLOATING,
    MODE_AXES,
    Call,
    Case,
    Input,
    Items,
    Literal,
    Ref,
    Value,
    change_value,
    values_of,
)
from runner.cases.problems import Problems
from runner.cases.yaml.values import (
    SCALARS,
    YamlMapping,
    YamlNode,
    YamlScalar,
    YamlSequence,
    count_nodes,
    entries,
    flow,
    items,
    nested,
    scalars_of,
    several,
    show_value,
)
from runner.diagnostics import Span, nearest


def parse_params(node: YamlNode | None, problems: Problems) -> dict[str, tuple[Any, ...]]:
    """Return the values of each param. Lists among them are tuples. Raises Mistyped."""
    params: dict[str, tuple[Any, ...]] = {}
    limits = problems.limits
    for key, value in entries(node):
        name = str(key.value)
        if name in (*MODE_AXES, "devices"):
            problems.error(key.span, f"{name!r} cannot name a param", f"{name}: beside params: is an axis of its own")
            continue
        params[name] = tuple(nested(item, *SCALARS) for item in several(value))
        for item in several(value):
            text = item.text if isinstance(item, YamlScalar) else flow(item.plain())
            if len(text) > limits.value_characters:
                problems.error(
                    item.span,
                    f"a value of a param has at most {limits.value_characters} characters, since ids show it",
                    limits.hint("value_characters"),
                )
            if "." in name and isinstance(item, YamlSequence):
                problems.error(item.span, f"{name!r} is a constant of a kernel, which is no list")
    if node is not None and len(params) > limits.axes:
        problems.error(node.span, f"a case has at most {limits.axes} params, not {len(params)}", limits.hint("axes"))
    return params


def check_exclude(node: YamlNode | None, params: Mapping[str, Any], problems: Problems) -> None:
    """Report a combination that names something else than params: it would leave nothing out."""
    for item in items(node):
        for key, _ in entries(item):
            if str(key.value) not in params:
                problems.error(
                    key.span, f"exclude: names {key.value!r}, which is no param", nearest(str(key.value), params)
                )


def check_param_dtype(name: str, params: Mapping[str, tuple[Any, ...]], place: Span, problems: Problems) -> None:
    """Report a ``param_dtype:`` that refers to no param, or to one that holds something else than dtypes."""
    if name == "dtype":
        return
    if name not in params:
        problems.error(place, f"nothing is called {name!r}", nearest(name, [*params, "dtype"]))
    for value in params.get(name, ()):
        if dtype_name(value) not in FLOATING:
            problems.error(place, f"param {name!r} is {value!r}, and no floating dtype", "such as float32 or bfloat16")


# --- params that stand where a case holds no value --------------------------------------------


def placed_params(case: Case, node: YamlMapping, problems: Problems) -> tuple[str, ...]:
    """Return the params that ``chosen`` puts into a case, and report those that do not fit their places.

    ``node`` is the case: all of its nodes are made again for each combination of these params.
    """
    errors_before = problems.errors
    every = {
        name: (*values, *(c.params[name] for c in case.calls if name in c.params))
        for name, values in case.params.items()
    }
    references = [name for item in _inputs(case) for name in _of_input(item, every, problems)]
    if problems.errors > errors_before:
        return ()
    names = dict.fromkeys(references)
    longest = {name: max(sum(1 for _ in scalars_of(value)) for value in every[name]) for name in names}
    count = count_nodes(node) + len(case.calls) * len(case.inputs) + sum(longest[name] for name in references)
    for name in names:
        count *= len(case.params[name])
    limits = problems.limits
    if names and count > limits.expanded_nodes:
        message = f"with each value of {', '.join(names)} this case has more than {limits.expanded_nodes} nodes"
        return problems.refuse((), case.span, message, limits.hint("expanded_nodes"))
    return tuple(names)


def chosen(case: Case, params: Mapping[str, Any]) -> Case:
    """Return the case with its ``placed`` params put in. ``params`` are those of a variant."""
    if not case.placed:
        return case
    return replace(
        case,
        inputs=tuple(_put(params, item) for item in case.inputs),
        state=tuple(_put(params, item) for item in case.state),
        calls=tuple(_call(case, call, params) for call in case.calls),
    )


def _call(case: Case, call: Call, params: Mapping[str, Any]) -> Call:
    """A further call: it replaces the inputs that its params change."""
    changed = {**params, **call.params}
    own = tuple(_put(changed, item) for item in call.inputs)
    if call.params.keys().isdisjoint(case.placed):
        return replace(call, inputs=own)
    names = {item.name for item in own}
    pairs = [(_put(params, item), _put(changed, item)) for item in case.inputs if item.name not in names]
    return replace(call, inputs=(*own, *(new for old, new in pairs if new != old)))


def _inputs(case: Case) -> Iterator[Input]:
    """The inputs and the state of a case, those of further calls and the items of lists included."""
    pending = [*case.inputs, *case.state, *(item for call in case.calls for item in call.inputs)]
    while pending:
        item = pending.pop()
        yield item
        pending += item.items


def _of_input(item: Input, params: Mapping[str, Sequence[Any]], problems: Problems) -> Iterator[str]:
    """Yield the params that stand in an input where it holds no value."""
    for size in item.shape or ():
        if isinstance(size, Ref):
            yield from _checked(size.name, size.span, params, _SHAPE, problems)
    for value in () if item.values is None else values_of(item.values):
        if isinstance(value, Ref) and any(isinstance(each, tuple) for each in params.get(value.name, ())):
            yield from _checked(value.name, value.span, params, _NUMBERS, problems)


def _checked(
    name: str, span: Span, params: Mapping[str, Sequence[Any]], place: _Place, problems: Problems
) -> tuple[str, ...]:
    """Return the name of a param; nothing for one that does not fit its place, which is reported."""
    if name not in params:
        hint = nearest(name, params) or f"params: {{{name}: ...}} makes it"
        return problems.refuse((), span, f"${name} stands for {place.noun}, and no param is called so", hint)
    for value in params[name]:
        if not place.fits(value):
            message = f"${name} stands for {place.noun}, and its value {show_value(value)} is not {place.expected}"
            return problems.refuse((), span, message)
    return (name,)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a param may stand: what it stands for, and which values fit."""

    noun: str
    expected: str
    fits: Callable[[Any], bool]


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(size) is int and size >= 0 for size in value)


def _is_numbers(value: Any) -> bool:
    return all(map(_is_numbers, value)) if isinstance(value, tuple) else isinstance(value, int | float)


_SHAPE = _Place("a shape", "a list of sizes, such as [2, 3]", _is_shape)
_NUMBERS = _Place("values", "a number or a list of numbers", _is_numbers)


def value_of_param(value: Any) -> Value:
    """Return what a reference to a param of this value means."""
    return Items(tuple(map(value_of_param, value))) if isinstance(value, tuple) else Literal(value)


def _put(params: Mapping[str, Any], item: Input) -> Input:
    """The input with params put in where it holds no value."""
    shape = item.shape
    if shape is not None and len(shape) == 1 and isinstance(shape[0], Ref):
        shape = tuple(map(Literal, params[shape[0].name]))

    def put(value: Value) -> Value:
        if isinstance(value, Ref) and not value.path and isinstance(params.get(value.name), tuple):
            return value_of_param(params[value.name])
        return value

    return replace(
        item,
        shape=shape,
        values=None if item.values is None else change_value(item.values, put),
        items=tuple(_put(params, part) for part in item.items),
    )
