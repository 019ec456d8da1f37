"""A chain as Python statements, one a step."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from runner.builder import operators
from runner.builder.arguments import check_arguments, check_result, complete_call, kernel_options_fault
from runner.builder.names_and_values import Renderer, Scope, call, fill, python_name
from runner.builder.operators import Operator, Refusal
from runner.builder.twins import REORDER, are_independent, rewritten
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
    places_made,
)
from runner.cases.twins import doubled_value, gives_fresh
from runner.diagnostics import Span, nearest
from runner.quote import identifier

GRAPH_BREAK = "torch._dynamo.graph_break"
"""The function that takes no tensor: bare, it is called without ``$_``."""
STATEMENTS = ("builtin.print", GRAPH_BREAK)
"""Steps that leave no value: ``$_`` stays as it was."""


@dataclass(frozen=True, slots=True)
class Line:
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
        starts = self._write(nodes, result, returns)
        if REORDER in self.rewrites:
            self._exchange(nodes, starts)

    def _write(self, nodes: tuple[Node, ...], result: Value | None, returns: bool) -> list[int]:
        """Return where the lines of each node begin, and where those of the last one end."""
        starts = []
        for place, node in enumerate(nodes):
            starts.append(len(self.lines))
            last = place == len(nodes) - 1
            direct = returns and last and _is_previous(result) and isinstance(node, Step) and not node.out
            self._node(node, direct)
            if direct and self.lines and self.lines[-1].text.lstrip().startswith("return "):
                self.scope.note_dropped()
                return [*starts, len(self.lines)]
        starts.append(len(self.lines))
        if returns:
            self._return(result)
            self.scope.note_dropped()
        return starts

    def _return(self, result: Value | None) -> None:
        if result is None:
            text = self.scope.look_up("_", Span("", 1, 1)) if self.scope.previous is not None else "None"
        else:
            check_result(result, self.scope)
            text = self.render.value(result)
        self._line(f"return {text}", None)

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
        if isinstance(operator, operators.Refusal):
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
        if not self.rewrites:
            return text
        value = doubled_value(step)
        return rewritten(step, text, "" if value is None else self.render.operand(value), self.rewrites)

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
        comma = "," if step.unpack and len(targets) == 1 else ""
        self._line(f"{', '.join(targets)}{comma} = {text}", step.span)
        first = step.out[0]
        scope.set_previous(targets[0], None if first == "_" else first)

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

    def _expression(self, step: Step, operator: operators.Operator) -> str:
        problems, render = self.scope.problems, self.render
        if operator.kind == "module":
            return self._module(step, operator)
        if operator.kind == "operator":
            return self._operator(step, operator.python)
        if operator.kind == "kernel":
            return _kernel_call(step, operator.python, self.scope, render)
        positional, keywords = render.arguments(step.arguments, None if step.operator == GRAPH_BREAK else step.span)
        if operator.kind == "submodule":
            name = operator.python.removeprefix("self.")
            render.of_self(name, step.span, f"an earlier step says id: {name}")
            return call(operator.python, positional, keywords)
        if operator.kind in ("method", "attribute"):
            if not positional:
                hint = f"such as {complete_call(step).partition(': ')[2]}"
                problems.error(step.span, f"the first positional of {step.operator} is the tensor", hint)
                self.scope.use_previous(step.span)
                return "None"
            receiver = _receiver(positional[0] if step.arguments.bare else render.operand(step.arguments.positional[0]))
            if operator.kind == "attribute":
                if len(positional) > 1 or keywords:
                    problems.error(step.span, f"{step.operator} is an attribute and takes the tensor alone")
                self.scope.check_attribute(operator.python, step.span)
                return f"{receiver}.{operator.python}"
            if self.scope.has_arrays and operator.python in operators.METHODS_OF_ARRAYS:
                return call(f"torch.Tensor.{operator.python}", positional, keywords)
            return call(f"{receiver}.{operator.python}", positional[1:], keywords)
        fault, hint = kernel_options_fault(step.operator, step.arguments)
        if fault:
            problems.error(step.span, fault, hint)
        code = operators.code_fault(step.operator, positional, keywords)
        if code:
            problems.error(
                step.span, f"{step.operator} takes no number {code} here", "write a dtype, such as torch.float32"
            )
        complete = operators.add_checks(operator, positional, keywords)
        if isinstance(complete, operators.Refusal):
            problems.error(step.span, complete.message, complete.hint)
            complete = keywords
        return call(operator.python, positional, complete)

    def _module(self, step: Step, operator: operators.Operator) -> str:
        if self.modules is None:
            return self.scope.problems.refuse(
                "None", step.span, f"{step.operator} is a module; only functions stand here"
            )
        if not all(self._is_known(v) for v in (*step.arguments.positional, *(v for _, v in step.arguments.keywords))):
            self.scope.problems.error(
                step.span,
                f"{step.operator} is made before the model runs, out of numbers, params and modules",
                "call: holds the arguments of the call",
            )
        text = call(operator.python, *self.render.arguments(step.arguments, None))
        if self.modules.suffix and not any(key == "dtype" for key, _ in step.arguments.keywords):
            text += self.modules.suffix
        name = identifier(step.id) if step.id else self.modules.name(_snake(step.operator.removeprefix("nn.")))
        if step.id is not None:
            if step.id in self.scope.state:
                self.scope.problems.error(
                    step.span, f"self already has a {step.id!r}", "ids and state share their names"
                )
            self.modules.ids.add(step.id)
        self.scope.state[name] = step.span
        self.modules.lines.append(Line(f"        self.{name} = {text}", step.span))
        for part in step.state:
            if not all(map(self._is_known, part.arguments)):
                self.scope.problems.error(
                    part.span, f"{part.name!r} is filled before the model runs, with numbers and params"
                )
            self.modules.lines.append(Line(f"        {fill(part, name, self.render)}", part.span))
        if step.train is not None:
            self.modules.modes.append((name, step.train))
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
        render, arguments = self.render, step.arguments
        previous = [self.scope.look_up("_", step.span)] if arguments.bare else []
        operands = [*previous, *map(render.operand, arguments.positional)]
        operand_count = 2 if word in operators.BINARY else 1 if word in operators.UNARY else operators.SPECIAL[word]
        if arguments.keywords or (operand_count is not None and len(operands) != operand_count) or not operands:
            self.scope.problems.error(
                step.span,
                f"{step.operator} takes {operand_count or 'some'} operands, not {len(operands)}",
                complete_call(step) if len(operands) == 1 else "",
            )
            self.scope.use_previous(step.span)
            return "None"
        if word in operators.BINARY:
            return f"{operands[0]} {operators.BINARY[word]} {operands[1]}"
        if word in operators.UNARY:
            return f"{operators.UNARY[word]}{operands[0]}"
        match word:
            case "getitem":
                return f"{operands[0]}[{self._subscript(arguments.positional[1])}]"
            case "contains":
                return f"{operands[1]} in {operands[0]}"
            case "call":
                return call(operands[0], [render.value(v) for v in arguments.positional[1:]], [])
            case "index":
                return f"{_receiver(operands[0])}.__index__()"
        return f"{'bool' if word == 'truth' else word}({operands[0]})"

    def _subscript(self, value: Value) -> str:
        return self.render.index(value) if isinstance(value, Index) else self.render.value(value)

    def _statement(self, step: Step, word: str) -> bool:
        """``a += b``, ``x[i] = v``, ``del x[i]``: written as such, because a call of them breaks the graph."""
        if word not in operators.IN_PLACE and word not in ("setitem", "delitem"):
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
        target = self.render.reference(values[0])
        name = values[0].name
        if name in self.scope.params and name not in self.scope.variables:
            return self.scope.problems.refuse(True, step.span, f"${name} is a param, which no step changes")
        if not values[0].path and word in operators.IN_PLACE:
            self.scope.check_write(name, step.span)
        if word == "delitem":
            self._line(f"del {target}[{self._subscript(values[1])}]", step.span)
            return True
        if word == "setitem":
            self._line(f"{target}[{self._subscript(values[1])}] = {self.render.value(values[2])}", step.span)
            return True
        self._line(f"{target} {operators.IN_PLACE[word]} {self.render.value(values[1])}", step.span)
        self.scope.set_previous(target, self.scope.previous_name if values[0].name == "_" else None)
        if step.out and not (len(step.out) == 1 and self._names(step.out[0], target)):
            self._bind(step, target)
        return True

    def _names(self, out: str, target: str) -> bool:
        of_self = out.startswith("self.")
        return target == (self._target(out, Span("", 1, 1)) if of_self else self.scope.variables.get(out))

    # --- blocks ---

    def _with(self, node: With) -> None:
        entered = []
        for step in node.contexts:
            context = operators.context(step.operator)
            if isinstance(context, operators.Refusal):
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
        self.indent += 1
        if self.scope.previous is not None and self.scope.previous != self.scope.temporary:
            if self.lines[-1].text.strip() == "pass":
                self.lines.pop()
            self._line(f"{self.scope.temporary} = {self.scope.look_up('_', Span('', 1, 1))}", None)
        self.indent -= 1

    # --- functions ---

    def _function(self, function: Function) -> str:
        name = self._function_name()
        inner = self.scope.nested(function.args, (name for name, _ in places_made(function.chain)))
        inner.outer = frozenset(self.scope.variables) - set(function.args)
        writer = ChainWriter(inner, self.dtype, self.device, self.modules, self.indent + 1)
        if function.args:
            inner.previous, inner.previous_name = inner.variables[function.args[0]], function.args[0]
        arguments = ", ".join(inner.variables[a] for a in function.args)
        self._line(f"def {name}({arguments}):", function.span)
        writer.write(function.chain, function.result, returns=True)
        self.lines += writer.lines
        return name

    def _function_name(self) -> str:
        number = self.scope.functions[0] + 1
        while f"fn{number}" in self.scope.reserved:
            number += 1
        self.scope.functions[0] = number
        self.scope.reserved.add(f"fn{number}")
        return f"fn{number}"


def names_made(chain: Iterable[Node]) -> set[str]:
    """Return the ``out:`` names of a chain and its blocks as Python variables."""
    return {python_name(name) for name, _ in places_made(chain)}


def _receiver(text: str) -> str:
    """What stands before a dot: ``2.abs`` is no Python."""
    return f"({text})" if text[:1].isdigit() else text


def _is_previous(result: Value | None) -> bool:
    return result is None or (isinstance(result, Ref) and result.name == "_" and not result.path)


def _snake(name: str) -> str:
    """ReflectionPad3d -> reflection_pad3d, LSTM -> lstm, BatchNorm1d -> batch_norm1d."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# --- triton.<name>: which kernel that is, and how it is called ---

PREFIX = "triton."


def _kernel(name: str, scope: Scope) -> Operator | Refusal | None:
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


def _kernel_call(step: Step, function: str, scope: Scope, render: Renderer) -> str:
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
