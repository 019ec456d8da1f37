"""A variant as Python source: ``class Model``, ``make_model()``, ``make_inputs()``, and for several calls ``CALLS``.

What the caller does between calls stands in functions of its own: ``runner/builder/callers.py``.

A case that launches Triton kernels has a second model of the same name and seed, ``make_kernel_model()``. The second
model launches the kernels; the first computes their references.

One path: this text is what workers load, what ``runner show`` prints and what ``runner repro`` exports.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from runner.builder.arguments import places_of_texts
from runner.builder.callers import CallerWriter
from runner.builder.chain import REORDER, ChainWriter, Line, Modules, functions_of, launcher, names_made, reference
from runner.builder.inputs import Arrangement, TensorWriter, arrange, called_function
from runner.builder.names_and_values import READ_TENSOR, Scope, call, python_name, temporary
from runner.builder.stored_tensors import READER
from runner.cases import expressions
from runner.cases.expressions import LAUNCH_FUNCTIONS
from runner.cases.limits import Limits
from runner.cases.model import (
    FLOATING,
    GIVEN,
    MODE_AXES,
    Arithmetic,
    Call,
    Case,
    Input,
    Items,
    Kernel,
    Literal,
    Marks,
    Output,
    PythonModule,
    Ref,
    Value,
    Variant,
)
from runner.cases.problems import Problems, TooManyProblems
from runner.cases.python_files import top_names
from runner.cases.texts import numpy_step
from runner.cases.walk import places_made
from runner.cases.yaml.values import show_value
from runner.contract.job import defines
from runner.diagnostics import Diagnostic, InputError, Span, shown_path
from runner.files import read_text
from runner.quote import QuoteError, comment, docstring, dotted_name, identifier, integer, literal, torch_name


@dataclass(frozen=True, slots=True)
class Source:
    """The text, the YAML place of each of its lines (None for a line without one), and what is wrong with the case."""

    text: str
    places: tuple[Span | None, ...]
    diagnostics: tuple[Diagnostic, ...] = ()

    def place(self, line: int | None) -> Span | None:
        """Return the YAML place of one-based line ``line``, or of the nearest line above that has one."""
        above = () if line is None else reversed(self.places[:line])
        return next((place for place in above if place is not None), None)


def build(variant: Variant, lines: Sequence[str] = (), limits: Limits | None = None) -> Source:
    """Return the source of a variant. ``lines`` are the YAML file's, for the carets of its diagnostics.

    Everything that only writing a case out can tell is in the diagnostics: unknown operators, undefined and
    unused names, sizes out of bounds. With errors in them the text is not to be run.

    Raises InputError for a value that has no place in Python text, which no reader should have let through.
    """
    return _Builder(variant, lines, limits or Limits()).checked_source()


def has_twin(source: Source) -> bool:
    """Return whether a source defines an equal program beside its model."""
    return defines(source.text, "make_twin")


@contextlib.contextmanager
def placed(case: Case, lines: Sequence[str] = ()) -> Iterator[None]:
    """Raise InputError, at the case's place, for a value that has no place in Python text. ``lines`` are its file's."""
    try:
        yield
    except QuoteError as error:
        problems = Problems(lines)
        problems.error(case.span, f"case {case.name!r} cannot be written as Python: {error}")
        raise InputError(problems.diagnostics) from None


class _Builder:
    def __init__(self, variant: Variant, lines: Sequence[str], limits: Limits) -> None:
        self.variant, self.case, self.lines, self.limits = variant, variant.case, lines, limits
        self.problems = Problems(lines, limits, variant.case.file)
        self.has_arrays = functools.cache(lambda: numpy_step(variant.case) is not None)  # few cases ask
        self.used: set[str] = set()
        self.used_params: set[str] = set()
        self.names: Mapping[str, Span] = {}  # those of self in a chain
        self.modes: list[tuple[str, bool]] = []  # of modules with a train: of their own
        self.twin: list[Line] = []
        self.tensor_lines: list[Line] = []  # the state, the inputs and the cotangents
        self.function_class = ""  # around a person's function that is the model itself

    def checked_source(self) -> Source:
        """What ``build`` returns."""
        with placed(self.case, self.lines), contextlib.suppress(TooManyProblems):
            try:
                return self.source()
            except (OSError, SyntaxError, UnicodeDecodeError) as error:  # another case may have changed the file
                message = f"its Python file has changed, and cannot be read any more: {error}"
                self.problems.error(self.case.span, message)
        return Source("", (), tuple(self.problems.diagnostics))

    def tensors(self, dtype: str) -> str | None:
        """The state, inputs and cotangents of a source without problems in another dtype, or its own; None where these
        have problems.

        No other part of a source can have a problem in one dtype alone.
        """
        other = self
        if dtype != self.variant.dtype:
            other = copy.copy(self)
            other.variant, other.problems = replace(self.variant, dtype=dtype), Problems(self.lines, self.limits, "")
            other.tensor_lines = []
            try:
                if self.case.module is None:
                    other._state()
                other._made_inputs()
                other._made_cotangents()
            except (TooManyProblems, QuoteError, OSError):
                return None
        return None if other.problems.diagnostics else "\n".join(line.text for line in other.tensor_lines)

    def source(self) -> Source:
        case = self.case
        model = self._python_module() if case.module is not None else self._model()
        self.arrangement = self._arrangement()
        calls, functions = self._made_inputs()
        cotangents, more = self._made_cotangents()
        for changed in case.calls:
            self._check_call(changed)
        callers = self._callers()
        if case.module is not None:  # behind a person's file come the imports of the caller's functions
            text = "\n".join(line.text for line in callers.lines)
            modules = ("contextlib", "math", *(f"torch.{module}" for module in _MODULES))
            model += [Line(f"import {module}") for module in modules if f"{module}." in text]
        body = [*self._kernels(), *model, Line(""), Line(""), *self._make_model(), *functions, *more, *callers.lines]
        if f"{READ_TENSOR}(" in "\n".join(line.text for line in body):
            body += map(Line, READER.split("\n"))
        lists = {
            "CALLS": calls if len(calls) > 1 else [],
            "COTANGENTS": cotangents,
            "KEYWORD_INPUTS": [literal(name) for name in self.arrangement.keywords],
        }
        for name, values in {**lists, **callers.lists}.items():
            if values:
                body += [Line(""), Line(""), Line(f"{name} = [{', '.join(values)}]")]
        for span, message, hint in self._unused():
            self.problems.error(span, message, hint)
        lines = [*self._head(body), *body]
        return Source(
            "\n".join(line.text for line in lines) + "\n",
            tuple(line.span for line in lines),
            tuple(self.problems.diagnostics),
        )

    # --- the parts of the file ---

    def _head(self, body: Iterable[Line]) -> list[Line]:
        case, text = self.case, "\n".join(line.text for line in body)
        if case.module is not None:  # the person's file comes first, as it is: what it says of __future__ must
            return []
        doc = docstring(case.doc.strip())
        doc = re.sub(r"\n\s*\n\s*", "\n\n", doc) if "\n" in doc else doc
        title = docstring(case.name + self.variant.label.partition(f"::{case.name}")[2]).replace("\n", " ")
        # Each search follows a look for the same letters, which takes a tenth of its time and mostly ends it.
        standard = [m for m in ("contextlib", "math") if f"{m}." in text and re.search(rf"(?<![\w.]){m}\.", text)]
        has_nn = "nn." in text and re.search(r"\bnn\.", text.replace("torch.nn.", ""))
        called = [name for name in LAUNCH_FUNCTIONS if case.kernels and re.search(rf"(?<![\w.]){name}\(", text)]
        blocks = [
            f'"""{title}',
            "",
            *([doc, ""] if doc else []),
            docstring(f"Written from {shown_path(case.file)}:{case.span.line}.").replace("\n", " "),
            '"""',
            "",
            *([FUTURE, ""] if any("__future__" in read_text(kernel.file) for kernel in case.kernels) else []),
            *(f"import {module}" for module in standard),
            *([""] if standard else []),
            "import torch",
            *(["import torch.nn.functional as F"] if "F." in text and re.search(r"\bF\.", text) else []),
            *(["from torch import nn"] if has_nn else []),
            *(f"import torch.{m}" for m in _MODULES if f"torch.{m}." in text),
            *(["import numpy"] if "numpy." in text and "numpy." in re.sub(r"\.numpy\b", "", text) else []),
            *([f"from triton import {', '.join(called)}"] if called else []),
            "",
            "",
        ]
        return [Line(line) for block in blocks for line in block.split("\n")]

    def _python_module(self) -> list[Line]:
        module = self.case.module
        assert module is not None
        text = read_text(module.file)
        return [
            *_lines_of(module.file, text),
            *([] if re.search(r"^import torch\b", text, re.MULTILINE) else [Line(""), Line("import torch")]),
            *(Line(line, module.span) for line in self._function_model(module, text)),
        ]

    def _function_model(self, module: PythonModule, text: str) -> list[str]:
        """The class around a function that is the model itself, under a name that the file does not use."""
        function, missing = called_function(module, [item.name for item in self.case.inputs])
        if missing:
            self.problems.error(
                module.span,
                f"{module.name} takes {', '.join(missing)}, which nothing gives",
                "args: where the function makes the model; inputs of these names where it is the model",
            )
        if function is None:
            return []
        self.function_class = "FunctionModel"
        while self.function_class in text:
            self.function_class += "_"
        return [
            "",
            "",
            f"class {self.function_class}(torch.nn.Module):",
            "    def forward(self, *args, **kwargs):",
            f"        return {call(identifier(module.name), ['*args', '**kwargs'], self._module_arguments(module))}",
        ]

    def _module_arguments(self, module: PythonModule) -> list[tuple[str, str]]:
        render = self._input_writer().render
        return [(key, render.value(value)) for key, value in module.args]

    def _callers(self) -> CallerWriter:
        """The functions of what the caller does between the calls."""

        def values(one: Call) -> ChainWriter:
            scope = self._scope(set(), {**self.variant.params, **one.params})
            scope.in_forward = False
            return ChainWriter(scope, self.variant.dtype, self.variant.device, None, 1)

        return CallerWriter(self.case, values, self.problems, self.names, self.modes)

    def _kernels(self) -> list[Line]:
        case = self.case
        if not case.kernels:
            return []
        own = {name(kernel) for kernel in case.kernels for name in (launcher, reference)} | {"launch"}
        for name, span in [*((item.name, item.span) for item in case.inputs), *places_made(case.chain)]:
            if name in own:
                self.problems.error(span, f"{name!r} is what a kernel's function is called", "name it otherwise")
        return [
            *_kernel_files(case.kernels, self.problems),
            *_kernel_functions(self.variant, self.problems, self.used_params),
            Line(""),
            Line(""),
        ]

    def _model(self) -> list[Line]:
        modules, forward, self.scope = self._forward(launches=False)
        self.modes, self.names, self.chain_params = modules.modes, self.scope.state, set(self.scope.used_params)
        self.unused_outs = {name: s for name, s in self.scope.outputs.items() if name not in self.scope.used}
        self.twin = self._twin(forward)
        made = [*modules.lines, *self._state()]
        head = [Line("    def __init__(self):"), Line("        super().__init__()"), *made, Line("")] if made else []
        lines = [Line("class Model(torch.nn.Module):"), *head, *forward]
        if self.case.kernels:
            lines += [Line(""), Line(""), Line("class KernelModel(Model):"), *self._forward(launches=True)[1]]
        if self.twin:
            lines += [
                Line(""),
                *map(Line, functions_of(line.text for line in self.twin)),
                Line(""),
                Line(""),
                Line("class Twin(Model):"),
                *self.twin,
            ]
        return lines

    def _twin(self, forward: list[Line]) -> list[Line]:
        """The chain as a method after its rewrites; empty where it would be the same, or is written in vain."""
        rewrites = set(self.case.twin)
        if self.variant.grad.mode == "backward":  # gradients would be summed in another order
            rewrites.discard(REORDER)
        if not rewrites or self.case.kernels or self.problems.errors:
            return []
        twin = self._forward(launches=False, rewrites=rewrites)[1]
        return twin if [line.text for line in twin] != [line.text for line in forward] else []

    def _forward(self, launches: bool, rewrites: Collection[str] = ()) -> tuple[Modules, list[Line], Scope]:
        """The chain as a method, which launches the kernels or calls what they are held against.

        A twin's has ``rewrites``.
        """
        case, variant = self.case, self.variant
        passed = [i for i in case.inputs if not i.hidden]
        names = {*variant.params, *(python_name(i.name) for i in case.inputs), *names_made(case.chain)}
        scope = self._scope(names)
        scope.kernels, scope.launches = {kernel.name: kernel for kernel in case.kernels}, launches
        scope.state, scope.later = {item.name: item.span for item in case.state}, dict(places_made(case.chain))
        scope.temporary = temporary(names)
        for item in passed:
            scope.define(item.name)
        scope.tables.update({item.name: item.keys for item in passed if item.kind != "python"})
        if passed:
            scope.previous, scope.previous_name = scope.variables[passed[0].name], passed[0].name
        dtype = self._param_dtype() or variant.dtype
        suffix = f".to({torch_name(dtype)})" if dtype in FLOATING and dtype != "float32" else ""
        modules = Modules(ids={item.name for item in case.state} | {"forward"}, suffix=suffix)
        writer = ChainWriter(scope, variant.dtype, variant.device, modules, 2, sorted(rewrites))
        writer.write(case.chain, case.result, returns=True)
        parameters = ", ".join(["self", *(python_name(i.name) for i in passed)])
        return modules, [Line(f"    def forward({parameters}):"), *writer.lines], scope

    def _state(self) -> list[Line]:
        scope = self._scope({"self"})
        writer = TensorWriter(scope, self.variant.dtype, self.variant.device, self.limits, indent=2)
        for item in self.case.state:
            if item.kind == "python":
                text = writer.render.value(item.python or Literal(None))
            else:
                has_statements = item.layout or item.kind in ("view", "list", "dict")
                text = writer.make(item) if has_statements else writer.expression(replace(item, requires_grad=False))
            is_tensor = item.kind not in ("python", "list", "dict")
            value = f"torch.nn.Parameter({text})" if is_tensor and item.requires_grad else text
            line = f"self.{identifier(item.name)} = {value}"
            if is_tensor:
                scope.variables[item.name] = f"self.{item.name}"  # for a view of it
                line = line if item.requires_grad else f"self.register_buffer({literal(item.name)}, {text})"
            writer.lines.append(Line(f"        {line}", item.span))
        self.tensor_lines += writer.lines
        return writer.lines

    def _param_dtype(self) -> str | None:
        """The dtype that the case gives modules; the param that it refers to counts as used."""
        if (self.case.param_dtype or "").startswith("$"):
            self.used_params.add((self.case.param_dtype or "")[1:])
        return self.variant.param_dtype

    def _make_model(self) -> list[Line]:
        case, dtype, construction = self.case, self._param_dtype(), "Model()"
        if self.function_class:
            construction = f"{self.function_class}()"
        elif case.module is not None:
            construction = call(identifier(case.module.name), [], self._module_arguments(case.module))
        setup = [
            *([f"    model.to({literal(self.variant.device)})"] if self.variant.device != "cpu" else []),
            *([f"    model.to({torch_name(dtype)})"] if case.module and dtype in FLOATING else []),
            "    model.train()" if self.variant.train else "    model.eval()",
            *(f"    model.{name}.{'train' if mode else 'eval'}()" for name, mode in self.modes),
        ]
        models = {
            "make_model": construction,
            **({"make_kernel_model": "KernelModel()"} if case.kernels else {}),
            **({"make_twin": "Twin()"} if self.twin else {}),
        }
        blocks = [
            [f"def {name}():", f"    model = {made}", *setup, "    return model"] for name, made in models.items()
        ]
        span = case.module.span if case.module is not None else None
        return [Line(line, span) for block in blocks for line in ("", "", *block)][2:]

    def _made_inputs(self) -> tuple[list[str], list[Line]]:
        return self._functions("make_inputs", self._make_inputs)

    def _made_cotangents(self) -> tuple[list[str], list[Line]]:
        is_given = self.variant.grad.cotangent == GIVEN
        return self._functions("make_cotangents", self._make_cotangents) if is_given else ([], [])

    def _functions(
        self, stem: str, write: Callable[[Mapping[str, Any], Sequence[Input]], list[Line]]
    ) -> tuple[list[str], list[Line]]:
        """The functions' names, one a call, and their lines; calls that make the same tensors share a function."""
        calls: list[str] = []
        lines: list[Line] = []
        function_names: dict[str, str] = {}
        for params, inputs in [({}, ()), *((c.params, c.inputs) for c in self.case.calls)]:
            body = write({**self.variant.params, **params}, inputs)
            text = "\n".join(line.text for line in body)
            if text not in function_names:
                function_names[text] = f"{stem}_{len(function_names)}" if function_names else stem
                lines += [Line(""), Line(""), Line(f"def {function_names[text]}():"), *body]
            calls.append(function_names[text])
        self.tensor_lines += lines
        return calls, lines

    def _check_call(self, one: Call) -> None:
        error = self.problems.error
        for name, value in one.params.items():
            if name not in self.case.params:
                error(one.span, f"a call sets param {name!r}, which the case does not have")
            elif self.case.module is None and name in self.chain_params and value != self.variant.params[name]:
                error(
                    one.span,
                    f"param {name!r} is a constant of the chain, so a call cannot change it",
                    "write ${x.shape[0]} in the chain",
                )
        for item in one.inputs:
            if item.name not in {i.name for i in self.case.inputs}:
                error(item.span, f"a call replaces input {item.name!r}, which the case does not have")

    def _make_inputs(self, params: Mapping[str, Any], replaced: Sequence[Input]) -> list[Line]:
        cotangents = self._cotangents()
        self.used |= {name for name in cotangents if name is not None}
        writer, new = self._input_writer(params), {item.name: item for item in replaced}
        variables = {i.name: writer.make(new.get(i.name, i)) for i in self.case.inputs if i.name not in cotangents}
        passed = ", ".join(variables[name] for name in self.arrangement.inputs)
        return [*writer.lines, *self._marks(variables), Line(f"    return [{passed}]")]

    def _marks(self, variables: Mapping[str, str]) -> Iterator[Line]:
        """Yield the statements that mark dimensions of inputs as dynamic."""
        marks = self.variant.dynamic
        for mark in marks.items if isinstance(marks, Marks) else ():
            function = "torch._dynamo.maybe_mark_dynamic" if mark.maybe else "torch._dynamo.mark_dynamic"
            dimensions = [integer(number) for number in mark.dimensions]
            if mark.name in variables:  # else it is reported
                yield Line(f"    {function}({variables[mark.name]}, [{', '.join(dimensions)}])", mark.span)

    def _cotangents(self) -> set[str | None]:
        return {name for grad in self.case.grad if grad.cotangent == GIVEN for name in grad.given}

    def _arrangement(self) -> Arrangement:
        """How the inputs go to the model, or in their order where that is reported."""
        passed = [item for item in self.case.inputs if not item.hidden and item.name not in self._cotangents()]
        names = [item.name for item in passed]
        arrangement = arrange(self.case.module, names)
        for name, (message, hint) in arrangement.problems.items():
            self.problems.error(passed[names.index(name)].span, message, hint)
        return arrangement

    def _make_cotangents(self, params: Mapping[str, Any], replaced: Sequence[Input]) -> list[Line]:
        """What the given cotangents of the variant are, one for each tensor output."""
        writer, given = self._input_writer(params), self.variant.grad.given
        items = {item.name: item for item in (*self.case.inputs, *replaced)}
        variables = {name: writer.make(items[name]) for name in dict.fromkeys(given) if name in items}
        return [*writer.lines, Line(f"    return [{', '.join(variables.get(name or '', 'None') for name in given)}]")]

    def _input_writer(self, params: Mapping[str, Any] | None = None) -> TensorWriter:
        scope = self._scope({i.name for i in self.case.inputs}, params)
        scope.in_forward = False
        return TensorWriter(scope, self.variant.dtype, self.variant.device, self.limits)

    # --- what the whole case must hold to ---

    def _scope(self, names: set[str], params: Mapping[str, Any] | None = None) -> Scope:
        return Scope(
            self.problems,
            self.variant.params if params is None else params,
            names,
            used=self.used,
            used_params=self.used_params,
            has_arrays=self.has_arrays,
        )

    def _unused(self) -> Iterator[tuple[Span, str, str]]:
        """Yield what the case has and does not use: its place, the message and the hint."""
        case = self.case
        if case.module is None:
            for item in case.inputs:
                if item.name not in self.used and not self._is_text(item.name):
                    yield item.span, f"input {item.name!r} is never used", "take it out, or use it in the chain"
            for name, span in ((item.name, item.span) for item in case.state if f"self.{item.name}" not in self.used):
                yield span, f"state {name!r} is never used", f"$self.{name} or out: self.{name} uses it"
            for name, span in self.unused_outs.items():
                if not name.startswith("self."):
                    hint = "write _ for what is not needed, or take the step out"
                    yield span, f"{name!r} is made here and never used", hint
            # Where eager is to raise, any step may be the one that does.
            for step in self.scope.dropped if not self.problems.errors and case.expect.raises is None else ():
                hint = "write $_ where it is meant, name it by out:, or take the step out; out: _ drops it"
                yield step.span, f"the value of {step.operator} is never used", hint
        others = {name for one in case.calls for name in one.params} | {name for k in case.known for name in k.params}
        for name in case.params:
            if (
                name not in self.used_params | others | {*case.placed}
                and not self.problems.errors
                and not self._is_text(name)
            ):
                yield (
                    case.span,
                    f"nothing in case {case.name!r} uses the axis {name!r}",
                    f"use it as ${{{name}}}, or take it out",
                )

    def _is_text(self, name: str) -> bool:
        """Whether the chain holds an unused name as text; it is reported."""
        place = places_of_texts(self.case).get(name)
        if place is not None:
            self.problems.error(place, f"{name!r} is text", f"write ${name}")
        return place is not None


_MODULES = (
    "_dynamo.config",
    "nn.utils.rnn",
    "distributions",
    "nn.attention.flex_attention",
    "signal.windows",
    "utils.checkpoint",
    "autograd.functional",
)


_choices = attrgetter("params", "device", *MODE_AXES)
"""What decides about the source of a variant of a case, beside its dtype."""


def check(
    case: Case,
    variants: Sequence[Variant],
    lines: Sequence[str],
    limits: Limits | None = None,
    room: int | None = None,
) -> tuple[list[Diagnostic], int]:
    """Return what is wrong with a case, and how many characters of source were written to find out.

    The first variant is written out, and every other one whose sizes differ. Beyond ``room`` characters no more
    variants are written; the first one always is.
    """
    limits = limits or Limits()
    diagnostics: dict[Diagnostic, None] = {}
    keys: set[tuple[object, ...]] = set()
    first: _Builder | None = None
    tensors: dict[str, str] = {}  # of the first variant in each dtype
    characters = 0
    for number, variant in enumerate(variants):
        key = (tuple(variant.params.items()), variant.dtype if len(keys) < 4 else None)
        if key in keys:
            continue
        if number and characters > (limits.source_characters if room is None else room):
            message = f"{number} of the {len(variants)} variants of case {case.name!r} were written out and checked"
            diagnostics[Diagnostic(case.span, message, limits.hint("source_characters"), "warning")] = None
            break
        keys.add(key)
        if first is not None and not diagnostics and _choices(variant) == _choices(first.variant):
            text = first.tensors(variant.dtype)
            if text is not None:
                tensors[variant.dtype] = text
                characters += len(text)
                continue
        builder = _Builder(variant, lines, limits)
        try:
            source = builder.checked_source()
        except InputError as error:
            diagnostics.update((d, None) for d in error.diagnostics)
            continue
        characters += len(source.text)
        diagnostics.update((d, None) for d in source.diagnostics)
        first = first or builder
        if sum(d.severity == "error" for d in diagnostics) > limits.diagnostics:
            break
    if first is not None and not diagnostics and len(case.dtypes) > 1:
        texts = [tensors.get(dtype) or first.tensors(dtype) for dtype in case.dtypes]
        if None in texts or len({*texts}) < len(texts):
            diagnostics.update((d, None) for d in _idle_dtypes(variants[0], lines, limits))
    return list(diagnostics), characters


def _idle_dtypes(variant: Variant, lines: Sequence[str], limits: Limits) -> list[Diagnostic]:
    """Report two dtypes of a case whose models and inputs are the same: the axis would change nothing between them."""
    case, problems = variant.case, Problems(lines, limits, variant.case.file)
    texts: dict[str, str] = {}
    for dtype in case.dtypes:
        text = build(replace(variant, dtype=dtype), lines, limits).text
        if case.module is None:
            text = text[text.index('"""', 3) :]  # without the title, which names the dtype
        if (other := texts.setdefault(text, dtype)) != dtype:
            message = f"dtypes: {other} and {dtype} give case {case.name!r} the same model and the same inputs"
            hint = "param_dtype: $dtype casts the model" if case.module else "take one of them out"
            problems.error(case.span, message, hint)
            break
    return problems.diagnostics


# --- kernels: their files, and for each a function that launches it and one that it is held against ---

FUTURE = "from __future__ import annotations"
_FUTURE = re.compile(r"^from __future__ import .*$", re.MULTILINE)  # such a line stands at the top of the source
_OWN = re.compile(
    r"Model|KernelModel|make_model|make_kernel_model|make_inputs\w*|CALLS|KERNELS|launch\w*|reference_\w+|torch|nn|F|"
    r"numpy|STEPS|CHANGES|CONTEXTS|THREADS|contextlib|make_optimizer|(change|around)_\d+|save_state"
)
"""Names at the top of the written source, which a kernel's file must leave alone."""

_LAUNCH = '''
def launch(kernel, grid, arguments, new):
    """Launch a kernel; ``new`` are the arguments that hold nothing yet."""
    kernel[grid](**arguments)
'''


def _kernel_files(kernels: Sequence[Kernel], problems: Problems) -> list[Line]:
    """Return the source of the kernels' files, each once, as it is; report names that collide."""
    lines: list[Line] = []
    defined: dict[str, str] = {}
    for file in dict.fromkeys(kernel.file for kernel in kernels):
        text, title = read_text(file), Path(file).name
        first = next(kernel for kernel in kernels if kernel.file == file)
        for name, line in top_names(text).items():
            if _OWN.fullmatch(name):
                message = f"{title}:{line} defines {name!r}, which the written source uses itself"
                problems.error(first.span, message, "call it otherwise")
            elif name in defined:
                message = f"{title} and {defined[name]} both define {name!r}"
                problems.error(first.span, message, "give one of them another name")
            defined[name] = title
        lines += [Line(""), Line(comment(title)), *_lines_of(file, _FUTURE.sub("", text)), Line("")]
    return lines


def _lines_of(file: str, text: str) -> list[Line]:
    return [Line(line, Span(file, number, 1)) for number, line in enumerate(text.rstrip("\n").split("\n"), 1)]


def _kernel_functions(variant: Variant, problems: Problems, used_params: set[str]) -> list[Line]:
    """Return the source of ``launch``, and of two functions for each kernel, with the variant's constants."""
    kernels = variant.case.kernels
    lines = [Line(line) for line in _LAUNCH.split("\n")]
    for kernel in kernels:
        writer = _KernelWriter(kernel, variant, problems, used_params)
        lines += [Line(""), *writer.launcher(), Line(""), Line(""), *writer.reference(), Line("")]
    return [*lines, Line(""), Line(f"KERNELS = {literal([launcher(kernel) for kernel in kernels])}")]


class _KernelWriter:
    """One kernel. Constants that are plain values are written where they are used, the others are variables."""

    def __init__(self, kernel: Kernel, variant: Variant, problems: Problems, used_params: set[str]) -> None:
        self.kernel, self.variant, self.problems = kernel, variant, problems
        axes = {name: f"{kernel.name}.{name}" for name in kernel.constants}
        used_params |= {axis for axis in axes.values() if axis in variant.params}
        self.constants: dict[str, Value] = {
            name: Literal(variant.params[axis]) if axis in variant.params else kernel.constants[name][0]
            for name, axis in axes.items()
        }
        self.plain = {name: value.value for name, value in self.constants.items() if isinstance(value, Literal)}

    def launcher(self) -> Iterator[Line]:
        """The function that launches it."""
        kernel = self.kernel
        inputs = ", ".join(
            f"{python_name(n)}: {dotted_name(kernel.scalars.get(n, 'torch.Tensor'))}" for n in kernel.inputs
        )
        gives = ", ".join(["torch.Tensor"] * len(kernel.outputs))
        result = gives if len(kernel.outputs) == 1 else f"tuple[{gives}]"
        yield Line(f"def {launcher(kernel)}({inputs}) -> {result}:", kernel.span)
        yield Line(f'    """Launches {identifier(kernel.function)}."""', kernel.span)
        for name, value in self.constants.items():
            if not isinstance(value, Literal):
                yield Line(f"    {identifier(name)} = {self._text(value)}", kernel.span)
        for output in kernel.outputs:
            yield Line(f"    {python_name(output.name)} = {self._made(output)}", output.span)
        grid = ", ".join(map(self._programs, kernel.grid)) + ("," if len(kernel.grid) == 1 else "")
        pairs = [(name, self._text(value)) for name, value in kernel.arguments]
        pairs += [
            (name, literal(self.plain[name]) if name in self.plain else identifier(name)) for name in self.constants
        ]
        arguments = ", ".join(f"{literal(name)}: {text}" for name, text in pairs)
        fresh = {output.name for output in kernel.outputs if output.fill is None}
        new = [name for name, value in kernel.arguments if isinstance(value, Ref) and value.name in fresh]
        yield Line(f"    launch({identifier(kernel.function)}, ({grid}), {{{arguments}}}, {literal(new)})", kernel.span)
        yield Line(f"    return {', '.join(python_name(output.name) for output in kernel.outputs)}")

    def reference(self) -> list[Line]:
        """The function that it is held against."""
        kernel, names = self.kernel, list(map(python_name, self.kernel.inputs))
        head = Line(f"def {reference(kernel)}({', '.join(names)}):", kernel.span)
        if kernel.reference_function is not None:
            return [head, Line(f"    return {identifier(kernel.reference_function)}({', '.join(names)})", kernel.span)]
        free = temporary({*names, *names_made(kernel.reference)})
        scope = Scope(self.problems, self.plain, set(names), temporary=free)
        for name in kernel.inputs:
            scope.define(name)
        if names:
            scope.previous, scope.previous_name = names[0], kernel.inputs[0]
        writer = ChainWriter(scope, self.variant.dtype, self.variant.device, None, 1)
        if len(kernel.outputs) == 1 or not isinstance(kernel.result, Items):
            writer.write(kernel.reference, kernel.result, returns=True)
            return [head, *writer.lines]
        writer.write(kernel.reference, None, returns=False)
        results = ", ".join(writer.render.value(item) for item in kernel.result.items)  # a tuple, as the launch gives
        return [head, *writer.lines, Line(f"    return {results}", kernel.span)]

    def _text(self, value: Value) -> str:
        if isinstance(value, Literal):
            return literal(value.value)
        if isinstance(value, Ref):
            return literal(self.plain[value.name]) if value.name in self.plain else python_name(value.name)
        assert isinstance(value, Arithmetic)
        try:
            tree = expressions.parse(value.text, True)
            for name in expressions.names(tree) & set(self.plain):
                if not isinstance(self.plain[name], int | float):
                    raise expressions.ExpressionError(f"constant {name!r} is no number")
            return expressions.render(tree, self.plain, python_name)
        except expressions.ExpressionError as error:
            return self.problems.refuse("0", value.span, f"in ${{{value.text}}}: {error}")

    def _programs(self, value: Value) -> str:
        """One size of the grid: where it is known here, a number of programs that can be launched."""
        number: Any = value.value if isinstance(value, Literal) else None
        text = self._text(value)
        if isinstance(value, Arithmetic):
            numbers = {k: v for k, v in self.plain.items() if isinstance(v, int | float)}
            try:
                tree = expressions.parse(value.text, True)
                if not expressions.is_static(tree, numbers):
                    return text
                number = expressions.evaluate(tree, numbers)
            except expressions.ExpressionError:  # reported with its text
                return "0"
        if type(number) is not int or not 0 <= number < 1 << 31:
            self.problems.error(
                value.span if isinstance(value, Arithmetic) else self.kernel.span,
                f"a grid has 0 to 2147483647 programs each way, not {show_value(number)}",
            )
        return text

    def _made(self, output: Output) -> str:
        """How an output comes to be, on the device of the input that it is like."""
        kernel = self.kernel
        like = python_name(output.like or next((n for n in kernel.inputs if n not in kernel.scalars), kernel.inputs[0]))
        dtype = self.variant.dtype if output.dtype == "$dtype" else output.dtype
        options = f", dtype={torch_name(dtype)}" if dtype else ""
        fill = "" if output.fill is None else f", {literal(output.fill)}"
        word = "empty" if output.fill is None else "full"
        if output.shape is None:
            return f"torch.{word}_like({like}{fill}{options})"
        sizes = ", ".join(map(self._text, output.shape)) + ("," if len(output.shape) == 1 else "")
        return f"{like}.new_{word}(({sizes}){fill}{options})"
