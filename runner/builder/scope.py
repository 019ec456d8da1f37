"""Names while a chain is written out: which are made, which are used, what the previous value is called."""

from __future__ import annotations

import itertools
import keyword
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.builder.operators import BUILTINS, has_only_a_value
from runner.cases.model import Kernel, Step
from runner.cases.problems import Problems
from runner.cases.texts import plain_text
from runner.diagnostics import Span, nearest
from runner.quote import dotted_name, identifier, literal

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
    has_arrays: bool = False  # the case calls numpy: a value may be an array
    launches: bool = False  # triton.<name> launches the kernel; else it calls the kernel's reference
    outer: frozenset[str] = frozenset()  # names of the function around this one, which Python lets this one only read
    # The last number of a nested function: one list for the whole source.
    functions: list[int] = field(default_factory=lambda: [0])

    def define(self, name: str, span: Span | None = None) -> str:
        """Define the Python variable for a case's name, from here on, and return it."""
        variable = identifier(python_name(name))
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
        if name == "_":
            if self.previous is None:
                return self.problems.refuse("None", span, "$_ has no value here: there is no input and no step before")
            self.unread = None
            if self.previous_name is not None:
                self.used.add(self.previous_name)
            return self.previous
        if name == "self":
            if not self.in_forward:
                self.problems.error(span, "$self has no meaning outside the chain")
            return "self"
        if name in self.variables:
            self.used.add(name)
            return self.variables[name]
        if name in self.params:
            self.used_params.add(name)
            value = self.params[name]
            return literal(plain_text(value, span, self.problems) if isinstance(value, str) else value)
        if name in self.later and self.later[name].line < span.line:
            self.problems.error(
                span, f"${name} is not made on every way to here", f"line {self.later[name].line} makes it on one"
            )
        elif name in self.later:
            self.problems.error(span, f"${name} is used before it is made", f"line {self.later[name].line} makes it")
        else:
            self.problems.error(
                span, f"nothing is called {name!r}", nearest(name, [*self.variables, *self.params, *self.later])
            )
        return "None"

    def check_attribute(self, name: str, span: Span) -> None:
        """Report ``data`` where a value may be an array: it is the array's memory, which steps could free or take for
        numbers."""
        if self.has_arrays and name == "data":
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
        inner = Scope(
            self.problems, self.params, self.reserved, dict(self.variables), self.state, self.used, self.outputs,
            self.later,
            self.used_params, in_forward=self.in_forward, kernels=self.kernels, launches=self.launches,
            has_arrays=self.has_arrays, functions=self.functions, dropped=self.dropped,
        )  # fmt: skip
        for name in arguments:
            self.reserved.add(inner.define(name))
        self.reserved.update(python_name(name) for name in names)
        inner.temporary = temporary(self.reserved | {self.temporary})
        self.reserved.add(inner.temporary)
        return inner


def python_name(name: str) -> str:
    """Return a case's name, or ``self.<name>``, as a variable that hides nothing the source needs.

    Raises QuoteError for another text.
    """
    bare = name.rstrip("_")  # print_ becomes print__, so that it is not what print becomes
    return dotted_name(name + "_" if bare in BUILTINS or (bare and keyword.issoftkeyword(bare)) else name)


def temporary(names: Iterable[str]) -> str:
    """Return a name for unnamed results that the case itself does not use."""
    names = names if isinstance(names, set | frozenset) else set(names)
    # Behind the names that people use, the search begins where a name must be free soon: there may be thousands.
    numbers = itertools.chain(range(1, 1000), itertools.count(max(1000, len(names))))
    return next(n for n in itertools.chain(_TEMPORARIES, (f"y{i}" for i in numbers)) if n not in names)
