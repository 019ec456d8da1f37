"""Sources under torch: what is written means what FORMAT.md says. The only test of this folder that imports torch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from built import Built, folder

from runner.builder.chain import _snake
from runner.builder.operators import ENUMS, METHODS_OF_ARRAYS, attributes, constants, inventory, is_operator, resolve
from runner.builder.source import build
from runner.cases.chains_and_inputs import TRAINED
from runner.cases.model import DTYPES, Variant
from runner.cases.python_files import OF_MODULES
from runner.cases.versions import matches
from runner.session.collect import load


class Ran:
    """A source that was executed: its namespace, a model, the inputs of each call."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: dict[str, Any] = {}
        exec(compile(text, "case.py", "exec"), self.names)
        torch.manual_seed(0)
        self.model = self.names["make_model"]()
        self.inputs = self.make()
        self.output: Any = None

    def make(self, call: int = 0) -> list[Any]:
        """Fresh inputs of a call."""
        torch.manual_seed(1)
        inputs: list[Any] = self.names.get("CALLS", [self.names["make_inputs"]])[call]()
        return inputs

    def run(self) -> Any:
        self.output = self.model(*self.inputs)
        return self.output


def ran(built: Built, keys: str) -> Ran:
    program = Ran(built.source(keys))
    program.run()
    return program


def randn(*shape: int, **options: Any) -> Any:
    """The first tensor that ``make`` draws."""
    torch.manual_seed(1)
    return torch.randn(*shape, **options)


def same(actual: Any, expected: Any) -> None:
    """Values, dtype, shape, strides; NaN is NaN and -0.0 is not 0.0."""
    if isinstance(expected, list | tuple):
        assert type(actual) is type(expected) and len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            same(a, b)
    elif isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor)
        assert (actual.dtype, actual.shape, actual.stride()) == (expected.dtype, expected.shape, expected.stride())
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        if expected.dtype.is_floating_point:
            assert torch.equal(torch.signbit(actual), torch.signbit(expected))
    else:
        assert type(actual) is type(expected) and actual == expected


# --- steps and arguments ---

STEPS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "bare": ("[torch.sin, torch.cos]", lambda x: x.sin().cos()),
    "positionals": ("[{torch.transpose: [$_, 0, 1]}, {torch.narrow: [$_, 0, 1, 2]}]", lambda x: x.transpose(0, 1).narrow(0, 1, 2)),
    "keywords": ("[{torch.add: {'*': [$_, 1], alpha: 3}}]", lambda x: x + 3),
    "keywords alone": ("[{torch.full: {size: [2, 3], fill_value: 2.5}}, {torch.add: [$_, $x]}]", lambda x: x + 2.5),
    "list of tensors": ("[{torch.cat: [[$x, $x], 1]}]", lambda x: torch.cat([x, x], 1)),
    "a method": ("[{Tensor.view: [$_, 3, -1]}, Tensor.contiguous]", lambda x: x.view(3, -1)),
    "attributes": ("[{Tensor.shape: $x, out: s}, {operator.getitem: [$s, 0]}, {torch.add: [$x, $_]}]", lambda x: x + 2),
    "$_ after an unpack is the first": ("[{torch.chunk: [$_, 3, 1], out: [a, b, _]}, {torch.add: [$_, $b]}]", lambda x: x[:, :1] + x[:, 1:2]),
    "$_ after a dropped first": ("[{torch.chunk: [$_, 3, 1], out: [_, b, _]}, {torch.sub: [$_, $b]}]", lambda x: x[:, :1] - x[:, 1:2]),
    "$_ before the first step": ("[{torch.mul: [$_, $_]}]", lambda x: x * x),
    "setitem leaves $_": ("[{torch.clone: $x, out: c}, torch.neg, {operator.setitem: [$c, '[0]', 7]}, {torch.add: [$_, $c]}]", lambda x: torch.cat([7 - x[:1], x[1:] - x[1:]])),
    "in-place is $_": ("[{torch.clone: $x, out: c}, {torch.neg: $c, out: _}, {operator.iadd: [$c, 1]}, {torch.mul: [$_, 2]}]", lambda x: (x + 1) * 2),
    "a name used again": ("[{torch.sin: $x, out: a}, {torch.cos: $a, out: a}, {torch.add: [$a, $x]}]", lambda x: x.sin().cos() + x),
    "y and h are names too": ("[{torch.sin: $x, out: y}, {torch.cos: $x, out: h}, torch.neg, {torch.add: [$_, $y]}, {torch.mul: [$_, $h]}]", lambda x: (-x.cos() + x.sin()) * x.cos()),
    "names of builtins": ("[{torch.sin: $x, out: len}, {torch.cos: $x, out: len_}, {torch.sub: [$len, $len_]}]", lambda x: x.sin() - x.cos()),
    "operators": ("[{operator.mul: [$_, 2]}, {operator.sub: [1, $_]}, {operator.pow: [$_, 2]}, operator.neg]", lambda x: -((1 - x * 2) ** 2)),
    "parentheses": ("[{operator.pow: [-2, 2]}, {operator.mul: [$x, $_]}, {operator.sub: [$_, '${x.dim() - 3}']}]", lambda x: x * 4 + 1),
    "matmul": ("[{operator.matmul: [$x, $x.T]}]", lambda x: x @ x.T),
    "comparison": ("[{operator.lt: [$x, 0]}]", lambda x: x < 0),
    "an integer zero stays": ("[{operator.mul: [$x, 0]}]", lambda x: x * 0),
    "aten": ("[{aten.add.Tensor: {'*': [$x, $x], alpha: 2}}]", lambda x: x + 2 * x),
    "numpy": ("[Tensor.numpy, {numpy.add: [$_, 1]}, {torch.from_numpy: $_}]", lambda x: x + 1),
    "a constant of torch": ("[{torch.ones_like: {'*': [$x], dtype: torch.float16}}]", lambda x: torch.ones_like(x, dtype=torch.float16)),
    "a tensor made at that place": ("[{torch.add: [$x, {$tensor: [1, 2, 3], dtype: torch.int64}]}]", lambda x: x + torch.tensor([1, 2, 3])),
    "text": ("[{torch.einsum: ['ij,kj->ik', $x, $x]}]", lambda x: torch.einsum("ij,kj->ik", x, x)),
    "numbers that are known when it runs": ("[{torch.mul: [$x, '${x.shape[0] * 10 + x.size(1)}']}]", lambda x: x * 23),
    "an index": ("[{operator.getitem: [$x, '[..., None, 1:3]']}]", lambda x: x[..., None, 1:3]),
    "an index of a list": ("[{operator.getitem: [$x, '[:, [0, 2]]']}]", lambda x: x[:, [0, 2]]),
    "an index of expressions": ("[{operator.getitem: [$x, '[${x.dim() - 2}:${x.shape[0]}, ::2]']}]", lambda x: x[0:2, ::2]),
    "an index of names": ("[{torch.tensor: [[1, 0]], out: i}, {operator.getitem: [$x, '[$i]']}]", lambda x: x[[1, 0]]),
    "assigned slices": ("[{torch.clone: $x, out: c}, {operator.setitem: [$c, '[:, 1:]', 0]}, {operator.setitem: ['$c[0]', 0, 9]}]", lambda x: torch.cat([torch.tensor([[9.0], [x[1, 0]]]), torch.zeros(2, 2)], 1)),
    "with": ("[{with: [torch.no_grad], chain: [torch.sin, {torch.cos: $_, out: a}]}, {torch.add: [$_, $a]}]", lambda x: x.sin().cos() * 2),
    "autocast": ("[{with: [{torch.autocast: {device_type: cpu, dtype: torch.bfloat16}}], chain: [{torch.mm: [$x, $x.T]}]}]", lambda x: (x.bfloat16() @ x.bfloat16().T)),
    "if": ("[{if: '${x.dim() == 2}', do: [torch.sin], else: [torch.cos]}, torch.neg]", lambda x: -x.sin()),
    "else": ("[{if: '${x.dim() != 2}', do: [torch.sin], else: [torch.cos]}, torch.neg]", lambda x: -x.cos()),
    "if alone": ("[{if: '${x.dim() > 5}', do: [torch.sin]}, torch.neg]", lambda x: -x),
    "if alone after a step": ("[torch.exp, {if: '${x.dim() > 5}', do: [torch.sin]}, torch.neg]", lambda x: -x.exp()),
    "if names": ("[{if: '${x.dim() == 2}', do: [{torch.sin: $x, out: a}], else: [{torch.cos: $x, out: a}]}, {torch.mul: [$a, $x]}]", lambda x: x.sin() * x),
    "if in with in if": ("[{if: '${x.dim() == 2}', do: [{with: [torch.enable_grad], chain: [{if: '${x.shape[0] == 3}', do: [torch.sin], else: [torch.exp]}]}]}, torch.neg]", lambda x: -x.exp()),
    "vmap": ("[{torch.vmap: [{$fn: {args: [t], chain: [torch.sin, {torch.add: [$_, $t]}]}}]}, {operator.call: [$_, $x]}]", lambda x: x.sin() + x),
    "grad": ("[{torch.func.grad: [{$fn: {args: [h], chain: [torch.sin, {torch.mul: [$_, $h]}, torch.sum]}}]}, {operator.call: [$_, $x]}]", lambda x: x.cos() * x + x.sin()),
    "cond": ("[{torch.sum: $x, out: s}, {operator.gt: [$s, 1000], out: p}, {torch.cond: [$p, {$fn: {args: [t], chain: [torch.sin]}}, {$fn: {args: [t], chain: [torch.cos, {torch.add: [$_, $t]}]}}, [$x]]}]", lambda x: x.cos() + x),
    "scan": ("[{torch.sum: [$x, 0], out: s}, {torch._higher_order_ops.scan: [{$fn: {args: [c, r], chain: [{torch.sin: $r, out: y}, {torch.add: [$c, $r]}], return: [$_, $y]}}, $s, $x], out: [last, _]}, {operator.mul: [$last, 1]}]", lambda x: x.sum(0) + x[0] + x[1]),
    "associative scan": ("[{torch._higher_order_ops.associative_scan: {'*': [{$fn: {args: [s, t], chain: [{torch.mul: [$s, $t]}]}}, $x, 0], combine_mode: generic}}]", lambda x: x.cumprod(0)),
    "functions see names around them": ("[{torch.sin: $x, out: a}, {operator.call: [{$fn: {args: [t], chain: [{torch.add: [$t, $a]}, {torch.mul: [$_, $t]}]}}, $x]}]", lambda x: (x + x.sin()) * x),
    "functions in functions": ("[{operator.call: [{$fn: {args: [t], chain: [torch.exp, {operator.call: [{$fn: {args: [h], chain: [torch.sin, {torch.add: [$_, $h]}]}}, $_]}, {torch.add: [$_, $t]}]}}, $x]}]", lambda x: x.exp().sin() + x.exp() + x),
    "functions of two": ("[{operator.call: [{$fn: {args: [t, u], chain: [{torch.sub: [$u, $t]}], return: [$_, $t]}}, $x, 1]}, {operator.getitem: [$_, 0]}]", lambda x: 1 - x),
    "checkpoint": ("[{torch.utils.checkpoint.checkpoint: {'*': [{$fn: {args: [t], chain: [torch.sin]}}, $x], use_reentrant: false}}]", lambda x: x.sin()),
    "distributions": ("[{torch.distributions.Normal: [$x, 1.0]}, {operator.call: [$_.log_prob, $x]}]", lambda x: torch.distributions.Normal(x, 1.0).log_prob(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_steps(built: Built, name: str) -> None:
    chain, compute = STEPS[name]
    program = ran(built, f"inputs: {{x: [2, 3]}}\nchain: {chain}")
    same(program.output, compute(randn(2, 3)))
    assert torch.equal(program.inputs[0], randn(2, 3))  # none of these changes its input


IN_PLACE = {
    "iadd": lambda x, b: x.add_(b), "isub": lambda x, b: x.sub_(b), "imul": lambda x, b: x.mul_(b), "itruediv": lambda x, b: x.div_(b), "ifloordiv": lambda x, b: x.floor_divide_(b),
    "imod": lambda x, b: x.remainder_(b), "ipow": lambda x, b: x.pow_(b), "iand": lambda x, b: x.bitwise_and_(b), "ior": lambda x, b: x.bitwise_or_(b),
    "ixor": lambda x, b: x.bitwise_xor_(b), "ilshift": lambda x, b: x.bitwise_left_shift_(b), "irshift": lambda x, b: x.bitwise_right_shift_(b),
}  # fmt: skip


@pytest.mark.parametrize("word", IN_PLACE)
def test_in_place_operators_change_their_tensor(built: Built, word: str) -> None:
    whole = word in ("iand", "ior", "ixor", "ilshift", "irshift")
    values = "[1, 6, 3]" if whole else "[1.5, 6.0, 3.25]"
    program = Ran(built.source(f"inputs: {{x: {{values: {values}}}}}\nchain: [{{operator.{word}: [$x, 2]}}]"))
    place = program.inputs[0].data_ptr()
    program.run()
    expected = IN_PLACE[word](torch.tensor([1, 6, 3] if whole else [1.5, 6.0, 3.25]), 2)
    assert program.output is program.inputs[0] and program.output.data_ptr() == place
    same(program.output, expected)


def test_assignments_change_their_input(built: Built) -> None:
    program = ran(
        built,
        "inputs: {x: [2, 3]}\nchain: [{operator.setitem: [$x, '[:, 0]', 5]}, {operator.setitem: ['$x[1]', '[1:]', -1]}, {builtin.list: [[$x, 3]], out: l}, {operator.delitem: [$l, 1]}]\nreturn: [$x, $l]",
    )
    expected = randn(2, 3)
    expected[:, 0] = 5
    expected[1][1:] = -1
    same(program.output, [expected, [expected]])
    assert program.output[0] is program.inputs[0]


def test_in_place_on_a_view_reaches_the_base(built: Built) -> None:
    program = ran(
        built, "inputs: {x: [2, 3]}\nchain: [{operator.getitem: [$x, 0], out: v}, {operator.imul: [$v, 0]}]\nreturn: $x"
    )
    assert torch.equal(program.output[0].abs(), torch.zeros(3)) and torch.equal(program.output[1], randn(2, 3)[1])


def test_params_are_numbers(built: Built) -> None:
    program = ran(
        built,
        "params: {n: [-2]}\nchain: [{operator.pow: [$n, 2], out: q}, {torch.mul: [$x, $q]}, {torch.add: [$_, '${x.shape[0] - n}']}, {torch.add: [$_, $n.real]}]",
    )
    same(program.output, randn(2, 3) * 4 + 4 - 2)


def test_results(built: Built) -> None:
    program = ran(
        built,
        "chain: [{torch.sin: $x, out: a}, torch.neg]\nreturn: {first: $a, both: [$_, '${x.dim()}'], text: {$text: $a}}",
    )
    assert list(program.output) == ["first", "both", "text"] and program.output["text"] == "$a"
    same(program.output["both"], [-randn(2, 3).sin(), 2])


def test_grad_modes_of_blocks(built: Built) -> None:
    program = ran(
        built,
        "inputs: {x: {shape: [2], requires_grad: true}}\nchain: [{with: [torch.no_grad], chain: [{torch.sin: $x, out: a}]}, {torch.cos: $x}]\nreturn: [$a, $_]",
    )
    assert [t.requires_grad for t in program.output] == [False, True]


# --- modules and state ---


def test_modules_are_used_again_by_id(built: Built) -> None:
    program = ran(
        built, "chain: [{nn.Linear: [3, 3], id: l}, torch.sin, self.l, {self.l: [$_]}, {torch.add: [$_, $self.l.bias]}]"
    )
    layer = program.model.l
    x = randn(2, 3)
    same(program.output, layer(layer(layer(x).sin())) + layer.bias)
    assert len(list(program.model.parameters())) == 2


def test_modules_of_one_class_are_several(built: Built) -> None:
    program = ran(built, "chain: [{nn.Linear: [3, 3]}, {nn.Linear: [3, 3]}, {nn.Bilinear: [3, 3, 2], call: [$x, $_]}]")
    model = program.model
    same(program.output, model.bilinear(randn(2, 3), model.linear_2(model.linear(randn(2, 3)))))
    assert not torch.equal(model.linear.weight, model.linear_2.weight)


@pytest.mark.parametrize("train", [True, False])
def test_train_modes(built: Built, train: bool) -> None:
    keys = f"chain: [{{nn.Dropout: 0.5, id: own, train: {str(not train).lower()}}}, {{nn.Dropout: 0.5, id: cases}}, {{nn.BatchNorm1d: 3, id: norm, train: true}}]\ntrain: {str(train).lower()}"
    model = Ran(built.source(keys)).model
    assert (model.training, model.own.training, model.cases.training, model.norm.training) == (
        train,
        not train,
        train,
        True,
    )


@pytest.mark.parametrize(
    ("dtype", "param_dtype", "expected"),
    [("float32", None, "float32"), ("bfloat16", None, "bfloat16"), ("int64", None, "float32"), ("float32", "float64", "float64"), ("bfloat16", "float32", "float32"), ("complex64", None, "float32")],
)  # fmt: skip
def test_dtypes_of_parameters(built: Built, dtype: str, param_dtype: str | None, expected: str) -> None:
    extra = f"\nparam_dtype: {param_dtype}" if param_dtype else ""
    model = Ran(built.source(f"dtypes: [{dtype}]{extra}\nchain: [{{nn.Linear: [3, 3]}}, {{nn.LayerNorm: 3}}]")).model
    assert {p.dtype for p in model.parameters()} == {getattr(torch, expected)}


STATE = """
    state:
      count: {values: 1.0}
      weight: {shape: [3], init: ones, requires_grad: true}
      plain: {python: {k: 2}}
      base: {shape: [4], init: {arange: [0, 1]}}
      seen: {view_of: base, layout: [{Tensor.view: [$_, 2, 2]}]}
      several: {list: [{shape: [2], init: ones}, {shape: [2], init: zeros}]}
    chain:
      - torch.add: [$self.count, 1]
        out: self.count
      - operator.getitem: [$self.plain, k]
      - torch.mul: [$x, $_]
      - torch.mul: [$_, $self.weight]
      - torch.add: [$_, $self.count]
        out: a
      - torch.add: [$self.seen, 1]
        out: s
      - torch.stack: $self.several
    return: [$a, $s, $_]
"""


def test_state(built: Built) -> None:
    program = ran(built, STATE)
    model = program.model
    same(program.output[0].detach(), randn(2, 3) * 2 + 2)
    same(program.output[2], torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    assert {n for n, _ in model.named_buffers()} == {"count", "base", "seen"} and [
        n for n, _ in model.named_parameters()
    ] == ["weight"]
    assert model.count.item() == 2 and model.plain == {"k": 2}
    assert model.seen.data_ptr() == model.base.data_ptr() and model.seen.shape == (2, 2)
    program.run()
    assert model.count.item() == 3


# --- inputs ---


def inputs(built: Built, table: str, keys: str = "") -> dict[str, Any]:
    """The inputs by name; the chain uses them all."""
    names = [line.split(":")[0].strip() for line in table.strip().split("\n") if "hidden" not in line]
    text = built.source(
        f"{keys}\ninputs:\n"
        + "\n".join(f"  {line.strip()}" for line in table.strip().split("\n"))
        + f"\nchain:\n- builtin.print: [{', '.join('$' + n for n in names)}]"
    )
    return dict(zip(names, Ran(text).inputs, strict=True))


def test_layouts(built: Built) -> None:
    tensors = inputs(
        built,
        """
        t: {shape: [2, 3], layout: [{Tensor.transpose: [$_, 0, 1]}]}
        c: {shape: [2, 3, 4, 5], layout: [{Tensor.contiguous: {"*": [$_], memory_format: torch.channels_last}}]}
        s: {shape: [6, 6], layout: [{operator.getitem: [$_, "[::2, 1:]"]}]}
        g: {shape: [2, 3], requires_grad: true, layout: [Tensor.t]}
        e: {shape: [1, 3], layout: [{Tensor.expand: [$_, 4, 3]}]}
    """,
    )
    assert (tensors["t"].shape, tensors["t"].stride()) == ((3, 2), (1, 3))
    assert tensors["c"].is_contiguous(memory_format=torch.channels_last) and tensors["c"].stride() == (60, 1, 15, 3)
    assert (tensors["s"].shape, tensors["s"].stride(), tensors["s"].storage_offset()) == ((3, 5), (12, 1), 1)
    assert tensors["g"].requires_grad and not tensors["g"].is_leaf and tensors["e"].stride() == (0, 1)


def test_views_share_storage(built: Built) -> None:
    tensors = inputs(
        built,
        """
        base: {shape: [4]}
        a: {view_of: base, layout: [{Tensor.view: [$_, 2, 2]}]}
        b: {view_of: a, layout: [{operator.getitem: [$_, 1]}]}
        hid: {shape: [3], hidden: true}
        one: {view_of: hid, layout: [{operator.getitem: [$_, "[:2]"]}]}
        two: {view_of: hid, layout: [{operator.getitem: [$_, "[1:]"]}]}
    """,
    )
    assert list(tensors) == ["base", "a", "b", "one", "two"]
    assert (
        tensors["a"].data_ptr() == tensors["base"].data_ptr()
        and tensors["b"].data_ptr() == tensors["base"].data_ptr() + 8
    )
    tensors["base"][3] = 42
    assert tensors["b"][1] == 42 and tensors["two"].data_ptr() == tensors["one"].data_ptr() + 4


def test_values(built: Built) -> None:
    values = inputs(
        built,
        """
        whole: {values: [1, 2]}
        real: {values: [1, 2.5]}
        flags: {values: [true, false]}
        scalar: {values: -0.0}
        odd: {values: [.nan, .inf, -.inf]}
        tiled: {values: [1.0, 2.0, 3.0], tile: 7}
        shaped: {values: [1, 2], tile: 4, shape: [2, 2], dtype: int32}
        plain: {python: {a: [1, null], b: text}}
        several: {list: [{values: 1}, {python: 2}]}
    """,
    )
    same(values["whole"], torch.tensor([1, 2]))
    same(values["real"], torch.tensor([1.0, 2.5]))
    same(values["flags"], torch.tensor([True, False]))
    same(values["scalar"], torch.tensor(-0.0))
    same(values["odd"], torch.tensor([float("nan"), float("inf"), float("-inf")]))
    same(values["tiled"], torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0]))
    same(values["shaped"], torch.tensor([[1, 2], [1, 2]], dtype=torch.int32))
    assert values["plain"] == {"a": [1, None], "b": "text"}
    same(values["several"], [torch.tensor(1), 2])


def test_a_leaf_is_in_the_dtype_of_its_cast(built: Built) -> None:
    tensors = inputs(
        built,
        """
        before: {shape: [4, 2], layout: [Tensor.t, Tensor.half], requires_grad: true}
        after: {shape: [4, 2], layout: [Tensor.t, Tensor.half], requires_grad: after_layout}
    """,
    )
    kinds = {name: (x.dtype, x.stride(), x.is_leaf, x.requires_grad) for name, x in tensors.items()}
    assert kinds == {"before": (torch.float16, (1, 2), False, True), "after": (torch.float16, (1, 2), True, True)}


def test_inits(built: Built) -> None:
    tensors = inputs(
        built,
        """
        normal: {shape: [1000]}
        whole: {shape: [1000], init: integer}
        ints: {shape: [1000], dtype: int64, init: {randint: [-3, 4]}}
        flips: {shape: [1000], dtype: bool}
        uniform: {shape: [1000], init: {uniform: [2, 3]}}
        full: {shape: [2, 2], init: {full: 7}}
        arange: {shape: [2, 3], init: {arange: [1, 2]}}
        linspace: {shape: [5], init: {linspace: [-1, 1]}}
        eye: {shape: [2, 3], init: eye}
        order: {shape: [40, 5], dtype: int16, init: randperm}
    """,
    )
    assert abs(tensors["normal"].mean()) < 0.2 and 0.8 < tensors["normal"].std() < 1.2
    assert torch.equal(tensors["whole"], tensors["whole"].round()) and tensors["whole"].unique().numel() == 17
    assert tensors["ints"].min() == -3 and tensors["ints"].max() == 3 and tensors["ints"].dtype == torch.int64
    assert 300 < tensors["flips"].sum() < 700 and tensors["uniform"].min() >= 2 and tensors["uniform"].max() < 3
    same(tensors["full"], torch.full((2, 2), 7.0))
    same(tensors["arange"], torch.tensor([[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]))
    same(tensors["linspace"], torch.linspace(-1, 1, 5))
    same(tensors["eye"], torch.eye(2, 3))
    assert tensors["order"].flatten().tolist() != [*range(200)] == tensors["order"].flatten().sort().values.tolist()
    assert tensors["order"].shape == (40, 5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_special_values(built: Built, dtype: str) -> None:
    x = inputs(built, "x: {shape: [5, 5], init: special}", f"dtypes: [{dtype}]")["x"]
    real = x.real if x.is_complex() else x
    info = torch.finfo(real.dtype)
    flat = real.flatten()
    assert x.dtype == getattr(torch, dtype) and x.shape == (5, 5)
    assert flat[0].isnan() and flat[2] == float("inf") and flat[4] == float("-inf")
    assert flat[6] == 0 and flat[6].signbit() and flat[8] == 0 and not flat[8].signbit()
    assert 0 < flat[10].item() < info.smallest_normal  # a denormal
    assert (flat[12], flat[14], flat[16]) == (info.max, info.min, info.tiny)
    assert flat[1::2].isfinite().all() and flat[1::2].unique().numel() > 8


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_can_be_made(built: Built, dtype: str) -> None:
    if not hasattr(torch, dtype):
        pytest.skip(f"torch {torch.__version__} has no {dtype}")
    table = "a: [2, 3]\nb: {shape: [2], init: zeros}\nc: []\nd: [0]"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = inputs(built, table, f"dtypes: [{dtype}]")
    assert {t.dtype for t in tensors.values()} == {getattr(torch, dtype)} and [
        tuple(t.shape) for t in tensors.values()
    ] == [
        (2, 3),
        (2,),
        (),
        (0,),
    ]


def test_calls(built: Built) -> None:
    program = ran(
        built,
        "params: {n: [2]}\ninputs: {x: ['${n}', 3], b: {values: [1.0]}}\nchain: [{torch.sum: [$x, 0]}, {torch.add: [$_, $b]}]\ncalls: [{params: {n: 5}}, {inputs: {b: {values: [2.0]}}}, {}]",
    )
    shapes = [[tuple(t.shape) for t in program.make(call)] for call in range(4)]
    assert shapes == [[(2, 3), (1,)], [(5, 3), (1,)], [(2, 3), (1,)], [(2, 3), (1,)]]
    assert [program.make(call)[1].item() for call in range(4)] == [1, 1, 2, 1]
    assert program.make(0)[0] is not program.make(0)[0] and torch.equal(program.make(0)[0], program.make(3)[0])


def test_inputs_of_a_persons_own_module_go_by_name(built: Built) -> None:
    built.write(
        "m.py", "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x, y):\n        return x - y\n"
    )
    inputs = "inputs: {y: {values: [1.0]}, x: {values: [5.0]}}"
    for more, expected in (("", 4.0), (", positional: true", -4.0)):
        assert ran(built, f"module: {{file: m.py, name: Net{more}}}\n{inputs}").output.tolist() == [expected]


# --- names that control knows without torch ---


def test_what_modules_have_is_known() -> None:
    assert {n for n in dir(torch.nn.Module()) if not n.startswith("_")} <= OF_MODULES


def test_submodules_are_not_named_like_what_modules_have() -> None:
    names = [n for n in inventory()["nn"] if not hasattr(resolve(f"nn.{n}"), "message")]
    assert len(names) > 140 and not {_snake(n) for n in names} & OF_MODULES
    assert all(_snake(n).isidentifier() for n in names)


def test_constants_are_constants() -> None:
    kinds = (torch.dtype, torch.memory_format, torch.layout, float)
    assert all(isinstance(getattr(torch, n), kinds) for n in constants() if hasattr(torch, n))


def test_enums_are_known_with_every_member() -> None:
    for name, members in ENUMS.items():
        there = getattr(torch.nn.functional, name.rpartition(".")[2], None)
        assert there is None or {*there.__members__} == {*members}


def test_numpy_ndarray_is_refused_for_a_reason() -> None:
    """It makes Python objects of the numbers in a buffer."""
    numpy = pytest.importorskip("numpy")
    forged = numpy.ndarray((1,), "O", numpy.array([0]))
    assert forged.dtype == object and hasattr(resolve("numpy.ndarray"), "message")


def test_methods_that_arrays_have_too_take_tensors_alone() -> None:
    numpy = pytest.importorskip("numpy")
    names = {n for n in inventory()["Tensor"] if hasattr(numpy.ndarray, n) and is_operator(f"Tensor.{n}")}
    assert names - attributes() == METHODS_OF_ARRAYS
    for name in names - attributes():
        with pytest.raises(TypeError, match="doesn't apply to a 'numpy"):
            getattr(torch.Tensor, name)(numpy.zeros(1))


def test_a_method_of_a_case_runs_on_no_array(built: Built) -> None:
    pytest.importorskip("numpy")
    with pytest.raises(TypeError, match="doesn't apply to a 'numpy"):
        ran(built, "inputs: {x: [2, 3]}\nchain: [Tensor.numpy, Tensor.sum]")


# --- the corpus ---

DRAFTS = sorted(folder("shared/corpus/yaml").glob("*.spec.yaml"))
OF_MEMORY = {"pytorch_147206"}
"""Drafts whose answer is what lies in uninitialised memory: torch.resize adds elements, and a True among them raises nothing."""


def skipped(variant: Variant) -> str:
    case = variant.case
    if variant.device != "cpu":
        return variant.device
    if case.name in OF_MEMORY:
        return "memory"
    if (
        case.requires.package
        or not matches(case.requires.torch, torch.__version__)
        or (case.requires.device and "cpu" not in case.requires.device)
    ):
        return "requires"
    return ""


@pytest.mark.skipif(not DRAFTS, reason="the corpus is not here")
@pytest.mark.parametrize("path", DRAFTS, ids=lambda p: p.name.partition(".")[0])
def test_drafts_run_in_eager(path: Any) -> None:
    loaded = load([str(path)], allow_python=True, everything=True)
    assert {d.message for d in loaded.errors} <= {
        "input 'a1' is never used", "'v4' is made here and never used", "the value of operator.getitem is never used",
    }  # fmt: skip
    torch.distributions.Distribution.set_default_validate_args(True)  # Dynamo turns it off when it is imported
    failed = {}
    for variant in loaded.variants:
        if skipped(variant):
            continue
        expected = variant.case.expect.raises
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(None):
                warnings.simplefilter("ignore")
                program = Ran(build(variant).text)
                with (
                    torch.autocast("cpu", getattr(torch, variant.autocast))
                    if variant.autocast
                    else contextlib.nullcontext()
                ):
                    for call in range(len(program.names.get("CALLS", [0]))):
                        program.inputs = program.make(call)
                        program.run()
        except Exception as error:  # noqa: BLE001
            if expected is None or expected.type.rpartition(".")[2] not in {
                c.__name__.lstrip("_") for c in type(error).__mro__
            }:
                failed[variant.id] = f"{type(error).__name__}: {error}"
        else:
            if expected is not None:
                failed[variant.id] = f"no {expected.type}"
    assert failed == {}


@pytest.mark.parametrize(
    ("step", "layout"),
    [
        ("torch.sparse_coo_tensor: [$i, $v, [1]]", torch.sparse_coo),
        ("torch.sparse_csr_tensor: [[0, 1], $j, $v, [1, 1]]", torch.sparse_csr),
    ],
)
def test_a_sparse_constructor_checks_its_indices(built: Built, step: str, layout: torch.layout) -> None:
    """Otherwise the next operator writes to any place of the process's memory."""
    indices = "i: {values: [[PLACE]], dtype: int64}" if "$i" in step else "j: {values: [PLACE], dtype: int64}"
    keys = f"inputs: {{{indices}, v: [1]}}\nchain: [{{{step}}}]"
    assert ran(built, keys.replace("PLACE", "0")).output.layout is layout
    with pytest.raises(RuntimeError):
        ran(built, keys.replace("PLACE", "50000000"))


def test_operators_that_take_an_argument_train() -> None:
    every = [name for name in dir(torch.ops.aten) if is_operator(f"aten.{name}")]
    schemas = {name: torch._C._jit_get_schemas_for_operator(f"aten::{name}") for name in every}
    taking = {name for name, known in schemas.items() if any("train" in [a.name for a in s.arguments] for s in known)}
    assert taking and {name for name in every if TRAINED.fullmatch(f"aten.{name}")} == taking
