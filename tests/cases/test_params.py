"""``runner.cases.params``: values that are lists, and params that stand where a case holds no value."""

from __future__ import annotations

import pytest
from spec_files import Files

from runner.cases.limits import Limits
from runner.cases.model import Items, Literal
from runner.cases.serialize import case_text, resolve_axes

LISTS = """
    params: {shape: [[2, 3], [4], []], dims: [[0], [[0, 1], 2]]}
    inputs: {x: $shape}
    chain: [{torch.sum: [$_, $dims]}]
    """


def labels(files: Files, keys: str) -> list[str]:
    """What stands in the brackets of the ids."""
    return [v.id.partition("[")[2].rpartition("]")[0].removesuffix(",float32,cpu") for v in files.variants(keys)]


def test_a_value_may_be_a_list(files: Files) -> None:
    assert labels(files, LISTS) == [
        f"shape={shape},dims={dims}" for shape in ("[2,3]", "[4]", "[]") for dims in ("[0]", "[[0,1],2]")
    ]
    first = files.variants(LISTS)[0]
    assert first.params == {"shape": (2, 3), "dims": (0,)}
    assert first.case.inputs[0].shape == (Literal(2), Literal(3))


def test_ids_tell_a_list_from_the_text_of_one(files: Files) -> None:
    keys = 'params: {k: [[1], ["1"], "[1]", 1, [1, ab], ["1,ab"], [[1, ab]], [null, true]]}\nchain: [{builtin.print: [$k]}, F.relu]'
    assert labels(files, keys) == [
        f"k={word}" for word in ("[1]", '["1"]', '"[1]"', "1", "[1,ab]", '["1,ab"]', "[[1,ab]]", "[null,true]")
    ]


def test_exclude_and_the_ledger_name_lists(files: Files) -> None:
    keys = "params: {shape: [[2, 3], [4]], dim: [0, 1]}\nexclude: [{shape: [4], dim: 1}]\ninputs: {x: $shape}\nchain: [{torch.sum: [$_, $dim]}]"
    assert labels(files, keys) == ["shape=[2,3],dim=0", "shape=[2,3],dim=1", "shape=[4],dim=0"]
    (entry,) = files.case(f"{keys}\nknown: [{{params: {{shape: [2, 3]}}, reason: none}}]").known
    assert entry.params == {"shape": (2, 3)}


def test_a_call_changes_the_inputs_of_its_shape_alone(files: Files) -> None:
    (variant,) = files.variants("""
        params: {shape: [[2, 3]]}
        inputs: {x: $shape, y: [3], parts: {list: [$shape]}, own: $shape}
        chain: [{torch.add: [$x, $y]}, {torch.add: [$_, "$parts[0]"]}, {torch.add: [$_, $own]}]
        calls: [{params: {shape: [5, 3]}, inputs: {own: {shape: $shape, init: ones}}}, {}]
        """)
    first, second = variant.case.calls
    assert {item.name: item.shape for item in first.inputs} == {
        "x": (Literal(5), Literal(3)), "parts": None, "own": (Literal(5), Literal(3)),
    }  # fmt: skip
    assert second.inputs == ()


def test_values_are_a_list(files: Files) -> None:
    variants = files.variants("params: {v: [[1.5, 2], [[1], [2]]]}\ninputs: {x: {values: $v, tile: 4}}")
    assert [variant.case.inputs[0].values for variant in variants] == [
        Items((Literal(1.5), Literal(2))),
        Items((Items((Literal(1),)), Items((Literal(2),)))),
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("inputs: {x: $size}", "4:17: $size stands for a shape, and no param is called so | did you mean 'sizes'?"),
        ("inputs: {x: $n}", "4:17: $n stands for a shape, and its value 5 is not a list of sizes, such as [2, 3]"),
        ("inputs: {x: $bad}", "4:17: $bad stands for a shape, and its value [-1] is not a list of sizes, such as [2, 3]"),
        ("inputs: {x: {shape: $sizes.shape}}", "4:25: expected a list of sizes such as [2, 3], or a param such as $shape, found the text '$sizes.shape'"),
        ("inputs: {x: $dtype}", "4:17: a shape is a list of sizes, or a param | such as [2, 3] or $shape"),
        ("inputs: {x: {values: $text}}", "4:26: $text stands for values, and its value [a] is not a number or a list of numbers"),
        ("inputs: {x: $sizes}\ncalls: [{params: {sizes: 3}}]", "4:17: $sizes stands for a shape, and its value 3 is not a list of sizes, such as [2, 3]"),
        ("inputs: {x: size}", "4:17: expected a shape such as [2, 3], or a mapping such as {shape: [2, 3], dtype: int64} or {python: 0.5}, found the text 'size'"),
        ("params: {train: [[1]]}", "3:14: 'train' cannot name a param | train: beside params: is an axis of its own"),
        ("params: {k.B: [[1]]}", "3:20: 'k.B' is a constant of a kernel, which is no list"),
    ],
)  # fmt: skip
def test_problems(files: Files, keys: str, message: str) -> None:
    params = "" if keys.startswith("params") else "params: {sizes: [[2, 3]], n: [5], bad: [[-1]], text: [[a]]}\n"
    assert message in files.errors(params + keys)


def test_defaults_may_leave_params_to_the_cases(files: Files) -> None:
    files.write("a.spec.yaml", """
        defaults: {inputs: {x: $shape}, param_dtype: $d}
        cases:
          - {name: a, params: {shape: [[2, 3]], d: [float64]}, chain: [{nn.Linear: [3, 3]}]}
        """)  # fmt: skip
    assert len(files.ids("a.spec.yaml")) == 1


def test_a_list_is_as_long_as_ids_allow(files: Files) -> None:
    files.write("a.spec.yaml", files.case_text("params: {k: [[1, 2, 3, 4]]}\nchain: [{torch.sum: [$_, $k]}]"))
    files.suites("a.spec.yaml", limits=Limits(value_characters=11))
    (message,) = files.found()
    assert "a value of a param has at most 11 characters" in message
    files.suites("a.spec.yaml", limits=Limits(value_characters=12))
    assert files.found() == []


def test_what_params_multiply_is_limited(files: Files) -> None:
    files.write("a.spec.yaml", files.case_text("params: {shape: [[1], [2], [3]]}\ninputs: {x: $shape}"))
    files.suites("a.spec.yaml", limits=Limits(expanded_nodes=30))
    (message,) = files.found()
    assert "with each value of shape this case has more than 30 nodes" in message
    files.suites("a.spec.yaml", limits=Limits(expanded_nodes=60))
    assert files.found() == []


def test_a_case_that_calls_numpy_holds_no_text_in_lists_either(files: Files) -> None:
    keys = "params: {k: [%s]}\ninputs: {x: [2], k: {python: $k}}\nchain: [Tensor.numpy, {numpy.tanh: $_}, {torch.asarray: $_}]"
    for value in ("[[S8]]", "[1]"):
        errors = files.errors((keys % value).replace(", k: {python: $k}", ""))
        assert ("may hold no text, such as 'S8'" in str(errors)) == (value == "[[S8]]")
    call = "params: {n: [1]}\ninputs: {x: [2], k: {python: $n}}\nchain: [{Tensor.numpy: $x}, {numpy.add: [$_, $k]}]\ncalls: [{params: {n: S8}}]"
    assert "may hold no text, such as 'S8'" in str(files.errors(call))


@pytest.mark.parametrize(
    "keys",
    [
        LISTS,
        "params: {shape: [[2, 3]]}\nexclude: [{shape: [4]}]\ninputs: {x: {shape: $shape, init: ones}}\ncalls: [{params: {shape: [5, 3]}}]\nknown: [{params: {shape: [[a], 1]}, reason: none}]",
        "params: {v: [[1, 2]]}\ninputs: {x: {values: [$v, $v], dtype: float32}}",
    ],
)  # fmt: skip
def test_what_is_written_is_read_back(files: Files, keys: str) -> None:
    case = files.case(keys)
    text = case_text(case)
    files.write("b.spec.yaml", text)
    assert case_text(files.suites("b.spec.yaml")[0].cases[0]) == text
    assert "$" in text


def test_lists_of_numbers_are_put_in(files: Files) -> None:
    (variant,) = files.variants("""
        params: {shape: [[2, 3]], dims: [[0, 1]], n: [7]}
        inputs: {x: $shape, v: {values: $dims}}
        chain:
          - torch.sum: [$x, $dims]
          - torch.mul: [$_, "$shape[-1]"]
          - torch.add: [$_, "${shape[0] * x.shape[1] + n + len(dims)}"]
            out: y
          - operator.getitem: [$v, "[$dims]"]
          - torch.add: [$_, $y]
        """)
    case = resolve_axes(variant)
    text = case_text(case)
    assert not case.params and "$shape" not in text and "dims" in str(variant.params)
    for part in ("x: [2, 3]", "values: [0, 1]", "torch.sum: [$x, [0, 1]]", "torch.mul: [$_, 3]", "'[[0, 1]]'"):
        assert part in text, text


def test_a_list_within_arithmetic_of_a_run_stays_a_param(files: Files) -> None:
    (variant,) = files.variants(
        'params: {s: [[2, 3]]}\ninputs: {x: $s}\nchain: [{torch.add: [$x, "${s[x.dim() - 1]}"]}]'
    )
    case = resolve_axes(variant)
    assert case.params == {"s": ((2, 3),)} and case.inputs[0].shape == (Literal(2), Literal(3))
