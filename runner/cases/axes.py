"""A variant as a case of its own: every axis chosen, params put in, and what its backend sets written down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runner.cases import expressions
from runner.cases.model import Arithmetic, Call, Case, Compile, Index, Kernel, Literal, Ref, Value, Variant
from runner.cases.walk import change_entry, change_input, change_nodes, change_value, names_made


class _Unfit(Exception):
    """A param that cannot be written as a number everywhere it is used."""


def resolve_axes(variant: Variant) -> Case:
    """Return the case with one value for each axis and without its ledger.

    The flags and options of a suite's backend become the case's own. A param that is a plain number replaces each use
    of it; other params stay, as axes of one value. Constants of kernels are replaced by their values.
    """
    case, backend = variant.case, variant.backend
    compiling = Compile(
        fullgraph=case.compile.fullgraph or bool(backend.fullgraph),
        mode=case.compile.mode or backend.mode,
        options={**case.compile.options, **backend.options},
        timeout=case.compile.timeout,
    )
    constants = {f"{kernel.name}.{name}" for kernel in case.kernels for name in kernel.constants}
    params = {name: value for name, value in variant.params.items() if name not in constants}
    resolved = replace(
        case,
        params={name: (value,) for name, value in params.items()},
        kernels=tuple(_kernel(kernel, variant.params) for kernel in case.kernels),
        exclude=(),
        dtypes=(variant.dtype,),
        devices=(variant.device,),
        train=(variant.train,),
        grad=(variant.grad,),
        dynamic=(backend.dynamic if variant.dynamic is None else variant.dynamic,),
        autocast=(variant.autocast,),
        threads=(variant.threads,),
        compile=compiling,
        config=variant.config,
        known=(),
        axes=(*params, "devices") if variant.device != "cpu" else tuple(params),
    )
    try:
        return _inlined(resolved, params)
    except _Unfit:
        return resolved


def _kernel(kernel: Kernel, params: Mapping[str, Any]) -> Kernel:
    """The kernel with one value for each constant that is an axis."""
    chosen = {name: f"{kernel.name}.{name}" for name in kernel.constants}
    constants = {
        name: (Literal(params[chosen[name]]),) if chosen[name] in params else values
        for name, values in kernel.constants.items()
    }
    return replace(kernel, constants=constants)


def _inlined(case: Case, params: Mapping[str, Any]) -> Case:
    """The case without params.

    Raises:
        _Unfit: one is no finite number, or something else has its name.
    """
    own_names = {*(item.name for item in (*case.inputs, *case.state)), *names_made(case.chain)}
    values = [*params.values(), *(value for call in case.calls for value in call.params.values())]
    if own_names & set(params) or not all(map(_is_number, values)):
        raise _Unfit
    calls = tuple(_call(case, call, params) for call in case.calls)
    substitute = _Substitution(params)
    module = case.module
    if module is not None:
        module = replace(module, args=tuple((key, change_value(value, substitute)) for key, value in module.args))
    return replace(
        case,
        params={},
        axes=tuple(axis for axis in case.axes if axis not in params),
        inputs=tuple(change_input(item, substitute) for item in case.inputs),
        state=tuple(change_input(item, substitute) for item in case.state),
        chain=change_nodes(case.chain, substitute),
        result=None if case.result is None else change_value(case.result, substitute),
        module=module,
        calls=calls,
    )


def _call(case: Case, call: Call, params: Mapping[str, Any]) -> Call:
    """A further call without params: inputs that these change are replaced whole."""
    substitute_call, substitute_case = _Substitution({**params, **call.params}), _Substitution(params)
    own = {item.name: item for item in call.inputs}
    changed = []
    for item in case.inputs:
        call_input = change_input(own.get(item.name, item), substitute_call)
        if item.name in own or call_input != change_input(item, substitute_case):
            changed.append(call_input)
    return Call({}, tuple(changed), call.span)


class _Substitution:
    """Puts params in; called with each part of a value."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def __call__(self, value: Value) -> Value:
        if isinstance(value, Ref) and value.name in self.params:
            if value.path:
                raise _Unfit
            return Literal(self.params[value.name])
        if isinstance(value, Index):
            return replace(value, entries=tuple(change_entry(entry, self._entry) for entry in value.entries))
        if isinstance(value, Arithmetic):
            return self._number(value)
        return value

    def _number(self, value: Arithmetic) -> Value:
        try:
            tree = expressions.parse(value.text)
            if expressions.is_static(tree, self.params):
                number = expressions.evaluate(tree, self.params)
                return Literal(number) if isinstance(number, bool) or _is_number(number) else value
            return replace(value, text=expressions.render(tree, self.params, lambda name: name))
        except expressions.ExpressionError as error:
            raise _Unfit from error

    def _entry(self, entry: Ref | Arithmetic) -> Any:
        """An entry of an index, which holds integers where a value is a literal."""
        value = self(entry)
        if not isinstance(value, Literal):
            return value
        return value.value if isinstance(value.value, int) else Arithmetic(repr(value.value), entry.span)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
