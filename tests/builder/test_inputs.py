"""``runner.builder.inputs``: how inputs and state are made."""

from __future__ import annotations

import pytest
from built import Built

from runner.cases.limits import Limits


def made(built: Built, item: str, keys: str = "") -> list[str]:
    """The statements that make input ``x``, which is all that the chain uses."""
    return built.part(f"{keys}\ninputs: {{x: {item}}}\nchain:\n- builtin.print: $x", "make_inputs")[:-1]


def one(built: Built, item: str, keys: str = "") -> str:
    (line,) = made(built, item, keys)
    return line.removeprefix("x = ")


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ("[2, 3]", "torch.randn(2, 3)"), ("[]", "torch.randn(())"), ("[0]", "torch.randn(0)"), ("{shape: [2], init: normal}", "torch.randn(2)"),
        ("{shape: [2], init: zeros}", "torch.zeros((2,))"), ("{shape: [2, 3], init: ones}", "torch.ones((2, 3))"), ("{shape: [], init: zeros}", "torch.zeros(())"),
        ("{shape: [2], init: {full: 7}}", "torch.full((2,), 7, dtype=torch.float32)"), ("{shape: [2], init: {full: -.inf}}", 'torch.full((2,), float("-inf"), dtype=torch.float32)'),
        ("{shape: [2], init: uniform}", "torch.rand((2,))"), ("{shape: [2], init: {uniform: [0, 1]}}", "torch.rand((2,))"),
        ("{shape: [2], init: {uniform: [-1, 2.5]}}", "torch.empty((2,)).uniform_(-1, 2.5)"), ("{shape: [2], init: {normal: [1, 0.5]}}", "torch.empty((2,)).normal_(1, 0.5)"), ("{shape: [2, 3], init: eye}", "torch.eye(2, 3)"),
        ("{shape: [6], init: {arange: [0, 1]}}", "torch.arange(6, dtype=torch.float32)"), ("{shape: [2, 3], init: {arange: [0, 1]}}", "torch.arange(6, dtype=torch.float32).reshape(2, 3)"),
        ("{shape: [6], init: {arange: [1, -2]}}", "(torch.arange(6, dtype=torch.float32) * -2 + 1)"),
        ("{shape: [2, 3], init: {arange: [1, 1]}}", "(torch.arange(6, dtype=torch.float32) + 1).reshape(2, 3)"),
        ("{shape: [5], init: {linspace: [-1, 1]}}", "torch.linspace(-1, 1, 5)"), ("{shape: [2, 3], init: {linspace: [0, 1]}}", "torch.linspace(0, 1, 6).reshape(2, 3)"),
        ("{shape: [5], dtype: int64, init: randperm}", "torch.randperm(5)"), ("{shape: [2, 3], init: randperm}", "torch.randperm(6).to(torch.float32).reshape(2, 3)"),
        ("{shape: [128], dtype: int8, init: randperm}", "torch.randperm(128).to(torch.int8)"), ("{shape: [], dtype: uint16, init: randperm}", "torch.randperm(1).to(torch.uint16).reshape(())"),
        ("{shape: [65536], dtype: float16, init: patterns}", "torch.randperm(65536)[:65536].to(torch.int16).view(torch.float16)"),
        ("{shape: [16, 16], dtype: float8_e5m2, init: patterns}", "torch.randperm(256)[:256].to(torch.int8).view(torch.float8_e5m2).reshape(16, 16)"),
        ("{shape: [], dtype: int8, init: patterns}", "torch.randperm(256)[:1].to(torch.int8).reshape(())"),
        ("{shape: [5], init: patterns}", "torch.randint(-2147483648, 2147483647, (5,), dtype=torch.int32).view(torch.float32)"),
        ("{shape: [2], init: integer}", "torch.randint(-8, 9, (2,)).to(torch.float32)"),
        ("{shape: [2], dtype: int64}", "torch.randint(0, 10, (2,))"), ("{shape: [2], dtype: int32}", "torch.randint(0, 10, (2,), dtype=torch.int32)"),
        ("{shape: [2], dtype: bool}", "torch.randint(0, 2, (2,), dtype=torch.bool)"), ("{shape: [2], dtype: uint16}", "torch.randint(0, 10, (2,)).to(torch.uint16)"),
        ("{shape: [2], dtype: int8, init: {randint: [-3, 4]}}", "torch.randint(-3, 4, (2,), dtype=torch.int8)"),
        ("{shape: [2], init: {randint: [0, 4]}}", "torch.randint(0, 4, (2,), dtype=torch.float32)"),
        ("{shape: [2], dtype: bfloat16}", "torch.randn(2, dtype=torch.bfloat16)"), ("{shape: [2], dtype: torch.complex64}", "torch.randn(2, dtype=torch.complex64)"),
        ("{shape: [2], dtype: float8_e4m3fn}", "torch.randn(2).to(torch.float8_e4m3fn)"), ("{shape: [2], dtype: complex32}", "torch.randn(2, dtype=torch.complex64).to(torch.complex32)"),
        ("{shape: [2], requires_grad: true}", "torch.randn(2).requires_grad_()"), ("{shape: [2], device: meta}", 'torch.randn(2).to("meta")'),
        ("{values: [1+2j, 3]}", "torch.tensor([(1.0+2.0j), 3], dtype=torch.complex64)"), ("{shape: [2], dtype: complex64, init: {full: 2j}}", "torch.full((2,), (0.0+2.0j), dtype=torch.complex64)"),
        ("{values: [1j], dtype: complex128}", "torch.tensor([(0.0+1.0j)], dtype=torch.complex128)"),
        ("{values: 3}", "torch.tensor(3)"), ("{values: [1.5, 2]}", "torch.tensor([1.5, 2])"), ("{values: [true]}", "torch.tensor([True])"),
        ("{values: [1], dtype: float32}", "torch.tensor([1], dtype=torch.float32)"), ("{values: [.nan], dtype: float64}", 'torch.tensor([float("nan")], dtype=torch.float64)'),
        ("{values: []}", "torch.tensor([])"), ("{values: [[1, 2], [3, 4]], shape: [4]}", "torch.tensor([[1, 2], [3, 4]]).reshape(4)"), ("{values: [7], shape: []}", "torch.tensor([7]).reshape(())"),
        ("{values: [1.0, 2.0], tile: 6}", "torch.tensor([1.0, 2.0]).repeat(3)"), ("{values: [1.0, 2.0], tile: 5}", "torch.tensor([1.0, 2.0]).repeat(3)[:5]"),
        ("{values: [1.0, 2.0], tile: 6, shape: [2, 3]}", "torch.tensor([1.0, 2.0]).repeat(3).reshape(2, 3)"),
        ("{python: 3}", "3"), ("{python: {a: [1, null], 'b c': text}}", '{"a": [1, None], "b c": "text"}'), ("{python: null}", "None"), ("{python: torch.float16}", "torch.float16"),
    ],
)  # fmt: skip
def test_expressions(built: Built, item: str, text: str) -> None:
    assert one(built, item) == text


@pytest.mark.parametrize(
    ("dtype", "count"),
    [
        ("int8", 129),
        ("uint8", 257),
        ("bfloat16", 258),
        ("float16", 2050),
        ("bool", 2),
        ("complex64", 2),
        ("complex32", 2),
        ("float8_e5m2", 2),
    ],
)
def test_a_permutation_that_a_dtype_does_not_hold(built: Built, dtype: str, count: int) -> None:
    assert built.problems(f"inputs: {{x: {{shape: [{count}], dtype: {dtype}, init: randperm}}}}") == [
        f"3:14: init randperm makes the numbers 0 to {count - 1}, which {dtype} does not hold | such as dtype: int64"
    ]


@pytest.mark.parametrize(
    ("dtype", "item", "text"),
    [
        ("bfloat16", "[2]", "torch.randn(2, dtype=torch.bfloat16)"), ("int64", "[2]", "torch.randint(0, 10, (2,))"), ("float16", "{values: [1.5]}", "torch.tensor([1.5], dtype=torch.float16)"),
        ("complex128", "{values: [1j]}", "torch.tensor([(0.0+1.0j)], dtype=torch.complex128)"),
        ("float16", "{values: [1]}", "torch.tensor([1])"), ("bool", "{shape: [2], init: zeros}", "torch.zeros((2,), dtype=torch.bool)"),
        ("float64", "{shape: [2], dtype: float32}", "torch.randn(2)"), ("float64", "{shape: [3], init: {linspace: [0, 1]}}", "torch.linspace(0, 1, 3, dtype=torch.float64)"),
    ],
)  # fmt: skip
def test_the_axis_of_dtypes(built: Built, dtype: str, item: str, text: str) -> None:
    assert one(built, item, f"dtypes: [{dtype}]") == text


@pytest.mark.parametrize(
    ("item", "lines"),
    [
        ("{shape: [2, 3], layout: [Tensor.t, Tensor.half], requires_grad: after_layout}",
         ["x = torch.randn(2, 3)", "x = x.t()", "x = x.half()", "x.requires_grad_()"]),
        ("{shape: [2], requires_grad: after_layout}", ["x = torch.randn(2)", "x.requires_grad_()"]),
    ],
)  # fmt: skip
def test_what_the_layout_makes_is_the_leaf(built: Built, item: str, lines: list[str]) -> None:
    assert built.part(f"inputs: {{x: {item}}}", "make_inputs") == [*lines, "return [x]"]


@pytest.mark.parametrize(("word", "size"), [("channels_last", "2, 3, 4, 5"), ("channels_last_3d", "2, 3, 4, 5, 6")])
def test_a_memory_format_is_a_layout(built: Built, word: str, size: str) -> None:
    source = built.part(f"inputs: {{x: {{shape: [{size}], layout: {word}}}}}", "make_inputs")
    made, given = f"x = torch.randn({size})", f"x = x.contiguous(memory_format=torch.{word})"
    assert source == [made, given, "return [x]"]


def test_a_view_is_a_leaf_of_its_own(built: Built) -> None:
    keys = """
        inputs:
          base: {shape: [2, 3], requires_grad: true, hidden: true}
          x: {view_of: base, layout: [Tensor.t], requires_grad: after_layout}
        chain: [{torch.exp: $x}]
        """
    assert built.part(keys, "make_inputs")[1:] == ["x = base.t()", "x = x.detach().requires_grad_()", "return [x]"]


def test_the_axis_of_devices(built: Built) -> None:
    assert (
        one(built, "{shape: [2], requires_grad: true}", "devices: [cuda]")
        == 'torch.randn(2).to("cuda").requires_grad_()'
    )
    assert one(built, "{shape: [2], device: cpu}", "devices: [cuda]") == "torch.randn(2)"


def test_special_values(built: Built) -> None:
    text = one(built, "{shape: [4], init: special}")
    assert text == (
        "torch.randn(4, dtype=torch.float32).index_put((torch.tensor([0, 2], dtype=torch.int64),), "
        'torch.tensor([float("nan"), float("inf")], dtype=torch.float32)).reshape(4)'
    )
    text = one(built, "{shape: [30], init: special, dtype: complex128}")
    assert (
        "[0, 2, 4, 6, 8, 10, 12, 14, 16]" in text
        and "torch.finfo(torch.float64).smallest_normal / 2" in text
        and "-0.0, 0.0" in text
    )
    assert "torch.tensor([], dtype=torch.int64)" in one(built, "{shape: [0], init: special}")


def test_sizes_are_arithmetic_over_params(built: Built) -> None:
    assert one(built, "['${n}', '${n * 2 - 1}', '${max(n, 4)}']", "params: {n: [3]}") == "torch.randn(3, 5, 4)"
    assert (
        one(built, "{shape: ['${n}'], init: {full: '${n + 1}'}}", "params: {n: [3]}")
        == "torch.full((3,), 4, dtype=torch.float32)"
    )


@pytest.mark.parametrize(
    ("layout", "lines"),
    [
        ("[{Tensor.transpose: [$_, 0, 1]}]", ["x = torch.randn(2, 3)", "x = x.transpose(0, 1)"]),
        ("[{Tensor.contiguous: {'*': [$_], memory_format: torch.channels_last}}]", ["x = torch.randn(2, 3)", "x = x.contiguous(memory_format=torch.channels_last)"]),
        ("[Tensor.t, {operator.getitem: [$_, '[::2]']}]", ["x = torch.randn(2, 3)", "x = x.t()", "x = x[::2]"]),
        ("[{torch.split: [$_, 1], out: [a, b]}, {torch.cat: [[$b, $a]]}]", ["x = torch.randn(2, 3)", "a, b = torch.split(x, 1)", "x = torch.cat([b, a])"]),
        ("[{torch.split: [$_, 1], out: [_, b]}]", ["x = torch.randn(2, 3)", "x, b = torch.split(x, 1)"]),
        ("[{operator.setitem: [$_, 0, 1]}]", ["x = torch.randn(2, 3)", "x[0] = 1"]),
    ],
)  # fmt: skip
def test_layouts(built: Built, layout: str, lines: list[str]) -> None:
    assert made(built, f"{{shape: [2, 3], layout: {layout}}}") == lines


def test_a_leaf_requires_its_gradient_before_its_layout(built: Built) -> None:
    assert made(built, "{shape: [2, 3], requires_grad: true, layout: [Tensor.t]}") == [
        "x = torch.randn(2, 3).requires_grad_()",
        "x = x.t()",
    ]


def test_views_and_hidden_inputs(built: Built) -> None:
    keys = """
        inputs:
          base: {shape: [4], hidden: true}
          a: {view_of: base}
          b: {view_of: base, layout: [{Tensor.view: [$_, 2, 2]}]}
          c: {view_of: a, requires_grad: true}
        chain:
          - builtin.print: [$a, $b, $c]
    """
    assert built.part(keys, "make_inputs") == [
        "base = torch.randn(4)",
        "a = base",
        "b = base.view(2, 2)",
        "c = a",
        "c.requires_grad_()",
        "return [a, b, c]",
    ]
    assert "def forward(self, a, b, c):" in built.source(keys)


def test_lists(built: Built) -> None:
    assert built.part("inputs: {x: {list: [[2], {values: [1]}, {python: 5}]}}\nchain:\n- torch.cat: $x", "make_inputs") == [
        "x_0 = torch.randn(2)", "x_1 = torch.tensor([1])", "x_2 = 5", "x = [x_0, x_1, x_2]", "return [x]",
    ]  # fmt: skip


def test_dicts(built: Built) -> None:
    x = '{dict: {a: [2], "b c": {list: [{dict: {d: {values: [1]}}}]}}}'
    assert built.part(f"inputs: {{x: {x}}}\nchain: [{{operator.getitem: [$x, a]}}]", "make_inputs") == [
        "x_0 = torch.randn(2)", "x_1_0_0 = torch.tensor([1])", 'x_1_0 = {"d": x_1_0_0}', "x_1 = [x_1_0]",
        'x = {"a": x_0, "b c": x_1}', "return [x]",
    ]  # fmt: skip
    state = "inputs: {y: [2]}\nstate: {x: {dict: {a: [2]}}}\nchain: [{operator.getitem: [$self.x, a]}, {torch.add: [$_, $y]}]"
    assert built.part(state, "__init__")[-2:] == ['x = {"a": x_0}', "self.x = x"]


def test_state(built: Built) -> None:
    keys = """
        dtypes: [bfloat16]
        state:
          buffer: [2]
          weight: {shape: [2], requires_grad: true}
          plain: {python: {a: 1}}
          turned: {shape: [2, 3], layout: [Tensor.t]}
          several: {list: [[2], [3]]}
          seen: {view_of: turned, layout: [{operator.getitem: [$_, 0]}]}
        chain:
          - builtin.print: [$self.buffer, $self.weight, $self.plain, $self.several, $self.seen, $x]
          - torch.abs: $x
            out: self.buffer
    """
    assert built.part(keys, "__init__") == [
        "super().__init__()",
        'self.register_buffer("buffer", torch.randn(2, dtype=torch.bfloat16))',
        "self.weight = torch.nn.Parameter(torch.randn(2, dtype=torch.bfloat16))",
        'self.plain = {"a": 1}',
        "turned = torch.randn(2, 3, dtype=torch.bfloat16)",
        "turned = turned.t()",
        'self.register_buffer("turned", turned)',
        "several_0 = torch.randn(2, dtype=torch.bfloat16)",
        "several_1 = torch.randn(3, dtype=torch.bfloat16)",
        "several = [several_0, several_1]",
        "self.several = several",
        "seen = self.turned[0]",
        'self.register_buffer("seen", seen)',
    ]
    assert built.part(keys)[-2:] == ["self.buffer = torch.abs(x)", "return self.buffer"]


# --- limits ---


def problems(built: Built, item: str, keys: str = "", limits: Limits | None = None) -> list[str]:
    return built.problems(f"inputs: {{x: {item}}}\n{keys}\nchain: [F.relu]", limits)


def test_a_shape_of_a_million_million_elements(built: Built) -> None:
    texts = problems(built, "[1000000, 1000000]")
    assert texts == [
        "3:14: input 'x' of shape [1000000, 1000000] takes 3.638 TiB, more than 4 GiB | raise the limit with --limit tensor_bytes=SIZE"
    ]
    assert problems(built, "[1000000, 1000000]", limits=Limits(tensor_bytes=4 * 10**12)) == []
    assert problems(built, "[1000000, 1000000]", limits=Limits(tensor_bytes=4 * 10**12 - 1)) != []


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("float64", 8),
        ("complex128", 16),
        ("bfloat16", 2),
        ("bool", 1),
        ("float32", 4),
        ("int64", 8),
        ("complex64", 8),
        ("uint16", 2),
    ],
)
def test_the_limit_counts_bytes(built: Built, dtype: str, size: int) -> None:
    item = f"{{shape: [100], dtype: {dtype}}}"
    assert problems(built, item, limits=Limits(tensor_bytes=100 * size)) == []
    (text,) = problems(built, item, limits=Limits(tensor_bytes=100 * size - 1))
    assert text.startswith("3:14: input 'x' of shape [100] takes")


def test_the_limit_counts_the_axis_of_dtypes(built: Built) -> None:
    assert len(problems(built, "[100]", "dtypes: [float32, float64, float16]", Limits(tensor_bytes=400))) == 1


@pytest.mark.parametrize(
    "item",
    ["[1" + "0" * 400 + "]", "['${10 ** 30}', '${10 ** 30}']", "{values: [1.0], tile: 1" + "0" * 400 + "}", "{values: [1.0], tile: 10000000000}",
     "{shape: [100000, 100000], init: eye}", "{shape: [10000000000], init: special}", "{list: [[2], [10000000000]]}"],
)  # fmt: skip
def test_no_tensor_is_too_large_to_be_refused(built: Built, item: str) -> None:
    (text,) = problems(built, item)
    assert text.startswith("3:14: input 'x") and "more than 4 GiB" in text


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("['${n}']", "3:14: size -2 of 'x' is negative"), ("['${n / 2}']", "3:14: size -1.0 of 'x' is no integer over params alone"),
        ("['${n > 1}']", "3:14: size False of 'x' is no integer over params alone"), ("['${s}']", "3:14: size 'abc' of 'x' is no integer over params alone"),
        ("['${k}']", "3:19: nothing is called 'k'"), ("['${1 // (n + 2)}']", "3:19: in ${1 // (n + 2)}: division by zero"), ("['${x.shape[0]}']", "3:14: size x.shape[0] of 'x' is no integer over params alone"),
        ("{shape: [2], init: eye}", "3:14: init eye makes a matrix: the shape has two sizes"), ("{view_of: z}", "3:14: 'x' is a view of 'z', which is not an input before it"),
        ("{python: {$fn: {args: [t], chain: [torch.sin]}}}", "3:32: a function has no place in an input"), ("{shape: [2], layout: [{nn.Linear: [2, 2]}]}", "3:40: nn.Linear is a module; only functions stand here"),
        ("{shape: [2], layout: [torch.load]}", "3:39: 'torch.load' is refused"), ("{shape: [2], layout: [{torch.add: [$_, $self.c]}]}", "3:56: $self has no meaning outside the chain"),
    ],
)  # fmt: skip
def test_problems(built: Built, item: str, message: str) -> None:
    texts = built.problems(
        f"inputs: {{x: {item}}}\nparams: {{n: [-2], s: [abc]}}\nchain: [F.relu, {{torch.add: [$_, $n]}}, {{builtin.print: $s}}]"
    )
    assert texts[0].startswith(message)


def test_a_function_has_no_place_in_state(built: Built) -> None:
    texts = built.problems(
        "state: {c: {python: {$fn: {args: [t], chain: [torch.sin]}}}}\nchain:\n- operator.call: [$self.c, $x]"
    )
    assert texts == ["3:31: a function has no place in an input"]


@pytest.mark.parametrize(
    ("init", "dtypes"),
    [
        ("uniform", "int64, int8, uint16, bool"), ("{uniform: [0, 4]}", "int32"), ("normal", "int64, bool"), ("{normal: [0, 1]}", "int32"), ("special", "int64, uint8"),
        ("{full: 0.5}", "int64, bool"), ("{arange: [0, 0.5]}", "int64"), ("{arange: [0, 1]}", "bool, complex64, uint16"),
        ("{linspace: [0, 1]}", "bool, uint32"), ("patterns", "bool, complex64"), ("{randint: [0, 10]}", "bool, complex64"), ("eye", "uint64"),
    ],
)  # fmt: skip
def test_an_init_that_makes_nothing_of_a_dtype(built: Built, init: str, dtypes: str) -> None:
    """torch raises for these, or makes other values or another dtype than the file says."""
    name = init.strip("{").partition(":")[0]
    hint = "leave init: out, and every dtype has values of its own"
    messages = [f"3:14: init {name} makes no {dtype} of 'x' | {hint}" for dtype in dtypes.split(", ")]
    keys = f"inputs: {{x: {{shape: [2, 2], init: {init}}}}}\nchain: [torch.clone]\n"
    assert built.problems(f"{keys}dtypes: [{dtypes}]") == messages
    assert built.problems(f"{keys.replace('init:', 'dtype: float16, init:')}dtypes: [{dtypes}]") == []


def test_inits_that_make_integers(built: Built) -> None:
    for init in (
        "zeros",
        "ones",
        "integer",
        "eye",
        "{full: 2}",
        "{full: 2.0}",
        "{arange: [1, 2]}",
        "{linspace: [0, 3]}",
        "{randint: [0, 9]}",
    ):
        assert (
            built.problems(
                f"dtypes: [int64, uint8]\ninputs: {{x: {{shape: [2, 2], init: {init}}}}}\nchain: [torch.clone]"
            )
            == []
        )
    for init in ("zeros", "{full: true}", "{randint: [0, 2]}"):
        assert (
            built.problems(f"dtypes: [bool]\ninputs: {{x: {{shape: [2, 2], init: {init}}}}}\nchain: [torch.clone]")
            == []
        )


LISTS = """
    params: {shape: [[2, 3]], words: [[mean, [1, true]]], empty: [[]]}
    inputs: {x: $shape, v: {values: $shape, tile: 3}, w: {python: $words}, e: {shape: $empty}}
    chain:
      - torch.sum: [$x, "$words[1][0]"]
      - torch.add: [$_, "${shape[0] * x.shape[1] + len(shape)}"]
      - builtin.print: [$w, "$shape[-1]", $v, $e]
    calls: [{params: {shape: [5, 3]}}]
    """


def test_params_that_are_lists(built: Built) -> None:
    assert built.problems(LISTS) == [
        "9:13: param 'shape' is a constant of the chain, so a call cannot change it | write ${x.shape[0]} in the chain"
    ]
    keys = LISTS.partition("    calls")[0]
    assert built.part(keys, "make_inputs") == [
        "x = torch.randn(2, 3)", "v = torch.tensor([2, 3]).repeat(2)[:3]", 'w = ["mean", [1, True]]', "e = torch.randn(())",
        "return [x, v, w, e]",
    ]  # fmt: skip
    assert built.part(keys) == [
        'y = torch.sum(x, (["mean", [1, True]])[1][0])',
        "y = torch.add(y, 2 * x.shape[1] + 2)",
        "print(w, ([2, 3])[-1], v, e)",
        "return y",
    ]


def test_each_call_has_the_shape_of_its_param(built: Built) -> None:
    keys = "params: {shape: [[2, 3]]}\ninputs: {x: $shape}\ncalls: [{params: {shape: [5]}}]"
    assert built.part(keys, "make_inputs_1") == ["x = torch.randn(5)", "return [x]"]


@pytest.mark.parametrize("value", ['["a\'"]', '[1, ["\\n"]]'])
def test_a_text_in_a_list_is_as_plain_as_any_for_an_operator(built: Built, value: str) -> None:
    (message,) = built.problems(f"params: {{k: [{value}]}}\nchain: [{{builtin.print: [$k]}}, F.relu]")
    assert "a text for an operator may not hold" in message


def test_an_item_that_a_list_does_not_have(built: Built) -> None:
    (message,) = built.problems('params: {k: [[1]]}\nchain: [{torch.add: [$_, "${k[1] + x.shape[0]}"]}]')
    assert "in ${k[1] + x.shape[0]}: tuple index out of range" in message
    (message,) = built.problems('params: {k: [[1]]}\nchain: [{torch.add: [$_, "${k}"]}]')
    assert "in ${k}: the result is a list, and no number" in message


def test_operators_dtypes_and_leaves_that_are_params(built: Built) -> None:
    keys = """
        params: {f: [nn.Softmax], g: [torch.cumsum], d: [float64], leaf: [after_layout], place: [meta]}
        inputs: {x: {shape: [2], dtype: $d, requires_grad: $leaf, layout: [Tensor.neg]}, y: {values: [1, 2], device: $place, dtype: $d}}
        chain:
          - $f: {dim: 0}
            id: first
          - $g: {dim: 0}
          - builtin.print: [$y]
        """
    assert built.part(keys) == ["h = self.first(x)", "h = torch.cumsum(h, dim=0)", "print(y)", "return h"]
    assert built.part(keys, "make_inputs") == [
        "x = torch.randn(2, dtype=torch.float64)", "x = x.neg()", "x.requires_grad_()",
        'y = torch.tensor([1, 2], dtype=torch.float64).to("meta")', "return [x, y]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("F.rellu", "unknown operator 'F.rellu' | did you mean 'F.relu'?"),
        ("os.system", "'os.system' is refused: it is no tensor operator"),
        ("torch.save", "'torch.save' is refused: it reads or writes files"),
        ("self.lin", "self has no 'lin'"),
    ],
)
def test_an_operator_of_a_param_is_one_that_a_case_may_call(built: Built, name: str, message: str) -> None:
    problems = built.problems(f"params: {{f: [F.relu, {name}]}}\nchain: [$f]")
    assert problems[0].startswith("4:13: " + message), problems


KEYS = """
    inputs: {batch: {dict: {ids: [3], more: {dict: {mask: {list: [[3]]}}}}}, p: {python: {a: {b: 2}}}}
    state: {table: {dict: {w: [3]}}}
    chain:
      - torch.add: ["$batch[ids]", "$batch[more][mask][0]"]
      - torch.mul: [$_, "$p[a][b]"]
      - torch.add: [$_, "$self.table[w]"]
      - builtin.dict: [[[key, $_]]]
        out: made
      - torch.sin: "$made[key]"
    return: {first: "$batch[ids].T", last: $_}
    """


def test_a_reference_reaches_the_keys_of_dicts(built: Built) -> None:
    assert built.part(KEYS) == [
        'y = torch.add(batch["ids"], batch["more"]["mask"][0])', 'y = torch.mul(y, p["a"]["b"])', 'y = torch.add(y, self.table["w"])',
        'made = dict([["key", y]])', 'y = torch.sin(made["key"])', 'return {"first": batch["ids"].T, "last": y}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("$d[idx]", "5:20: 'd' has no key 'idx' | did you mean 'ids'?"),
        ("$x[i]", "5:20: 'x' is no dict with a key 'i' | an index is written operator.getitem: [$x, \"[$i]\"]"),
        ("$_[i]", "5:20: '_' is no dict with a key 'i' | an index is written operator.getitem: [$_, \"[$i]\"]"),
        ("$self[i]", "5:20: $self has attributes and no items | such as $self.i"),
    ],
)
def test_keys_that_are_none(built: Built, reference: str, message: str) -> None:
    keys = f'inputs: {{x: [2], i: {{values: [0]}}, d: {{dict: {{ids: [2]}}}}}}\nchain:\n  - torch.sin: "{reference}"\nreturn: [$_, $i, $d, $x]'
    assert built.problems(keys) == [message]


def test_math_over_sizes_is_imported(built: Built) -> None:
    keys = """
        params: {shape: [[4, 9]]}
        inputs: {x: ["${math.prod(shape)}", "${math.ceil(math.sqrt(shape[1]))}"]}
        chain: [{torch.mul: [$x, "${math.sqrt(x.shape[0])}"]}]
        """
    assert built.part(keys) == ["return torch.mul(x, math.sqrt(x.shape[0]))"]
    assert built.part(keys, "make_inputs")[0] == "x = torch.randn(36, 3)"
    assert "\nimport math\n\nimport torch\n" in built.source(keys)
    assert "import math" not in built.source("inputs: {x: ['${2 * 2}']}")
    for name in ("inputs: {x: [2], math: [2]}", "inputs: {x: [2]}"):
        chain = "chain: [{torch.mul: [$x, '${math.sqrt(x.shape[0])}'], out: a}, {torch.neg: $a, out: math}, {torch.add: [$_, $math]}]"
        assert "'math' is a name of this case: name that otherwise" in built.problems(f"{name}\n{chain}")[0]
