"""What the caller does before a call and around it, as Python functions of the written source.

Lists hold an entry for each call: ``STEPS`` whether the optimizer of ``make_optimizer`` steps before it, ``CHANGES`` a
function of the model or None, ``CONTEXTS`` a function that gives a context, and ``THREADS`` whether a new thread makes
the call. A list that says nothing is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from runner.builder import operators
from runner.builder.chain import ChainWriter, Line
from runner.builder.names_and_values import Renderer, call
from runner.cases.case import FUNCTIONS, MODES, OF_SUBMODULES
from runner.cases.model import Call, Case, Change, Function, Input, TensorLiteral
from runner.cases.problems import Problems
from runner.diagnostics import Span, nearest
from runner.files import read_text
from runner.quote import dotted_name, identifier, literal, torch_flag

CONTEXTS = (
    *(name for name in operators.CONTEXTS if name != "torch.device"),
    "torch.autograd.detect_anomaly",
    "torch.autograd.graph.save_on_cpu",
)
"""Contexts that a caller may enter around a call."""

_COPY = "{name: tensor.clone() for name, tensor in model.state_dict().items()}"
_SAVE = "save_state"
_LOADED = {"initial": f"{_SAVE}.state", "current": _COPY, "assign": f"{_COPY}, assign=True"}


class CallerWriter:
    """Writes the functions of a case's further calls into ``lines``, and their names into ``lists``.

    ``writer`` gives what writes the values of a call. ``names`` are those that ``self`` has in a chain, and ``modes``
    the modules with a ``train:`` of their own.
    """

    def __init__(
        self,
        case: Case,
        writer: Callable[[Call], ChainWriter],
        problems: Problems,
        names: Mapping[str, Span],
        modes: Sequence[tuple[str, bool]],
    ) -> None:
        self.case, self.writer, self.problems, self.names, self.modes = case, writer, problems, names, modes
        self.lines: list[Line] = []
        self.lists: dict[str, list[str]] = {}
        self._state = {item.name: item for item in case.state}
        self._functions: dict[str, str] = {}

    def write(self) -> None:
        """Write all that is not the same as for the call before it."""
        calls = self.case.calls
        saves = any(one.load == "initial" for one in calls)
        head = self._function(_SAVE, "model", [Line(f"    {_SAVE}.state = {_COPY}")]) if saves else "None"
        changes = [head, *(self._change(number, one) for number, one in enumerate(calls, start=1))]
        contexts = ["contextlib.nullcontext"]
        contexts += [self._around(number, one) for number, one in enumerate(calls, start=1)]
        threads = [literal(False), *(literal(one.thread) for one in calls)]
        steps = [literal(False), *(literal(one.step is not None) for one in calls)]
        self._optimizer()
        columns = {"STEPS": steps, "CHANGES": changes, "CONTEXTS": contexts, "THREADS": threads}
        self.lists = {name: texts for name, texts in columns.items() if len(set(texts)) > 1}

    def _function(self, name: str, parameters: str, body: list[Line], decorator: str = "") -> str:
        """Write a function, unless there is one of this body, and return its name; ``None`` for no body."""
        if not body:
            return "None"
        text = "\n".join([decorator, *(line.text for line in body)])
        if text not in self._functions:
            self._functions[text] = name
            decorators = [Line(decorator)] if decorator else []
            self.lines += [Line(""), Line(""), *decorators, Line(f"def {name}({parameters}):"), *body]
        return self._functions[text]

    def _optimizer(self) -> None:
        """Write the function that makes the optimizer, of which a case has one."""
        stepping = [(one, one.step) for one in self.case.calls if one.step is not None]
        texts: set[str] = set()
        for one, step in stepping:
            arguments = self.writer(one).render.arguments(step.arguments, None)
            texts.add(call(torch_flag(step.operator), ["model.parameters()", *arguments[0]], arguments[1]))
            if len(texts) == 2:
                self.problems.error(
                    step.span, "the calls step with two optimizers", "a case has one, with the same arguments"
                )
                return
        if stepping and all(grad.mode != "backward" for grad in self.case.grad):
            self.problems.error(stepping[0][1].span, "a step needs gradients", "grad: backward computes them")
        for text in texts:
            self._function("make_optimizer", "model", [Line(f"    return {text}", stepping[0][1].span)])

    def _change(self, number: int, one: Call) -> str:
        writer = self.writer(one)
        lines = [] if one.load is None else [Line(f"    model.load_state_dict({_LOADED[one.load]})", one.span)]
        for change in one.changes:
            lines += [Line(f"    {statement}", change.span) for statement in self._statements(change, writer.render)]
        for hook in one.hooks:
            lines += self._hook(hook, writer)
        if one.train is not None:
            modes = [("model", one.train), *((f"model.{name}", mode) for name, mode in self.modes)]
            lines += [Line(f"    {owner}.{'train' if mode else 'eval'}()", one.span) for owner, mode in modes]
        return self._function(f"change_{number}", "model", lines)

    def _around(self, number: int, one: Call) -> str:
        entered = []
        for step in one.contexts:
            if step.operator in CONTEXTS:
                entered.append(
                    call(dotted_name(step.operator), *self.writer(one).render.arguments(step.arguments, None))
                )
            else:
                hint = nearest(step.operator, CONTEXTS) or "contexts: " + ", ".join(CONTEXTS)
                self.problems.error(step.span, f"{step.operator!r} is no context that a call may be made in", hint)
        if not entered:
            return "contextlib.nullcontext"
        body = [Line(f"    with {', '.join(entered)}:", one.contexts[0].span), Line("        yield")]
        return self._function(f"around_{number}", "", body, "@contextlib.contextmanager")

    def _hook(self, hook: Change, writer: ChainWriter) -> list[Line]:
        """Return the lines that put a hook on a module, or take its hooks off."""
        owner = dotted_name(hook.target).replace("self", "model", 1)
        first = hook.target.split(".")[1:2]
        modules = [name for name in self.names if name not in self._state]
        if self.case.module is None and first and first[0] not in modules:
            self.problems.error(hook.span, f"self has no module {first[0]!r}", nearest(first[0], modules))
            return []
        if not isinstance(hook.value, Function):
            return [Line(f"    {owner}._forward_hooks.clear()", hook.span)]
        start = len(writer.lines)
        function = writer.render.value(hook.value)
        put_on = f"    {owner}.register_forward_hook(lambda module, args, output: {function}(output))"
        return [*writer.lines[start:], Line(put_on, hook.span)]

    def _statements(self, change: Change, render: Renderer) -> list[str]:
        kind, _, path = change.target.partition(".")
        value = render.value(change.value)
        if kind == "torch":
            return [setting_of(change.target)[1].format(value)]
        if kind == "global":
            self._check_variable(path, change.span)
            return [f"global {identifier(path)}", f"{identifier(path)} = {value}"]
        owner, _, last = f"model.{dotted_name(path)}".rpartition(".")
        if self.case.module is None and not self._is_known(path.split("."), change):
            return []
        if last in MODES:
            return [f"{owner}.{'train' if last == 'training' else 'requires_grad_'}({value})"]
        item = self._state.get(path) if self.case.module is None else None
        if item is not None:
            is_parameter = item.requires_grad and isinstance(change.value, TensorLiteral)
            return [f"{owner}.{last} = {f'torch.nn.Parameter({value})' if is_parameter else value}"]
        shown = change.target.rpartition(".")[0]
        there = f"assert hasattr({owner}, {literal(last)}), {literal(f'{shown} has no {last!r}')}"
        return [there, f"{owner}.{last} = {value}"]

    def _is_known(self, parts: Sequence[str], change: Change) -> bool:
        """Return whether the model of a chain has such an attribute, as far as can be told, and report one that it has
        not."""
        first, last = parts[0], parts[-1]
        if len(parts) == 1 and last in MODES:
            return True
        if first not in self.names:
            hint = nearest(first, self.names) or f"declare it: state: {{{first}: ...}}"
            return self.problems.refuse(False, change.span, f"self has no {first!r}", hint)
        item = self._state.get(first)
        if item is None:
            if len(parts) > 1 and last in OF_SUBMODULES:
                return True
            hint = nearest(last, OF_SUBMODULES) or "attributes: " + ", ".join(OF_SUBMODULES)
            return self.problems.refuse(False, change.span, f"a call may not set {change.target}", hint)
        return self._fits(item, parts, change)

    def _fits(self, item: Input, parts: Sequence[str], change: Change) -> bool:
        """Return whether a piece of state can hold the value, and report one that it cannot hold."""
        is_tensor = item.kind not in ("python", "list")
        if is_tensor and tuple(parts[1:]) == ("requires_grad",):
            return True
        if len(parts) > 1:
            return self.problems.refuse(False, change.span, f"a call may not set {change.target}")
        if is_tensor != isinstance(change.value, TensorLiteral) and item.kind != "list":
            kind, hint = ("a tensor", "such as {$tensor: [1.0]}") if is_tensor else ("no tensor", "such as 2.0")
            return self.problems.refuse(False, change.span, f"{change.target} is {kind}", hint)
        return True

    def _check_variable(self, name: str, span: Span) -> None:
        """Report a name that is no plain variable of the case's Python file."""
        if self.case.module is None:
            self.problems.error(span, f"global.{name} is a variable of a Python file, and the case has none")
            return
        known = _variables(read_text(self.case.module.file))
        if known is not None and name not in known:
            hint = nearest(name, known)
            self.problems.error(span, f"the file of the model has no variable {name!r}", hint)


def setting_of(name: str) -> tuple[str, str]:
    """Return the Python that reads a setting of torch, and the statement that sets it to ``{}``."""
    setter = torch_flag(name)
    return (FUNCTIONS[name][1], f"{setter}({{}})") if name in FUNCTIONS else (setter, f"{setter} = {{}}")


def _variables(text: str) -> set[str] | None:
    """Return the names that a file assigns at its top, without those of functions, classes and imports; None for no
    Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a run will say so
        return None
    names: set[str] = set()
    other: set[str] = set()
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            other.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            other.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    return names - other
