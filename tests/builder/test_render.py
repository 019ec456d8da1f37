"""``runner.builder.names_and_values``: values and calls as Python text."""

from __future__ import annotations

import ast
import math
from typing import Any

import pytest
from built import Built

from runner.builder.names_and_values import call, literal


def argument(built: Built, value: str, keys: str = "") -> str:
    """How a value of a builtin.print step is written."""
    inputs = "" if "inputs:" in keys else "inputs: {x: [2, 3]}\n"
    lines = built.part(f"{inputs}{keys}\nchain:\n- builtin.print: [{value}, $x]\n- torch.abs: $x")
    (line,) = (line for line in lines if line.startswith("print("))
    return line.removeprefix("print(").removesuffix(", x)")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("3", "3"), ("-1.5", "-1.5"), ("true", "True"), ("null", "None"), (".nan", 'float("nan")'), ("-.inf", 'float("-inf")'), ("-0.0", "-0.0"), ("1e-3", "0.001"),
        ("abc", '"abc"'), ("'$$'", None), ("{$text: $5}", '"$5"'), ("'a b'", '"a b"'), ("'it''s'", None), ('"a\\nb"', None), ("é", None),
        ("[1, [2]]", "[1, [2]]"), ("[]", "[]"), ("{a: 1, b: [2]}", '{"a": 1, "b": [2]}'), ("{}", "{}"), ("{'a\"b': 1}", None),
        ("$x", "x"), ("$_", "x"), ("$x.shape", "x.shape"), ("'$x.shape[0]'", "x.shape[0]"), ("'$x[-1].T'", "x[-1].T"),
        ("torch.float16", "torch.float16"), ("torch.channels_last", "torch.channels_last"), ("$dtype", "torch.float32"), ("$device", '"cpu"'), ("torch.inf", "torch.inf"),
        ("'${x.shape[0] + 1}'", "x.shape[0] + 1"), ("'${2 ** 3}'", "8"), ("'${7 / 2}'", "3.5"),
        ("{$tensor: [1, 2], dtype: torch.int64}", "torch.tensor([1, 2], dtype=torch.int64)"), ("{$tensor: [[.nan]]}", 'torch.tensor([[float("nan")]])'),
        ("99999999999999999999999999", "99999999999999999999999999"),
    ],
)  # fmt: skip
def test_values(built: Built, value: str, text: str | None) -> None:
    if text is None:
        assert built.errors(f"chain:\n- builtin.print: [{value}]") != []
    else:
        assert argument(built, value) == text


@pytest.mark.parametrize(
    ("param", "value", "text"),
    [
        ("-2", "$n", "-2"), ("2", "$n.real", "(2).real"), ("-2", "'$n.real'", "(-2).real"), ("-2", "'${n ** 2}'", "4"), ("-2", "'${x.dim() - n}'", "x.dim() - -2"),
        ("a b", "$n", '"a b"'), (".nan", "$n", 'float("nan")'), ("null", "$n", "None"), ("true", "$n", "True"), ("-2", "'${n}'", "-2"), ("1.5", "'${x.ndim * n}'", "x.ndim * 1.5"),
    ],
)  # fmt: skip
def test_params(built: Built, param: str, value: str, text: str) -> None:
    assert argument(built, value, f"params: {{n: [{param}]}}") == text


def test_devices_and_dtypes_of_the_variant(built: Built) -> None:
    keys = "devices: [cuda:1]\ndtypes: [bfloat16]"
    assert argument(built, "$dtype", keys) == "torch.bfloat16" and argument(built, "$device", keys) == '"cuda:1"'
    assert argument(built, "{$tensor: 1}", keys) == 'torch.tensor(1, device="cuda:1")'
    assert argument(built, "{$tensor: 1, device: cpu}", keys) == 'torch.tensor(1, device="cpu")'


def test_the_variant_decides_between_names_and_params(built: Built) -> None:
    assert built.part('params: {n: [3]}\nchain:\n- torch.add: [$x, $n]\n  out: n\n- torch.mul: [$n, "${n.dim()}"]') == [
        "n = torch.add(x, 3)",
        "return torch.mul(n, n.dim())",
    ]


INDEX = [
    ("[0]", "x[0]"), ("[:, 0]", "x[:, 0]"), ("[0,]", "x[0]"), ("[..., None, $i, 1:3]", "x[..., None, i, 1:3]"), ("[::2]", "x[::2]"), ("[1:-1:2, null]", "x[1:-1:2, None]"),
    ("[[0, 1], 1]", "x[[0, 1], 1]"), ("[${n}:${x.shape[0] - 1}]", "x[2:x.shape[0] - 1]"), ("[true]", "x[True]"), ("[:]", "x[:]"), ("[$i[0]:$i[1]]", "x[i[0]:i[1]]"),
]  # fmt: skip


@pytest.mark.parametrize(("index", "text"), INDEX)
def test_indices(built: Built, index: str, text: str) -> None:
    keys = f"params: {{n: [2]}}\ninputs: {{x: [3, 4], i: {{values: [0, 1]}}}}\nchain:\n- builtin.print: [$i, $n]\n- operator.getitem: [$x, '{index}']"
    assert built.part(keys)[-1] == f"return {text}"


@pytest.mark.parametrize(
    ("item", "text"),
    [("0", "x[0]"), ("-1", "x[-1]"), ("[0, 1]", "x[[0, 1]]"), ("$i", "x[i]"), ("'${1 + 1}'", "x[2]"), ("key", 'x["key"]'), ("{$tensor: [0]}", "x[torch.tensor([0])]")],
)  # fmt: skip
def test_items_that_are_no_index_texts(built: Built, item: str, text: str) -> None:
    assert (
        built.part(
            f"inputs: {{x: [3, 4], i: {{values: [0, 1]}}}}\nchain:\n- builtin.print: $i\n- operator.getitem: [$x, {item}]"
        )[-1]
        == f"return {text}"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("$y", "4:19: nothing is called 'y'"),
        ("$x.shap", "4:19: 'shap' is no attribute that a case may reach | did you mean 'shape'?"),
        ("$x.view", "4:19: 'view' is no attribute that a case may reach"),
        ("$x.tofile", "4:19: 'tofile' is no attribute that a case may reach"),
        ("$x.untyped_storage", "4:19: 'untyped_storage' is no attribute"),
        ("$x.__class__", "4:19: '__class__' is no attribute that a case may reach"),
        ("$x.__dict__", "4:19: '__dict__' is no attribute"),
        ("$x.T.__class__", "4:19: '__class__' is no attribute"),
        ("'$x[0].__reduce_ex__'", "4:19: '__reduce_ex__' is no attribute"),
        ("$x.grad_fn.next_functions", "4:19: 'next_functions' is no attribute"),
        ("$x.storage", "4:19: 'storage' is no attribute"),
        ("$x.register_hook", "4:19: 'register_hook' is no attribute"),
        ("$x.data_ptr", "4:19: 'data_ptr' is no attribute"),
        ("$x._backward_hooks", "4:19: '_backward_hooks' is no attribute"),
        ("$self.c", "4:19: self has no 'c' | state: and id: make such names"),
        ("$self.__class__", "4:19: self has no '__class__'"),
        ("$self.__dict__", "4:19: self has no '__dict__'"),
        ("$self.forward", "4:19: self has no 'forward'"),
        ("$self.register_forward_hook", "4:19: self has no 'register_forward_hook'"),
        ("'${self.compile}'", "4:20: self has no 'compile'"),
        ("'${self.c.shape[0]}'", "4:20: self has no 'c'"),
        ("'${y.shape[0]}'", "4:20: nothing is called 'y'"),
        ("'${n}'", "4:20: nothing is called 'n'"),
        ("torch.load", "4:19: 'torch.load' is no constant of torch | "),
        ("torch.floot16", "4:19: 'torch.floot16' is no constant of torch | did you mean 'torch.float16'?"),
        ("torch.nn", "4:19: 'torch.nn' is no constant of torch"),
        ("torch.ops.aten.add", "4:19: 'torch.ops.aten.add' is no constant of torch"),
        ("torch.", "4:19: 'torch.' is no constant of torch"),
        ("torch._C", "4:19: 'torch._C' is no constant of torch"),
    ],
)  # fmt: skip
def test_problems(built: Built, value: str, message: str) -> None:
    problems = built.problems(f"chain:\n- builtin.print: [{value}]\n- torch.abs: $x")
    assert [f[: len(message)] for f in problems] == [message.replace("4:19", "4:23").replace("4:20", "4:24")]


def test_division_by_zero_is_told_where_it_stands(built: Built) -> None:
    assert built.problems("params: {n: [1, 0]}\nchain:\n- torch.add: [$x, '${1 // n}']") == [
        "5:24: in ${1 // n}: division by zero"
    ]


def test_attributes_of_state_and_modules(built: Built) -> None:
    keys = "state: {c: [2]}\nchain:\n- {nn.Linear: [3, 3], id: l}\n- torch.add: [$_, $self.l.weight]\n- torch.mul: [$_, '${self.c.shape[0]}']"
    assert built.part(keys)[-1] == "return torch.mul(y, self.c.shape[0])"
    assert built.problems(keys.replace("l.weight", "l.forward")) == [
        "6:23: 'forward' is no attribute that a case may reach | a method is a step: Tensor.<method>"
    ]


# --- the pieces ---

TEXTS = [
    "",
    "a",
    "'",
    '"',
    "\\",
    "\n",
    "\r",
    "\0",
    '\\"',
    '"""',
    "'''",
    "\\N{BULLET}",
    "{x}",
    "%s",
    "#",
    "\u2028",
    "\u202e",
    "\ud800",
    "é",
    "e\u0301",
    "😀",
    "\x85",
    "\t",
]


@pytest.mark.parametrize(
    "value",
    [
        *TEXTS,
        *(f'x{t}"; import os; "' for t in TEXTS),
        1,
        -0.0,
        math.nan,
        math.inf,
        True,
        None,
        [1, "a", [None]],
        {"a": [1], 'b"': {"c": "\n"}},
        (1, 2),
    ],
)
def test_literals_mean_what_they_say(value: Any) -> None:
    text = literal(value)
    assert "\n" not in text and "\r" not in text and "\0" not in text
    tree = ast.parse(text, mode="eval")
    assert not any(isinstance(n, ast.Name | ast.Call) for n in ast.walk(tree)) or isinstance(value, float)
    back = eval(text, {"float": float})
    assert repr(back) == repr(list(value) if isinstance(value, tuple) else value)


def test_calls() -> None:
    assert (
        call("f", [], []) == "f()"
        and call("f", ["a", "1"], [("k", "2")]) == "f(a, 1, k=2)"
        and call("f", [], [("k", "2")]) == "f(k=2)"
    )
