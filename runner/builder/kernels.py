"""``triton.<name>`` in a chain: which kernel that is, and how it is called."""

from __future__ import annotations

from runner.builder.operators import Operator, Refusal
from runner.builder.render import Renderer, call
from runner.builder.scope import Scope, python_name
from runner.cases.model import Kernel, Step
from runner.diagnostics import nearest
from runner.quote import identifier

PREFIX = "triton."


def resolve(name: str, scope: Scope) -> Operator | Refusal | None:
    """Return the kernel that ``name`` launches, or why none can be; None for a name that is no ``triton.<name>``."""
    if not name.startswith(PREFIX):
        return None
    kernel = scope.kernels.get(name.removeprefix(PREFIX))
    if kernel is None:
        return Refusal(f"{name} cannot be launched here", "kernels are launched in the chain of a case")
    return Operator(name, "kernel", launcher(kernel) if scope.launches else reference(kernel))


def launcher(kernel: Kernel) -> str:
    """Return the name of the function that launches a kernel."""
    return identifier(f"launch_{kernel.name}")


def reference(kernel: Kernel) -> str:
    """Return the name of the function that a kernel is compared with."""
    return identifier(f"reference_{kernel.name}")


def call_of(step: Step, function: str, scope: Scope, render: Renderer) -> str:
    """Return the call of a kernel's ``function``; report inputs that are missing, unknown or given twice."""
    kernel = scope.kernels[step.operator.removeprefix(PREFIX)]
    positional, keywords = render.arguments(step.arguments, step.span)
    hint = "it takes " + ", ".join(kernel.inputs)
    if len(positional) > len(kernel.inputs):
        scope.problems.error(
            step.span, f"{step.operator} takes {len(kernel.inputs)} inputs, not {len(positional)}", hint
        )
    input_names = list(kernel.inputs[: len(positional)])
    for key, _ in keywords:
        if key in input_names:
            scope.problems.error(step.span, f"{step.operator} is given {key!r} twice")
        elif key not in kernel.inputs:
            scope.problems.error(
                step.span, f"{step.operator} has no input {key!r}", nearest(key, kernel.inputs) or hint
            )
        input_names.append(key)
    missing = [name for name in kernel.inputs if name not in input_names]
    if missing:
        scope.problems.error(step.span, f"{step.operator} is not given {', '.join(missing)}", hint)
    return call(function, positional, [(python_name(key), text) for key, text in keywords])
