"""``runner.builder.names_and_values``: names while a chain is written out."""

from __future__ import annotations

import keyword

import pytest

from runner.builder.names_and_values import Scope, python_name, temporary
from runner.cases.operator_names import BUILTINS
from runner.cases.problems import Problems
from runner.diagnostics import Span
from runner.quote import QuoteError

SPAN = Span("a.yaml", 3, 5)


def scope(**fields: object) -> Scope:
    return Scope(Problems([]), {"n": 2, "s": "its"}, set(), **fields)  # type: ignore[arg-type]


def messages(namespace: Scope) -> list[str]:
    return [d.message + (f" | {d.hint}" if d.hint else "") for d in namespace.problems.diagnostics]


def test_names_of_builtins_get_an_underscore() -> None:
    assert [python_name(n) for n in ("x", "len", "print", "match", "_x", "_", "lens", "torch_")] == [
        "x",
        "len_",
        "print_",
        "match_",
        "_x",
        "_",
        "lens",
        "torch_",
    ]


def test_no_two_names_become_the_same_variable() -> None:
    names = [stem + "_" * count for stem in (*BUILTINS, *keyword.softkwlist, "x") if stem != "_" for count in range(4)]
    variables = [python_name(n) for n in names]
    assert len(set(variables)) == len(names) and not set(variables) & set(BUILTINS)


def test_temporaries_are_names_that_the_case_does_not_use() -> None:
    assert temporary(set()) == "y" and temporary({"y", "t"}) == "h"
    names: set[str] = set()
    for _ in range(20):
        name = temporary(names)
        assert name not in names and name.isidentifier()
        names.add(name)


def test_defined_names_are_found_and_used() -> None:
    namespace = scope()
    assert namespace.define("len", SPAN) == "len_" and namespace.look_up("len", SPAN) == "len_"
    assert namespace.used == {"len"} and namespace.outputs == {"len": SPAN} and messages(namespace) == []


def test_params_are_written_as_their_values() -> None:
    namespace = scope()
    assert (
        namespace.look_up("n", SPAN) == "2"
        and namespace.look_up("s", SPAN) == '"its"'
        and namespace.used_params == {"n", "s"}
    )
    namespace.define("n")
    assert namespace.look_up("n", SPAN) == "n"


def test_the_previous_value() -> None:
    namespace = scope()
    assert namespace.look_up("_", SPAN) == "None" and messages(namespace) == [
        "$_ has no value here: there is no input and no step before"
    ]
    namespace = scope(previous="x", previous_name="x")
    assert namespace.look_up("_", SPAN) == "x" and namespace.used == {"x"} and messages(namespace) == []


def test_what_is_not_there() -> None:
    namespace = scope(later={"b": Span("a.yaml", 9, 1)})
    namespace.define("alpha")
    assert [namespace.look_up(n, SPAN) for n in ("alpa", "b", "zzz")] == ["None"] * 3
    assert messages(namespace) == [
        "nothing is called 'alpa' | did you mean 'alpha'?",
        "$b is used before it is made | line 9 makes it",
        "nothing is called 'zzz'",
    ]


def test_self_belongs_to_the_chain() -> None:
    assert scope().look_up("self", SPAN) == "self"
    namespace = scope(in_forward=False)
    namespace.look_up("self", SPAN)
    assert messages(namespace) == ["$self has no meaning outside the chain"]


@pytest.mark.parametrize("arguments", [(), ("t",), ("h",), ("y", "h"), ("t", "v", "h")])
@pytest.mark.parametrize("names", [(), ("h",), ("t", "y"), ("v", "z", "r")])
def test_a_functions_temporary_is_nobody_elses_name(arguments: tuple[str, ...], names: tuple[str, ...]) -> None:
    outer = scope()
    inner = outer.nested(arguments, names)
    innermost = inner.nested(("w",))
    assert inner.temporary not in {outer.temporary, *arguments, *names}
    assert innermost.temporary not in {inner.temporary, *arguments, *names, "w"}


def test_a_function_sees_the_names_around_it() -> None:
    outer = scope()
    outer.define("x")
    inner = outer.nested(("t",))
    assert inner.look_up("x", SPAN) == "x" and outer.used == {"x"} and "t" not in outer.variables
    inner.outer = frozenset(outer.variables)
    inner.define("fine", SPAN)
    inner.define("x", SPAN)
    assert messages(outer) == ["$x belongs to the chain around this function | give it a name of its own, or return it"]


@pytest.mark.parametrize("name", ["a.b", "a = 1; b", "x\ny", "class"])
def test_a_variable_is_one_name(name: str) -> None:
    with pytest.raises(QuoteError):
        Scope(Problems([]), {}, set()).define(name)
