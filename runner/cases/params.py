"""Params: the axes that a case declares itself, and the places in a case that they may take.

Most references to a param are values, which the builder writes. Some stand where a case holds no value, such as a whole
shape: ``chosen`` puts those in, once for each variant.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from runner.cases.chains_and_inputs import AFTER_LAYOUT, dtype_name, is_placed
from runner.cases.model import (
    DTYPES,
    FLOATING,
    MODE_AXES,
    Call,
    Case,
    Function,
    Input,
    Items,
    Literal,
    Ref,
    Step,
    Value,
)
from runner.cases.operator_names import takes_tensor
from runner.cases.problems import Problems
from runner.cases.texts import REFERENCE
from runner.cases.walk import change_parts, change_value, inputs_of, map_steps, values_of, with_previous
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
from runner.text import plural


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


Columns = Mapping[str, tuple[Any, ...]]
"""Values by the names of params: of those that go together each has one in each row."""


def parse_groups(node: YamlNode | None, problems: Problems) -> tuple[Columns, ...]:
    """Return the params of ``zip:`` that go together, and report those that do not. Raises Mistyped."""
    groups = [(group, parse_params(group, problems)) for group in (() if node is None else several(node))]
    for group, columns in groups:
        names = list(columns)
        places = {key.value: value.span for key, value in entries(group)}
        for name, values in columns.items():
            if len(values) != len(columns[names[0]]):
                message = f"{name!r} has {plural(len(values), 'value')}, and {names[0]!r} has {len(columns[names[0]])}"
                problems.error(places[name], message, "params that go together have as many values as each other")
        rows = Counter(map(repr, zip(*columns.values(), strict=False)))
        repeated = next((row for row in zip(*columns.values(), strict=False) if rows[repr(row)] > 1), None)
        if repeated is not None:
            text = ", ".join(f"{name}: {flow(value)}" for name, value in zip(names, repeated, strict=False))
            problems.error(group.span, f"the combination {{{text}}} stands here twice")
    return tuple(columns for _, columns in groups)


def with_groups(
    params: Columns, groups: Sequence[Columns], node: YamlNode | None, problems: Problems
) -> dict[str, tuple[Any, ...]]:
    """Return all params, with each value of those in ``groups`` once. ``node`` is the case's ``zip:``."""
    every, names = dict(params), {*params}
    for group in () if node is None else several(node):
        for key, _ in entries(group):
            if key.value in names:
                problems.error(key.span, f"there are two params {key.value!r}", "a param stands in params: or in zip:")
            names.add(str(key.value))
    for name, values in itertools.chain.from_iterable(columns.items() for columns in groups):
        every[name] = tuple({repr(value): value for value in values}.values())
    if node is not None and len(every) > problems.limits.axes:
        limits = problems.limits
        message = f"a case has at most {limits.axes} params, not {len(every)}"
        problems.error(node.span, message, limits.hint("axes"))
    return every


def rows_of(case: Case) -> list[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Return the params of a case, those together that go together, and the values that these take in turn."""
    together = {name: columns for columns in case.zip for name in columns}
    rows: list[tuple[tuple[str, ...], list[tuple[Any, ...]]]] = []
    for name in case.params:
        columns = together.get(name, {name: case.params[name]})
        if name == next(iter(columns)):
            rows.append((tuple(columns), list(zip(*columns.values(), strict=False))))
    return rows


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


def placed_params(case: Case, node: YamlMapping, steps: Iterable[Step], problems: Problems) -> tuple[str, ...]:
    """Return the params that ``chosen`` puts into a case, and report those that do not fit their places.

    ``node`` is the case: all of its nodes are made again for each combination of these params. ``steps`` are all of it.
    """
    errors_before = problems.errors
    every = {
        name: (*values, *(c.params[name] for c in case.calls if name in c.params))
        for name, values in case.params.items()
    }
    references = [name for item in inputs_of(case) for name in _of_input(item, every, problems)]
    placed = (step for step in steps if is_placed(step.operator))
    operators = [name for step in placed for name in _of_step(step, every, problems)]
    references += operators
    for call in case.calls:
        for name in call.params.keys() & {*operators}:
            problems.error(call.span, f"param {name!r} is an operator of the chain, so a call cannot change it")
    if problems.errors > errors_before:
        return ()
    if not references:
        return ()
    names = dict.fromkeys(references)
    longest = {name: max(sum(1 for _ in scalars_of(value)) for value in every[name]) for name in names}
    count = count_nodes(node) + len(case.calls) * len(case.inputs) + sum(longest[name] for name in references)
    count *= math.prod(len(rows) for group, rows in rows_of(case) if not names.keys().isdisjoint(group))
    limits = problems.limits
    if count > limits.expanded_nodes:
        message = f"with each value of {', '.join(names)} this case has more than {limits.expanded_nodes} nodes"
        return problems.refuse((), case.span, message, limits.hint("expanded_nodes"))
    return tuple(names)


def chosen(case: Case, params: Mapping[str, Any]) -> Case:
    """Return the case with its ``placed`` params put in. ``params`` are those of a variant."""
    if not case.placed:
        return case
    put = partial(_put_step, params)

    def in_functions(value: Value) -> Value:
        return replace(value, chain=map_steps(value.chain, put)) if isinstance(value, Function) else value

    case = change_parts(case, in_functions)
    return replace(
        case,
        chain=map_steps(case.chain, put),
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


def samples(case: Case) -> Iterator[Case]:
    """Yield the case with params put in, so often that each value of each ``placed`` param is there once."""
    groups = rows_of(case)
    for number in range(max((len(rows) for names, rows in groups if {*names} & {*case.placed}), default=1)):
        pairs = (zip(names, rows[number % len(rows)], strict=True) for names, rows in groups)
        yield chosen(case, dict(itertools.chain.from_iterable(pairs)))


def _of_step(step: Step, params: Mapping[str, Sequence[Any]], problems: Problems) -> Iterator[str]:
    """Yield the param that is the operator of a step."""
    name = step.operator[1:]
    if name not in params:
        problems.error(
            step.span, f"{step.operator!r} is no operator", nearest(f"${name}", [f"${p}" for p in params]) or REFERENCE
        )
        return
    yield from _checked(name, step.span, params, _OPERATOR, problems)
    keys = {"call": step.call, "id": step.id, "train": step.train, "state": step.state or None}
    of_module = next((key for key, value in keys.items() if value is not None), None)
    operator = next((value for value in params[name] if not str(value).startswith("nn.")), None)
    if of_module is not None and operator is not None:
        problems.error(step.span, f"{of_module}: belongs to nn modules, and {show_value(operator)} is another operator")


def _of_input(item: Input, params: Mapping[str, Sequence[Any]], problems: Problems) -> Iterator[str]:
    """Yield the params that stand in an input where it holds no value."""
    for size in item.shape or ():
        if isinstance(size, Ref):
            yield from _checked(size.name, size.span, params, _SHAPE, problems)
    for value in () if item.values is None else values_of(item.values):
        if isinstance(value, Ref) and any(isinstance(each, tuple) for each in params.get(value.name, ())):
            yield from _checked(value.name, value.span, params, _NUMBERS, problems)
    for text, place in ((item.dtype, _DTYPE), (item.device, _DEVICE)):
        if is_placed(text):
            yield from _checked(str(text)[1:], item.span, params, place, problems)
    if item.grad_param is not None:
        yield from _checked(item.grad_param, item.span, params, _LEAF, problems)


def _checked(
    name: str, span: Span, params: Mapping[str, Sequence[Any]], place: _Place, problems: Problems
) -> tuple[str, ...]:
    """Return the name of a param; nothing for one that does not fit its place, which is reported."""
    if name not in params:
        hint = nearest(name, params) or f"params: {{{name}: ...}} makes it"
        if name in ("dtype", "device"):
            hint = f"left out, the {name} is the variant's"
        return problems.refuse((), span, f"${name} stands for {place.noun}, and no param is called so", hint)
    for value in params[name]:
        if not place.fits(value):
            message = f"${name} stands for {place.noun}, and its value {show_value(value)} is not {place.expected}"
            return problems.refuse((), span, message)
    return (name,)


_DOTTED = re.compile(r"[A-Za-z]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
_DEVICES = re.compile(r"[a-z][a-z0-9_]*(:[0-9]{1,3})?")


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
_OPERATOR = _Place(
    "an operator",
    "one, such as F.relu; kernels are launched by name",
    lambda value: isinstance(value, str) and bool(_DOTTED.fullmatch(value)) and not value.startswith("triton."),
)
_DTYPE = _Place("a dtype", "one, such as float32", lambda value: dtype_name(value) in DTYPES)
_DEVICE = _Place("a device", "one, such as cpu or cuda:1", lambda value: bool(_DEVICES.fullmatch(str(value))))
_LEAF = _Place(
    "requires_grad",
    f"true, false or {AFTER_LAYOUT}",
    lambda value: isinstance(value, bool) or value == AFTER_LAYOUT,
)


def value_of_param(value: Any) -> Value:
    """Return what a reference to a param of this value means."""
    return Items(tuple(map(value_of_param, value))) if isinstance(value, tuple) else Literal(value)


def _put_step(params: Mapping[str, Any], step: Step) -> Step:
    """The step with the operator that a param holds: only now it is known whether keywords follow ``$_``."""
    if not is_placed(step.operator):
        return step
    operator = params[step.operator[1:]]
    arguments = with_previous(step.arguments, step.span) if takes_tensor(operator) else step.arguments
    return replace(step, operator=operator, arguments=arguments)


def _put(params: Mapping[str, Any], item: Input) -> Input:
    """The input with params put in where it holds no value."""
    shape = item.shape
    if shape is not None and len(shape) == 1 and isinstance(shape[0], Ref):
        shape = tuple(map(Literal, params[shape[0].name]))

    def put(value: Value) -> Value:
        if isinstance(value, Ref) and not value.path and isinstance(params.get(value.name), tuple):
            return value_of_param(params[value.name])
        return value

    leaf: Any = item.requires_grad if item.grad_param is None else params[item.grad_param]
    return replace(
        item,
        shape=shape,
        dtype=_word(params, item.dtype, dtype_name),
        device=_word(params, item.device, str),
        requires_grad=bool(leaf),
        grad_after_layout=item.grad_after_layout if item.grad_param is None else leaf == AFTER_LAYOUT,
        grad_param=None,
        layout=map_steps(item.layout, partial(_put_step, params)),
        values=None if item.values is None else change_value(item.values, put),
        items=tuple(_put(params, part) for part in item.items),
    )


def _word(params: Mapping[str, Any], text: str | None, write: Callable[[Any], str]) -> str | None:
    """A dtype or a device, which a param may hold."""
    return write(params[text[1:]]) if text is not None and is_placed(text) else text
