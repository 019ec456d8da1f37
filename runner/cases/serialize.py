"""Cases back to YAML: the inverse of the reader.

``plain`` makes plain data of a case, ``case_text`` a file of it that the reader accepts and that means the same;
``resolve_axes`` chooses every axis of a variant first.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from runner.cases import expressions
from runner.cases.chains_and_inputs import AFTER_LAYOUT, INDEXED, MEMORY_FORMATS
from runner.cases.kernels import launches
from runner.cases.model import (
    Arguments,
    Arithmetic,
    Call,
    Case,
    Compile,
    Constant,
    Function,
    Grad,
    If,
    Index,
    Initial,
    Input,
    Items,
    Kernel,
    Known,
    Literal,
    Marks,
    Node,
    Output,
    PythonModule,
    Ref,
    RefPath,
    Step,
    Table,
    TensorLiteral,
    Tolerance,
    Value,
    Variant,
)
from runner.cases.operator_names import takes_tensor
from runner.cases.params import value_of_param
from runner.cases.texts import complex_text, is_complex
from runner.cases.walk import (
    all_steps,
    change_entry,
    change_parts,
    entry_text,
    names_made,
    names_used,
    values_of,
    without_previous,
)
from runner.cases.yaml.layout import render
from runner.cases.yaml.tree import Collection, tree_of
from runner.cases.yaml.values import flow
from runner.contract.oracles import BUDGETS

KERNELS = "kernels"
"""The key of plain data that is no key of a case."""

_DEFAULTS = {"train": [False], "grad": ["forward"], "dynamic": [None], "autocast": [None], "threads": [None]}


def case_text(case: Case | Variant, folder: str | os.PathLike[str] | None = None) -> str:
    """Return the text of a spec file with that one case.

    The axes of a variant are chosen, and the settings of its backend become the case's. ``folder`` is where the file
    will lie: the Python of ``module:`` and of kernels is named from there. It defaults to the case's own folder.
    """
    return text_of_plain(plain(resolve_axes(case) if isinstance(case, Variant) else case, folder))


def text_of_plain(data: Mapping[str, Any]) -> str:
    """Return the text of a spec file with one case, from its plain data."""
    case = {key: value for key, value in data.items() if key != KERNELS}
    return emit({**_non_empty(kernels=data.get(KERNELS)), "cases": [case]})


def plain(case: Case, folder: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the case as plain data, its keys in the order in which people write them, without defaults.

    ``KERNELS`` holds the kernels that it launches, which ``text_of_plain`` writes at the top of the file.
    """
    where = Path(folder or os.path.dirname(case.file))
    requires, compiling = case.requires, case.compile
    used = {step.operator.removeprefix("triton.") for step in launches(all_steps(case.chain))}
    return {
        "name": case.name,
        **_non_empty(doc=case.doc, tags=list(case.tags), links=list(case.links)),
        **_axes(case),
        **_non_empty(
            exclude=[_param_table(combination) for combination in case.exclude],
            inputs=_inputs(case.inputs, where),
            state=_inputs(case.state, where),
            dtypes=list(case.dtypes) if case.dtypes != ("float32",) else None,
            param_dtype=case.param_dtype,
            seed=case.seed,
        ),
        **({"module": _module(case.module, where)} if case.module else {"chain": chain_of(case.chain)}),
        **({} if case.result is None else {"return": value_of(case.result)}),
        **_non_empty(
            calls=[_call_of(call, where) for call in case.calls],
            requires=_non_empty(torch=requires.torch, device=list(requires.device), package=list(requires.package)),
            compile=_non_empty(
                fullgraph=compiling.fullgraph,
                mode=compiling.mode,
                options=dict(compiling.options),
                timeout=_seconds(compiling.timeout),
            ),
            config=dict(case.config),
            expect=_expect(case),
            tolerance=_tolerance(case.tolerance),
            strides=case.strides if case.strides != "significant" else None,
            twin=list(case.twin),
            ignore=dict(case.ignore),
            timeout=_seconds(case.timeout),
            memory=case.memory,
            known=[known_of(entry) for entry in case.known],
            kernels={k.name: _kernel(k, where) for k in case.kernels if k.name in used},
        ),
    }


def _call_of(call: Call, where: Path) -> dict[str, Any]:
    """A further call as plain data."""
    return {
        **_non_empty(params=_param_table(call.params), inputs=_inputs(call.inputs, where)),
        **({} if call.step is None else {"step": {call.step.operator: _arguments(call.step.arguments) or {}}}),
        **_non_empty(load=call.load),
        **_non_empty(set={change.target: value_of(change.value) for change in call.changes}),
        **_non_empty(hook={hook.target: value_of(hook.value) for hook in call.hooks}),
        **_non_null(train=call.train),
        **_non_empty(**{"with": chain_of(call.contexts)}, thread=call.thread),
    }


# --- chains and values ----------------------------------------------------------------------


def chain_of(nodes: Iterable[Node]) -> list[Any]:
    """Return the steps and blocks of a chain."""
    return [_node(node) for node in nodes]


def _node(node: Node) -> Any:
    match node:
        case Step():
            return _step(node)
        case If():
            block = {"if": value_of(node.condition), "do": chain_of(node.do)}
            return block | ({"else": chain_of(node.otherwise)} if node.otherwise else {})
    return {"with": chain_of(node.contexts), "chain": chain_of(node.chain)}


def _step(step: Step) -> Any:
    out = list(step.out) if step.unpack or len(step.out) != 1 else step.out[0]
    step_keys = {
        **_non_empty(out=out),
        **({} if step.call is None else {"call": _arguments(without_previous(step.call))}),
        **_non_null(id=step.id, train=step.train),
        **_non_empty(state={part.name: _initial(part) for part in step.state}),
    }
    if step.arguments.bare and not step_keys:
        return step.operator
    arguments = without_previous(step.arguments) if takes_tensor(step.operator) else step.arguments
    return {step.operator: _arguments(arguments, step.operator in INDEXED), **step_keys}


def step_text(step: Step) -> str:
    """Return a step on one line, such as ``torch.add: [$x, 1]``, without the keys beside the operator."""
    data = _step(replace(step, out=(), call=None, id=None, train=None, state=()))
    return data if isinstance(data, str) else flow(data)[1:-1]


def call_text(arguments: Arguments) -> str:
    """Return the arguments of a module's call on one line, such as ``call: [$x]``."""
    return f"call: {flow(_arguments(without_previous(arguments)))}"


def _initial(part: Initial) -> dict[str, Any]:
    init = part.init
    return {"values": value_of(part.arguments[0])} if init is None else {"init": _way(init, part.arguments)}


def _way(init: str, arguments: Iterable[Value]) -> Any:
    values = [value_of(value) for value in arguments]
    return {init: values[0] if init == "full" else values} if values else init


def _arguments(arguments: Arguments, indexed: bool = False) -> Any:
    if arguments.bare:
        return None
    positional = [value_of(value, text_index=indexed) for value in arguments.positional]
    if arguments.keywords:
        keywords = {key: value_of(value) for key, value in arguments.keywords}
        return {"*": positional, **keywords} if positional else keywords
    # A lone list, mapping or null would be read as the arguments themselves.
    alone = len(positional) == 1 and not isinstance(positional[0], list | dict) and positional[0] is not None
    return positional[0] if alone else positional


def value_of(value: Value, text_index: bool = False) -> Any:
    """Return a value in an argument as plain data.

    ``text_index`` says that a text in brackets would be read as an index there.
    """
    match value:
        case Literal():
            if isinstance(value.value, complex):
                return complex_text(value.value)
            text = value.value if isinstance(value.value, str) else ""
            special = (
                is_complex(text)
                or text.startswith(("$", "torch."))
                or "${" in text
                or (text_index and text.startswith("["))
            )
            is_marked = bool(text) and value.span is None  # without the mark it may be the name of a value
            return {"$text": text} if special or is_marked else value.value
        case Ref():
            return f"${value.text}"
        case Constant():
            return value.name
        case Arithmetic():
            return f"${{{value.text}}}"
        case Index():
            return f"[{', '.join(entry_text(entry, lambda part: str(value_of(part))) for entry in value.entries)}]"
        case Items():
            return [value_of(item) for item in value.items]
        case Table():
            return {key: value_of(item) for key, item in value.items}
        case TensorLiteral():
            return {"$tensor": value_of(value.value), **{key: value_of(option) for key, option in value.options}}
        case Function():
            data = {"args": list(value.args), "chain": chain_of(value.chain)}
            return {"$fn": data if value.result is None else {**data, "return": value_of(value.result)}}


# --- inputs ---------------------------------------------------------------------------------


def _inputs(inputs: Iterable[Input], where: Path) -> dict[str, Any]:
    return {item.name: _input(item, where) for item in inputs}


def _input(item: Input, where: Path) -> Any:
    items = [_input(part, where) for part in item.items]
    stored = item.stored
    data = {
        **_non_null(
            values=None if item.values is None else value_of(item.values),
            view_of=item.view_of,
            list=items if item.kind == "list" else None,
            dict=dict(zip(item.keys, items, strict=True)) if item.kind == "dict" else None,
        ),
        **({} if stored is None else {"file": {"path": _from(where, stored.file), "tensor": stored.name}}),
        **({"python": None if item.python is None else value_of(item.python)} if item.kind == "python" else {}),
        **_non_null(shape=None if item.shape is None else _shape(item.shape)),
        **_non_empty(
            tile=item.tile,
            dtype=item.dtype,
            init=None if item.init is None else _way(item.init, item.init_args),
            device=item.device,
            requires_grad=_leaf(item),
            hidden=item.hidden,
            layout=_layout(item.layout),
        ),
    }
    return data["shape"] if list(data) == ["shape"] else data


def _leaf(item: Input) -> str | bool:
    """When the tensor asks for a gradient."""
    if item.grad_param is not None:
        return f"${item.grad_param}"
    return AFTER_LAYOUT if item.grad_after_layout else item.requires_grad


def _shape(sizes: Sequence[Value]) -> Any:
    """The sizes, or the param that stands for all of them."""
    return value_of(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Ref) else list(map(value_of, sizes))


def _layout(nodes: Iterable[Node]) -> Any:
    """The steps of a layout, or the name of the memory format that they give."""
    steps = chain_of(nodes)
    forms = {word: {"memory_format": f"torch.{word}"} for word in MEMORY_FORMATS}
    return next((word for word, form in forms.items() if steps == [{"Tensor.contiguous": form}]), steps)


# --- the other keys -------------------------------------------------------------------------


def _non_empty(**items: Any) -> dict[str, Any]:
    """What is not empty, false or missing."""
    return {
        key: value
        for key, value in items.items()
        if value is not None and value is not False and value not in ("", [], {})
    }


def _axes(case: Case) -> dict[str, Any]:
    """The axes in the order declared, since ids name them in that order; those at their defaults are left out.

    So are params that come of a kernel's constants: the case does not declare them.
    """
    together = set(itertools.chain(*case.zip))
    declared = dict.fromkeys(
        ("zip" if axis in together else "params") if axis in case.params else axis for axis in case.axes
    )
    implied = {f"{kernel.name}.{name}" for kernel in case.kernels for name in kernel.constants} - set(case.axes)
    params = {name: _listed(values) for name, values in case.params.items() if name not in implied | together}
    groups = [_param_table(columns) for columns in case.zip]
    modes = {axis: [_mode(value) for value in getattr(case, axis)] for axis in _DEFAULTS}
    values = {
        "params": params or None,
        "zip": (groups[0] if len(groups) == 1 else groups) or None,
        "devices": list(case.devices) if "devices" in declared or case.devices != ("cpu",) else None,
        **{axis: mode[0] if len(mode) == 1 else mode for axis, mode in modes.items() if mode != _DEFAULTS[axis]},
    }
    return _non_null(**{axis: values.get(axis) for axis in [*declared, *values]})


def _param_table(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _listed(value) for name, value in params.items()}


def _listed(value: Any) -> Any:
    """The value of a param, its tuples as lists."""
    return list(map(_listed, value)) if isinstance(value, tuple) else value


def _marks(marks: Marks) -> dict[str, Any]:
    ways: dict[str, dict[str, list[int]]] = {}
    for mark in marks.items:
        ways.setdefault(mark.name, {})["maybe" if mark.maybe else "dynamic"] = list(mark.dimensions)
    return {name: way["dynamic"] if [*way] == ["dynamic"] else way for name, way in ways.items()}


def _mode(value: Any) -> Any:
    if isinstance(value, Marks):
        return _marks(value)
    if not isinstance(value, Grad):
        return value
    if value.mode != "backward" or value == Grad("backward"):
        return value.mode
    names = [None if name is None else f"${name}" for name in value.given]
    return _non_empty(
        cotangent=value.cotangent if not names else names[0] if len(names) == 1 else names,
        order=value.order if value.order != 1 else None,
    )


def _module(module: PythonModule, folder: Path) -> dict[str, Any]:
    return {
        "file": _from(folder, module.file),
        "name": module.name,
        **_non_empty(args={key: value_of(value) for key, value in module.args}, positional=module.positional),
    }


def _from(folder: Path, file: str) -> str:
    return Path(os.path.relpath(file, folder.resolve())).as_posix()


def _kernel(kernel: Kernel, folder: Path) -> dict[str, Any]:
    """A kernel, its arguments by name: their order alone would not say which of the function's parameters are meant."""
    constants = {name: [value_of(value) for value in values] for name, values in kernel.constants.items()}
    return {
        "file": _from(folder, kernel.file),
        "function": kernel.function,
        "arguments": {name: value_of(value) for name, value in kernel.arguments},
        **_non_empty(scalars=dict(kernel.scalars)),
        "outputs": {output.name: _output(output) for output in kernel.outputs},
        "grid": [value_of(size) for size in kernel.grid],
        **_non_empty(constants={name: values[0] if len(values) == 1 else values for name, values in constants.items()}),
        "reference": kernel.reference_function or chain_of(kernel.reference),
        **({} if kernel.result is None else {"return": value_of(kernel.result)}),
    }


def _output(output: Output) -> dict[str, Any]:
    return {
        **_non_empty(like=output.like, dtype=output.dtype),
        **_non_null(
            shape=None if output.shape is None else [value_of(size) for size in output.shape], fill=output.fill
        ),
    }


def _expect(case: Case) -> dict[str, Any]:
    expect, raises = case.expect, case.expect.raises
    return {
        **_non_null(raises=raises and ({"type": raises.type, "match": raises.match} if raises.match else raises.type)),
        **_non_null(**{key: getattr(expect, key) for key in BUDGETS}),
        **_non_empty(constant=expect.constant),
    }


def _tolerance(tolerance: Tolerance) -> dict[str, Any]:
    named = (*tolerance.by_dtype.items(), *tolerance.by_place.items())
    bounds = {name: _non_null(rtol=rtol, atol=atol) for name, (rtol, atol) in named}
    values = tolerance.values if tolerance.bound is None else {tolerance.values: tolerance.bound}
    rules = _non_empty(exact=tolerance.exact, values=values, reason=tolerance.reason)
    return {**bounds.pop("", {}), **bounds, **rules}


def _non_null(**items: Any) -> dict[str, Any]:
    return {key: value for key, value in items.items() if value is not None}


def known_of(entry: Known) -> dict[str, Any]:
    """Return a ledger entry as plain data, without defaults."""
    values = {field.name: getattr(entry, field.name) for field in fields(Known)} | {"span": None}
    values["why"] = None if entry.why == "bug" else entry.why
    values["params"] = _param_table(entry.params)
    return _non_empty(**{name: [*value] if isinstance(value, tuple) else value for name, value in values.items()})


def _seconds(seconds: float | None) -> str | float | None:
    """A fraction is written as a number, which keeps every digit."""
    return f"{int(seconds)}s" if seconds is not None and seconds == math.floor(seconds) else seconds


# --- a variant as a case of its own -----------------------------------------------------------


class _Unfit(Exception):
    """A param that cannot be written as a number everywhere it is used."""


_FORGOTTEN = {"requires-grad": "the backend claims no gradients"}


def resolve_axes(variant: Variant) -> Case:
    """Return the case with one value for each axis and without its ledger.

    The flags and options of a suite's backend become the case's own, and so does what it forgets of gradients. A param
    that is a plain number, or a list of such, replaces each use of it; other params stay, as axes of one value.
    Constants of kernels are replaced by their values.
    """
    case, backend = variant.case, variant.backend
    constants = {f"{kernel.name}.{name}" for kernel in case.kernels for name in kernel.constants}
    params = {name: value for name, value in variant.params.items() if name not in constants}
    if case.placed:  # what the variant has put in already may be used nowhere else
        used = names_used(values_of(case)) | {(case.param_dtype or "").removeprefix("$")}
        params = {name: value for name, value in params.items() if name in used or name not in case.placed}
        calls = [replace(call, params={k: v for k, v in call.params.items() if k in params}) for call in case.calls]
        case = replace(case, calls=tuple(calls), placed=())
    resolved = replace(
        case,
        params={name: (value,) for name, value in params.items()},
        kernels=tuple(_chosen_constants(kernel, variant.params) for kernel in case.kernels),
        exclude=(),
        zip=(),
        dtypes=(variant.dtype,),
        devices=(variant.device,),
        train=(variant.train,),
        grad=(variant.grad,),
        dynamic=(backend.dynamic if variant.dynamic is None else variant.dynamic,),
        autocast=(variant.autocast,),
        threads=(variant.threads,),
        compile=Compile(
            fullgraph=case.compile.fullgraph or bool(backend.fullgraph),
            mode=case.compile.mode or backend.mode,
            options={**case.compile.options, **backend.options},
            timeout=case.compile.timeout,
        ),
        config=variant.config,
        ignore={**_FORGOTTEN, **case.ignore} if backend.unclaimed.gradients else case.ignore,
        known=(),
        axes=(*params, "devices") if variant.device != "cpu" else tuple(params),
    )
    try:
        return _inlined(resolved, params)
    except _Unfit:
        return resolved


def _chosen_constants(kernel: Kernel, params: Mapping[str, Any]) -> Kernel:
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
        _Unfit: one is no finite number or list of such, or something else has its name.
    """
    own_names = {*(item.name for item in (*case.inputs, *case.state)), *names_made(case.chain)}
    values = [*params.values(), *(value for call in case.calls for value in call.params.values())]
    if own_names & set(params) or not all(map(_is_fit, values)):
        raise _Unfit
    return replace(
        change_parts(replace(case, calls=()), partial(_substituted, params)),
        params={},
        axes=tuple(axis for axis in case.axes if axis not in params),
        calls=tuple(_call(case, call, params) for call in case.calls),
    )


def _call(case: Case, call: Call, params: Mapping[str, Any]) -> Call:
    """A further call without params: inputs that these change are replaced whole."""
    substitute_call, substitute_case = partial(_substituted, {**params, **call.params}), partial(_substituted, params)
    own = {item.name: item for item in call.inputs}
    pairs = [(item, change_parts(own.get(item.name, item), substitute_call)) for item in case.inputs]
    return replace(
        change_parts(replace(call, inputs=()), substitute_call),
        params={},
        inputs=tuple(new for item, new in pairs if item.name in own or new != change_parts(item, substitute_case)),
    )


def _substituted(params: Mapping[str, Any], value: Value) -> Value:
    """The value with params put in; called with each part of a value."""
    if isinstance(value, Ref) and value.name in params:
        return value_of_param(_part(params[value.name], value.path))
    if isinstance(value, Index):
        return replace(
            value, entries=tuple(change_entry(entry, lambda part: _entry(params, part)) for entry in value.entries)
        )
    return _number(params, value) if isinstance(value, Arithmetic) else value


def _part(value: Any, path: RefPath) -> Any:
    """What a reference to a param reaches: the value, or an item of a list. Raises _Unfit for anything else."""
    for place in path:
        if not isinstance(value, tuple) or not isinstance(place, int) or not -len(value) <= place < len(value):
            raise _Unfit
        value = value[place]
    return value


def _number(params: Mapping[str, Any], value: Arithmetic) -> Value:
    try:
        tree = expressions.parse(value.text)
        if expressions.is_static(tree, params):
            number = expressions.evaluate(tree, params)
            return Literal(number) if isinstance(number, bool) or _is_number(number) else value
        text = expressions.render(tree, params, lambda name: name)
        expressions.parse(text)  # a list is no part of an expression
        return replace(value, text=text)
    except expressions.ExpressionError as error:
        raise _Unfit from error


def _entry(params: Mapping[str, Any], entry: Ref | Arithmetic) -> Any:
    """An entry of an index, which holds integers where a value is a literal."""
    value = _substituted(params, entry)
    if isinstance(value, Items):
        return [item.value for item in value.items if isinstance(item, Literal)]
    if not isinstance(value, Literal):
        return value
    return value.value if isinstance(value.value, int) else Arithmetic(repr(value.value), entry.span)


def _is_fit(value: Any) -> bool:
    """Whether a value is a number, or a list of such."""
    return all(map(_is_fit, value)) if isinstance(value, tuple) else _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# --- plain data as text ---------------------------------------------------------------------


def emit(data: Mapping[str, Any]) -> str:
    """Return plain data as the text of a file, in the layout that ``runner fmt`` gives files.

    Raises QuoteError for a value that is no plain data.
    """
    root = tree_of(data)
    assert isinstance(root, Collection)
    return render(root)
