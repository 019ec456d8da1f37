"""A chain as Python statements, one a step; and the rewrites of its twin."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runner.builder import operators
from runner.builder.arguments import check_arguments, check_result, complete_call, kernel_options_fault
from runner.builder.names_and_values import Renderer, Scope, call, fill, python_name
from runner.builder.operators import Operator, Refusal
from runner.cases import expressions
from runner.cases.model import (
    Arguments,
    Arithmetic,
    Function,
    If,
    Index,
    Items,
    Kernel,
    Node,
    Ref,
    Step,
    Table,
    TensorLiteral,
    Value,
    With,
)
from runner.cases.operator_names import BINARY, CHECKS, IN_PLACE, SPECIAL, UNARY
from runner.cases.twins import doubled_value, gives_fresh
from runner.cases.walk import places_made
from runner.diagnostics import Span, nearest
from runner.quote import identifier

GRAPH_BREAK = "torch._dynamo.graph_break"
"""The function that takes no tensor: bare, it is called without ``$_``."""
STATEMENTS = ("builtin.print", GRAPH_BREAK, *CHECKS, "operator.assert_", "operator.delitem", "operator.setitem")
"""Steps that leave no value: ``$_`` stays as it was."""


class Line(NamedTuple):
    """One line of source and the place in the YAML that it comes from."""

    text: str
    span: Span | None = None


@dataclass(slots=True)
class Modules:
    """The submodules that ``__init__`` makes. ``modes`` holds those with a train: of their own."""

    lines: list[Line] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    modes: list[tuple[str, bool]] = field(default_factory=list)
    suffix: str = ""  # .to(torch.bfloat16)
    numbers: dict[str, int] = field(default_factory=dict)  # the last of each stem: counting from 1 would take minutes

    def name(self, stem: str) -> str:
        """Return a free attribute name, and book it: linear, linear_2, ..."""
        number = self.numbers.get(stem, 0) + 1
        while (name := stem if number == 1 else f"{stem}_{number}") in self.ids:
            number += 1
        self.numbers[stem] = number
        self.ids.add(name)
        return name


class ChainWriter:
    """Writes nodes into ``lines``. ``modules`` is None where no nn modules can be made (layouts)."""

    def __init__(
        self,
        scope: Scope,
        dtype: str,
        device: str,
        modules: Modules | None,
        indent: int,
        rewrites: Collection[str] = (),
    ) -> None:
        self.scope, self.dtype, self.device, self.modules, self.indent = scope, dtype, device, modules, indent
        self.rewrites = rewrites
        self.lines: list[Line] = []
        self.render = Renderer(scope, dtype, device, self._function)

    def write(self, nodes: tuple[Node, ...], result: Value | None, returns: bool) -> None:
        """Write every node and, if ``returns``, a return statement for ``result`` (``$_`` when None)."""
        starts: list[int] = []
        has_returned = not returns
        is_previous = result is None or (isinstance(result, Ref) and result.name == "_" and not result.path)
        for place, node in enumerate(nodes):
            starts.append(len(self.lines))
            direct = returns and place == len(nodes) - 1 and is_previous and isinstance(node, Step) and not node.out
            self._node(node, direct)
            has_returned |= direct and bool(self.lines) and self.lines[-1].text.lstrip().startswith("return ")
        starts.append(len(self.lines))
        if not has_returned:
            text = "None"
            if result is not None:
                check_result(result, self.scope)
                text = self.render.value(result)
            elif self.scope.previous is not None:
                text = self.scope.look_up("_", Span("", 1, 1))
            self._line(f"return {text}", None)
        if returns:
            self.scope.note_dropped()
        if REORDER in self.rewrites:
            self._exchange(nodes, starts)

    def _node(self, node: Node, direct: bool = False) -> None:
        if isinstance(node, Step):
            self._step(node, direct)
        elif isinstance(node, With):
            self._with(node)
        else:
            self._if(node)

    def _line(self, text: str, span: Span | None) -> None:
        self.lines.append(Line("    " * self.indent + text, span))

    # --- steps ---

    def _step(self, step: Step, direct: bool) -> None:
        problems = self.scope.problems
        operator = _kernel(step.operator, self.scope) or operators.resolve(step.operator)
        if isinstance(operator, Refusal):
            problems.error(step.span, operator.message, operator.hint)
            for arguments in (step.arguments, step.call):  # what they name still counts as used
                if arguments is not None:
                    self.render.arguments(arguments, step.span)
            self._bind(step, "None")
            return
        check_arguments(step, operator, self.scope)
        if operator.kind == "operator" and self._statement(step, operator.python):
            return
        text = self._rewritten(step, self._expression(step, operator))
        if step.operator in STATEMENTS:
            self._line(text, step.span)
        elif direct:
            self._line(f"return {text}", step.span)
        else:
            self._bind(step, text)

    def _rewritten(self, step: Step, text: str) -> str:
        """The text of a step's value, in a twin after the rewrites that may stand there."""
        if not self.rewrites or not gives_fresh(step):
            return text
        value = doubled_value(step) if "double" in self.rewrites else None
        text = text if value is None else f"{TWIN}double({self.render.operand(value)})"
        for name in self.rewrites:
            if name in _FUNCTIONS and name != "double":
                text = f"{TWIN}{name}({text})"
        return text

    def _exchange(self, nodes: Sequence[Node], starts: Sequence[int]) -> None:
        """Let pairs of steps change places whose lines, from ``starts`` on, follow each other and are independent."""
        place = 0
        while place + 1 < len(nodes):
            start, end = starts[place], starts[place + 2]
            pair = self.lines[start:end]
            pure = all(isinstance(node, Step) and gives_fresh(node) for node in nodes[place : place + 2])
            is_free = pure and len(pair) == 2 and are_independent(pair[0].text, pair[1].text)
            if is_free:
                self.lines[start:end] = reversed(pair)
            place += 2 if is_free else 1

    def _bind(self, step: Step, text: str) -> None:
        """Give the value its name; it is ``$_`` from here on."""
        scope = self.scope
        if not step.out:
            self._line(f"{scope.temporary} = {text}", step.span)
            scope.set_previous(scope.temporary, None, step)
            return
        targets = [self._target(name, step.span) for name in step.out]
        if step.out[0] == "_":  # the first stays reachable as $_
            targets[0] = scope.temporary
        self._line(f"{', '.join(targets)}{',' if step.unpack and len(targets) == 1 else ''} = {text}", step.span)
        scope.set_previous(targets[0], None if step.out[0] == "_" else step.out[0])

    def _target(self, name: str, span: Span) -> str:
        """What is written to for a name of ``out:``."""
        if not name.startswith("self."):
            return name if name == "_" else self.scope.define(name, span)
        attribute = name.removeprefix("self.")
        if attribute not in self.scope.state:
            return self.scope.problems.refuse(
                self.scope.temporary,
                span,
                f"self has no {attribute!r} to write to",
                nearest(attribute, self.scope.state) or f"declare it: state: {{{attribute}: ...}}",
            )
        self.scope.used.add(name)
        return f"self.{identifier(attribute)}"

    def _expression(self, step: Step, operator: Operator) -> str:
        if operator.kind == "module":
            return self._module(step, operator)
        if operator.kind == "operator":
            return self._operator(step, operator.python)
        if operator.kind == "kernel":
            return _kernel_call(step, operator.python, self.scope, self.render)

        positional, keywords = self.render.arguments(
            step.arguments, None if step.operator == GRAPH_BREAK else step.span
        )
        if operator.kind == "submodule":
            name = operator.python.removeprefix("self.")
            self.render.of_self(name, step.span, f"an earlier step says id: {name}")
            return call(operator.python, positional, keywords)
        if operator.kind in ("method", "attribute"):
            return self._member(step, operator, positional, keywords)
        checked = kernel_options_fault(step.operator, step.arguments) or operators.add_checks(
            operator, positional, keywords
        )
        if isinstance(checked, Refusal):
            self.scope.problems.error(step.span, checked.message, checked.hint)
            checked = keywords
        return call(operator.python, positional, checked)

    def _member(self, step: Step, operator: Operator, positional: list[str], keywords: list[tuple[str, str]]) -> str:
        """The text of a method's call, or of an attribute."""
        if not positional:
            hint = f"such as {complete_call(step).partition(': ')[2]}"
            return self._without_operands(step, f"the first positional of {step.operator} is the tensor", hint)
        receiver = positional[0] if step.arguments.bare else self.render.operand(step.arguments.positional[0])
        text = f"{_receiver(receiver)}.{operator.python}"
        if operator.kind == "attribute":
            if len(positional) > 1 or keywords:
                self.scope.problems.error(step.span, f"{step.operator} is an attribute and takes the tensor alone")
            self.scope.check_attribute(operator.python, step.span)
            return text
        if operator.python in operators.METHODS_OF_ARRAYS and self.scope.has_arrays():
            return call(f"torch.Tensor.{operator.python}", positional, keywords)
        return call(text, positional[1:], keywords)

    def _without_operands(self, step: Step, message: str, hint: str) -> str:
        """Report operands that are missing, and return a harmless text."""
        self.scope.problems.error(step.span, message, hint)
        self.scope.use_previous(step.span)
        return "None"

    def _module(self, step: Step, operator: Operator) -> str:
        problems, modules, arguments = self.scope.problems, self.modules, step.arguments
        if modules is None:
            return problems.refuse("None", step.span, f"{step.operator} is a module; only functions stand here")
        if not all(map(self._is_known, (*arguments.positional, *(value for _, value in arguments.keywords)))):
            problems.error(
                step.span,
                f"{step.operator} is made before the model runs, out of numbers, params and modules",
                "call: holds the arguments of the call",
            )
        text = call(operator.python, *self.render.arguments(arguments, None))
        if not any(key == "dtype" for key, _ in arguments.keywords):
            text += modules.suffix
        name = identifier(step.id) if step.id else modules.name(_snake(step.operator.removeprefix("nn.")))
        if step.id is not None and step.id in self.scope.state:
            problems.error(step.span, f"self already has a {step.id!r}", "ids and state share their names")
        modules.ids.add(name)
        self.scope.state[name] = step.span
        modules.lines.append(Line(f"        self.{name} = {text}", step.span))
        for part in step.state:
            if not all(map(self._is_known, part.arguments)):
                problems.error(part.span, f"{part.name!r} is filled before the model runs, with numbers and params")
            modules.lines.append(Line(f"        {fill(part, name, self.render)}", part.span))
        if step.train is not None:
            modules.modes.append((name, step.train))
        return call(f"self.{name}", *self.render.arguments(step.call or Arguments(bare=True), step.span))

    def _is_known(self, value: Value) -> bool:
        """Whether a value is there when ``__init__`` runs."""
        scope = self.scope
        params = set(scope.params) - set(scope.variables)
        match value:
            case Ref():
                return value.name in params or (value.name == "self" and scope.in_forward)
            case Arithmetic():
                return expressions.names(expressions.parse(value.text)) <= params
            case Items():
                return all(self._is_known(v) for v in value.items)
            case Table():
                return all(self._is_known(v) for _, v in value.items)
        return self._is_known(value.value) if isinstance(value, TensorLiteral) else not isinstance(value, Function)

    def _operator(self, step: Step, word: str) -> str:
        values = step.arguments.positional
        operands = [self.scope.look_up("_", step.span)] if step.arguments.bare else []
        operands += map(self.render.operand, values)
        operand_count = 2 if word in BINARY else 1 if word in UNARY else SPECIAL[word]
        if step.arguments.keywords or (operand_count is not None and len(operands) != operand_count) or not operands:
            message = f"{step.operator} takes {operand_count or 'some'} operands, not {len(operands)}"
            return self._without_operands(step, message, complete_call(step) if len(operands) == 1 else "")
        match word:
            case "getitem":
                return f"{operands[0]}[{self._subscript(values[1])}]"
            case "contains":
                return f"{operands[1]} in {operands[0]}"
            case "call":
                return call(operands[0], list(map(self.render.value, values[1:])), [])
            case "index":
                return f"{_receiver(operands[0])}.__index__()"
            case "assert_":
                return f"assert {operands[0]}"
            case "truth" | "abs":
                return f"{'bool' if word == 'truth' else word}({operands[0]})"
        if word in UNARY:
            return f"{UNARY[word]}{operands[0]}"
        return f"{operands[0]} {BINARY[word]} {operands[1]}"

    def _subscript(self, value: Value) -> str:
        return self.render.index(value) if isinstance(value, Index) else self.render.value(value)

    def _statement(self, step: Step, word: str) -> bool:
        """``a += b``, ``x[i] = v``, ``del x[i]``: written as such, because a call of them breaks the graph."""
        if word not in IN_PLACE and word not in ("setitem", "delitem"):
            return False
        values = step.arguments.positional
        argument_count = 3 if word == "setitem" else 2
        if len(values) != argument_count or step.arguments.keywords or not isinstance(values[0], Ref):
            return self.scope.problems.refuse(
                True,
                step.span,
                f"{step.operator} takes {argument_count} positional arguments",
                "the first is a reference, such as $x or $_",
            )
        target, name = self.render.reference(values[0]), values[0].name
        if name in self.scope.params and name not in self.scope.variables:
            return self.scope.problems.refuse(True, step.span, f"${name} is a param, which no step changes")
        if word not in IN_PLACE:
            place = f"{target}[{self._subscript(values[1])}]"
            text = f"del {place}" if word == "delitem" else f"{place} = {self.render.value(values[2])}"
            self._line(text, step.span)
            return True
        if not values[0].path:
            self.scope.check_write(name, step.span)
        self._line(f"{target} {IN_PLACE[word]} {self.render.value(values[1])}", step.span)
        self.scope.set_previous(target, self.scope.previous_name if name == "_" else None)
        if step.out and not (len(step.out) == 1 and self._names(step.out[0], target)):
            self._bind(step, target)
        return True

    def _names(self, out: str, target: str) -> bool:
        return target == (
            self._target(out, Span("", 1, 1)) if out.startswith("self.") else self.scope.variables.get(out)
        )

    # --- blocks ---

    def _with(self, node: With) -> None:
        entered = []
        for step in node.contexts:
            context = operators.context(step.operator)
            if isinstance(context, Refusal):
                self.scope.problems.error(step.span, context.message, context.hint)
                continue
            entered.append(call(context.python, *self.render.arguments(step.arguments, None)))
        self._line(f"with {', '.join(entered) or 'torch.enable_grad()'}:", node.span)
        self._block(node.chain)

    def _block(self, nodes: tuple[Node, ...]) -> None:
        self.indent += 1
        start = len(self.lines)
        for node in nodes:
            self._node(node)
        if len(self.lines) == start:
            self._line("pass", None)
        self.indent -= 1

    def _if(self, node: If) -> None:
        scope = self.scope
        previous, previous_name = scope.previous, scope.previous_name
        variables = dict(scope.variables)
        scope.unread = None  # a branch may read it
        self._line(f"if {self.render.value(node.condition)}:", node.span)
        self._branch(node.do)
        after_do = dict(scope.variables)
        scope.variables, scope.previous, scope.previous_name = dict(variables), previous, previous_name
        scope.unread = None  # what a branch gave last is $_ after the block
        if node.otherwise or previous != scope.temporary:
            self._line("else:", node.span)
            self._branch(node.otherwise)
        # only what both branches make exists afterwards
        scope.variables = {k: v for k, v in after_do.items() if k in scope.variables or k in variables}
        scope.previous, scope.previous_name, scope.unread = scope.temporary, None, None

    def _branch(self, nodes: tuple[Node, ...]) -> None:
        """A branch ends with its value in the temporary, so that ``$_`` means one thing after the block."""
        self._block(nodes)
        if self.scope.previous is not None and self.scope.previous != self.scope.temporary:
            if self.lines[-1].text.strip() == "pass":
                self.lines.pop()
            self._line(f"    {self.scope.temporary} = {self.scope.look_up('_', Span('', 1, 1))}", None)

    # --- functions ---

    def _function(self, function: Function) -> str:
        scope = self.scope
        number = next(n for n in itertools.count(scope.functions[0] + 1) if f"fn{n}" not in scope.reserved)
        scope.functions[0] = number
        scope.reserved.add(f"fn{number}")
        inner = scope.nested(function.args, (name for name, _ in places_made(function.chain)))
        inner.outer = frozenset(scope.variables) - set(function.args)
        writer = ChainWriter(inner, self.dtype, self.device, self.modules, self.indent + 1)
        if function.args:
            inner.previous, inner.previous_name = inner.variables[function.args[0]], function.args[0]
        arguments = ", ".join(inner.variables[a] for a in function.args)
        self._line(f"def fn{number}({arguments}):", function.span)
        writer.write(function.chain, function.result, returns=True)
        self.lines += writer.lines
        return f"fn{number}"


def names_made(chain: Iterable[Node]) -> set[str]:
    """Return the ``out:`` names of a chain and its blocks as Python variables."""
    return {python_name(name) for name, _ in places_made(chain)}


def _receiver(text: str) -> str:
    """What stands before a dot: ``2.abs`` is no Python."""
    return f"({text})" if text[:1].isdigit() else text


def _snake(name: str) -> str:
    """ReflectionPad3d -> reflection_pad3d, LSTM -> lstm, BatchNorm1d -> batch_norm1d."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# --- triton.<name>: which kernel that is, and how it is called ---

PREFIX = "triton."


def _kernel(name: str, scope: Scope) -> Operator | Refusal | None:
    """Return the kernel that ``name`` launches, or why none can be; None for a name that is no ``triton.<name>``."""
    kernel = scope.kernels.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    if kernel is not None:
        return Operator(name, "kernel", launcher(kernel) if scope.launches else reference(kernel))
    refusal = Refusal(f"{name} cannot be launched here", "kernels are launched in the chain of a case")
    return refusal if name.startswith(PREFIX) else None


def launcher(kernel: Kernel) -> str:
    """Return the name of the function that launches a kernel."""
    return identifier(f"launch_{kernel.name}")


def reference(kernel: Kernel) -> str:
    """Return the name of the function that a kernel is compared with."""
    return identifier(f"reference_{kernel.name}")


def _kernel_call(step: Step, function: str, scope: Scope, render: Renderer) -> str:
    """Return the call of a kernel's ``function``; report inputs that are missing, unknown or given twice."""
    inputs, error = scope.kernels[step.operator.removeprefix(PREFIX)].inputs, scope.problems.error
    positional, keywords = render.arguments(step.arguments, step.span)
    hint = f"it takes {', '.join(inputs)}"
    if len(positional) > len(inputs):
        error(step.span, f"{step.operator} takes {len(inputs)} inputs, not {len(positional)}", hint)
    names = list(inputs[: len(positional)])
    for key, _ in keywords:
        if key in names:
            error(step.span, f"{step.operator} is given {key!r} twice")
        elif key not in inputs:
            error(step.span, f"{step.operator} has no input {key!r}", nearest(key, inputs) or hint)
        names.append(key)
    if missing := [name for name in inputs if name not in names]:
        error(step.span, f"{step.operator} is not given {', '.join(missing)}", hint)
    return call(function, positional, [(python_name(key), text) for key, text in keywords])


# --- the twin of a model: rewrites of a chain that leave each result bit for bit as it is ---

# A rewrite stands where a step gives a value with memory of its own (``runner/cases/twins.py``). Each is a function
# that gives an equal tensor with equal strides and memory of its own: torch refuses some writes through views of views.
# It leaves alone what is no dense tensor, or has a dtype for which it is not exact. Gradients are equal too, but a copy
# may lay them out in another way, in which a product behind it rounds in another way.

TWIN = "_twin_"

_PLAIN = '''
def _twin_is_plain(x):
    """Return whether a rewrite takes a value."""
    return type(x) is torch.Tensor and x.layout == torch.strided and not x.is_quantized
'''

_SIGNED = '''
def _twin_is_signed(x):
    """Return whether a value has a sign in each element, and no imaginary part."""
    return _twin_is_plain(x) and x.dtype.is_signed and not x.is_complex()
'''

# The view gives x one gradient, as the product does: sums of several may round in another order otherwise.
_FUNCTIONS = {
    "double": """
def _twin_double(x):
    if not _twin_is_signed(x):
        return x * 2
    view = x.view_as(x)
    return view + view
""",
    "mask": """
def _twin_mask(x):
    if not _twin_is_plain(x):
        return x
    return torch.where((x == x) | (x != x), x, x.new_zeros(()))
""",
    "negate": """
def _twin_negate(x):
    return -(-x) if _twin_is_signed(x) else x
""",
    "reshape": """
def _twin_reshape(x):
    return x.reshape(-1).reshape(x.shape).clone() if _twin_is_plain(x) and x.is_contiguous() else x
""",
    "split": """
def _twin_split(x):
    if not _twin_is_plain(x) or x.ndim == 0 or not x.is_contiguous():
        return x
    half = x.shape[0] // 2
    return torch.cat(torch.split(x, [half, x.shape[0] - half]))
""",
    "transpose": """
def _twin_transpose(x):
    if not _twin_is_plain(x) or x.ndim < 2 or not x.is_contiguous():
        return x
    return x.transpose(0, -1).contiguous().transpose(0, -1).clone(memory_format=torch.contiguous_format)
""",
}

REORDER = "reorder"

_ASSIGNMENT = re.compile(r"( *)(\w+) = ([^\n]*)")


def are_independent(first: str, second: str) -> bool:
    """Return whether two lines that assign what a pure step gives may stand in either order."""
    one, two = _ASSIGNMENT.fullmatch(first), _ASSIGNMENT.fullmatch(second)
    if one is None or two is None or one[1] != two[1] or one[2] == two[2]:
        return False
    return not (_reads(two[3], one[2]) or _reads(one[3], two[2]))


def _reads(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def functions_of(lines: Iterable[str]) -> list[str]:
    """Return the lines of the functions that a twin calls."""
    text = "\n".join(lines)
    names = [name for name in _FUNCTIONS if f"{TWIN}{name}(" in text]
    signed = [_SIGNED] if {"double", "negate"} & {*names} else []
    blocks = [_PLAIN, *signed, *(_FUNCTIONS[name] for name in names)] if names else []
    return "\n".join(blocks).rstrip("\n").split("\n") if blocks else []
