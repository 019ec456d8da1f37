"""``runner.cases.params``: values that are lists, and params that stand where a case holds no value."""

from __future__ import annotations

import pytest
from spec_files import Files

from runner.cases.expand import expand
from runner.cases.limits import Limits
from runner.cases.model import Items, Literal
from runner.cases.operator_names import operators_of
from runner.cases.serialize import case_text, resolve_axes
from runner.cases.walk import all_steps
from runner.diagnostics import InputError

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
        ("chain: [$sizes]", "4:13: $sizes stands for an operator, and its value [2, 3] is not one, such as F.relu; kernels are launched by name"),
        ("chain: [{$text: $_}]", "4:14: $text stands for an operator, and its value [a] is not one, such as F.relu; kernels are launched by name"),
        ("chain: [$kernel]", "4:13: $kernel stands for an operator, and its value 'triton.k' is not one, such as F.relu; kernels are launched by name"),
        ("chain: [$op]", "4:13: '$op' is no operator | did you mean '$ops'?"),
        ("chain: [$x]", "4:13: '$x' is no operator | a reference is an argument of a step, such as {torch.add: [$_, $x]}, or stands in return:"),
        ("chain: [{$ops: [], call: [$x]}]", "4:14: call: belongs to nn modules, and 'F.relu' is another operator"),
        ("chain: [$ops]\ncalls: [{params: {ops: F.gelu}}]", "5:13: param 'ops' is an operator of the chain, so a call cannot change it"),
        ("inputs: {x: {shape: [2], dtype: $ops}}", "4:14: $ops stands for a dtype, and its value 'nn.ReLU' is not one, such as float32"),
        ("inputs: {x: {shape: [2], dtype: $dtype}}", "4:14: $dtype stands for a dtype, and no param is called so | left out, the dtype is the variant's"),
        ("inputs: {x: {shape: [2], device: $n}}", "4:14: $n stands for a device, and its value 5 is not one, such as cpu or cuda:1"),
        ("inputs: {x: {shape: [2], requires_grad: $n}}", "4:14: $n stands for requires_grad, and its value 5 is not true, false or after_layout"),
        ("inputs: {x: {shape: [2], dtype: float33}}", "4:37: expected a dtype such as float32, bfloat16 or torch.int64, found the text 'float33' | did you mean 'float32'?"),
        ("zip: {n: [1, 2], m: [3]}", "4:25: 'm' has 1 value, and 'n' has 2 | params that go together have as many values as each other"),
        ("zip: {n: [1, 2], m: [3, 4]}", "4:11: there are two params 'n' | a param stands in params: or in zip:"),
        ("zip: [{j: [1], m: [3]}, {j: [1], k: [3]}]", "4:30: there are two params 'j' | a param stands in params: or in zip:"),
        ("zip: {j: [1, 2, 1], m: [[3], 4, [3]]}", "4:10: the combination {j: 1, m: [3]} stands here twice"),
        ("zip: {j: [1]}", "4:10: expected at least 2 keys, found j | such as {n: [1, 2], m: [3, 4]}"),
        ("zip: {j: [1], grad: [2]}", "4:19: 'grad' cannot name a param | grad: beside params: is an axis of its own"),
        ("params: {train: [[1]]}", "3:14: 'train' cannot name a param | train: beside params: is an axis of its own"),
        ("params: {k.B: [[1]]}", "3:20: 'k.B' is a constant of a kernel, which is no list"),
    ],
)  # fmt: skip
def test_problems(files: Files, keys: str, message: str) -> None:
    params = (
        ""
        if keys.startswith("params")
        else "params: {sizes: [[2, 3]], n: [5], bad: [[-1]], text: [[a]], ops: [nn.ReLU, F.relu], kernel: [triton.k]}\n"
    )
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


OPERATORS = """
    params: {f: [F.gelu, torch.cumsum, nn.Softmax], d: [float64, torch.float32], leaf: [true, after_layout, false], g: [F.relu]}
    inputs: {x: {shape: [2, 3], dtype: $d, requires_grad: $leaf, device: $place, layout: [$g]}, y: {list: [{shape: [3], dtype: $d}]}}
    chain:
      - $f: {dim: 1}
        out: y1
      - if: "${x.shape[0] > 1}"
        do: [{$g: $y1}]
      - torch.vmap: [{$fn: {args: [t], chain: [$g]}}]
      - operator.call: [$_, "$y[0]"]
    """.replace("g: [F.relu]", "g: [F.relu], place: [cpu, meta]")


def test_operators_dtypes_devices_and_leaves_are_put_in(files: Files) -> None:
    variants = files.variants(OPERATORS)
    assert len(variants) == 3 * 2 * 3 * 2
    last = variants[-1]
    assert last.id.endswith("[f=nn.Softmax,d=torch.float32,leaf=false,place=meta,float32,cpu]@inductor")
    assert sorted(step.operator for step in all_steps(last.case)) == [
        "F.relu", "F.relu", "F.relu", "nn.Softmax", "operator.call", "torch.vmap",
    ]  # fmt: skip
    by_words = {v.id.partition("[")[2].rpartition(",float32,cpu")[0]: v.case for v in variants}
    gelu = by_words["f=F.gelu,d=float64,leaf=after_layout,place=meta"]
    assert {step.operator for step in all_steps(gelu)} >= {"F.gelu", "F.relu"} and "aten.gelu" in operators_of(gelu)
    x, y = gelu.inputs
    assert (x.dtype, x.device, x.requires_grad, x.grad_after_layout, y.items[0].dtype) == (
        "float64",
        "meta",
        True,
        True,
        "float64",
    )
    x, _ = by_words["f=F.gelu,d=float64,leaf=true,place=cpu"].inputs
    assert (x.requires_grad, x.grad_after_layout, x.grad_param) == (True, False, None)
    assert not last.case.inputs[0].requires_grad
    softmax, cumsum = (
        next(all_steps(by_words[f"f={f},d=float64,leaf=true,place=cpu"].chain)) for f in ("nn.Softmax", "torch.cumsum")
    )
    assert not softmax.arguments.positional and len(cumsum.arguments.positional) == 1  # keywords follow $_ there alone


def test_a_chosen_operator_is_selected_and_claimed(files: Files) -> None:
    files.write("a.spec.yaml", files.case_text("params: {f: [F.relu, F.gelu]}\nchain: [$f]"))
    files.write("a.suite.yaml", "suite: a\nspecs: [a.spec.yaml]\nselect: op:nn.GELU")
    assert [name.rpartition("::")[2] for name in files.ids("a.suite.yaml")] == ["a[f=F.gelu,float32,cpu]@inductor"]


def test_two_suites_share_the_variants_of_a_case_with_operators(files: Files) -> None:
    files.write("a.spec.yaml", files.case_text("params: {f: [F.relu, F.gelu]}\nchain: [$f]"))
    for name in "ab":
        files.write(f"{name}.suite.yaml", f"suite: {name}\nspecs: [a.spec.yaml]")
    variants = expand(files.suites("a.suite.yaml", "b.suite.yaml"))
    assert [v.suites for v in variants] == [("a", "b")] * 2


def test_what_operators_need_is_asked_of_each(files: Files) -> None:
    assert files.errors("params: {f: [torch.exp, Tensor.numpy], w: [a]}\nchain: [$f, {builtin.print: [$w]}]") == [
        "4:13: a case that calls numpy may hold no text, such as 'torch.exp' | numpy makes any text of numbers with one; torch's own functions take texts"
    ]
    (message,) = files.errors("params: {f: [nn.PReLU, nn.ReLU]}\ngrad: backward\nchain: [$f]")
    assert "nothing in case 'a' requires a gradient" in message
    assert files.errors("params: {f: [nn.PReLU, nn.RNNCell]}\ngrad: backward\nchain: [$f]") == []
    assert files.errors("params: {f: [torch.exp, torch.rand_like]}\ntwin: [mask]\nchain: [$f]") == []
    assert "no step of the chain can be rewritten" in str(
        files.errors("params: {f: [torch.rand_like]}\ntwin: [mask]\nchain: [$f]")
    )


ZIP = """
    train: [true, false]
    zip: {shape: [[2, 3], [2, 3], [4]], dims: [[0], [0, 1], [0]], one: [7, 7, 7]}
    params: {k: [1, 2]}
    exclude: [{k: 2, dims: [0, 1]}]
    inputs: {x: $shape}
    chain: [{torch.sum: [$_, $dims]}, {torch.mul: [$_, $k]}, {torch.add: [$_, $one]}]
    known: [{params: {dims: [0]}, reason: none}]
    """


def test_params_that_go_together(files: Files) -> None:
    rows = ("shape=[2,3],dims=[0]", "shape=[2,3],dims=[0,1]", "shape=[4],dims=[0]")
    assert labels(files, ZIP) == [
        f"train={train},{row},k={k}"
        for train in ("true", "false") for row in rows for k in (1, 2) if (row, k) != (rows[1], 2)
    ]  # fmt: skip
    variants = files.variants(ZIP)
    assert variants[0].case.params == {"k": (1, 2), "shape": ((2, 3), (4,)), "dims": ((0,), (0, 1)), "one": (7,)}
    assert variants[-1].params == {"k": 2, "shape": (4,), "dims": (0,), "one": 7}
    assert not resolve_axes(variants[0]).zip and not resolve_axes(variants[0]).params


def test_several_groups_and_operators_in_them(files: Files) -> None:
    keys = """
        zip: [{f: [F.softmax, torch.sum, nn.PReLU], how: [{dim: 1}, 0, null]}, {a: [1, 2], b: [true, 1]}]
        chain: [{$f: $how}, {torch.mul: [$_, $a]}, {torch.mul: [$_, $b]}]
        """.replace("{dim: 1}", "1")
    assert labels(files, keys) == [
        f"f={f},how={how},{pair}" for f, how in (("F.softmax", "1"), ("torch.sum", "0"), ("nn.PReLU", "null")) for pair in ("a=1,b=true", "a=2,b=1")
    ]  # fmt: skip


def test_the_limit_counts_rows(files: Files) -> None:
    values = [*range(40)]
    case = files.case(f'zip: {{a: {values}, b: {values}, c: {values}}}\nchain: [{{torch.add: [$_, "${{a + b + c}}"]}}]')
    assert len(expand(files.suites("a.spec.yaml"), limits=Limits(variants=40))) == 40 == len(case.params["a"])
    with pytest.raises(InputError, match="multiply to 40 variants, more than 39"):
        expand(files.suites("a.spec.yaml"), limits=Limits(variants=39))


def test_what_is_chosen_leaves_no_param(files: Files) -> None:
    keys = 'params: {f: [F.softmax], n: [3], d: [float64]}\ninputs: {x: {shape: [2, "${n}"], dtype: $d}}\nchain: [{$f: {dim: 1}}]'
    (variant,) = files.variants(f"{keys}\ncalls: [{{params: {{d: float32, n: 4}}}}]")
    case = resolve_axes(variant)
    assert not case.params and not case.placed
    text = case_text(case)
    assert "F.softmax: {dim: 1}" in text and "x: {shape: [2, 3], dtype: float64}" in text, text
    assert "calls: [{inputs: {x: {shape: [2, 4], dtype: float32}}}]" in text, text


@pytest.mark.parametrize(
    "keys",
    [
        LISTS,
        OPERATORS,
        ZIP,
        "zip: [{a: [1, 2], b: [true, [1]]}, {c: [1], d: [1]}]\nparams: {e: [1]}\nchain: [{torch.add: [$_, '${a + c + d + e}']}, {builtin.print: $b}]",
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
    for part in ("x: [2, 3]", "values: [0, 1]", "torch.sum: [$x, [0, 1]]", "torch.mul: [$_, 3]", '"[[0, 1]]"'):
        assert part in text, text


def test_a_list_within_arithmetic_of_a_run_stays_a_param(files: Files) -> None:
    (variant,) = files.variants(
        'params: {s: [[2, 3]]}\ninputs: {x: $s}\nchain: [{torch.add: [$x, "${s[x.dim() - 1]}"]}]'
    )
    case = resolve_axes(variant)
    assert case.params == {"s": ((2, 3),)} and case.inputs[0].shape == (Literal(2), Literal(3))
