"""``kernels:``: Triton kernels as operators ``triton.<name>``, each with the chain that it is held against."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.cases import expressions
from runner.cases.chains_and_inputs import dtype_name, parse_chain, parse_value
from runner.cases.model import DTYPES, Arithmetic, Kernel, Literal, Node, Output, Ref, Step, Value
from runner.cases.problems import Problems, within
from runner.cases.python_files import NAME_HINT, RESERVED, Signature, is_name, read_signatures, resolve_python_file
from runner.cases.texts import parse_arithmetic
from runner.cases.walk import all_steps
from runner.cases.yaml.values import (
    NUMBERS,
    YamlNode,
    YamlScalar,
    YamlSequence,
    entries,
    fields,
    items,
    scalar,
    several,
    table,
)
from runner.diagnostics import Span, nearest

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Constants that Triton takes at a launch besides the kernel's own."""


def parse_kernels(node: YamlNode | None, file: str, problems: Problems) -> dict[str, Kernel | None]:
    """Read the kernels of a file by name; None stands for one with errors, which are reported."""
    kernels: dict[str, Kernel | None] = {}
    signatures: dict[Path, Mapping[str, Signature] | None] = {}
    for key, value in entries(node):
        name = str(key.value)
        errors_before = problems.errors
        if not is_name(name):
            problems.error(key.span, f"{name!r} cannot name a kernel", "names are Python names")
        kernel = _Reader(name, key.span, file, problems, signatures).kernel(value)
        kernels[name] = kernel if problems.errors == errors_before else None
    return kernels


def launched_kernels(
    steps: Iterable[Step], kernels: Mapping[str, Kernel | None], problems: Problems
) -> tuple[Kernel, ...]:
    """Return the kernels that steps launch, each once, in order; report a name that the file does not declare."""
    by_name: dict[str, Kernel | None] = {}
    for step in launches(steps):
        name = step.operator.removeprefix("triton.")
        if name not in kernels:
            problems.error(
                step.span,
                f"this file declares no kernel {name!r}",
                nearest(name, kernels) or "kernels: at the top of the file declares one",
            )
        by_name[name] = kernels.get(name)
    return tuple(kernel for kernel in by_name.values() if kernel is not None)


def launches_broken_kernel(chain: Sequence[Node], kernels: Mapping[str, Kernel | None]) -> bool:
    """Return whether a chain launches a kernel that was declared with errors."""
    steps = all_steps(chain) if kernels else ()
    return any(kernels.get(step.operator.removeprefix("triton."), ...) is None for step in launches(steps))


def constant_axes(
    params: Mapping[str, tuple[Any, ...]], kernels: Iterable[Kernel], node: YamlNode | None, problems: Problems
) -> dict[str, tuple[Any, ...]]:
    """Return the params, with an axis ``kernel.CONSTANT`` for each constant that has alternatives and that the case
    does not set.

    ``node`` is the case's ``params:``; a dotted name in it that names no constant is reported.
    """
    axes = dict(params)
    constants = {f"{kernel.name}.{name}": values for kernel in kernels for name, values in kernel.constants.items()}
    for name, values in constants.items():
        if name not in axes and len(values) > 1:
            axes[name] = tuple(value.value for value in values if isinstance(value, Literal))
    for key, _ in entries(node):
        if "." in str(key.value) and str(key.value) not in constants:
            problems.error(
                key.span,
                f"{key.value!r} is no constant of a kernel that the chain launches",
                nearest(str(key.value), constants) or "a dotted param is <kernel>.<constant> of a kernel in the chain",
            )
    return axes


def launches(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield those of the steps that are ``triton.<name>``."""
    return (step for step in steps if step.operator.startswith("triton."))


class _Reader:
    """Reads one kernel. The schema has seen its keys and their types."""

    def __init__(
        self,
        name: str,
        span: Span,
        file: str,
        problems: Problems,
        signatures: dict[Path, Mapping[str, Signature] | None],
    ) -> None:
        """``signatures`` holds what the Python files define that have been read."""
        self.name, self.span, self.file, self.problems, self.signatures = name, span, file, problems, signatures
        self.seen: dict[str, Span] = {}  # names in the order of their first appearance

    def kernel(self, node: YamlNode) -> Kernel | None:
        """The kernel, or None where too little is known to say more."""
        keys = fields(node)
        path, function = keys["file"], keys["function"]
        full = resolve_python_file(path, self.file, self.problems)
        if full is None or not full.is_file():
            return None
        if full not in self.signatures:
            self.signatures[full] = read_signatures(full, path.span, self.problems)
        functions = self.signatures[full]
        if functions is None:
            return None
        signature = self._signature(functions, scalar(function, str), function.span, scalar(path, str))
        if signature is None:
            return None
        constants = self._constants(keys.get("constants"), signature)
        outputs = self._outputs(keys["outputs"])
        arguments = self._arguments(keys["arguments"], signature, constants)
        for output in outputs:
            self._name(output.like, output.span)
            for size in output.shape or ():
                self._names(size, output.span)
        grid = self._grid(keys["grid"])
        for value in itertools.chain(*constants.values()):
            self._names(value, self.span)
        output_names = {output.name for output in outputs}
        inputs = tuple(name for name in self.seen if name not in output_names and name not in constants)
        scalars = self._scalars(keys.get("scalars"), inputs)
        self._check_outputs(outputs, arguments, inputs, scalars, constants)
        if not set(inputs) - set(scalars):
            self.problems.error(self.span, f"kernel {self.name!r} has no tensor among its inputs")
        chain, reference_function = self._reference(keys["reference"], functions)
        return Kernel(
            self.name,
            self.span,
            str(full),
            signature.name,
            inputs,
            arguments,
            outputs,
            grid,
            constants,
            scalars,
            chain,
            reference_function,
            self._result(keys.get("return"), len(outputs), reference_function),
        )

    def _signature(self, functions: Mapping[str, Signature], name: str, span: Span, file: str) -> Signature | None:
        signature = functions.get(name)
        jitted = [candidate.name for candidate in functions.values() if candidate.jit]
        if signature is None:
            self.problems.error(
                span,
                f"{file} defines no function {name!r}",
                nearest(name, jitted) or (f"it has {', '.join(jitted)}" if jitted else "it has no kernel"),
            )
        elif not signature.jit:
            return self.problems.refuse(
                None,
                span,
                f"{name!r} in {file} is no kernel: it lacks @triton.jit",
                nearest(name, jitted) or "its kernels: " + (", ".join(jitted) or "none"),
            )
        return signature

    # --- values ---

    def _value(self, node: YamlNode) -> Value:
        """A number, text, null, ``$name`` or ``${...}``, which may call the functions of a launch."""
        if isinstance(node, YamlScalar) and isinstance(node.value, str) and re.fullmatch(r"(?s)\$\{.*\}", node.value):
            span = within(node.span, node.quoted, node.span.length)
            return parse_arithmetic(node.value, span, self.problems, launch=True) or Literal(0)
        value = parse_value(node, self.problems)
        if isinstance(value, Ref) and (value.path or value.name in ("_", "self")):
            self.problems.error(
                value.span, "arguments name inputs, outputs and constants: $x", "sizes are ${x.shape[0]}"
            )
        elif not isinstance(value, Literal | Ref):
            return self.problems.refuse(Literal(None), node.span, "an argument is a number, text, $name or ${...}")
        return value

    def _names(self, value: Value, span: Span) -> None:
        """Book the names that a value uses."""
        if isinstance(value, Ref):
            self._name(value.name, value.span)
        elif isinstance(value, Arithmetic):
            tree = expressions.parse(value.text, True)
            used = sorted(
                (n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in expressions.names(tree)),
                key=lambda n: n.col_offset,
            )
            for name in used:
                self._name(name.id, value.span)

    def _name(self, name: str | None, span: Span) -> None:
        if name is None or name in self.seen:
            return
        if not is_name(name, RESERVED):
            self.problems.error(span, f"{name!r} cannot name an input", NAME_HINT)
        self.seen[name] = span

    # --- the parts ---

    def _constants(self, node: YamlNode | None, signature: Signature) -> dict[str, tuple[Value, ...]]:
        constants: dict[str, tuple[Value, ...]] = {}
        for key, value in entries(node):
            name = str(key.value)
            if name not in (*signature.parameters, *OPTIONS):
                self.problems.error(
                    key.span,
                    f"kernel function {signature.name!r} has no parameter {name!r}",
                    nearest(name, (*signature.parameters, *OPTIONS)) or "it has " + ", ".join(signature.parameters),
                )
            parts = several(value)
            values = tuple(map(self._value, parts))
            for part, constant in zip(parts, values, strict=True):
                if isinstance(constant, Ref) or (len(parts) > 1 and not isinstance(constant, Literal)):
                    self.problems.error(
                        part.span, "a constant is a number, text or ${...}; alternatives are plain values"
                    )
            constants[name] = values
        return constants

    def _arguments(
        self, node: YamlNode, signature: Signature, constants: Mapping[str, Any]
    ) -> tuple[tuple[str, Value], ...]:
        free = [name for name in signature.parameters if name not in constants]
        arguments: list[tuple[str, Value]] = []
        if isinstance(node, YamlSequence):
            if len(node.items) > len(free):
                self.problems.error(
                    node.items[len(free)].span,
                    f"{signature.name} takes {len(free)} arguments, not {len(node.items)}",
                    f"besides constants it takes {', '.join(free)}",
                )
            arguments = [(name, self._value(item)) for name, item in zip(free, node.items)]  # noqa: B905
        else:
            for key, value in entries(node):
                name = str(key.value)
                if name not in free:
                    reason = "is a constant already" if name in constants else "is no parameter of it"
                    self.problems.error(
                        key.span, f"{name!r} {reason}", nearest(name, free) or f"it takes {', '.join(free)}"
                    )
                arguments.append((name, self._value(value)))
        for _, argument in arguments:
            self._names(argument, self.span)
        missing = [name for name in free if name in signature.required and name not in dict(arguments)]
        if missing and not signature.tuned:
            self.problems.error(
                node.span,
                f"{signature.name} is not given {', '.join(missing)}",
                "constants: gives those that are tl.constexpr" if set(missing) & signature.constexpr else "",
            )
        return tuple(arguments)

    def _outputs(self, node: YamlNode) -> tuple[Output, ...]:
        outputs = []
        for key, value in entries(node):
            name, keys = str(key.value), fields(value)
            if not is_name(name):
                self.problems.error(key.span, f"{name!r} cannot name an output", NAME_HINT)
            if "like" not in keys and "shape" not in keys:
                self.problems.error(key.span, f"output {name!r} has neither like: nor shape:", "such as {like: x}")
            outputs.append(
                Output(
                    name,
                    key.span,
                    scalar(keys.get("like"), str),
                    tuple(map(self._value, items(keys["shape"]))) if "shape" in keys else None,
                    self._dtype(keys["dtype"]) if "dtype" in keys else None,
                    scalar(keys.get("fill"), bool, *NUMBERS),
                )
            )
        return tuple(outputs)

    def _dtype(self, node: YamlNode) -> str:
        name = dtype_name(scalar(node, str))
        if name not in (*DTYPES, "$dtype"):
            self.problems.error(
                node.span, f"torch has no dtype {name!r}", nearest(name, DTYPES) or "such as float32, or $dtype"
            )
        return name

    def _grid(self, node: YamlNode) -> tuple[Value, ...]:
        sizes = []
        for item in items(node):
            value = self._value(item)
            if not isinstance(value, Arithmetic) and not (isinstance(value, Literal) and type(value.value) is int):
                self.problems.error(
                    item.span, "a grid holds integers and ${...}", 'such as ["${cdiv(x.numel(), BLOCK)}"]'
                )
            self._names(value, item.span)
            sizes.append(value)
        return tuple(sizes)

    def _scalars(self, node: YamlNode | None, inputs: Sequence[str]) -> dict[str, str]:
        scalars = table(node, str)
        for key, _ in entries(node):
            if key.value not in inputs:
                self.problems.error(
                    key.span, f"{key.value!r} is no input of kernel {self.name!r}", nearest(str(key.value), inputs)
                )
        return scalars

    def _check_outputs(
        self,
        outputs: Sequence[Output],
        arguments: Sequence[tuple[str, Value]],
        inputs: Sequence[str],
        scalars: Mapping[str, str],
        constants: Mapping[str, Any],
    ) -> None:
        passed = {value.name for _, value in arguments if isinstance(value, Ref)}
        tensors = [name for name in inputs if name not in scalars]
        for output in outputs:
            if output.name not in passed:
                self.problems.error(
                    output.span,
                    f"output {output.name!r} is passed to no argument",
                    f"write ${output.name} among the arguments",
                )
            if output.name in constants:
                self.problems.error(output.span, f"{output.name!r} is a constant too")
            if output.like is not None and output.like not in tensors:
                self.problems.error(
                    output.span,
                    f"output {output.name!r} is like {output.like!r}, which is no tensor input",
                    nearest(output.like, tensors),
                )

    def _result(self, node: YamlNode | None, outputs: int, reference_function: str | None) -> Value | None:
        count = len(node.items) if isinstance(node, YamlSequence) else 1
        if count != outputs and reference_function is None:
            self.problems.error(
                node.span if node is not None else self.span,
                f"the kernel has {outputs} outputs, its reference gives {count}",
                "return: [$a, $b] lists them" if outputs > 1 else "return: $a names it",
            )
        return None if node is None else parse_value(node, self.problems)

    def _reference(
        self, reference: YamlNode, functions: Mapping[str, Signature]
    ) -> tuple[tuple[Node, ...], str | None]:
        if not isinstance(reference, YamlScalar) or not isinstance(reference.value, str):
            return parse_chain(reference, self.problems), None
        signature = functions.get(reference.value)
        if signature is None or signature.jit:
            self.problems.error(
                reference.span,
                f"the kernel's file defines no plain function {reference.value!r}",
                nearest(reference.value, [candidate.name for candidate in functions.values() if not candidate.jit]),
            )
        return (), reference.value
