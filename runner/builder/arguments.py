"""What the arguments of a call lack: the ``$`` before a name, the ``torch.`` before a constant, a tensor.

It also says which options a case may give that compilers write into the kernels that they generate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from runner.builder import operators
from runner.builder.names_and_values import Scope
from runner.cases.model import (
    DTYPES,
    Arguments,
    Case,
    Constant,
    Function,
    Index,
    Items,
    Literal,
    Ref,
    Step,
    Table,
    TensorLiteral,
    Value,
    change_parts,
    values_of,
)
from runner.cases.serialize import call_text, step_text, value_of
from runner.cases.texts import split, yaml_arguments
from runner.cases.yaml.values import flow, show_value
from runner.diagnostics import Span, nearest

_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", *operators.UNARY)
_WORDS = ("mean", "sum", "prod", "amin", "amax", "max", "min", "fro", "nuc")
"""Texts that operators take in a place, even where something has this name."""
_PYTHON = {"None": None, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""Python's words that YAML reads as text."""
_SHOWN = 5


def check_arguments(step: Step, operator: operators.Operator, scope: Scope) -> None:
    """Report arguments of a step that cannot be what was meant, each with the line to write instead.

    They are a text that is the name of a value, of a dtype or of a number; a mapping in a place; and a call without the
    tensor that its operator takes. A call of something else than torch's operators may take any text.
    """
    if not _is_of_torch(operator):
        return
    takes_tensor = operators.takes_tensor(operator)
    if operator.kind == "module":
        _check_construction(step, scope)
    elif not step.arguments.bare:
        has_receiver = bool(step.arguments.positional) or operator.kind not in ("method", "attribute")
        _check(step, step.arguments, False, takes_tensor and has_receiver, scope)
    if step.call is not None and not step.call.bare:
        _check(step, step.call, True, takes_tensor, scope)


def check_result(result: Value, scope: Scope) -> None:
    """Report texts of a result that are the name of a value: what was meant is not compared."""
    for _, text, span in _texts_of(result, ""):
        value = _replacement(text, span, scope)
        if isinstance(value, Ref):
            hint = f"write {flow(value_of(value))}; {{$text: {text}}} is text"
            scope.problems.error(span, f"{text!r} is text", hint)
            scope.used.add(text)


def complete_call(step: Step) -> str:
    """Return the hint that puts the value of the step before in front of the arguments."""
    positional = (Ref("_", (), step.span), *step.arguments.positional)
    return f"write {step_text(replace(step, arguments=replace(step.arguments, positional=positional)))}"


def places_of_texts(case: Case) -> dict[str, Span]:
    """Return the texts that the chain and the result of a case hold, each with its first place: a ``$`` would make it a
    reference."""
    values = [*values_of((case.chain, case.result))]
    return {
        v.value: v.span
        for v in reversed(values)
        if isinstance(v, Literal) and isinstance(v.value, str) and v.span is not None
    }


def _is_of_torch(operator: operators.Operator) -> bool:
    if operator.kind == "operator":
        return operator.python in _ARITHMETIC
    return operator.kind != "kernel" and not operator.name.startswith(("builtin.", "numpy.", "custom."))


def _check_construction(step: Step, scope: Scope) -> None:
    """A module is made of numbers, texts and params: a value of the model belongs into its call."""
    for key, text, span in _texts(step.arguments, step.operator):
        if not key and text in scope.variables and text not in _WORDS:
            hint = f"the arguments of the call stand beside it: call: [${text}]"
            scope.problems.error(span, f"{text!r} is text", hint)
            scope.used.add(text)
            return
    _check(step, step.arguments, False, False, scope)


def _check(step: Step, arguments: Arguments, is_call: bool, needs_tensor: bool, scope: Scope) -> None:
    def line(changed: Arguments) -> str:
        return call_text(changed) if is_call else step_text(replace(step, arguments=changed))

    problems = scope.problems
    values = (*arguments.positional, *(value for _, value in arguments.keywords))
    has_tensor = any(_holds_tensor(value, scope) for value in values)
    replacements: dict[str, Value] = {}
    for key, text, span in _texts(arguments, step.operator):
        value = _replacement(text, span, scope if not key or (needs_tensor and not has_tensor) else None)
        if value is None and key == "dtype":
            hint = nearest(text, [f"torch.{name}" for name in DTYPES]) or "such as torch.float32"
            problems.error(span, f"{text!r} is text, not a dtype", hint)
        elif value is not None:
            replacements[text] = value
    if replacements:
        changed = line(_changed(arguments, replacements))
        for _, text, span in _texts(arguments, step.operator):
            if text in replacements:
                hint = f"write {flow(value_of(replacements[text]))}, as in {changed}"
                problems.error(span, f"{text!r} is text", hint)
        scope.used.update(replacements)
        scope.used_params.update(replacements)
        return
    table = next((value for value in arguments.positional if isinstance(value, Table)), None)
    if table is not None and needs_tensor:
        positional = tuple(value for value in arguments.positional if value is not table)
        changed = line(Arguments(positional, (*arguments.keywords, *table.items)))
        problems.warning(
            step.span, f"{show_value(value_of(table))} is a positional argument of {step.operator}", f"write {changed}"
        )
    if needs_tensor and not has_tensor:
        _no_tensor(step, arguments, line, scope)


def _no_tensor(step: Step, arguments: Arguments, line: Callable[[Arguments], str], scope: Scope) -> None:
    first = arguments.positional[0] if arguments.positional else None
    if scope.previous is None:
        hint = "an input or a step before it makes one"
    elif isinstance(first, Literal) and isinstance(first.value, str) and "," in first.value:
        hint = f"write {step.operator}: {yaml_arguments(split(first.value, ','), names=True)}"
    elif isinstance(first, Literal) and isinstance(first.value, str):
        known = [f"${name}" for name in scope.variables]
        hint = nearest(f"${first.value}", known) or f"the values here: {', '.join(['$_', *known][:_SHOWN])}"
    else:
        positional = (Ref("_", (), step.span), *arguments.positional)
        hint = f"write {line(replace(arguments, positional=positional))}"
    scope.problems.error(step.span, f"{step.operator} gets no tensor here", hint)
    scope.use_previous(step.span)


def _holds_tensor(value: Value, scope: Scope) -> bool:
    """Whether a value may be or hold a tensor: all do but texts, numbers and params."""
    match value:
        case Ref():
            return value.name in scope.variables or value.name not in scope.params
        case Items():
            return any(_holds_tensor(item, scope) for item in value.items)
        case Table():
            return any(_holds_tensor(item, scope) for _, item in value.items)
    return isinstance(value, TensorLiteral | Function | Index)


def _texts(arguments: Arguments, operator: str) -> Iterator[tuple[str, str, Span]]:
    """Every text that is not marked as one, its place, and before it the keyword that it belongs to; not an
    equation."""
    for place, value in enumerate(arguments.positional):
        if place or operator != "torch.einsum":
            yield from _texts_of(value, "")
    for key, value in arguments.keywords:
        yield from _texts_of(value, key)


def _texts_of(value: Value, key: str) -> Iterator[tuple[str, str, Span]]:
    match value:
        case Literal(value=str(text), span=Span() as span):
            yield key, text, span
        case Items():
            for item in value.items:
                yield from _texts_of(item, key)
        case Table():
            for _, item in value.items:
                yield from _texts_of(item, key)
        case TensorLiteral():
            for name, option in value.options:
                yield from _texts_of(option, name)


def _replacement(word: str, span: Span, scope: Scope | None) -> Value | None:
    """What a text stands for: a value of ``scope``, a number, a constant of torch. None for any other text."""
    head, _, attribute = word.partition(".")
    if scope is not None and head == "self" and attribute in scope.state:
        return Ref("self", (attribute,), span)
    if scope is not None and (word in scope.variables or word in scope.params) and word not in _WORDS:
        return Ref(word, (), span)
    if word in _PYTHON:
        return Literal(_PYTHON[word])
    is_constant = word in operators.constants() and len(word) > 1
    return Constant(f"torch.{word}", span) if is_constant else None


def _changed(arguments: Arguments, replacements: dict[str, Value]) -> Arguments:
    def change(value: Value) -> Value:
        return replacements.get(value.value, value) if isinstance(value, Literal) and value.span else value

    return change_parts(arguments, change)


KERNEL_OPTIONS: dict[str, tuple[int, ...]] = {
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1, 2, 3, 4, 5),
    **dict.fromkeys(("PRESCALE_QK", "FORCE_USE_FLEX_ATTENTION"), (False, True)),
}
"""``kernel_options`` of flex_attention that change no address.

Kernels trust the others: sizes of blocks, and promises of the data.
"""

_POSITIONALS = 8
"""Positional arguments of flex_attention before its kernel_options."""


def kernel_options_fault(operator: str, arguments: Arguments) -> tuple[str, str]:
    """Return why the ``kernel_options`` of a flex_attention are refused, and what to write instead; empty if they are
    not."""
    value = dict(arguments.keywords).get("kernel_options")
    by_place = len(arguments.positional) > _POSITIONALS
    if not operator.endswith(".flex_attention") or (value is None and not by_place):
        return "", ""
    if by_place or not isinstance(value, Table):
        return "kernel_options is a mapping, and stands as a keyword", "such as kernel_options: {num_warps: 4}"
    for key, option in value.items:
        allowed = KERNEL_OPTIONS.get(key)
        if allowed is None:
            reason = "Inductor writes it into a kernel, which trusts it"
            return f"kernel_options may not hold {key[:60]!r} here: {reason}", f"options: {', '.join(KERNEL_OPTIONS)}"
        if not _is_among(option, allowed):
            values = ", ".join("true" if v is True else "false" if v is False else str(v) for v in allowed)
            return f"kernel_options: {key} has another value than it may have here", f"one of {values}"
    return "", ""


def _is_among(value: Value, allowed: tuple[int, ...]) -> bool:
    number = value.value if isinstance(value, Literal) else None
    return type(number) is type(allowed[0]) and number in allowed
