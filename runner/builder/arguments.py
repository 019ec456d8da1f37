"""What the arguments of a call lack: the ``$`` before a name, the ``torch.`` before a constant, a tensor.

It also says which options a case may give that compilers write into the kernels that they generate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from runner.builder import operators
from runner.builder.names_and_values import Scope
from runner.cases import operator_names
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
)
from runner.cases.serialize import call_text, step_text, value_of
from runner.cases.texts import split, yaml_arguments
from runner.cases.walk import change_parts, values_of, without_previous
from runner.cases.yaml.values import flow, show_value
from runner.diagnostics import Span, nearest

_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", *operator_names.UNARY)
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
    takes_tensor = operator_names.takes_tensor(step.operator)
    if operator.kind == "module":
        _check_construction(step, scope)
    elif not step.arguments.bare:
        has_receiver = bool(step.arguments.positional) or operator.kind not in ("method", "attribute")
        _check(step, step.arguments, False, takes_tensor and has_receiver, scope)
    if step.call is not None and not step.call.bare:
        _check(step, step.call, True, True, scope)


def check_result(result: Value, scope: Scope) -> None:
    """Report texts of a result that are the name of a value: what was meant is not compared."""
    for _, text, span in _texts_of(result, ""):
        value = _replacement(text, span, scope)
        if isinstance(value, Ref):
            scope.problems.error(span, f"{text!r} is text", f"write {flow(value_of(value))}; {{$text: {text}}} is text")
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
            scope.problems.error(
                span, f"{text!r} is text", f"the arguments of the call stand beside it: call: [${text}]"
            )
            scope.used.add(text)
            return
    _check(step, step.arguments, False, False, scope)


def _check(step: Step, arguments: Arguments, is_call: bool, needs_tensor: bool, scope: Scope) -> None:
    def line(changed: Arguments) -> str:
        return call_text(changed) if is_call else step_text(replace(step, arguments=changed))

    problems, texts = scope.problems, list(_texts(arguments, step.operator))
    written = without_previous(arguments)
    lacks_tensor = needs_tensor and not _holds_tensor(written, scope)
    replacements: dict[str, Value] = {}
    for key, text, span in texts:
        value = _replacement(text, span, scope if not key or lacks_tensor else None)
        if value is not None:
            replacements[text] = value
        elif key == "dtype":
            hint = nearest(text, [f"torch.{name}" for name in DTYPES]) or "such as torch.float32"
            problems.error(span, f"{text!r} is text, not a dtype", hint)
    if replacements:
        changed = line(_changed(written, replacements))
        for _, text, span in texts:
            if text in replacements:
                hint = f"write {flow(value_of(replacements[text]))}, as in {changed}"
                problems.error(span, f"{text!r} is text", hint)
        scope.used.update(replacements)
        scope.used_params.update(replacements)
        return
    table = next((value for value in arguments.positional if isinstance(value, Table)), None)
    if table is not None and needs_tensor:
        changed = line(
            Arguments(
                tuple(value for value in arguments.positional if value is not table),
                (*arguments.keywords, *table.items),
            )
        )
        message = f"{show_value(value_of(table))} is a positional argument of {step.operator}"
        problems.warning(step.span, message, f"write {changed}")
    if lacks_tensor and written is arguments:
        _no_tensor(step, arguments, line, scope)


def _no_tensor(step: Step, arguments: Arguments, line: Callable[[Arguments], str], scope: Scope) -> None:
    first = arguments.positional[0] if arguments.positional else None
    if scope.previous is None:
        hint = "an input or a step before it makes one"
    elif not (isinstance(first, Literal) and isinstance(first.value, str)):
        positional = (Ref("_", (), step.span), *arguments.positional)
        hint = f"write {line(replace(arguments, positional=positional))}"
    elif "," in first.value:
        hint = f"write {step.operator}: {yaml_arguments(split(first.value, ','), names=True)}"
    else:
        known = [f"${name}" for name in scope.variables]
        hint = nearest(f"${first.value}", known) or f"the values here: {', '.join(['$_', *known][:_SHOWN])}"
    scope.problems.error(step.span, f"{step.operator} gets no tensor here", hint)
    scope.use_previous(step.span)


def _holds_tensor(arguments: Arguments, scope: Scope) -> bool:
    """Whether an argument may be or hold a tensor: all do but texts, numbers and params."""
    return any(
        part.name in scope.variables or part.name not in scope.params
        if isinstance(part, Ref)
        else isinstance(part, TensorLiteral | Function | Index)
        for part in values_of(arguments)
    )


def _texts(arguments: Arguments, operator: str) -> Iterator[tuple[str, str, Span]]:
    """Every text that is not marked as one, its place, and before it the keyword that it belongs to; not an
    equation."""
    for key, value in (
        *(("", value) for value in arguments.positional[1 if operator == "torch.einsum" else 0 :]),
        *arguments.keywords,
    ):
        yield from _texts_of(value, key)


def _texts_of(value: Value, key: str) -> Iterator[tuple[str, str, Span]]:
    parts: Iterable[tuple[str, Value]] = ()
    match value:
        case Literal(value=str(text), span=Span() as span):
            yield key, text, span
        case Items():
            parts = ((key, item) for item in value.items)
        case Table():
            parts = ((key, item) for _, item in value.items)
        case TensorLiteral():
            parts = value.options
    for name, part in parts:
        yield from _texts_of(part, name)


def _replacement(word: str, span: Span, scope: Scope | None) -> Value | None:
    """What a text stands for: a value of ``scope``, a number, a constant of torch. None for any other text."""
    head, _, attribute = word.partition(".")
    if scope is not None and head == "self" and attribute in scope.state:
        return Ref("self", (attribute,), span)
    if scope is not None and (word in scope.variables or word in scope.params) and word not in _WORDS:
        return Ref(word, (), span)
    if word in _PYTHON:
        return Literal(_PYTHON[word])
    return Constant(f"torch.{word}", span) if (word in operators.constants() and len(word) > 1) else None


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


def kernel_options_fault(operator: str, arguments: Arguments) -> operators.Refusal | None:
    """Return why the ``kernel_options`` of a flex_attention are refused; None if they are not."""
    value = dict(arguments.keywords).get("kernel_options")
    by_place = len(arguments.positional) > _POSITIONALS
    if not operator.endswith(".flex_attention") or (value is None and not by_place):
        return None
    if by_place or not isinstance(value, Table):
        message = "kernel_options is a mapping, and stands as a keyword"
        return operators.Refusal(message, "such as kernel_options: {num_warps: 4}")
    for key, option in value.items:
        allowed = KERNEL_OPTIONS.get(key)
        if allowed is None:
            message = (
                f"kernel_options may not hold {key[:60]!r} here: Inductor writes it into a kernel, which trusts it"
            )
            return operators.Refusal(message, f"options: {', '.join(KERNEL_OPTIONS)}")
        if not _is_among(option, allowed):
            message = f"kernel_options: {key} has another value than it may have here"
            return operators.Refusal(message, f"one of {', '.join(str(v).lower() for v in allowed)}")
    return None


def _is_among(value: Value, allowed: tuple[int, ...]) -> bool:
    number = value.value if isinstance(value, Literal) else None
    return type(number) is type(allowed[0]) and number in allowed
