"""What the caller does before a call and around it, as Python functions of the written source.

Lists hold an entry for each call: ``STEPS`` whether the optimizer of ``make_optimizer`` steps before it, ``CHANGES`` a
function of the model or None, ``CONTEXTS`` a function that gives a context, and ``THREADS`` whether a new thread makes
the call. A list that says nothing is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from runner.builder.chain import ChainWriter, Line
from runner.builder.names_and_values import Renderer, call
from runner.cases import operator_names
from runner.cases.case import FUNCTIONS, MODES, OF_SUBMODULES
from runner.cases.model import Call, Case, Change, Function, TensorLiteral
from runner.cases.problems import Problems
from runner.cases.python_files import assigned_names
from runner.diagnostics import Span, nearest
from runner.files import read_text
from runner.quote import dotted_name, identifier, literal, torch_flag

CONTEXTS = (
    *(name for name in operator_names.CONTEXTS if name != "torch.device"),
    "torch.autograd.detect_anomaly",
    "torch.autograd.graph.save_on_cpu",
)
"""Contexts that a caller may enter around a call."""

CALLERS = ("STEPS", "CHANGES", "CONTEXTS", "THREADS")
_COPY = "{name: tensor.clone() for name, tensor in model.state_dict().items()}"
_SAVE = "save_state"
_LOADED = {"initial": f"{_SAVE}.state", "current": _COPY, "assign": f"{_COPY}, assign=True"}


class CallerWriter:
    """The functions of a case's further calls in ``lines``, and their names in ``lists``.

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
        self._state = {item.name: item for item in case.state}
        self._functions: dict[str, str] = {}
        calls = list(enumerate(case.calls, start=1))
        head = self._function(
            _SAVE,
            "model",
            [Line(f"    {_SAVE}.state = {_COPY}")] if any(one.load == "initial" for one in case.calls) else [],
        )
        columns = {
            "CHANGES": [head, *(self._change(number, one) for number, one in calls)],
            "CONTEXTS": ["contextlib.nullcontext", *(self._around(number, one) for number, one in calls)],
            "THREADS": [literal(False), *(literal(one.thread) for _, one in calls)],
            "STEPS": [literal(False), *(literal(one.step is not None) for _, one in calls)],
        }
        self._optimizer()
        self.lists = {name: columns[name] for name in CALLERS if len(set(columns[name])) > 1}

    def _function(self, name: str, parameters: str, body: list[Line], decorator: str = "") -> str:
        """Write a function, unless there is one of this body, and return its name; ``None`` for no body."""
        if not body:
            return "None"
        text = "\n".join([decorator, *(line.text for line in body)])
        if text not in self._functions:
            self._functions[text] = name
            self.lines += [
                Line(""),
                Line(""),
                *([Line(decorator)] if decorator else []),
                Line(f"def {name}({parameters}):"),
                *body,
            ]
        return self._functions[text]

    def _optimizer(self) -> None:
        """Write the function that makes the optimizer, of which a case has one."""
        texts: dict[str, Span] = {}
        for one in self.case.calls:
            if one.step is not None:
                positional, keywords = self.writer(one).render.arguments(one.step.arguments, None)
                text = call(torch_flag(one.step.operator), ["model.parameters()", *positional], keywords)
                texts.setdefault(text, one.step.span)
                if len(texts) == 2:
                    self.problems.error(
                        one.step.span, "the calls step with two optimizers", "a case has one, with the same arguments"
                    )
                    return
        for text, span in texts.items():
            if all(grad.mode != "backward" for grad in self.case.grad):
                self.problems.error(span, "a step needs gradients", "grad: backward computes them")
            self._function("make_optimizer", "model", [Line(f"    return {text}", span)])

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
        hooks = f"    {dotted_name(hook.target).replace('self', 'model', 1)}"
        first = hook.target.split(".")[1:2]
        modules = [name for name in self.names if name not in self._state]
        if self.case.module is None and first and first[0] not in modules:
            self.problems.error(hook.span, f"self has no module {first[0]!r}", nearest(first[0], modules))
            return []
        if not isinstance(hook.value, Function):
            return [Line(f"{hooks}._forward_hooks.clear()", hook.span)]
        start = len(writer.lines)
        function = writer.render.value(hook.value)
        put_on = f"{hooks}.register_forward_hook(lambda module, args, output: {function}(output))"
        return [*writer.lines[start:], Line(put_on, hook.span)]

    def _statements(self, change: Change, render: Renderer) -> list[str]:
        kind, _, path = change.target.partition(".")
        value, module = render.value(change.value), self.case.module
        if kind == "torch":
            return [setting_of(change.target)[1].format(value)]
        if kind == "global":
            known = None if module is None else _variables(read_text(module.file))
            if module is None:
                message = f"global.{path} is a variable of a Python file, and the case has none"
                self.problems.error(change.span, message)
            elif known is not None and path not in known:
                message = f"the file of the model has no variable {path!r}"
                self.problems.error(change.span, message, nearest(path, known))
            return [f"global {identifier(path)}", f"{identifier(path)} = {value}"]
        owner, _, last = f"model.{dotted_name(path)}".rpartition(".")
        if module is None and not self._is_known(path.split("."), change):
            return []
        if last in MODES:
            return [f"{owner}.{'train' if last == 'training' else 'requires_grad_'}({value})"]
        item = self._state.get(path) if module is None else None
        if item is not None:
            is_parameter = item.requires_grad and isinstance(change.value, TensorLiteral)
            return [f"{owner}.{last} = {f'torch.nn.Parameter({value})' if is_parameter else value}"]
        message = literal(f"{change.target.rpartition('.')[0]} has no {last!r}")
        return [f"assert hasattr({owner}, {literal(last)}), {message}", f"{owner}.{last} = {value}"]

    def _is_known(self, parts: Sequence[str], change: Change) -> bool:
        """Return whether the model of a chain has such an attribute, as far as can be told, and report one that it has
        not, or a piece of state that cannot hold the value."""
        refuse, message = self.problems.refuse, f"a call may not set {change.target}"
        first, last = parts[0], parts[-1]
        if len(parts) == 1 and last in MODES:
            return True
        if first not in self.names:
            hint = nearest(first, self.names) or f"declare it: state: {{{first}: ...}}"
            return refuse(False, change.span, f"self has no {first!r}", hint)
        item = self._state.get(first)
        if item is None:
            hint = nearest(last, OF_SUBMODULES) or "attributes: " + ", ".join(OF_SUBMODULES)
            is_there = len(parts) > 1 and last in OF_SUBMODULES
            return is_there or refuse(False, change.span, message, hint)
        is_tensor = item.kind not in ("python", "list")
        if len(parts) > 1:
            is_gradient = is_tensor and tuple(parts[1:]) == ("requires_grad",)
            return is_gradient or refuse(False, change.span, message)
        if is_tensor != isinstance(change.value, TensorLiteral) and item.kind != "list":
            kind, hint = ("a tensor", "such as {$tensor: [1.0]}") if is_tensor else ("no tensor", "such as 2.0")
            return refuse(False, change.span, f"{change.target} is {kind}", hint)
        return True


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
    names = set[str]().union(*map(assigned_names, body))
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.discard(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names -= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return names
