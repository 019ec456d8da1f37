"""Names and values while a chain is written out: which names are made and used, and values and calls as Python text.

The statements that fill parameters and buffers of nn modules are here too.
"""

from __future__ import annotations

import functools
import itertools
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runner.builder import operators
from runner.builder.operators import has_only_a_value
from runner.cases import expressions
from runner.cases.model import (
    Arguments,
    Arithmetic,
    Constant,
    Function,
    Index,
    Initial,
    Items,
    Kernel,
    Key,
    Literal,
    Ref,
    Step,
    Table,
    TensorLiteral,
    Value,
)
from runner.cases.operator_names import BUILTINS
from runner.cases.problems import Problems
from runner.cases.texts import plain_text
from runner.cases.walk import entry_text
from runner.cases.yaml.values import scalars_of
from runner.diagnostics import Span, nearest
from runner.quote import dotted_name, identifier, integer, literal, torch_name

READ_TENSOR = "read_tensor"
"""The function of the source that reads a tensor of a file."""

_TEMPORARIES = ("y", "h", "t", "v", "z", "r", "u", "w")


@dataclass(slots=True)
class Scope:
    """One function's names. ``variables`` maps a case's name to the Python variable that holds it now."""

    problems: Problems
    params: Mapping[str, Any]
    reserved: set[str]
    variables: dict[str, str] = field(default_factory=dict)
    state: dict[str, Span] = field(default_factory=dict)  # what self.<name> may be
    used: set[str] = field(default_factory=set)
    outputs: dict[str, Span] = field(default_factory=dict)  # out: names and where
    later: dict[str, Span] = field(default_factory=dict)
    used_params: set[str] = field(default_factory=set)
    previous: str | None = None  # Python text of $_
    previous_name: str | None = None  # the case's name for it, when it has one
    unread: Step | None = None  # that gave $_, if nothing has read it and it has only a value
    dropped: list[Step] = field(default_factory=list)  # whose value nothing has read: one list for the whole source
    temporary: str = "y"
    in_forward: bool = True
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    has_arrays: Callable[[], bool] = lambda: False  # whether the case calls numpy: a value may be an array
    launches: bool = False  # triton.<name> launches the kernel; else it calls the kernel's reference
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)  # keys of inputs; none of what is no dict
    outer: frozenset[str] = frozenset()  # names of the function around this one, which Python lets this one only read
    # The last number of a nested function: one list for the whole source.
    functions: list[int] = field(default_factory=lambda: [0])

    def define(self, name: str, span: Span | None = None) -> str:
        """Define the Python variable for a case's name, from here on, and return it."""
        variable = identifier(python_name(name))
        self.tables.pop(name, None)
        self.check_write(name, span)
        self.variables[name] = variable
        if span is not None:
            self.outputs.setdefault(name, span)
        return variable

    def check_write(self, name: str, span: Span | None) -> None:
        """Report a name of the chain around this function: Python would take it for the function's own."""
        if span is not None and name in self.outer:
            self.problems.error(
                span, f"${name} belongs to the chain around this function", "give it a name of its own, or return it"
            )

    def look_up(self, name: str, span: Span) -> str:
        """Return the Python text of ``$name``, and report an undefined one."""
        refuse = self.problems.refuse
        if name == "_":
            if self.previous is None:
                return refuse("None", span, "$_ has no value here: there is no input and no step before")
            self.unread = None
            self.used |= set() if self.previous_name is None else {self.previous_name}
            return self.previous
        if name == "self":
            return "self" if self.in_forward else refuse("self", span, "$self has no meaning outside the chain")
        if name in self.variables:
            self.used.add(name)
            return self.variables[name]
        if name in self.params:
            self.used_params.add(name)
            value = self.params[name]
            checked = [not isinstance(v, str) or plain_text(v, span, self.problems) == v for v in scalars_of(value)]
            return literal(value if all(checked) else None)
        place = self.later.get(name)
        if place is None:
            return refuse(
                "None", span, f"nothing is called {name!r}", nearest(name, [*self.variables, *self.params, *self.later])
            )
        if place.line < span.line:
            return refuse(
                "None", span, f"${name} is not made on every way to here", f"line {place.line} makes it on one"
            )
        return refuse("None", span, f"${name} is used before it is made", f"line {place.line} makes it")

    def check_attribute(self, name: str, span: Span) -> None:
        """Report ``data`` where a value may be an array: it is the array's memory, which steps could free or take for
        numbers."""
        if name == "data" and self.has_arrays():
            self.problems.error(
                span, "a case that calls numpy may not reach 'data'", "Tensor.detach gives a tensor's data"
            )

    def set_previous(self, text: str, name: str | None, step: Step | None = None) -> None:
        """Make ``text`` the value of ``$_``, which the case calls ``name``; ``step`` gave it and nothing else holds
        it."""
        self.note_dropped()
        self.previous, self.previous_name = text, name
        self.unread = step if step is not None and has_only_a_value(step) else None

    def note_dropped(self) -> None:
        """Note that from here on nothing can read what ``$_`` is."""
        if self.unread is not None:
            self.dropped.append(self.unread)
        self.unread = None

    def use_previous(self, span: Span) -> None:
        """Count ``$_`` as used: the step at ``span`` was meant to take it, and one message says so."""
        if self.previous is not None:
            self.look_up("_", span)

    def nested(self, arguments: Iterable[str], names: Iterable[str] = ()) -> Scope:
        """Return the scope of a function inside this one: it sees these names and keeps its own temporary.

        ``names`` are those that the function itself makes.
        """
        inner = replace(
            self, variables=dict(self.variables), previous=None, previous_name=None, unread=None, outer=frozenset()
        )
        self.reserved.update(inner.define(name) for name in arguments)
        self.reserved.update(map(python_name, names))
        inner.temporary = temporary(self.reserved | {self.temporary})
        self.reserved.add(inner.temporary)
        return inner


@functools.lru_cache(10_000)
def python_name(name: str) -> str:
    """Return a case's name, or ``self.<name>``, as a variable that hides nothing the source needs.

    Raises QuoteError for another text.
    """
    bare = name.rstrip("_")  # print_ becomes print__, so that it is not what print becomes
    is_taken = bare in BUILTINS or bare == READ_TENSOR or (bare and keyword.issoftkeyword(bare))
    return dotted_name(name + "_" if is_taken else name)


def temporary(names: set[str]) -> str:
    """Return a name for unnamed results that the case itself does not use."""
    # Behind the names that people use, the search begins where a name must be free soon: there may be thousands.
    numbers = itertools.chain(range(1, 1000), itertools.count(max(1000, len(names))))
    return next(n for n in itertools.chain(_TEMPORARIES, (f"y{i}" for i in numbers)) if n not in names)


# --- values and calls ---

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
            if not isinstance(part, str):
                text += f"[{self._item(ref, place, part)}]"
                continue
            if not self._attribute(ref, place, part):
                return "None"
            text += f".{identifier(part)}"
        return text

    def _item(self, ref: Ref, place: int, part: int | Key) -> str:
        """The text of an item or a key; a key that a dict of the case does not have is reported."""
        if isinstance(part, int):
            return integer(part)
        scope, keys = self.scope, self.scope.tables.get(ref.name)
        if place > 0 or (keys is not None and part.name in keys):
            return literal(part.name)
        index = f'an index is written operator.getitem: [${ref.name}, "[${part.name}]"]'
        if ref.name == "self":
            scope.problems.error(ref.span, "$self has attributes and no items", f"such as $self.{part.name}")
        elif keys:
            hint = nearest(part.name, keys) or f"its keys: {', '.join(keys)}"
            scope.problems.error(ref.span, f"{ref.name!r} has no key {part.name!r}", hint)
        elif keys is not None or part.name in {*scope.variables, *scope.params}:
            scope.problems.error(ref.span, f"{ref.name!r} is no dict with a key {part.name!r}", index)
        return literal(part.name)

    def of_self(self, part: str, span: Span, hint: str = "state: and id: make such names") -> bool:
        """Return whether the model has ``self.<part>``, and count it as used; report one that it does not have."""
        if part not in self.scope.state:
            self.scope.problems.error(span, f"self has no {part!r}", nearest(part, self.scope.state) or hint)
        self.scope.used.add(f"self.{part}")
        return part in self.scope.state

    def _attribute(self, ref: Ref, place: int, part: str) -> bool:
        """Whether a case may reach the attribute; one that it may not is reported."""
        if ref.name == "self" and place == 0:
            return self.of_self(part, ref.span)
        known = operators.attributes() | operators.ATTRIBUTES_OF_VALUES
        if part not in known and not (ref.name == "self" and _MODULE_ATTRIBUTE.fullmatch(part)):
            hint = nearest(part, known) or "a method is a step: Tensor.<method>"
            return self.scope.problems.refuse(False, ref.span, f"{part!r} is no attribute that a case may reach", hint)
        self.scope.check_attribute(part, ref.span)
        return True

    def constant(self, constant: Constant) -> str:
        """Return a constant such as ``torch.float16``; ``$dtype`` and ``$device`` are the variant's own."""
        if constant.name.startswith("$"):
            return torch_name(self.dtype) if constant.name == "$dtype" else literal(self.device)
        name, known = constant.name.removeprefix("torch."), operators.constants()
        if name in known:
            return torch_name(name)
        hint = nearest(name, known).replace("'", "'torch.", 1) or "plain text is {$text: ...}"
        return self.scope.problems.refuse("None", constant.span, f"{constant.name!r} is no constant of torch", hint)

    def arithmetic(self, value: Arithmetic) -> str:
        """Return the number where only params are named, otherwise the expression itself."""
        scope = self.scope
        try:
            tree = expressions.parse(value.text)
            names = expressions.names(tree)
            if expressions.uses_math(tree) and "math" in {*scope.variables, *scope.params, *scope.later}:
                raise expressions.ExpressionError("'math' is a name of this case: name that otherwise")
            for part in expressions.attributes_of_self(tree):
                self.of_self(part, value.span)
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
    values = list(map(render.value, part.arguments))
    method, defaults = ("copy_", ()) if part.init is None else FILLS[part.init]
    values = [call("torch.tensor", values, [])] if part.init is None else values or [*defaults]
    return call(f"self.{identifier(module)}.state_dict()[{literal(part.name)}].{method}", values, [])
