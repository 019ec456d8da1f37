"""``runner.builder.chain``: steps and blocks as statements."""

from __future__ import annotations

import pytest
from built import Built

from runner.builder.chain import Modules, _snake


def forward(built: Built, chain: str, keys: str = "") -> list[str]:
    return built.part(f"{keys}\nchain:\n{chain}")


@pytest.mark.parametrize(
    ("steps", "lines"),
    [
        ("- F.relu", ["return F.relu(x)"]),
        ("- torch.abs: $x", ["return torch.abs(x)"]),
        ("- torch.add: [$_, 1]\n- torch.abs", ["y = torch.add(x, 1)", "return torch.abs(y)"]),
        ('- torch.add: {"*": [$_, 1], alpha: 2}', ["return torch.add(x, 1, alpha=2)"]),
        ("- torch.zeros: {size: [3, 4]}\n- torch.add: [$_, $x]", ["y = torch.zeros(size=[3, 4])", "return torch.add(y, x)"]),
        ("- torch.cat: [[$x, $x], 1]", ["return torch.cat([x, x], 1)"]),
        ("- Tensor.view: [$_, -1]", ["return x.view(-1)"]),
        ('- Tensor.sum: {"*": [$_], dim: 0}', ["return x.sum(dim=0)"]),
        ("- Tensor.T", ["return x.T"]),
        ("- Tensor.shape: $x\n- operator.getitem: [$_, 0]", ["y = x.shape", "return y[0]"]),
        ("- aten.mm.default: [$x, $x]", ["return torch.ops.aten.mm.default(x, x)"]),
        ("- numpy.add: [1, 2]\n- Tensor.add: [$x, $_]", ["y = numpy.add(1, 2)", "return x.add(y)"]),
        ("- numpy.add: [$x, 1]\n- Tensor.sum: [$_, 0]", ["y = numpy.add(x, 1)", "return torch.Tensor.sum(y, 0)"]),
        ("- Tensor.numpy\n- Tensor.mean", ["y = x.numpy()", "return torch.Tensor.mean(y)"]),
        ("- custom.mine.op: $x", ["return torch.ops.mine.op(x)"]),
        ("- {torch.chunk: [$_, 2], out: [a, b]}\n- torch.add: [$_, $b]", ["a, b = torch.chunk(x, 2)", "return torch.add(a, b)"]),
        ("- {torch.chunk: [$_, 2], out: [a, _]}\n- torch.abs: $_", ["a, _ = torch.chunk(x, 2)", "return torch.abs(a)"]),
        ("- {torch.chunk: [$_, 2], out: [_, b]}\n- torch.sub: [$_, $b]", ["y, b = torch.chunk(x, 2)", "return torch.sub(y, b)"]),
        ("- {torch.chunk: [$_, 1], out: [a]}\n- torch.abs", ["a, = torch.chunk(x, 1)", "return torch.abs(a)"]),
        ("- {torch.abs: $x, out: a}\n- {torch.neg: $a, out: b}\n- torch.add: [$a, $b]", ["a = torch.abs(x)", "b = torch.neg(a)", "return torch.add(a, b)"]),
        ("- {torch.abs: $x, out: y}\n- torch.neg\n- torch.add: [$_, $y]", ["y = torch.abs(x)", "h = torch.neg(y)", "return torch.add(h, y)"]),
        ("- {torch.abs: $x, out: x}\n- torch.neg", ["x = torch.abs(x)", "return torch.neg(x)"]),
        ("- {torch.abs: $x, out: len}\n- builtin.len: $len\n- torch.add: [$_, $len]", ["len_ = torch.abs(x)", "y = len(len_)", "return torch.add(y, len_)"]),
        ("- {torch.abs: $x, out: match}\n- torch.add: [$_, '${match.dim()}']", ["match_ = torch.abs(x)", "return torch.add(match_, match_.dim())"]),
        # Python's own operators
        ("- operator.mul: [$_, 2]", ["return x * 2"]),
        ("- operator.mul: [$_, 0]", ["return x * 0"]),
        ("- operator.sub: [1, '${x.dim() + 1}']\n- torch.add: [$x, $_]", ["y = 1 - (x.dim() + 1)", "return torch.add(x, y)"]),
        ("- operator.pow: [-2, 2]\n- torch.add: [$x, $_]", ["y = (-2) ** 2", "return torch.add(x, y)"]),
        ("- operator.matmul: [$x, $x.T]", ["return x @ x.T"]),
        ("- operator.neg", ["return -x"]),
        ("- operator.invert: $x", ["return ~x"]),
        ("- operator.not_: $x", ["return not x"]),
        ("- operator.is_not: [$x, null]", ["return x is not None"]),
        ("- operator.lt: [$x, 0]", ["return x < 0"]),
        ("- operator.contains: [$x, 1]", ["return 1 in x"]),
        ("- operator.truth: $x", ["return bool(x)"]),
        ("- operator.abs", ["return abs(x)"]),
        ("- operator.index: 2\n- torch.add: [$x, $_]", ["y = (2).__index__()", "return torch.add(x, y)"]),
        ("- Tensor.add: [2, $x]", ["return (2).add(x)"]),
        ("- operator.getitem: [$x, '[:, 0]']", ["return x[:, 0]"]),
        ("- operator.getitem: [$x, 0]\n- operator.getitem: [$_, '[None]']", ["y = x[0]", "return y[None]"]),
        # statements
        ("- operator.iadd: [$x, 1]", ["x += 1", "return x"]),
        ("- torch.abs\n- operator.imul: [$_, 2]\n- torch.neg", ["y = torch.abs(x)", "y *= 2", "return torch.neg(y)"]),
        ("- {operator.iadd: [$x, 1], out: x}\n- torch.abs: $x", ["x += 1", "return torch.abs(x)"]),
        ("- {operator.iadd: [$x, 1], out: z}\n- torch.abs: $z", ["x += 1", "z = x", "return torch.abs(z)"]),
        ("- {torch.clone: $x, out: a}\n- {torch.abs: $x, out: _}\n- operator.iadd: [$a, 1]\n- torch.neg", ["a = torch.clone(x)", "y = torch.abs(x)", "a += 1", "return torch.neg(a)"]),
        ("- {torch.clone: $x, out: a}\n- torch.abs: $x\n- operator.setitem: [$a, 0, 1]\n- torch.add: [$_, $a]", ["a = torch.clone(x)", "y = torch.abs(x)", "a[0] = 1", "return torch.add(y, a)"]),
        ("- operator.setitem: [$x, '[:, 0]', $x]", ["x[:, 0] = x", "return x"]),
        ("- operator.setitem: ['$x[0]', '[1:]', 0]", ["x[0][1:] = 0", "return x"]),
        ("- {builtin.list: [[$x]], out: a}\n- operator.delitem: [$a, 0]\n- torch.abs: $x", ["a = list([x])", "del a[0]", "return torch.abs(x)"]),
        ("- torch.abs\n- builtin.print: [here]\n- torch.neg", ["y = torch.abs(x)", 'print("here")', "return torch.neg(y)"]),
        ("- torch.abs\n- torch._dynamo.graph_break", ["y = torch.abs(x)", "torch._dynamo.graph_break()", "return y"]),
        ('- {torch.native_dropout: {"*": [$x, 0.5], train: true}, out: [a, _]}\n- torch.abs', ["a, _ = torch.native_dropout(x, 0.5, train=True)", "return torch.abs(a)"]),
        ("- torch.abs\n- torch._check: '${x.dim() > 1}'", ["y = torch.abs(x)", "torch._check(x.dim() > 1)", "return y"]),
        ("- torch._check_is_size: {i: 3, max: 4}", ["torch._check_is_size(i=3, max=4)", "return x"]),
        ("- torch.abs\n- torch._check_tensor_all", ["y = torch.abs(x)", "torch._check_tensor_all(y)", "return y"]),
        ("- torch.abs\n- operator.assert_: '${x.dim() > 1}'", ["y = torch.abs(x)", "assert (x.dim() > 1)", "return y"]),
        ("- torch.abs\n- operator.assert_", ["y = torch.abs(x)", "assert y", "return y"]),
        ("- torch.abs\n- torch._dynamo.graph_break: []", ["y = torch.abs(x)", "torch._dynamo.graph_break()", "return y"]),
        ("- operator.call: [{$fn: {args: [t], chain: [torch.sin]}}, $x]", ["def fn1(t):", "    return torch.sin(t)", "return fn1(x)"]),
        # modules
        ("- nn.Linear: [3, 4]", ["return self.linear(x)"]),
        ("- nn.Linear: [3, 3]\n- nn.Linear: [3, 3]", ["y = self.linear(x)", "return self.linear_2(y)"]),
        ("- {nn.Linear: [3, 3], id: l}\n- self.l\n- self.l: [$x]", ["y = self.l(x)", "y = self.l(y)", "return self.l(x)"]),
        ("- {nn.PairwiseDistance: {p: 2}, call: [$x, $x]}", ["return self.pairwise_distance(x, x)"]),
        ('- {nn.LSTM: [3, 4], call: {"*": [$x], hx: null}, out: [a, _]}\n- torch.abs', ["a, _ = self.lstm(x, hx=None)", "return torch.abs(a)"]),
        ("- {nn.Linear: [3, 3], id: l}\n- torch.add: [$_, $self.l.weight]", ["y = self.l(x)", "return torch.add(y, self.l.weight)"]),
    ],
)  # fmt: skip
def test_steps(built: Built, steps: str, lines: list[str]) -> None:
    assert forward(built, steps) == lines


@pytest.mark.parametrize(
    ("word", "sign"),
    [("iadd", "+="), ("isub", "-="), ("imul", "*="), ("itruediv", "/="), ("ifloordiv", "//="), ("imod", "%="), ("ipow", "**="), ("imatmul", "@="), ("iand", "&="),
     ("ior", "|="), ("ixor", "^="), ("ilshift", "<<="), ("irshift", ">>=")],
)  # fmt: skip
def test_in_place_operators(built: Built, word: str, sign: str) -> None:
    assert forward(built, f"- operator.{word}: [$x, $x]") == [f"x {sign} x", "return x"]


@pytest.mark.parametrize(
    ("result", "line"),
    [
        ("$a", "return a"), ("[$a, $x]", "return [a, x]"), ("{k: $a, 'l m': [$x]}", 'return {"k": a, "l m": [x]}'), ("[$a, '${x.dim()}', 3]", "return [a, x.dim(), 3]"),
        ("$_", "return torch.neg_(a)"), ("[$_, $a]", "return [y, a]"),
    ],
)  # fmt: skip
def test_results(built: Built, result: str, line: str) -> None:
    assert forward(built, "- {torch.abs: $x, out: a}\n- torch.neg_", f"return: {result}")[-1] == line


def test_with(built: Built) -> None:
    chain = "- with: [{torch.autocast: {device_type: cpu, dtype: torch.bfloat16}}, torch.no_grad]\n  chain: [F.relu, {torch.abs: $_, out: a}]\n- torch.add: [$_, $a]"
    assert forward(built, chain) == [
        'with torch.autocast(device_type="cpu", dtype=torch.bfloat16), torch.no_grad():',
        "    y = F.relu(x)",
        "    a = torch.abs(y)",
        "return torch.add(a, a)",
    ]
    assert forward(built, "- with: [torch.no_grad]\n  chain: []") == ["with torch.no_grad():", "    pass", "return x"]


def test_if(built: Built) -> None:
    assert forward(built, "- if: '${x.dim() > 1}'\n  do: [torch.neg]\n  else: [torch.abs, torch.sin]\n- torch.cos") == [
        "if x.dim() > 1:", "    y = torch.neg(x)", "else:", "    y = torch.abs(x)", "    y = torch.sin(y)", "return torch.cos(y)",
    ]  # fmt: skip
    assert forward(built, "- if: $x\n  do: [torch.neg]") == [
        "if x:",
        "    y = torch.neg(x)",
        "else:",
        "    y = x",
        "return y",
    ]
    assert forward(built, "- torch.abs\n- if: $_\n  do: [torch.neg]") == [
        "y = torch.abs(x)",
        "if y:",
        "    y = torch.neg(y)",
        "return y",
    ]
    assert forward(built, "- if: $x\n  do: [{operator.iadd: [$x, 1]}]\n  else: []") == [
        "if x:",
        "    x += 1",
        "    y = x",
        "else:",
        "    y = x",
        "return y",
    ]


def test_names_of_both_branches_exist_afterwards(built: Built) -> None:
    two_branches = "- if: $x\n  do: [{torch.neg: $x, out: a}]\n  else: [{torch.abs: $x, out: a}]\n- torch.sin: $a"
    assert forward(built, two_branches)[-1] == "return torch.sin(a)"
    single_branch = "- if: $x\n  do: [{torch.neg: $x, out: a}]\n- torch.sin: $a"
    assert built.problems(f"chain:\n{single_branch}") == [
        "6:18: $a is not made on every way to here | line 5 makes it on one"
    ]


def test_nested_blocks(built: Built) -> None:
    assert forward(built, "- with: [torch.no_grad]\n  chain:\n  - if: $x\n    do:\n    - with: [torch.enable_grad]\n      chain: [torch.neg]") == [
        "with torch.no_grad():", "    if x:", "        with torch.enable_grad():", "            y = torch.neg(x)", "    else:", "        y = x", "return y",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "lines"),
    [
        ("{args: [t], chain: [torch.sin]}", ["def fn1(t):", "    return torch.sin(t)"]),
        ("{args: [t], chain: [torch.sin, torch.cos]}", ["def fn1(t):", "    h = torch.sin(t)", "    return torch.cos(h)"]),
        ("{args: [h], chain: [torch.sin, {torch.add: [$_, $h]}]}", ["def fn1(h):", "    t = torch.sin(h)", "    return torch.add(t, h)"]),
        ("{args: [t], chain: [{torch.sin: $t, out: h}, torch.cos, {torch.add: [$_, $h]}]}", ["def fn1(t):", "    h = torch.sin(t)", "    v = torch.cos(h)", "    return torch.add(v, h)"]),
        ("{args: [t, u], chain: [{torch.sub: [$u, $t]}], return: [$_, $t]}", ["def fn1(t, u):", "    h = torch.sub(u, t)", "    return [h, t]"]),
        ("{args: [t], chain: [{torch.add: [$t, $x]}]}", ["def fn1(t):", "    return torch.add(t, x)"]),
        ("{args: [x], chain: [torch.sin]}", ["def fn1(x):", "    return torch.sin(x)"]),
        ("{args: [len], chain: [{builtin.len: $len}]}", ["def fn1(len_):", "    return len(len_)"]),
        ("{chain: [{torch.sin: $x}]}", ["def fn1():", "    return torch.sin(x)"]),
        ("{args: [t], chain: [{operator.call: [{$fn: {args: [t], chain: [torch.sin]}}, $t]}]}", ["def fn1(t):", "    def fn2(t):", "        return torch.sin(t)", "    return fn2(t)"]),
        ("{args: [t], chain: [{operator.iadd: [$t, 1]}]}", ["def fn1(t):", "    t += 1", "    return t"]),
    ],
)  # fmt: skip
def test_functions(built: Built, function: str, lines: list[str]) -> None:
    statements = forward(built, f"- operator.call: [{{$fn: {function}}}, $x]")
    assert statements == [*lines, "return fn1(x)"]


def test_functions_have_names_of_their_own(built: Built) -> None:
    chain = (
        "- torch.cond: [true, {$fn: {args: [t], chain: [torch.sin]}}, {$fn: {args: [t], chain: [torch.cos]}}, [$fn1]]"
    )
    assert forward(built, chain, "inputs: {fn1: [2]}") == [
        "def fn2(t):", "    return torch.sin(t)", "def fn3(t):", "    return torch.cos(t)", "return torch.cond(True, fn2, fn3, [fn1])",
    ]  # fmt: skip


def test_modules_are_made_in_the_constructor(built: Built) -> None:
    keys = "params: {n: [4]}\nchain:\n- {nn.Linear: [3, $n], train: true}\n- {nn.Dropout: '${1 / n}', id: drop, train: false}\n- nn.LayerNorm: [['${n * 2 - 4}']]"
    assert built.part(keys, "__init__") == [
        "super().__init__()",
        "self.linear = nn.Linear(3, 4)",
        "self.drop = nn.Dropout(0.25)",
        "self.layer_norm = nn.LayerNorm([4])",
    ]
    assert built.part(keys, "make_model") == [
        "model = Model()",
        "model.eval()",
        "model.linear.train()",
        "model.drop.eval()",
        "return model",
    ]


def test_modules_made_of_modules(built: Built) -> None:
    keys = "chain:\n- {nn.TransformerEncoderLayer: [4, 2], id: layer}\n- nn.TransformerEncoder: [$self.layer, 2]"
    assert built.part(keys, "__init__")[-1] == "self.transformer_encoder = nn.TransformerEncoder(self.layer, 2)"


@pytest.mark.parametrize(
    ("entry", "action"),
    [
        ("{init: zeros}", "zero_()"), ("{init: ones}", "fill_(1)"), ("{init: {full: -0.5}}", "fill_(-0.5)"), ("{init: normal}", "normal_()"),
        ("{init: uniform}", "uniform_()"), ("{init: {uniform: [-1, '${n}']}}", "uniform_(-1, 3)"), ("{init: {normal: [1, 0.5]}}", "normal_(1, 0.5)"), ("{init: integer}", "random_(-8, 9)"),
        ("{init: {randint: [0, 5]}}", "random_(0, 5)"), ("{values: 2}", "copy_(torch.tensor(2))"),
        ("{values: [[1, $n], [.nan, 4.0]]}", 'copy_(torch.tensor([[1, 3], [float("nan"), 4.0]]))'),
    ],
)  # fmt: skip
def test_modules_are_filled(built: Built, entry: str, action: str) -> None:
    keys = f"params: {{n: [3]}}\nchain:\n- {{nn.Linear: [3, $n], id: first, state: {{weight: {entry}}}}}"
    assert built.part(keys, "__init__")[-2:] == [
        "self.first = nn.Linear(3, 3)",
        f'self.first.state_dict()["weight"].{action}',
    ]


def test_modules_are_filled_before_the_model_runs(built: Built) -> None:
    problems = built.problems("chain:\n- {nn.Linear: [3, 3], state: {bias: {values: $x}}}")
    assert problems == ["4:35: 'bias' is filled before the model runs, with numbers and params"]


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ("dtypes: [bfloat16]", "self.linear = nn.Linear(3, 3).to(torch.bfloat16)"), ("dtypes: [float32]", "self.linear = nn.Linear(3, 3)"),
        ("dtypes: [int64]", "self.linear = nn.Linear(3, 3)"), ("dtypes: [float32]\nparam_dtype: float64", "self.linear = nn.Linear(3, 3).to(torch.float64)"),
        ("dtypes: [float16]\nparam_dtype: float32", "self.linear = nn.Linear(3, 3)"),
    ],
)  # fmt: skip
def test_dtypes_of_modules(built: Built, keys: str, line: str) -> None:
    assert built.part(f"{keys}\nchain:\n- nn.Linear: [3, 3]", "__init__")[-1] == line


def test_a_modules_own_dtype_is_kept(built: Built) -> None:
    assert built.part(
        "dtypes: [float16]\nchain:\n- nn.Linear: {in_features: 3, out_features: 3, dtype: torch.float64}", "__init__"
    )[-1].endswith("dtype=torch.float64)")


@pytest.mark.parametrize(
    ("chain", "messages"),
    [
        ("- torch.add: [$_, $a]\n- {torch.abs: $x, out: a}", ["4:21: $a is used before it is made | line 5 makes it"]),
        ("- torch.add: [$x, $xx]", ["4:21: nothing is called 'xx' | did you mean 'x'?"]),
        ("- {torch.abs: $x, out: a}\n- torch.neg: $x", ["4:6: 'a' is made here and never used | write _ for what is not needed, or take the step out"]),
        ("- F.relu\n- torch.add: [$x, 1]", ["4:5: the value of F.relu is never used | write $_ where it is meant, name it by out:"]),
        ("- nn.Linear: [2, 2]\n- {F.relu: {\"*\": [$x], inplace: false}, out: a}\n- torch.add: [$a, $x]", [
            "4:5: the value of nn.Linear is never used"]),
        ("- {torch.chunk: [$x, 2], out: [a, b]}\n- torch.abs", ["4:6: 'b' is made here and never used"]),
        ("- operator.add: $x", ["4:5: operator.add takes 2 operands, not 1"]),
        ("- operator.neg: [$x, $x]", ["4:5: operator.neg takes 1 operands, not 2"]),
        ('- operator.add: {"*": [$x, 1], k: 2}', ["4:5: operator.add takes 2 operands, not 2"]),
        ("- operator.call: []\n- torch.abs: $x", ["4:5: operator.call takes some operands, not 0"]),
        ("- operator.getitem: $x", ["4:5: operator.getitem takes 2 operands, not 1"]),
        ("- operator.setitem: [$x, 0]\n- torch.abs: $x", ["4:5: operator.setitem takes 3 positional arguments | the first is a reference"]),
        ("- operator.iadd: [3, 1]\n- torch.abs: $x", ["4:5: operator.iadd takes 2 positional arguments"]),
        ("- operator.iadd\n- torch.abs: $x", ["4:5: operator.iadd takes 2 positional arguments"]),
        ("- Tensor.sum: {dim: $x}\n- torch.abs: $x", ["4:5: the first positional of Tensor.sum is the tensor | such as {"]),
        ("- Tensor.shape: [$x, 1]", ["4:5: Tensor.shape is an attribute and takes the tensor alone"]),
        ('- torch._check: [true, $x]', ["4:5: torch._check takes no message here | leave it out"]),
        ('- torch._check_value: {cond: true, message: $x}', ["4:5: torch._check_value takes no message here"]),
        ("- operator.assert_: [$x, no]", ["4:5: operator.assert_ takes 1 operands, not 2"]),
        ("- builtin.assert: $x", ["4:5: 'builtin.assert' cannot be written in Python: a part of it is a keyword | write operator.assert_"]),
        ("- self.l: $x", ["4:5: self has no 'l' | an earlier step says id: l"]),
        ("- {nn.Linear: [3, 3], id: l}\n- {nn.Linear: [3, 3], id: l}", ["5:6: self already has a 'l' | ids and state share their names"]),
        ("- {torch.abs: $x, out: self.c}", ["4:6: self has no 'c' to write to | declare it: state: {c: ...}"]),
        ("- nn.Linear: ['${x.shape[1]}', 4]", ["4:5: nn.Linear is made before the model runs, out of numbers, params and modules | call: holds the arguments of the call"]),
        ("- nn.Linear: [$_, 4]", ["4:5: nn.Linear is made before the model runs"]),
        ("- {nn.TripletMarginWithDistanceLoss: {distance_function: {$fn: {args: [t, u], chain: [{torch.sub: [$t, $u]}]}}}, call: [$x, $x, $x]}", ["4:6: nn.TripletMarginWithDistanceLoss is made before"]),
        ("- with: [torch.add]\n  chain: [F.relu]", ["4:12: 'torch.add' is no context that a case may enter | did you mean 'torch.no_grad'?"]),
        ("- with: [torch.nograd]\n  chain: [F.relu]", ["4:12: 'torch.nograd' is no context that a case may enter | did you mean 'torch.no_grad'?"]),
        ("- {torch.abs: $x, out: a}\n- operator.call: [{$fn: {args: [t], chain: [{torch.add: [$t, $a], out: a}]}}, $x]", ["5:48: $a belongs to the chain around this function"]),
        ("- operator.call: [{$fn: {args: [t], chain: [{operator.iadd: [$x, $t]}]}}, $x]", ["4:48: $x belongs to the chain around this function"]),
        ("- operator.call: [{$fn: {chain: [torch.sin]}}, $x]", ["4:36: $_ has no value here: there is no input and no step before"]),
        ("- operator.call: [{$fn: {args: [t], chain: [{torch.sin: $t, out: q}, {torch.cos: $t}]}}, $x]", ["4:48: 'q' is made here and never used"]),
    ],
)  # fmt: skip
def test_problems(built: Built, chain: str, messages: list[str]) -> None:
    problems = built.problems(f"chain:\n{chain}")
    expected = [":".join([m.split(":")[0], str(int(m.split(":")[1]) + 2), *m.split(":")[2:]]) for m in messages]
    assert [f[: len(w)] for f, w in zip(problems, expected, strict=True)] == expected


DROPPED = {
    "before a return of another": ("- F.relu\nreturn: $x", "5:7"),
    "of a list": ("- F.relu\n- torch.neg\nreturn: [$x]", "6:7"),
    "before a print and a write": (
        "- F.relu\n- builtin.print: [1]\n- operator.setitem: [$x, 0, 1]\n- torch.neg: $x",
        "5:7",
    ),
    "before one in place": ("- F.relu\n- operator.iadd: [$x, 1]", "5:7"),
    "in a block": ("- with: [torch.no_grad]\n  chain: [F.relu, {torch.neg: $x}]", "6:15"),
    "before the end of a block": ("- with: [torch.no_grad]\n  chain: [F.relu]\n- torch.neg: $x", "6:15"),
    "in a branch": ("- if: true\n  do: [F.relu, {torch.neg: $x}]", "6:12"),
    "in a function": ("- operator.call: [{$fn: {args: [t], chain: [F.relu, {torch.neg: $t}]}}, $x]", "5:49"),
    "an attribute": ("- Tensor.shape\n- torch.neg: $x", "5:7"),
    "a module": ("- nn.Linear: [2, 2]\n- torch.neg: $x", "5:7"),
}


@pytest.mark.parametrize(("chain", "place"), DROPPED.values(), ids=DROPPED)
def test_a_value_that_nothing_reads(built: Built, chain: str, place: str) -> None:
    steps, _, result = chain.partition("\nreturn: ")
    keys = f"chain:\n{steps}" + (f"\nreturn: {result}" if result else "")
    (message,) = built.problems(f"grad: off\n{keys}")
    assert message.startswith(f"{place}: the value of ") and " is never used | " in message
    assert built.problems(f"expect: {{raises: {{type: ValueError}}}}\n{keys}") == []  # it may be what raises


@pytest.mark.parametrize(
    "step",
    [
        "{F.relu: $x, out: _}", "torch.relu_", "Tensor.add_: [$x, 1]", "aten.add_.Tensor: [$x, 1]", "operator.iadd: [$x, 1]",
        "operator.setitem: [$x, 0, 1]", "torch._dynamo.graph_break", "torch._check: true", "operator.assert_: true", "builtin.print: [1]", "builtin.len: $x", "numpy.tanh: $x",
        "custom.mine.log: $x", 'torch.neg: {"*": [$x], out: $x}', "F.relu: [$x, true]", "{nn.ReLU: {inplace: true}}",
        "nn.BatchNorm1d: [2]", "F.dropout", "torch.rand_like", "Tensor.item", "Tensor.to: [$self, cpu]",
        "{nn.Linear: [2, 2], id: later}", "{nn.Identity: , train: true}", "operator.call: [{$fn: {args: [t], chain: [torch.sin]}}, $x]",
    ],
)  # fmt: skip
def test_a_step_that_may_do_more_than_give_a_value(built: Built, step: str) -> None:
    assert built.problems(f"chain:\n- {step}\n- torch.neg: $x") == []


@pytest.mark.parametrize(
    "chain",
    [
        "[F.relu, {torch.add: [$x, $_]}]", "[F.relu, {builtin.print: [1]}, torch.neg]", '[F.relu, {operator.getitem: [$x, "[$_]"]}]',
        "[F.relu, {torch.mul: ['${_.shape[0]}', $x]}]", "[F.relu, nn.ReLU]", "[F.relu, {nn.ReLU: , call: [$_]}]",
        "[F.relu, {if: $_, do: [{torch.neg: $x}]}]", "[F.relu, {if: true, do: [{torch.neg: $x}], else: [torch.exp]}]",
        "[F.relu, {with: [torch.no_grad], chain: [torch.exp]}]", "[{with: [torch.no_grad], chain: [F.relu]}, torch.exp]",
        "[{if: true, do: [F.relu]}, torch.exp]",
    ],
)  # fmt: skip
def test_a_value_that_something_reads(built: Built, chain: str) -> None:
    assert [message for message in built.problems(f"chain: {chain}") if "never used" in message] == []


def test_params_are_not_changed(built: Built) -> None:
    for step in ("operator.iadd: [$n, 1]", "operator.setitem: [$n, 0, 1]", "operator.delitem: [$n, 0]"):
        (problem,) = built.problems(f"params: {{n: [2]}}\nchain:\n- {step}\n- torch.abs: $x")
        assert problem.startswith("5:7: $n is a param, which no step changes")


def test_a_case_without_inputs_has_no_previous_value(built: Built) -> None:
    assert built.problems("inputs: {}\nchain:\n- torch.abs") == [
        "5:7: $_ has no value here: there is no input and no step before"
    ]
    assert built.part("inputs: {}\nchain:\n- torch.ones: [2]") == ["return torch.ones(2)"]


def test_module_names() -> None:
    assert [_snake(n) for n in ("ReflectionPad3d", "LSTM", "BatchNorm1d", "GELU", "PReLU", "Conv2d", "L1Loss", "RNNCell")] == [
        "reflection_pad3d", "lstm", "batch_norm1d", "gelu", "p_re_lu", "conv2d", "l1_loss", "rnn_cell",
    ]  # fmt: skip
    modules = Modules(ids={"linear"})
    assert [modules.name("linear"), modules.name("linear"), modules.name("conv")] == ["linear_2", "linear_3", "conv"]


@pytest.mark.parametrize("step", ["Tensor.data: $_", "torch.add: [$_, $x.T.data]", "operator.iadd: [$_.data, 1]"])
def test_a_case_that_calls_numpy_reaches_no_data(built: Built, step: str) -> None:
    """An array's ``data`` is its memory: an assignment frees it, and ``torch.asarray`` takes pointers in it for numbers."""
    problems = built.problems(f"inputs: {{x: [3]}}\nchain: [Tensor.numpy, {{{step}}}]")
    assert problems and all(
        "a case that calls numpy may not reach 'data' | Tensor.detach" in problem for problem in problems
    )
    assert built.problems(f"inputs: {{x: [3]}}\nchain: [torch.sin, {{{step}}}]") == []
