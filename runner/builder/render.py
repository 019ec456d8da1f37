"""Values and calls as Python text, and the statements that fill parameters and buffers of nn modules."""

from __future__ import annotations

import re
from collections.abc import Callable

from runner.builder import operators
from runner.builder.scope import Scope
from runner.cases import expressions
from runner.cases.model import (
    Arguments,
    Arithmetic,
    Constant,
    Function,
    Index,
    Initial,
    Items,
    Literal,
    Ref,
    Table,
    TensorLiteral,
    Value,
)
from runner.cases.walk import entry_text
from runner.diagnostics import Span, nearest
from runner.quote import identifier, integer, literal, torch_name

_MODULE_ATTRIBUTE = re.compile(
    r"weight|bias|running_mean|running_var|num_batches_tracked|in_proj_(weight|bias)|eps|p|padding_idx|training|"
    r"\w*_features|num_\w+|"
    r"hidden_size|(weight|bias)_(ih|hh)_l\d+(_reverse)?"
)


class Renderer:
    """Writes values in one scope. ``function`` writes a ``{$fn: ...}`` out above the statement and returns its name."""

    def __init__(self, scope: Scope, dtype: str, device: str, function: Callable[[Function], str]) -> None:
        self.scope, self.dtype, self.device, self.function = scope, dtype, device, function

    def value(self, value: Value) -> str:
        """Return the Python text of a value; for one that has none, which is reported, a harmless text."""
        match value:
            case Literal():
                return literal(value.value)
            case Ref():
                return self.reference(value)
            case Constant():
                return self.constant(value)
            case Arithmetic():
                return self.arithmetic(value)
            case Items():
                return "[" + ", ".join(self.value(item) for item in value.items) + "]"
            case Table():
                return "{" + ", ".join(f"{literal(key)}: {self.value(item)}" for key, item in value.items) + "}"
            case TensorLiteral():
                return self.tensor(value)
            case Index():
                return f"({self.index(value)},)"
            case Function():
                return self.function(value)

    def operand(self, value: Value) -> str:
        """Return the text of a value, in parentheses where an operator beside it would bind tighter."""
        text = self.value(value)
        if text.startswith("-"):
            return f"({text})"
        simple = re.fullmatch(r"[\w.]+(\[[^\[\]]*\])*|\"[^\"]*\"", text) or isinstance(
            value, Ref | Items | TensorLiteral
        )
        return text if simple else f"({text})"

    def reference(self, ref: Ref) -> str:
        """Return a reference such as ``x.shape[0]``; report attributes that data does not have."""
        text = self.scope.look_up(ref.name, ref.span)
        if ref.path and not re.match(r"[A-Za-z_]", text):
            text = f"({text})"  # a param: 2.real is no Python
        for place, part in enumerate(ref.path):
            if isinstance(part, int):
                text += f"[{integer(part)}]"
                continue
            if not self._attribute(ref, place, part):
                return "None"
            text += f".{identifier(part)}"
        return text

    def _of_self(self, part: str, span: Span) -> bool:
        if part not in self.scope.state:
            self.scope.problems.error(
                span, f"self has no {part!r}", nearest(part, self.scope.state) or "state: and id: make such names"
            )
        self.scope.used.add(f"self.{part}")
        return part in self.scope.state

    def _attribute(self, ref: Ref, place: int, part: str) -> bool:
        """Whether a case may reach the attribute; one that it may not is reported."""
        problems = self.scope.problems
        if ref.name == "self" and place == 0:
            return self._of_self(part, ref.span)
        known = operators.attributes() | operators.ATTRIBUTES_OF_VALUES
        if part not in known and not (ref.name == "self" and _MODULE_ATTRIBUTE.fullmatch(part)):
            return problems.refuse(
                False,
                ref.span,
                f"{part!r} is no attribute that a case may reach",
                nearest(part, known) or "a method is a step: Tensor.<method>",
            )
        self.scope.check_attribute(part, ref.span)
        return True

    def constant(self, constant: Constant) -> str:
        """Return a constant such as ``torch.float16``; ``$dtype`` and ``$device`` are the variant's own."""
        if constant.name == "$dtype":
            return torch_name(self.dtype)
        if constant.name == "$device":
            return literal(self.device)
        name = constant.name.removeprefix("torch.")
        if name not in operators.constants():
            close = nearest(name, operators.constants()).replace("'", "'torch.", 1)
            return self.scope.problems.refuse(
                "None",
                constant.span,
                f"{constant.name!r} is no constant of torch",
                close or "plain text is {$text: ...}",
            )
        return torch_name(name)

    def arithmetic(self, value: Arithmetic) -> str:
        """Return the number where only params are named, otherwise the expression itself."""
        scope = self.scope
        try:
            tree = expressions.parse(value.text)
            names = expressions.names(tree)
            for part in expressions.attributes_of_self(tree):
                self._of_self(part, value.span)
            params = {k: v for k, v in scope.params.items() if k not in scope.variables}
            scope.used_params |= names & set(params)
            return expressions.render(tree, params, lambda name: scope.look_up(name, value.span))
        except expressions.ExpressionError as error:
            return scope.problems.refuse("0", value.span, f"in ${{{value.text}}}: {error}")

    def index(self, value: Index) -> str:
        """Return the text between the brackets."""
        return ", ".join(entry_text(entry, self.value) for entry in value.entries)

    def tensor(self, value: TensorLiteral) -> str:
        """Return ``torch.tensor(...)``, on the variant's device."""
        options = {name: self.value(option) for name, option in value.options}
        if self.device != "cpu":
            options.setdefault("device", literal(self.device))
        return call("torch.tensor", [self.value(value.value)], list(options.items()))

    def arguments(self, arguments: Arguments, bare: Span | None) -> tuple[list[str], list[tuple[str, str]]]:
        """Return positional and keyword texts.

        Where none are written, the previous value is the argument; ``bare`` is where its absence is reported.
        """
        if arguments.bare:
            return ([self.scope.look_up("_", bare)] if bare is not None else []), []
        return [self.value(v) for v in arguments.positional], [(k, self.value(v)) for k, v in arguments.keywords]


def call(function: str, positional: list[str], keywords: list[tuple[str, str]]) -> str:
    """Return ``f(a, b, k=v)``. ``function`` and the values are Python text; a keyword is checked to be a name."""
    return f"{function}({', '.join([*positional, *(f'{identifier(k)}={v}' for k, v in keywords)])})"


FILLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "zeros": ("zero_", ()),
    "ones": ("fill_", ("1",)),
    "full": ("fill_", ()),
    "normal": ("normal_", ()),
    "uniform": ("uniform_", ()),
    "integer": ("random_", ("-8", "9")),
    "randint": ("random_", ()),
}
"""Ways of ``init:`` as methods that fill a tensor, with their arguments where the case has none."""


def fill(part: Initial, module: str, render: Renderer) -> str:
    """Return the statement that fills a parameter or a buffer of ``self.<module>``.

    Tensors of a state_dict share memory with the module's own, and ask for no gradient.
    """
    values = [render.value(argument) for argument in part.arguments]
    if part.init is None:
        method, values = "copy_", [call("torch.tensor", values, [])]
    else:
        method, defaults = FILLS[part.init]
        values = values or [*defaults]
    return call(f"self.{identifier(module)}.state_dict()[{literal(part.name)}].{method}", values, [])
