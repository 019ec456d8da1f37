"""``runner.cases.chains_and_inputs``: the values in arguments."""

# ruff: noqa: RUF001 - letters that look alike are what is tested

from __future__ import annotations

import json
from typing import Any

import pytest
from spec_files import Files

from runner.cases.chains_and_inputs import parse_arguments, parse_value
from runner.cases.model import (
    Arguments,
    Arithmetic,
    Constant,
    Function,
    Index,
    Items,
    Literal,
    Ref,
    Step,
    Table,
    TensorLiteral,
    Value,
)
from runner.cases.problems import Problems
from runner.cases.python_files import OF_MODULES, RESERVED, is_name
from runner.cases.yaml.reader import load


def read(text: str) -> tuple[Value, list[str]]:
    node, diagnostics = load("x.yaml", text)
    assert node is not None and not diagnostics
    problems = Problems(text.split("\n"))
    value = parse_value(node, problems)
    return value, [f"{d.span.line}:{d.span.column}: {d.message}" for d in problems.diagnostics]


def arguments(text: str, index_at: int | None = None) -> tuple[Arguments, list[str]]:
    node, diagnostics = load("x.yaml", text)
    assert node is not None and not diagnostics
    problems = Problems(text.split("\n"))
    parsed = parse_arguments(node, problems, index_at)
    return parsed, [f"{d.span.line}:{d.span.column}: {d.message}" for d in problems.diagnostics]


def plain(value: Value) -> Any:
    """A value without places, for comparing."""
    if isinstance(value, Literal):
        return value.value
    if isinstance(value, Ref):
        return ("ref", value.name, *value.path)
    if isinstance(value, Constant):
        return ("constant", value.name)
    if isinstance(value, Arithmetic):
        return ("arithmetic", value.text)
    if isinstance(value, Items):
        return [plain(v) for v in value.items]
    if isinstance(value, Table):
        return {k: plain(v) for k, v in value.items}
    if isinstance(value, TensorLiteral):
        return ("tensor", plain(value.value), {k: plain(v) for k, v in value.options})
    if isinstance(value, Index):
        return ("index", [entry(e) for e in value.entries])
    assert isinstance(value, Function)
    return ("fn", value.args, len(value.chain), None if value.result is None else plain(value.result))


def entry(part: Any) -> Any:
    if isinstance(part, Ref | Arithmetic):
        return plain(part)
    if isinstance(part, tuple):
        return slice(*(entry(p) for p in part))
    return [entry(p) for p in part] if isinstance(part, list) else part


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3), ("-0.0", -0.0), ("1e-3", 1e-3), (".inf", float("inf")), ("true", True), ("null", None), ("no", "no"), ("abc", "abc"), ("'3'", "3"),
        ("$_", ("ref", "_")), ("$x", ("ref", "x")), ("$x.shape", ("ref", "x", "shape")), ("'$x[0]'", ("ref", "x", 0)),
        ("'$x.grad[-1].T'", ("ref", "x", "grad", -1, "T")), ("$self.c", ("ref", "self", "c")), ("'$_x1'", ("ref", "_x1")),
        ("${n}", ("arithmetic", "n")), ("'${x.shape[0] * 2}'", ("arithmetic", "x.shape[0] * 2")),
        ("torch.float16", ("constant", "torch.float16")), ("$dtype", ("constant", "$dtype")), ("$device", ("constant", "$device")),
        ("[1, [$x]]", [1, [("ref", "x")]]), ("{a: $x, b: {c: 2}}", {"a": ("ref", "x"), "b": {"c": 2}}), ("{}", {}), ("[]", []),
        ("{$tensor: [1, 2], dtype: torch.int64}", ("tensor", [1, 2], {"dtype": ("constant", "torch.int64")})),
        ("{$tensor: 1.5, device: cpu, requires_grad: true}", ("tensor", 1.5, {"device": "cpu", "requires_grad": True})),
        ("{$text: $5}", "$5"), ("{$text: $n}", "$n"), ("{$text: torch.load}", "torch.load"), ("{$text: 5}", "5"), ("{$text: null}", "null"),
        ("{$fn: {args: [t, u], chain: [torch.sin], return: $u}}", ("fn", ("t", "u"), 1, ("ref", "u"))),
        ("{$fn: {chain: [torch.sin, torch.cos]}}", ("fn", (), 2, None)),
    ],
)  # fmt: skip
def test_forms(text: str, expected: Any) -> None:
    value, problems = read(text)
    assert problems == []
    assert repr(plain(value)) == repr(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$5", "1:1: '$5' is no reference"),
        ("$", "1:1: '$' is no reference"),
        ("$x.", "1:1: '$x.' is no reference"),
        ("'$x[i j]'", "1:1: '$x[i j]' is no reference"),
        ("'$x[i.j]'", "1:1: '$x[i.j]' is no reference"),
        ("'$x[$i]'", "1:1: '$x[$i]' is no reference"),
        ("'$x[0:1]'", "1:1: '$x[0:1]' is no reference"),
        ("'$x.size()'", "1:1: '$x.size()' is no reference"),
        ("'$x y'", "1:1: '$x y' is no reference"),
        ('"$x\\n"', "1:1: '$x\\n' is no reference"),
        ("$tｏrch", "1:1: '$tｏrch' is no reference"),  # Python would read it as torch
        ("'$x[" + "9" * 500 + "]'", "1:1: '$x[" + "9" * 53 + "... is no reference"),
        ("a${n}", "1:1: ${...} stands alone in its value"),
        ("'${n} ${k}'", "1:1: ${...} stands alone in its value"),
        ("'${n'", "1:1: ${...} stands alone in its value"),
        ("['${1 +}']", "1:5: in ${1 +}: not an expression: invalid syntax"),
        ("[1, '${x.data}']", "1:8: in ${x.data}: no attribute 'data' here"),
        ("[1, '${1 + y.foo}']", "1:12: in ${1 + y.foo}: no attribute 'foo' here"),
        ("{$tensr: [1]}", "1:2: unknown form '$tensr'"),
        ("{$tensor: [1], dtyp: int64}", "1:1: $tensor takes dtype, device and requires_grad, not 'dtyp'"),
        ("{$text: a, b: c}", "1:1: $text holds one text"),
        ("{$text: [a]}", "1:1: $text holds one text"),
        ("{$fn: torch.sin}", "1:7: $fn needs a chain"),
        ("{$fn: {args: [t]}}", "1:7: $fn needs a chain"),
        ("{$fn: {chain: [torch.sin]}, args: [t]}", "1:1: nothing stands beside $fn"),
        ("{$fn: {chain: [torch.sin], arg: [t]}}", "1:28: $fn takes args, chain and return, not 'arg'"),
        ("{$fn: {args: t, chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: [1t], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: [t, t], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: [t, [u]], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: ['t, u=print(1)'], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: [lambda], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: [torch], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: [self], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: [__debug__], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: [tｏrch], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {args: [_], chain: [torch.sin]}}", "1:14: args is a list of names"),
        ("{$fn: {chain: [{torch.sin: $x, out: class}]}}", "1:37: out: is a name, self.<name>, or a list of names"),
        ("{$fn: {chain: [{torch.sin: $x, out: torch}]}}", "1:37: out: is a name, self.<name>, or a list of names"),
        ("{$fn: {chain: [{torch.sin: $x, torch.cos: $x}]}}", "1:32: two operators in one step: torch.sin and torch.cos"),
        ("{$fn: {chain: torch.sin}}", "1:15: a chain is a list of steps"),
    ],
)  # fmt: skip
def test_problems(text: str, message: str) -> None:
    _, problems = read(text)
    assert [p[: len(message)] for p in problems] == [message]


def test_nearest_forms() -> None:
    node, _ = load("x.yaml", "{$tensr: [1]}")
    assert node is not None
    problems = Problems([])
    parse_value(node, problems)
    assert problems.diagnostics[0].hint == "did you mean '$tensor'?"


@pytest.mark.parametrize(
    ("text", "positional", "keywords", "bare"),
    [
        ("", [], {}, True),
        ("null", [], {}, True),
        ("'null'", ["null"], {}, False),
        ("[]", [], {}, False),
        ("[1, $x]", [1, ("ref", "x")], {}, False),
        ("5", [5], {}, False),
        ("$x", [("ref", "x")], {}, False),
        ("{size: [3, 4]}", [], {"size": [3, 4]}, False),
        ('{"*": [$_, 2], dim: 1}', [("ref", "_"), 2], {"dim": 1}, False),
        ('{dim: 1, "*": [$_]}', [("ref", "_")], {"dim": 1}, False),
        ("{$tensor: 1}", [("tensor", 1, {})], {}, False),
        ("[[$a, $b], 1]", [[("ref", "a"), ("ref", "b")], 1], {}, False),
        ("{}", [], {}, False),
    ],
)
def test_arguments(text: str, positional: list[Any], keywords: dict[str, Any], bare: bool) -> None:
    node, _ = load("x.yaml", f"op: {text}")
    assert node is not None
    problems = Problems([])
    parsed = parse_arguments(node.entries[0][1], problems)  # type: ignore[union-attr]
    assert problems.diagnostics == []
    assert [plain(v) for v in parsed.positional] == positional
    assert {k: plain(v) for k, v in parsed.keywords} == keywords
    assert parsed.bare is bare


@pytest.mark.parametrize(
    "key",
    [
        "a b",
        "a-b",
        "1a",
        "a=print(1)",
        '"a, b"',
        "class",
        "lambda",
        "None",
        "_a",
        "__class__",
        "ｄim",
        "a²",
        '"a\\n"',
        '""',
    ],
)
def test_keywords_are_python_names(key: str) -> None:
    parsed, problems = arguments(f"{{x: 1, {key}: 2}}")
    assert len(problems) == 1 and problems[0].startswith("1:8: ") and problems[0].endswith("is no keyword argument")
    assert [k for k, _ in parsed.keywords] == ["x"]


def test_the_star_holds_a_list() -> None:
    assert arguments('{"*": $x}')[1] == ['1:7: "*" holds a list of positional arguments']


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("[0]", [0]), ("[-1]", [-1]), ("[:, 0]", [slice(None), 0]), ("[0,]", [0]), ("[..., None, $i, 1:3]", [..., None, ("ref", "i"), slice(1, 3)]),
        ("[::2]", [slice(None, None, 2)]), ("[1:-1:2, null]", [slice(1, -1, 2), None]), ("[[0, 2], 1]", [[0, 2], 1]),
        ("[${n}:${n + 1}]", [slice(("arithmetic", "n"), ("arithmetic", "n + 1"))]), ("[$x[0], $self.c]", [("ref", "x", 0), ("ref", "self", "c")]),
        ("[true, False]", [True, False]), ("[${min(n, 2)}, 1]", [("arithmetic", "min(n, 2)"), 1]), ("[ 0 , : ]", [0, slice(None)]),
        ("[$i:$j]", [slice(("ref", "i"), ("ref", "j"))]), (f"[{1 << 128}]", [1 << 128]), ("[[[0], [1]]]", [[[0], [1]]]),
    ],
)  # fmt: skip
def test_indices(text: str, entries: list[Any]) -> None:
    parsed, problems = arguments(f"[$x, '{text}']", index_at=1)
    assert problems == []
    assert plain(parsed.positional[1]) == ("index", entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[0", "'[0' is no index"),
        ("[0] + 1", "'[0] + 1' is no index"),
        ("[]", "'' is no part of an index"),
        ("[foo]", "'foo' is no part of an index"),
        ("[0:1:2:3]", "'0:1:2:3' is no part of an index"),
        ("[print(1)]", "'print(1)' is no part of an index"),
        ("[x.shape]", "'x.shape' is no part of an index"),
        ("[1.5]", "'1.5' is no part of an index"),
        ("[1 + 1]", "'1 + 1' is no part of an index"),
        ("[0]; [1]", "'0]; [1' is no part of an index"),
        ("[0, , 1]", "'' is no part of an index"),
        ("[١]", "'١' is no part of an index"),
        ("[$i + 1]", "'$i + 1' is no reference"),
        ("[${i +}]", "in ${i +}: not an expression"),
        ("[a:b]", "'a' is no part of an index"),
        ("[" + "9" * 500 + "]", "'" + "9" * 56 + "... is no part of an index"),
        ("[" * 400 + "]" * 400, "'" + "[" * 56 + "... is no index"),
    ],
)
def test_what_is_no_index(text: str, message: str) -> None:
    _, problems = arguments(f"[$x, '{text}']", index_at=1)
    assert problems[0].split(": ", 1)[1].startswith(message)
    column = 6 if message.endswith("is no index") else 7 if message.startswith("''") else 10 if "${" in text else 8
    assert problems[0].startswith(f"1:{column}: ")


def test_an_index_stands_in_its_place_only() -> None:
    parsed, problems = arguments("[$x, '[1]', '[2]']", index_at=1)
    assert [plain(v) for v in parsed.positional][1] == ("index", [1])
    assert problems == [
        "1:13: a text for an operator may not hold '[': compilers write it into the code that they generate"
    ]


def test_names() -> None:
    assert all(is_name(n) for n in ("x", "_x", "x1", "print", "match", "forward"))
    assert not any(is_name(n) for n in ("", "1x", "x y", "x\n", "class", "None", "__x", "ｘ", "é", *RESERVED))
    assert is_name("torch", frozenset()) and not is_name("forward", OF_MODULES)


def test_steps_of_a_function_are_read_like_a_chain() -> None:
    value, problems = read("{$fn: {args: [t], chain: [{torch.add: [$t, 1], out: a}, torch.sin]}}")
    assert problems == [] and isinstance(value, Function)
    first = value.chain[0]
    assert isinstance(first, Step) and first.operator == "torch.add" and first.out == ("a",)


def test_places_in_a_case(files: Files) -> None:
    assert files.errors("""
        chain:
          - torch.add: [$x, "$x["]
          - operator.getitem: [$_, "[:, foo]"]
          - torch.mul: [$_, "${1 + }"]
    """) == [
        "4:25: '$x[' is no reference | write $name, $name.attr, $name[0], $name[key] or ${...}; plain text is {$text: ...}",
        "5:37: 'foo' is no part of an index | parts are integers, a:b:c, ..., None, $name and ${...}",
        "6:28: in ${1 + }: not an expression: invalid syntax",
    ]


def test_an_index_is_no_longer_than_anybody_writes() -> None:
    assert arguments("[$x, '[" + "0, " * 332 + "0]']", index_at=1)[1] == []
    assert arguments("[$x, '[" + "0, " * 400 + "0]']", index_at=1)[1] == [
        "1:6: an index has at most 1000 characters, this one has 1203"
    ]


@pytest.mark.parametrize(
    "character", ['"', "'", "\\", "\n", "%", "{", "}", "(", "]", "=", "#", ";", "`", "?", "\0", "\x1b", "ä", "\u2028"]
)
def test_a_text_for_an_operator_holds_nothing_that_ends_a_text(character: str, files: Files) -> None:
    text = json.dumps(f"a{character}b")
    for form in (text, f"{{$text: {text}}}", f"{{{text}: 1}}", f"[1, [{text}]]"):
        _, messages = read(form)
        assert [message for message in messages if "a text for an operator may not hold" in message], form
    for keys in (f"state: {{t: {{python: {text}}}}}", f"inputs: {{x: [2], t: {{python: [{text}]}}}}"):
        assert [m for m in files.errors(keys) if "a text for an operator may not hold" in m], keys


def test_a_plain_text_is_taken_as_it_is() -> None:
    text = "bij,bjk->bik ... torch.load $5 cuda:0 fro -inf a_b"
    assert read(json.dumps(text)) == (Literal(text), [])
