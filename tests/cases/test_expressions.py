"""``runner.cases.expressions``."""

from __future__ import annotations

import ast
import contextlib
import math
import time
from typing import Any

import pytest

from runner.cases.expressions import (
    MAX_LENGTH,
    ExpressionError,
    attributes_of_self,
    evaluate,
    is_static,
    names,
    number,
    parse,
    render,
)

PARAMS: dict[str, Any] = {"n": 2, "k": -3, "s": "ab", "f": 0.5, "b": True}


def value(text: str) -> Any:
    return evaluate(parse(text), PARAMS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("7 // 2", 3), ("-7 // 2", -4), ("7 / 2", 3.5), ("7 % 4", 3), ("2 ** 10", 1024), ("2 ** -1", 0.5),
        ("-n", -2), ("+k", -3), ("n * k", -6), ("n - -1", 3), ("f * n", 1.0), ("1e3", 1000.0), ("0x10", 16),
        ("n < 3", True), ("n == 2", True), ("n != 2", False), ("1 < n < 3", True), ("1 < n < 2", False), ("n >= 2", True), ("n <= 1", False), ("n > 1", True),
        ("min(n, k)", -3), ("max(n, k, 5)", 5), ("abs(k)", 3), ("len(s)", 2), ("s[1]", "b"), ("s", "ab"), ("  n", 2), ("n # a comment", 2),
    ],
)  # fmt: skip
def test_values(text: str, expected: Any) -> None:
    result = value(text)
    assert result == expected and type(result) is type(expected)


@pytest.mark.parametrize(
    ("text", "offset", "words"),
    [
        ("", 0, "not an expression"),
        ("1 +", 3, "not an expression"),
        ("n n", 0, "not an expression"),
        ("n.real", 0, "no attribute 'real' here; there are itemsize, ndim, shape"),
        ("1 + x.data", 4, "no attribute 'data' here"),
        ("x.__class__", 0, "no attribute '__class__' here"),
        ("self.__dict__", 0, "no attribute '__dict__' here"),
        ("self._parameters", 0, "no attribute '_parameters' here"),
        ("self.c.__class__", 0, "no attribute '__class__' here"),
        ("x.shape.__class__", 0, "no attribute '__class__' here"),
        ("  x.foo", 2, "no attribute 'foo' here"),
        ("__import__", 0, "no name '__import__' here"),
        ("__import__('os')", 0, "no function '__import__' here; there are min, max, len, abs"),
        ("eval(n)", 0, "no function 'eval' here"),
        ("print(n)", 0, "no function 'print' here"),
        ("x.tofile(n)", 0, "no method 'tofile' here; there are dim, element_size, "),
        ("x.size(dim=0)", 0, "calls take plain positional arguments"),
        ("min(*x)", 0, "calls take plain positional arguments"),
        ("(lambda: 1)()", 0, "only min, max, len, abs and a tensor's size methods are called here"),
        ("min(1, 2)(3)", 0, "only min, max, len, abs"),
        ("lambda: 1", 0, "an expression is arithmetic"),
        ("[n for n in s]", 0, "an expression is arithmetic"),
        ("1 + (n if n else k)", 5, "an expression is arithmetic"),
        ("(y := 3)", 1, "an expression is arithmetic"),
        ("x[1:2]", 2, "an expression is arithmetic"),
        ("x[0, 1]", 2, "an expression is arithmetic"),
        ("n and k", 0, "an expression is arithmetic"),
        ("not n", 0, "operators are + - * / // % ** and comparisons"),
        ("~n", 0, "operators are + - * / // % **"),
        ("1 + n @ k", 4, "operators are"),
        ("3 + (n << 2)", 5, "operators are + - * / // % ** and comparisons"),
        ("n | k", 0, "operators are"),
        ("n in s", 0, "comparisons are < <= > >= == !="),
        ("n is 2", 0, "comparisons are"),
        ("'a'", 0, "only numbers stand in an expression, not 'a'"),
        ("1 + 'a'", 4, "only numbers stand in an expression, not 'a'"),
        ("f'{n}'", 0, "an expression is arithmetic"),
        ("b'a'", 0, "only numbers"),
        ("True", 0, "only numbers stand in an expression, not True"),
        ("None", 0, "only numbers"),
        ("...", 0, "only numbers"),
        ("1j", 0, "only numbers"),
        ("yield", 0, "not an expression"),
        ("n; k", 1, "not an expression"),
        ("n\nimport os", 0, "not an expression"),
        ("n = 3", 2, "not an expression"),
        ("n\0", 0, "not an expression"),
        ("\ud800", 0, "not an expression"),
    ],
)  # fmt: skip
def test_what_is_no_expression(text: str, offset: int, words: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse(text)
    assert words in str(error.value)
    if words != "not an expression":
        assert error.value.offset == offset


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 / 0", "division by zero"), ("n % (n - 2)", "division by zero"), ("0 ** -1", "division by zero"),
        ("10 ** 10 ** 10", "the power has more than 128 bits"), ("2 ** 129", "the power has more than 128 bits"),
        ("(2 ** 100) ** n", "the power has more than 128 bits"), ("9 ** 9 ** 9 ** 9", "the power"), ("10.0 ** 400", "the power has more than"),
        ("(2 ** 100) * (2 ** 100)", "the result has more than 128 bits"),
        ("s + s", "arithmetic needs numbers on both sides"), ("s * 99999", "arithmetic needs numbers on both sides"),
        ("s < n", "not supported between"), ("-s", "bad operand type"), ("abs(s)", "bad operand type"), ("len(n)", "has no len"),
        ("s[9]", "out of range"), ("n[0]", "not subscriptable"), ("min(n)", "not iterable"), ("m + 1", "m"),
        ("x.shape", "this is known only when the model runs"), ("(-8) ** 0.5", "the result is no number but complex"),
        ("0.5 ** -10000", "the result is too large"), ("9" * 99, "the result has more than 128 bits"),
    ],
)  # fmt: skip
def test_what_has_no_value(text: str, words: str) -> None:
    with pytest.raises(ExpressionError) as error:
        value(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("next_power_of_2(1.5)", "take integers"), ("next_power_of_2(s)", "take integers"), ("cdiv(1e400, 1)", "take integers"),
        ("cdiv(1, 2.0)", "take integers"), ("cdiv(1, 0)", "division by zero"), ("cdiv(1)", "missing 1 required"),
        ("next_power_of_2(abs((-8) ** 0.5))", "take integers"), (f"next_power_of_2({'9' * 99})", "more than 128 bits"),
    ],
)  # fmt: skip
def test_launch_functions_take_integers(text: str, words: str) -> None:
    with pytest.raises(ExpressionError) as error:
        evaluate(parse(text, True), PARAMS)
    assert words in str(error.value)
    assert evaluate(parse("cdiv(7, 2) + next_power_of_2(5)", True), {}) == 12


@pytest.mark.parametrize(
    "text",
    ["n" * (MAX_LENGTH + 1), "(" * 400, "-" * 450 + "1", "+".join("1" * 240), "min(" * 90 + "1" + ")" * 90, "9**" * 100 + "9", "9" * 499, "x" + "[0]" * 160],
)  # fmt: skip
def test_no_expression_takes_long_or_exhausts_the_stack(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(ExpressionError):
        render(parse(text), PARAMS, str)
    assert time.process_time() - start < 0.5


def test_a_product_of_huge_params_is_refused() -> None:
    tree = parse("*".join(["n"] * 50))
    with pytest.raises(ExpressionError, match="more than 128 bits"):
        render(tree, {"n": 10**900}, str)


def test_too_deep_and_too_long_say_so() -> None:
    with pytest.raises(ExpressionError, match="at most 500 characters, this one has 501"):
        parse("1" * 501)
    with pytest.raises(ExpressionError, match="at most 100 operators deep"):
        parse("-" * 101 + "1")


def test_names() -> None:
    assert names(parse("min(n, x.shape[k]) + self.c.size(0)")) == {"n", "x", "k", "self"}
    assert names(parse("len + len(n)")) == {"len", "n"}
    assert is_static(parse("min(n, 3)"), PARAMS) and not is_static(parse("n + x.dim()"), PARAMS)


def test_attributes_of_self() -> None:
    assert attributes_of_self(parse("self.c.shape[0] + self.d.dim() + x.ndim")) == {"c", "d"}
    assert attributes_of_self(parse("len(self)")) == {""}
    assert attributes_of_self(parse("x.dim()")) == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n * 3", "6"), ("s", "'ab'"), ("f", "0.5"), ("n == 2", "True"),
        ("x.shape[0] * n", "V_x.shape[0] * 2"), ("x.size(0) // 2 - 1", "V_x.size(0) // 2 - 1"), ("x.dim() ** k", "V_x.dim() ** (-3)"),
        ("k ** x.dim()", "(-3) ** V_x.dim()"), ("k - x.ndim", "-3 - V_x.ndim"), ("min(x.shape[n], n)", "min(V_x.shape[2], 2)"), ("len(x)", "len(V_x)"),
        ("x.numel() # comment", "V_x.numel()"), ("a < b < 3", "V_a < True < 3"),
        ("x.stride()[1] + x.storage_offset()", "V_x.stride()[1] + V_x.storage_offset()"),
    ],
)  # fmt: skip
def test_rendering(text: str, expected: str) -> None:
    assert render(parse(text), PARAMS, lambda name: f"V_{name}") == expected


def test_rendering_leaves_the_tree_as_it_is() -> None:
    tree = parse("x.shape[0] + n")
    dump = ast.dump(tree)
    assert [render(tree, {"n": n}, str) for n in (1, 2)] == ["x.shape[0] + 1", "x.shape[0] + 2"]
    assert ast.dump(tree) == dump


@pytest.mark.parametrize(
    "constant", [math.nan, math.inf, -math.inf, 1e300, -0.0, 5, True, None, "a'\"\n\\", "\ud800", "é"]
)
def test_numbers_survive(constant: Any) -> None:
    back = eval(number(constant), {"float": float})
    assert repr(back) == repr(constant)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("math.sqrt(n) + 1", 5.0), ("math.ceil(n / 3)", 6), ("math.floor(n / 3)", 5), ("math.log2(n)", 4.0),
        ("math.prod(shape)", 24), ("math.prod(shape) // math.ceil(math.sqrt(n))", 6), ("len(shape) * math.floor(2.5)", 4),
    ],
)  # fmt: skip
def test_functions_of_math(text: str, value: float) -> None:
    params = {"n": 16, "shape": (4, 6), "math": 3}  # a param of this name is no module
    tree = parse(text)
    assert evaluate(tree, params) == value and type(evaluate(tree, params)) is type(value)
    assert names(tree) <= {"n", "shape"}


def test_math_over_sizes_of_a_run_stands_in_the_text() -> None:
    tree = parse("math.sqrt(x.shape[0]) * math.ceil(n / 3) + math.prod(shape)")
    assert names(tree) == {"x", "n", "shape"}
    assert render(tree, {"n": 16, "shape": (4, 6)}, lambda name: f"{name}_1") == (
        "math.sqrt(x_1.shape[0]) * math.ceil(16 / 3) + 24"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "math.exp(n)",
            "no function 'math.exp' here; there are math.ceil, math.floor, math.log2, math.prod, math.sqrt",
        ),
        ("math.sqrt(n=1)", "calls take plain positional arguments here"),
        ("math.pi", "no attribute 'pi' here"),
        ("math.sqrt.ceil(n)", "no method 'ceil' here"),
        ("cmath.sqrt(n)", "no method 'sqrt' here"),
        ("math.sqrt(0 - n)", ""),  # each Python says it in words of its own
        ("math.prod(words)", "functions of math take numbers and lists of them"),
        ("math.prod(n)", "not iterable"),
        ("math.ceil(1e300)", "more than 128 bits"),
    ],
)
def test_what_is_no_function_of_math(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(parse(text), {"n": 16, "words": ("ab", 10**30)})
    assert message in str(caught.value)
