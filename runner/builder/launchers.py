"""Kernels as source: their files, and for each a function that launches it and one that it is held against."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.builder.chain import ChainWriter, Line, launcher, names_made, reference
from runner.builder.names_and_values import Scope, python_name, temporary
from runner.cases import expressions
from runner.cases.model import Arithmetic, Items, Kernel, Literal, Output, Ref, Value, Variant
from runner.cases.problems import Problems
from runner.cases.python_files import top_names
from runner.cases.yaml.values import show_value
from runner.diagnostics import Span
from runner.files import read_text
from runner.quote import comment, dotted_name, identifier, literal, torch_name

FUTURE = "from __future__ import annotations"
_FUTURE = re.compile(r"^from __future__ import .*$", re.MULTILINE)
_OWN = re.compile(
    r"Model|KernelModel|make_model|make_kernel_model|make_inputs\w*|CALLS|KERNELS|launch\w*|reference_\w+|torch|nn|F|"
    r"numpy"
)
"""Names at the top of the written source, which a kernel's file must leave alone."""

_LAUNCH = '''
def launch(kernel, grid, arguments, new):
    """Launch a kernel; ``new`` are the arguments that hold nothing yet."""
    kernel[grid](**arguments)
'''


def files(kernels: Sequence[Kernel], problems: Problems) -> list[Line]:
    """Return the source of the kernels' files, each once, as it is; report names that collide."""
    lines: list[Line] = []
    defined: dict[str, str] = {}
    for file in dict.fromkeys(kernel.file for kernel in kernels):
        text = read_text(file)
        first = next(kernel for kernel in kernels if kernel.file == file)
        for name, line in top_names(text).items():
            if _OWN.fullmatch(name):
                problems.error(
                    first.span,
                    f"{Path(file).name}:{line} defines {name!r}, which the written source uses itself",
                    "call it otherwise",
                )
            elif name in defined:
                problems.error(
                    first.span,
                    f"{Path(file).name} and {defined[name]} both define {name!r}",
                    "give one of them another name",
                )
            defined[name] = Path(file).name
        lines += [Line(""), Line(comment(Path(file).name))]
        text = _FUTURE.sub("", text)  # it stands at the top of the written source
        lines += [Line(line, Span(file, number, 1)) for number, line in enumerate(text.rstrip("\n").split("\n"), 1)]
        lines.append(Line(""))
    return lines


def functions(variant: Variant, problems: Problems, used_params: set[str]) -> list[Line]:
    """Return the source of ``launch``, and of two functions for each kernel, with the variant's constants."""
    kernels = variant.case.kernels
    lines = [Line(line) for line in _LAUNCH.split("\n")]
    for kernel in kernels:
        writer = _Writer(kernel, variant, problems, used_params)
        lines += [Line(""), *writer.launcher(), Line(""), Line(""), *writer.reference(), Line("")]
    return [*lines, Line(""), Line(f"KERNELS = {literal([launcher(kernel) for kernel in kernels])}")]


class _Writer:
    """One kernel. Constants that are plain values are written where they are used, the others are variables."""

    def __init__(self, kernel: Kernel, variant: Variant, problems: Problems, used_params: set[str]) -> None:
        self.kernel, self.variant, self.problems = kernel, variant, problems
        self.constants: dict[str, Value] = {}
        for name, values in kernel.constants.items():
            axis = f"{kernel.name}.{name}"
            if axis in variant.params:
                used_params.add(axis)
                self.constants[name] = Literal(variant.params[axis])
            else:
                self.constants[name] = values[0]
        self.plain = {name: value.value for name, value in self.constants.items() if isinstance(value, Literal)}

    def launcher(self) -> Iterator[Line]:
        """The function that launches it."""
        kernel = self.kernel
        inputs = ", ".join(
            f"{python_name(n)}: {dotted_name(kernel.scalars.get(n, 'torch.Tensor'))}" for n in kernel.inputs
        )
        gives = ["torch.Tensor"] * len(kernel.outputs)
        result = gives[0] if len(gives) == 1 else f"tuple[{', '.join(gives)}]"
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
        kernel = self.kernel
        names = [python_name(name) for name in kernel.inputs]
        lines = [Line(f"def {reference(kernel)}({', '.join(names)}):", kernel.span)]
        if kernel.reference_function is not None:
            return [
                *lines,
                Line(f"    return {identifier(kernel.reference_function)}({', '.join(names)})", kernel.span),
            ]
        scope = Scope(self.problems, self.plain, set(names))
        for name in kernel.inputs:
            scope.define(name)
        scope.temporary = temporary(scope.reserved | names_made(kernel.reference))
        if kernel.inputs:
            scope.previous, scope.previous_name = names[0], kernel.inputs[0]
        writer = ChainWriter(scope, self.variant.dtype, self.variant.device, None, 1)
        if len(kernel.outputs) == 1 or not isinstance(kernel.result, Items):
            writer.write(kernel.reference, kernel.result, returns=True)
            return [*lines, *writer.lines]
        writer.write(kernel.reference, None, returns=False)
        results = ", ".join(writer.render.value(item) for item in kernel.result.items)  # a tuple, as the launch gives
        return [*lines, *writer.lines, Line(f"    return {results}", kernel.span)]

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
