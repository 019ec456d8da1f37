"""``runner.cases.chains_and_inputs``: how tensors are made."""

# ruff: noqa: RUF001 - letters that look alike are what is tested

from __future__ import annotations

from typing import Any

import pytest
from spec_files import Files

from runner.cases.chains_and_inputs import INITS, dtype_name, parse_inputs
from runner.cases.model import Arithmetic, Input, Items, Literal
from runner.cases.problems import Problems
from runner.cases.yaml.reader import load


def read(text: str, noun: str = "an input") -> tuple[tuple[Input, ...], list[str]]:
    """Inputs without the schema's checks."""
    node, diagnostics = load("x.yaml", text)
    assert node is not None and not diagnostics
    problems = Problems(text.split("\n"))
    inputs = parse_inputs(node, problems, noun)
    return inputs, [
        f"{d.span.line}:{d.span.column}: {d.message}" + (f" | {d.hint}" if d.hint else "") for d in problems.diagnostics
    ]


def one(text: str) -> Input:
    inputs, problems = read(f"x: {text}")
    assert problems == [] and len(inputs) == 1
    return inputs[0]


def numbers(values: Any) -> list[Any]:
    return [v.value if isinstance(v, Literal) else v.text for v in values]


def test_a_shape() -> None:
    item = one("[2, '${n}', 0]")
    assert (item.name, item.kind, item.dtype, item.init) == ("x", "tensor", None, None)
    assert item.shape is not None and numbers(item.shape) == [2, "n", 0] and isinstance(item.shape[1], Arithmetic)
    assert one("[]").shape == ()


def test_every_key() -> None:
    item = one(
        "{shape: [2], dtype: torch.int64, init: ones, requires_grad: true, hidden: true, device: meta, layout: [Tensor.t]}"
    )
    assert (item.kind, item.dtype, item.init, item.requires_grad, item.hidden, item.device, len(item.layout)) == (
        "tensor", "int64", "ones", True, True, "meta", 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "flags"),
    [("true", (True, False)), ("after_layout", (True, True)), ("false", (False, False))],
)
def test_when_a_tensor_asks_for_a_gradient(text: str, flags: tuple[bool, bool]) -> None:
    item = one(f"{{shape: [2], requires_grad: {text}, layout: [Tensor.half]}}")
    assert (item.requires_grad, item.grad_after_layout) == flags


def test_kinds() -> None:
    inputs, problems = read("""
a: {values: [[1, 2], ["${n}", 1+2j]], shape: [4], tile: 6}
b: {view_of: a}
c: {list: [[2], {shape: [3], dtype: bool}]}
d: {python: {k: [1, null]}}
e: {values: [.nan, true, torch.pi]}
f: {python: null}
""")
    assert problems == []
    assert [i.kind for i in inputs] == ["values", "view", "list", "python", "values", "python"]
    a, b, c, _, _, _ = inputs
    assert isinstance(a.values, Items) and a.tile == 6 and a.shape is not None and numbers(a.shape) == [4]
    assert b.view_of == "a" and [i.name for i in c.items] == ["c_0", "c_1"] and c.items[1].dtype == "bool"


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [(n, n, []) for n in ("normal", "zeros", "ones", "integer", "special", "eye", "uniform", "randperm", "patterns")]
    + [
        ("{randint: [0, 10]}", "randint", [0, 10]), ("{uniform: [-1, 1.5]}", "uniform", [-1, 1.5]), ("{normal: [-1, 0.5]}", "normal", [-1, 0.5]), ("{full: 2}", "full", [2]), ("{full: .nan}", "full", [float("nan")]),
        ("{arange: [0, '${n}']}", "arange", [0, "n"]), ("{linspace: [0, 1]}", "linspace", [0, 1]),
    ],
)  # fmt: skip
def test_inits(text: str, name: str, arguments: list[Any]) -> None:
    item = one(f"{{shape: [2], init: {text}}}")
    assert item.init == name and repr(numbers(item.init_args)) == repr(arguments)


def test_every_init_is_tested() -> None:
    assert set(INITS) == {
        "normal",
        "zeros",
        "ones",
        "integer",
        "special",
        "eye",
        "uniform",
        "randint",
        "full",
        "arange",
        "linspace",
        "randperm",
        "patterns",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: {}", "1:1: input 'x' has nothing that makes it | one of shape, values, view_of, list, dict, python, file makes an input; shape: may reshape values:"),
        ("x: {dtype: bool}", "1:1: input 'x' has nothing that makes it"),
        ("x: {shape: [2], python: 1}", "1:1: input 'x' has shape and python"),
        ("x: {values: 1, view_of: a}", "1:1: input 'x' has values and view_of"),
        ("x: [2.0]", "1:5: a shape holds integers and ${...}"),
        ("x: [true]", "1:5: a shape holds integers and ${...}"),
        ("x: [2, n]", "1:8: a shape holds integers and ${...}"),
        ("x: [$n]", "1:5: a shape holds integers and ${...}"),
        ("x: ['${1 +}']", "1:8: in ${1 +}: not an expression: invalid syntax"),
        ("x: {shape: [2], init: one}", "1:23: unknown init 'one' | did you mean 'ones'?"),
        ("x: {shape: [2], init: gauss}", "1:23: unknown init 'gauss' | inits: normal, randint"),
        ("x: {shape: [2], init: full}", "1:23: init full takes 1 numbers, not 0 | such as init: {full: 2}"),
        ("x: {shape: [2], init: {randint: [1]}}", "1:24: init randint takes 2 numbers, not 1 | such as init: {randint: [0, 10]}"),
        ("x: {shape: [2], init: {normal: [1, -0.5]}}", "1:36: the deviation of init normal is a number of 0 or more | [mean, deviation]"),
        ("x: {shape: [2], init: {normal: [1]}}", "1:24: init normal takes 2 numbers, not 1"),
        ("x: {shape: [2], init: {uniform: [1, 2, 3]}}", "1:24: init uniform takes 2 numbers, not 3"),
        ("x: {shape: [2], init: {ones: 1, zeros: 1}}", "1:23: init: has one way of making values"),
        ("x: {values: abc}", "1:13: expected a number, found the text 'abc' | write numbers without quotes, true, false or ${param}, such as [1.0, -0.0, .nan]"),
        ("x: {values: [1, [2, x]]}", "1:21: expected a number, found the text 'x'"),
        ('x: {values: ""}', "1:13: expected a number, found the text ''"),
        ("x: {values: 2001-01-01}", "1:13: expected a number, found the text '2001-01-01'"),
        ("x: {values: '1+2j'}", "1:13: expected a number, found the text '1+2j'"),
        ("x: {values: [$dtype]}", "1:14: expected a number, found the text '$dtype'"),
        ("x: {values: [null]}", "1:14: expected a number, found nothing (null)"),
        ("x: {values: [{a: 1}]}", "1:14: expected a number, found a mapping"),
        ("x: {shape: [2], init: {full: abc}}", "1:30: expected a number, found the text 'abc'"),
        ("xs: {list: [[2]]}\nxs_0: [3]", "2:1: 'xs_0' is what an element of 'xs' is called | name it otherwise"),
        ("xs_0_0: [3]\nxs: {list: [{list: [[2]]}]}", "1:1: 'xs_0_0' is what an element of 'xs' is called"),
    ],
)  # fmt: skip
def test_problems(text: str, message: str) -> None:
    _, problems = read(text)
    assert [p[: len(message)] for p in problems] == [message]


NO_NAMES = [
    "self", "torch", "nn", "F", "numpy", "operator", "dtype", "device", "super", "_", "class", "lambda", "None", "import", "__class__", "__import__",
    "1x", "a b", "a-b", "a.b", "x=1", "x)", "'x, y=print(1)'", '"x\\n"', "ｘ", "é", "x²", "tｏrch",
]  # fmt: skip


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_cannot_name_an_input(name: str) -> None:
    inputs, problems = read(f"{{a: [2], {name}: [2]}}")
    assert [i.name for i in inputs] == ["a"]
    assert (
        len(problems) == 1
        and problems[0].startswith("1:10: ")
        and "cannot name an input | names are Python names" in problems[0]
    )


@pytest.mark.parametrize(
    "name", [*NO_NAMES, "forward", "train", "training", "to", "register_buffer", "compile", "parameters", "state_dict"]
)
def test_what_cannot_name_state(name: str) -> None:
    inputs, problems = read(f"{{{name}: [2]}}", "state")
    assert inputs == () and len(problems) == 1 and "cannot name state" in problems[0]


def test_what_can_name_an_input() -> None:
    names = ["x", "_x", "X1", "print", "len", "match", "forward", "Model", "make_inputs", "y", "fn1", "max"]
    inputs, problems = read("\n".join(f"{n}: [1]" for n in names))
    assert problems == [] and [i.name for i in inputs] == names


def test_dtype_names() -> None:
    assert dtype_name("torch.float32") == dtype_name("float32") == "float32"


def test_places_in_a_case(files: Files) -> None:
    assert files.errors("""
        inputs:
          class: [2]
          x: {shape: [2], values: [1], view_of: y}
          y: {shape: [2], init: {randint: [0, 10]}}
        state:
          forward: [2]
    """) == [
        "4:7: 'class' cannot name an input | names are Python names that the source does not use itself",
        "5:7: input 'x' has values and view_of | one of shape, values, view_of, list, dict, python, file makes an input; shape: may reshape values:",
        "8:7: 'forward' cannot name state | names are Python names that the source does not use itself",
    ]  # fmt: skip


def test_unknown_dtypes_and_sizes_are_told_by_the_schema(files: Files) -> None:
    errors = files.errors("""
        inputs:
          x: {shape: [2], dtype: flota32}
          y: [2, -1, 2.5, n]
        dtypes: [float31]
    """)
    assert [f[:60] for f in errors] == [
        "4:30: expected a dtype such as float32, bfloat16 or torch.in",
        "5:14: -1 is too small: expected an integer of 0 or more, or ",
        "5:18: expected an integer of 0 or more, or \"${...}\", found t",
        "5:23: expected an integer of 0 or more, or \"${...}\", found t",
        "6:14: expected a dtype such as float32, bfloat16 or torch.in",
    ]  # fmt: skip
    assert errors[0].endswith("found the text 'flota32' | did you mean 'float32'?") and errors[4].endswith(
        "did you mean 'float32'?"
    )
