"""``runner.builder.source``: a variant as Python. Above all: that nothing in a YAML file becomes code."""

# ruff: noqa: RUF001 - letters that look alike are what is tested

from __future__ import annotations

import ast
import dataclasses
import json
import re
import time
from pathlib import Path

import pytest
from built import Built, audit, folder, strings

from runner.builder.source import build, check
from runner.cases.expand import expand
from runner.cases.model import Literal, Value
from runner.cases.suites import Reader
from runner.cases.walk import change_parts
from runner.cases.yaml.values import split_lines
from runner.session.collect import load

MARK = "PWNED"
CODE = f"__import__('os').system('{MARK}')"

# --- the whole file ---


def test_a_whole_source(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built.folder)
    assert (
        built.source("""
        doc: Two lines
        params: {n: [2, 5]}
        inputs: {x: ["${n}", 3]}
        chain:
          - nn.Linear: [3, 4]
          - F.relu
        calls: [{params: {n: 7}}, {}]
    """)
        == '''"""a[n=2,float32,cpu]

Two lines

Written from a.spec.yaml:2.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x):
        y = self.linear(x)
        return F.relu(y)


def make_model():
    model = Model()
    model.eval()
    return model


def make_inputs():
    x = torch.randn(2, 3)
    return [x]


def make_inputs_1():
    x = torch.randn(7, 3)
    return [x]


CALLS = [make_inputs, make_inputs_1, make_inputs]
'''
    )


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ("train: true", ["model = Model()", "model.train()", "return model"]),
        ("devices: [cuda]", ["model = Model()", 'model.to("cuda")', "model.eval()", "return model"]),
        (
            "chain:\n- {nn.Dropout: null, train: true}\ntrain: false",
            ["model = Model()", "model.eval()", "model.dropout.train()", "return model"],
        ),
        (
            "chain:\n- {nn.Dropout: null, train: false}\ntrain: true",
            ["model = Model()", "model.train()", "model.dropout.eval()", "return model"],
        ),
    ],
)
def test_make_model(built: Built, keys: str, lines: list[str]) -> None:
    assert built.part(keys, "make_model") == lines


@pytest.mark.parametrize(
    ("steps", "imports"),
    [
        ("- torch.abs", ["import torch"]), ("- F.relu", ["import torch", "import torch.nn.functional as F"]), ("- nn.ReLU", ["import torch", "from torch import nn"]),
        ("- torch.nn.utils.rnn.pad_sequence: [[$x]]", ["import torch", "import torch.nn.utils.rnn"]), ("- Tensor.numpy\n- numpy.abs", ["import torch", "import numpy"]),
        ("- Tensor.numpy", ["import torch"]), ("- torch.distributions.Normal: [0, $x]\n- operator.call: [$_.sample]", ["import torch", "import torch.distributions"]),
        ("- torch.utils.checkpoint.checkpoint: [{$fn: {args: [t], chain: [torch.sin]}}, $x]", ["import torch", "import torch.utils.checkpoint"]),
    ],
)  # fmt: skip
def test_imports(built: Built, steps: str, imports: list[str]) -> None:
    text = built.source(f"chain:\n{steps}")
    assert [line for line in text.split("\n") if re.match(r"(import|from) ", line)] == imports
    audit(text)


def test_every_line_knows_its_place(built: Built) -> None:
    (source,) = built.sources("inputs: {x: [2, 3]}\nchain:\n- nn.Linear: [3, 4]\n- F.relu\n- torch.abs: $_")
    lines = source.text.split("\n")
    assert len(source.places) == len(lines) - 1
    at = {line.strip(): source.place(number) for number, line in enumerate(lines, 1)}
    assert [
        at[text].line
        for text in (
            "x = torch.randn(2, 3)",
            "self.linear = nn.Linear(3, 4)",
            "y = self.linear(x)",
            "y = F.relu(y)",
            "return torch.abs(y)",
        )
    ] == [3, 5, 5, 6, 7]  # type: ignore[union-attr]
    assert source.place(None) is None and source.place(1) is None
    assert source.place(len(lines)) == at["x = torch.randn(2, 3)"]  # the nearest line above


# --- what the whole case must hold to ---


@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        ("inputs: {x: [2], z: [3]}\nchain: [{torch.abs: $x}]", ["3:22: input 'z' is never used | take it out, or use it in the chain"]),
        ("state: {c: [2]}", ["3:13: state 'c' is never used | $self.c or out: self.c uses it"]),
        ("params: {n: [1], k: [2]}\nchain: [{torch.add: [$x, $k]}]", ["2:11: nothing in case 'a' uses the axis 'n' | use it as ${n}, or take it out"]),
        ("params: {n: [3, 4]}\ncalls: [{params: {n: 5}}]\nchain: [{torch.add: [$x, $n]}]", ["4:13: param 'n' is a constant of the chain, so a call cannot change it | write ${x.shape[0]} in the chain"]),
        ("calls: [{}, {params: {n: 5}}]", ["3:17: a call sets param 'n', which the case does not have"]),
        ("calls: [{inputs: {z: [2]}}]", ["3:23: a call replaces input 'z', which the case does not have"]),
        ("chain: [{torch.abs: $xx}]", ["3:25: nothing is called 'xx' | did you mean 'x'?", "4:14: input 'x' is never used"]),
        ("chain: [{torch.abss: $x}]", ["3:14: unknown operator 'torch.abss' | did you mean 'torch.abs'?"]),
        ("return: $z", ["3:13: nothing is called 'z'"]),
        ("return: [$x, $self.c]", ["3:18: self has no 'c'"]),
    ],
)  # fmt: skip
def test_problems(built: Built, keys: str, messages: list[str]) -> None:
    problems = built.problems(keys)
    assert [f[: len(m)] for f, m in zip(problems, messages, strict=True)] == messages


@pytest.mark.parametrize(
    "keys",
    [
        "inputs: {x: [2], b: {shape: [2], hidden: true}, v: {view_of: b}}\nchain: [{torch.add: [$x, $v]}]",
        "params: {n: [2, 3]}\ninputs: {x: ['${n}']}\ncalls: [{params: {n: 5}}]",
        "params: {n: [3]}\ncalls: [{params: {n: 3}}]\nchain: [{torch.add: [$x, $n]}]",
        "params: {n: [3]}\nknown: [{params: {n: 3}, reason: x}]",
        "state: {c: {shape: [2], init: zeros}}\nchain: [{torch.abs: $x, out: self.c}]",
        "state: {c: [2, 3]}\nchain: [{torch.add: [$x, '${self.c.shape[0]}']}]",
        "chain: [{torch.abs: $x, out: a}]\nreturn: [$a, $x]",
        "params: {n: [2]}\nstate: {c: ['${n}']}\nchain: [{torch.add: [$x, $self.c]}]",
    ],
)  # fmt: skip
def test_what_is_used(built: Built, keys: str) -> None:
    assert built.problems(keys) == []


def test_calls_with_inputs_of_their_own(built: Built) -> None:
    text = built.source(
        "inputs: {x: [2], b: [3]}\nchain: [{builtin.print: [$x, $b]}]\ncalls: [{inputs: {b: {values: [1]}}}]"
    )
    assert "def make_inputs_1():\n    x = torch.randn(2)\n    b = torch.tensor([1])\n    return [x, b]" in text
    assert "CALLS = [make_inputs, make_inputs_1]" in text


def test_checking_writes_every_size_out(built: Built) -> None:
    variants = built.variants("params: {n: [1, 2, 0]}\ninputs: {x: ['${4 // n}']}")
    assert [d.message for d in check(variants[0].case, variants, [])[0]] == ["in ${4 // n}: division by zero"]
    assert check(variants[0].case, variants[:2], [])[0] == []


def test_diagnostics_carry_their_line(built: Built) -> None:
    (source,) = built.sources("chain: [{torch.abss: $x}]")
    assert source.diagnostics[0].text == "    chain: [{torch.abss: $x}]"


# --- modules in Python ---


def test_a_persons_own_module(built: Built) -> None:
    built.write(
        "m.py",
        '"""Doc."""\n\nfrom __future__ import annotations\nfrom torch import nn\n\n\nclass Net(nn.Linear):\n    pass\n',
    )
    keys = "module: {file: m.py, name: Net, args: {in_features: 3, out_features: '${n}', bias: false}}\nparams: {n: [4]}\ninputs: {x: [2, 3]}"
    (source,) = built.sources(keys)
    assert source.diagnostics == ()
    compile(source.text, "case.py", "exec")  # __future__ stands where it must
    assert (
        "    model = Net(in_features=3, out_features=4, bias=False)\n" in source.text
        and "\nimport torch\n" in source.text
    )
    place = source.place(7)
    assert place is not None and place.file.endswith("m.py") and place.line == 7


@pytest.mark.parametrize(
    ("keys", "line"),
    [("", ""), (", param_dtype: float32", "    model.to(torch.float32)\n"), (", param_dtype: int8", "")],
)
def test_the_dtype_of_parameters_casts_a_persons_own_module(built: Built, keys: str, line: str) -> None:
    built.write("m.py", "import torch\nclass Net(torch.nn.Module): ...\n")
    (source,) = built.sources("module: {file: m.py, name: Net}\ninputs: {x: [2]}" + keys.replace(", ", "\n"))
    assert f"    model = Net()\n{line}    model.eval()\n" in source.text


FUNCTIONS = """import torch
def gated(x, w, scale=1.0): return torch.sigmoid(x @ w) * scale
def build(width=3): return torch.nn.Linear(width, width)
"""


@pytest.mark.parametrize(
    ("keys", "made", "called"),
    [
        ("gated}\ninputs: {w: [3, 3], x: [2, 3]}", "FunctionModel()", "gated(*args, **kwargs)"),
        ("gated, args: {scale: 2.0}}\ninputs: {w: [3, 3], x: [2, 3]}", "FunctionModel()", "gated(*args, **kwargs, scale=2.0)"),
        ("gated, args: {w: 2.0}}\ninputs: {x: [2, 3]}", "FunctionModel()", "gated(*args, **kwargs, w=2.0)"),
        ("build}\ninputs: {width: [2, 3]}", "build()", ""),
        ("build, args: {width: 4}}\ninputs: {x: [2, 4]}", "build(width=4)", ""),
    ],
)  # fmt: skip
def test_a_function_makes_the_model_or_is_the_model(built: Built, keys: str, made: str, called: str) -> None:
    built.write("m.py", FUNCTIONS)
    text = built.source(f"module: {{file: m.py, name: {keys}")
    assert f"    model = {made}\n" in text
    assert (f"        return {called}\n" in text) if called else ("FunctionModel" not in text)
    assert "    return [x, w]\n" in text or "w: [3, 3]" not in keys


def test_a_parameter_that_nothing_gives_is_said(built: Built) -> None:
    built.write("m.py", FUNCTIONS)
    assert built.problems("module: {file: m.py, name: gated}\ninputs: {x: [2, 3]}") == [
        "3:13: gated takes w, which nothing gives | "
        "args: where the function makes the model; inputs of these names where it is the model"
    ]


def test_the_class_around_a_function_has_a_name_of_its_own(built: Built) -> None:
    built.write("m.py", "class FunctionModel: ...\ndef f(x): return x\n")
    assert "    model = FunctionModel_()\n" in built.source("module: {file: m.py, name: f}\ninputs: {x: [2]}")


FORWARD = """import torch
class Net(torch.nn.Module):
    def forward(self, ids, mask=None, *, labels=None): ...
"""


def test_inputs_of_a_persons_own_module_go_by_name(built: Built) -> None:
    built.write("m.py", FORWARD)
    keys = (
        "module: {file: m.py, name: Net%s}\ninputs: {labels: [3], h: {shape: [2], hidden: true}, ids: [2], mask: [2]}"
    )
    text = built.source(keys % "")
    assert "    labels = torch.randn(3)\n" in text and text.index("labels = ") < text.index("ids = ")
    assert "    return [ids, mask, labels]\n" in text and text.endswith('\n\n\nKEYWORD_INPUTS = ["labels"]\n')
    text = built.source(keys % ", positional: true")
    assert "    return [labels, ids, mask]\n" in text and "KEYWORD_INPUTS" not in text
    problems = built.problems("module: {file: m.py, name: Net}\ninputs: {ids: [2], masks: [2]}")
    assert problems == ["4:24: forward of Net has no argument 'masks' | did you mean 'mask'?"]


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ("dtypes: [float32, bfloat16]\nparam_dtype: $dtype", ["    model.to(torch.float32)", "    model.to(torch.bfloat16)"]),
        ("params: {w: [torch.float16]}\nparam_dtype: $w", ["    model.to(torch.float16)"]),
        ("dtypes: [int64]\nparam_dtype: $dtype", ["    model.eval()"]),
    ],
)  # fmt: skip
def test_the_dtype_of_parameters_is_an_axis(built: Built, keys: str, lines: list[str]) -> None:
    built.write("m.py", "import torch\nclass Net(torch.nn.Module): ...\n")
    sources = built.sources(f"module: {{file: m.py, name: Net}}\ninputs: {{x: {{shape: [2], dtype: int64}}}}\n{keys}")
    assert [source.text.split("\n")[6] for source in sources] == lines
    assert all(source.diagnostics == () for source in sources)


def test_the_dtype_of_parameters_of_a_chain_is_an_axis_too(built: Built) -> None:
    chain = "inputs: {x: [2, 3]}\nchain: [{nn.Linear: [3, 3]}]"
    assert ".to(torch.float16)" in built.source(f"params: {{w: [float16]}}\nparam_dtype: $w\n{chain}")
    assert ".to(torch.float64)" in built.source(f"dtypes: [float64]\nparam_dtype: $dtype\n{chain}")


@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        ("module: {file: m.py, name: Net}\ninputs: {x: {shape: [2], dtype: int64}}", ["param_dtype: $dtype casts the model"]),
        ("module: {file: m.py, name: Net}\ninputs: {x: [2]}", []),
        ("module: {file: m.py, name: Net}\nparam_dtype: $dtype\ninputs: {x: {shape: [2], dtype: int64}}", []),
        ("chain: [{torch.add: [$x, 1]}]\ninputs: {x: {shape: [2], dtype: int64}}", ["take one of them out"]),
        ("chain: [{torch.add: [$x, 1]}]\ninputs: {x: [2]}", []),
        ("chain: [{Tensor.to: [$x, $dtype]}]\ninputs: {x: {shape: [2], dtype: int64}}", []),
    ],
)  # fmt: skip
def test_dtypes_that_change_nothing_are_an_error(built: Built, keys: str, messages: list[str]) -> None:
    built.write("m.py", "import torch\nclass Net(torch.nn.Module): ...\n")
    variants = built.variants(f"dtypes: [float32, float64]\n{keys}")
    for asked in (variants, variants[:1]):
        diagnostics = check(variants[0].case, asked, [])[0]
        assert [d.hint for d in diagnostics] == messages
        text = "dtypes: float32 and float64 give case 'a' the same model and the same inputs"
        assert [d.message for d in diagnostics] == [text] * len(messages)


def test_a_function_is_no_argument_of_a_module(built: Built) -> None:
    built.write("m.py", "import torch\nclass Net(torch.nn.Module): ...\n")
    problems = built.problems("module: {file: m.py, name: Net, args: {f: {$fn: {args: [t], chain: [torch.sin]}}}}")
    assert problems == ["3:53: a function has no place in an input"]


def test_a_module_needs_the_word_of_who_runs_it(built: Built) -> None:
    built.write("m.py", f"{CODE}\nclass Net: ...\n")
    path = str(built.write("a.spec.yaml", built.case_text("module: {file: m.py, name: Net}\ninputs: {x: [2]}")))
    (diagnostic,) = load([path]).diagnostics
    assert diagnostic.message == "case 'a' brings Python of its own" and diagnostic.span.line == 3
    assert load([path], allow_python=True).diagnostics == ()


# --- attacks: each place that takes text, with each text that could end a literal ---

PAYLOADS = [
    CODE,
    f'"); {CODE}; ("',
    f"'); {CODE}; ('",
    f'"""\n{CODE}\n"""',
    f"'''\n{CODE}\n'''",
    f'\\"""\n{CODE}\n"""',
    f'""""\n{CODE}\n"""',
    "\\",
    '"',
    '\\"',
    "'''",
    '"""',
    f"\n{CODE}\n",
    f"\r{CODE}\r",
    f"\x0c{CODE}",
    f"\x00{CODE}",
    f"\u2028{CODE}",
    f"\x85{CODE}",
    "\\N{foo}",
    "\\u12",
    "\\x",
    f"x\n    {CODE}",
    f"x, y={CODE}",
    f"x): {CODE} #",
    f"x=1; {CODE}",
    f"lambda: {CODE}",
    "__class__",
    "__import__",
    "tｏrch",
    "ｅxec",
    "é",
    "class",
    "None",
    "self",
    "torch",
    "$x.__class__.__mro__",
    f"${{{CODE}}}",
    "${x.__class__}",
    "${self.__dict__}",
    f"[{CODE}]",
    f"[0]; {CODE}",
    f"[0:{CODE}]",
    f"torch.{CODE}",
    "torch.ops.aten.from_file",
    "coding: rot13",
    "#",
    "{0}",
    "%s",
    "9" * 5000,
    "1e999",
    "-1",
    "",
]

PLACES = {
    "doc": "doc: %s",
    "tag": "tags: [%s]",
    "link": "links: [%s]",
    "param": "params: {n: [%s, 1]}\nchain: [{builtin.print: $n}]",
    "param in arithmetic": "params: {n: [%s, 1]}\nchain: [{builtin.print: ['${n}', '${max(n, n)}', '${x.dim() * n}']}]",
    "param with an attribute": "params: {n: [%s, 1]}\nchain: [{builtin.print: [$n.real, '$n[0]']}, {operator.neg: $n}, {Tensor.abs: $n}]",
    "param in a size": "params: {n: [%s]}\ninputs: {x: ['${n}']}",
    "param name": "params: {%s: [1, 2]}\nchain: [F.relu, {torch.add: [$_, 1]}]",
    "exclude": "params: {n: [1, 2]}\nexclude: [{n: %s}]\nchain: [{torch.add: [$x, $n]}]",
    "argument": "chain: [{torch.einsum: [%s, $x]}]",
    "keyword value": "chain: [{torch.add: {'*': [$x, 1], alpha: %s}}]",
    "keyword": "chain: [{torch.add: {'*': [$x, 1], %s: 2}}]",
    "key of a table": "chain: [{builtin.print: [{%s: $x}]}]",
    "value of a table": "chain: [{builtin.print: [{a: [%s], b: $x}]}]",
    "text": "chain: [{builtin.print: [{$text: %s}, $x]}]",
    "tensor": "chain: [{torch.add: [$x, {$tensor: [%s]}]}]",
    "option of a tensor": "chain: [{torch.add: [$x, {$tensor: [1], dtype: %s}]}]",
    "index": "chain: [{operator.getitem: [$x, %s]}]",
    "index of an assignment": "chain: [{operator.setitem: [$x, %s, 1]}, {torch.abs: $x}]",
    "bare argument": "chain: [{torch.abs: %s}, {torch.add: [$_, $x]}]",
    "operator": "chain: [%s]",
    "operator with arguments": "chain: [{%s: $x}]",
    "operator in a function": "chain: [{operator.call: [{$fn: {args: [t], chain: [{%s: $t}]}}, $x]}]",
    "torch operator in a function": "chain: [{operator.call: [{$fn: {args: [t], chain: [{'torch.'%s: $t}]}}, $x]}]",
    "custom operator in a function": "chain: [{operator.call: [{$fn: {args: [t], chain: [{'custom.a.'%s: $t}]}}, $x]}]",
    "submodule in a function": "chain: [{operator.call: [{$fn: {args: [t], chain: [{'self.'%s: $t}]}}, $x]}]",
    "out": "chain: [{torch.abs: $x, out: %s}]",
    "out in a function": "chain: [{operator.call: [{$fn: {args: [t], chain: [{torch.abs: $t, out: %s}, torch.neg]}}, $x]}]",
    "out of several": "chain: [{torch.chunk: [$x, 1], out: [_, %s]}]",
    "out to self": "state: {c: [2]}\nchain: [{torch.abs: $x, out: 'self.'%s}, {torch.add: [$_, $self.c]}]",
    "id": "chain: [{nn.ReLU: null, id: %s}]",
    "constructor": "chain: [{nn.Upsample: {mode: %s}}]",
    "argument of a function": "chain: [{operator.call: [{$fn: {args: [%s], chain: [torch.sin]}}, $x]}]",
    "result of a function": "chain: [{operator.call: [{$fn: {args: [t], chain: [torch.sin], return: %s}}, $x]}]",
    "context": "chain: [{with: [{torch.autocast: {device_type: %s}}], chain: [F.relu]}]",
    "keyword of a context": "chain: [{with: [{torch.autocast: {%s: cpu}}], chain: [F.relu]}]",
    "condition": "chain: [{if: %s, do: [F.relu]}]",
    "return": "return: [%s, $x]",
    "return key": "return: {%s: $x}",
    "input name": "inputs: {x: [2], %s: [2]}\nchain: [{torch.add: [$x, 1]}]",
    "state name": "state: {%s: [2]}",
    "python input": "inputs: {x: {python: %s}}",
    "python input, deep": "inputs: {x: {python: {%s: [%s]}}}",
    "python state": "state: {c: {python: %s}}\nchain: [{torch.add: [$x, $self.c]}]",
    "full": "inputs: {x: {shape: [2], init: {full: %s}}}",
    "uniform": "inputs: {x: {shape: [2], init: {uniform: [%s, 1]}}}",
    "init": "inputs: {x: {shape: [2], init: %s}}",
    "values": "inputs: {x: {values: [%s]}}",
    "value": "inputs: {x: {values: %s}}",
    "size": "inputs: {x: [%s]}",
    "dtype of an input": "inputs: {x: {shape: [2], dtype: %s}}",
    "device of an input": "inputs: {x: {shape: [2], device: %s}}",
    "view_of": "inputs: {x: {view_of: %s}}",
    "layout": "inputs: {x: {shape: [2], layout: [{Tensor.to: [$_, %s]}]}}",
    "dtypes": "dtypes: [%s]",
    "devices": "devices: [%s]",
    "param_dtype": "param_dtype: %s",
    "autocast": "autocast: %s",
    "call": "params: {n: [1]}\ncalls: [{params: {n: %s}}]\nchain: [F.relu]",
    "module name": "module: {file: m.py, name: %s}\ninputs: {x: [2]}",
    "module argument": "module: {file: m.py, name: Net, args: {%s: 1}}\ninputs: {x: [2]}",
    "module argument value": "module: {file: m.py, name: Net, args: {a: %s}}\ninputs: {x: [2]}",
    "module file": "module: {file: %s, name: Net}\ninputs: {x: [2]}",
    "reference": "chain: [{torch.abs: '$'%s}]",
    "reference attribute": "chain: [{torch.abs: '$x.'%s}]",
    "attribute of self": "chain: [{torch.add: [$x, '$self.'%s]}]",
    "config": "config: {torch._inductor.config.max_autotune: %s}",
    "config name": "config: {'torch._inductor.config.'%s: 1}",
    "known": "known: [{reason: %s, error: %s}]",
    "expect": "expect: {raises: {type: %s, match: %s}}",
    "requires": "requires: {package: %s}",
}  # fmt: skip


def fill(template: str, payload: str) -> str:
    """``payload`` put in as a quoted scalar; ``'torch.'%s`` joins both parts."""
    template = re.sub(r"'([^']*)'%s", lambda m: json.dumps(m[1] + payload), template)
    return template.replace("%s", json.dumps(payload))


def safe(built: Built, keys: str) -> int:
    """Reads and writes a case, asserts that what comes out without an error is harmless; how many sources came out."""
    built.write("m.py", "import torch\nclass Net(torch.nn.Module): ...\n")
    (built.folder / "a.spec.yaml").write_text(built.case_text(keys), encoding="utf-8")
    reader = Reader()
    variants = expand(reader.suites([built.folder / "a.spec.yaml"]))
    for diagnostic in reader.problems:
        assert diagnostic.render() and diagnostic.span.line >= 1
    count = 0
    for variant in variants:
        source = build(variant, split_lines(built.case_text(keys)))
        assert variant.id.isprintable() and "\n" not in variant.id
        if any(d.severity == "error" for d in source.diagnostics):
            continue
        count += 1
        assert len(source.places) == len(source.text.split("\n")) - 1 == len(source.text.splitlines())
        compile(source.text, "case.py", "exec", dont_inherit=True)
        if variant.case.module is None:
            audit(source.text)
        code = ast.parse(source.text)
        assert not [n for n in ast.walk(code) if isinstance(n, ast.Name) and n.id in (MARK, "__import__")]
        for node in ast.walk(code):
            assert not (isinstance(node, ast.Attribute) and node.attr == "system")
    return count


TAKE_ANYTHING = ("doc",)


@pytest.mark.parametrize("place", PLACES)
def test_nothing_in_a_file_becomes_code(built: Built, place: str) -> None:
    count = sum(safe(built, fill(PLACES[place], payload)) > 0 for payload in PAYLOADS)
    if place in TAKE_ANYTHING:  # so that this is no test of refusals alone
        assert count > 25


@pytest.mark.parametrize("payload", PAYLOADS)
def test_text_arrives_as_it_was(built: Built, payload: str) -> None:
    """No reader lets such a text through; the builder holds even where one did."""
    text = built.case_text("chain: [{builtin.print: [{$text: marker}, $x]}]")
    (built.folder / "a.spec.yaml").write_text(text, encoding="utf-8")
    (variant,) = expand(Reader().suites([built.folder / "a.spec.yaml"]))

    def put(value: Value) -> Value:
        return Literal(payload) if value == Literal("marker") else value

    variant = dataclasses.replace(
        variant, case=dataclasses.replace(variant.case, chain=change_parts(variant.case.chain, put))
    )
    assert payload in strings(build(variant).text)


@pytest.mark.parametrize(
    "name",
    [
        'q".spec.yaml',
        "'''.spec.yaml",
        'a"""b.spec.yaml',
        "a\\N{b}.spec.yaml",
        "a\\.spec.yaml",
        "a\nimport os.spec.yaml",
        "a\r.spec.yaml",
        "é\u202e.spec.yaml",
        "#.spec.yaml",
    ],
)
def test_names_of_files_become_no_code(built: Built, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built.folder)
    path = built.folder / name
    path.write_text("cases:\n  - {name: a, inputs: {x: [2]}, chain: [F.relu]}\n", encoding="utf-8")
    (variant,) = expand(Reader().suites([path]))
    source = build(variant)
    audit(source.text)
    assert len(source.places) == len(source.text.splitlines())


def test_an_id_becomes_no_code(built: Built) -> None:
    (variant,) = built.variants("")
    for word in (*PAYLOADS, f'"""\n{CODE}\n"""'):
        source = build(dataclasses.replace(variant, id=f"a.spec.yaml::a[n={word},float32,cpu]@inductor"))
        audit(source.text)
        assert len(source.places) == len(source.text.splitlines())


DOCS = [
    'ends with a quote"',
    'ends with three"""',
    "ends with a backslash\\",
    "\\",
    '"',
    '"' * 5,
    "\\" * 5,
    '\\"""',
    "a\n\n\n\nb",
    "a\n  \n\t\n b",
    "\x00\x01",
    "a\tb\rc",
    "\\x41 \\N{x} \\u",
    "é",
    " ",
]


@pytest.mark.parametrize("doc", DOCS)
def test_docs_stay_docs(built: Built, doc: str) -> None:
    text = built.source(f"doc: {json.dumps(doc)}")
    audit(text)
    first = ast.parse(text).body[0]
    assert isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and "Written from" in first.value.value
    head, model = text.split("\n\n\n", 1)  # what runner repro relies on
    assert head.count('"""') == 2 and model.startswith("class Model")
    plain = doc.strip().replace('"', "'")
    if plain.isprintable() and plain:
        assert f"\n\n{plain}\n\n" in first.value.value


def test_no_file_takes_long(built: Built) -> None:
    start = time.process_time()
    steps = "\n".join("- torch.add: [$_, 1]" for _ in range(3000))
    assert len(built.part(f"chain:\n{steps}")) == 3000
    assert time.process_time() - start < 5


def test_chains_are_nested_no_deeper_than_the_limit(built: Built) -> None:
    block = "{torch.neg: $x}"
    for _ in range(60):
        block = f"{{if: $x, do: [{block}]}}"
    built.write("a.spec.yaml", built.case_text(f"chain: [{block}]"))
    built.suites("a.spec.yaml")
    assert any("nested" in text or "deep" in text for text in built.found())


# --- attribute chains and other ways out ---


@pytest.mark.parametrize(
    "chain",
    [
        "[{operator.call: [$x.tofile, '/tmp/x']}]", "[{operator.call: [$x.__reduce_ex__, 2]}]", "[Tensor.numpy, {operator.call: [$_.tofile, /tmp/x]}]",
        "[Tensor.numpy, {Tensor.tofile: [$_, /tmp/x]}]", "[Tensor.numpy, {Tensor.dump: [$_, /tmp/x]}]", "[{operator.call: [$x.grad_fn.register_hook, $x]}]",
        "[{operator.call: [$x.untyped_storage]}]", "[{operator.attrgetter: [a]}, {operator.call: [$_, $x]}]", "[{operator.methodcaller: [tofile, /tmp/x]}, {operator.call: [$_, $x]}]",
        "[{nn.ReLU: null, id: r}, {operator.call: [$self.r.register_forward_hook, $x]}]", "[{operator.call: [$self.forward, $x]}]", "[{operator.call: ['${self.state_dict}']}]",
        "[{operator.call: [$self.__class__]}]", "[{nn.ReLU: null, id: compile}, {self.compile: []}]", "[{nn.ReLU: null, id: r}, {self.r.forward: [$x]}]", "[{self.load_state_dict: [{}]}]",
        "[{torch.nn.attention.flex_attention.GetAttrKey: [__class__]}]", "[{numpy.ndarray: [[1], O, $x]}]", "[{builtin.getattr: [$x, __class__]}]", "[{builtin.isinstance: [$x, $x.__class__]}]",
        "[{torch.vmap: [torch.load]}]", "[{torch.func.grad: [$torch.load]}]", "[{operator.call: [torch.load, /tmp/x]}]", "[{operator.call: [$builtin.eval, '1']}]", "[{operator.call: [$eval, '1']}]",
        "[{operator.call: [$__builtins__.eval, '1']}]", "[{operator.getitem: ['$x.__class__.__mro__[1]', 0]}]", "[{operator.setitem: [$torch.__dict__, load, $x]}]", "[{operator.iadd: [$self.__dict__, 1]}]",
        "[{torch.abs: $x, out: self.forward}]", "[{with: [{torch.serialization.skip_data: []}], chain: [F.relu]}]", "[{with: [{open: [/tmp/x]}], chain: [F.relu]}]", "[{with: [numpy.errstate], chain: [F.relu]}]",
        "[{operator.call: [{$fn: {args: [torch], chain: [{torch.add: [$torch, 1]}]}}, $x]}]", "[{custom.load_library.x: [/tmp/x.so]}]", "[{custom.image.read_file.__call__: [/etc/passwd]}]",
        "[{Tensor.__class__.__init__: [$x]}]", "[{aten.add.__class__: [$x]}]", "[{torch.add.__globals__: []}]", "[{nn.Linear.__init__: []}]", "[{operator.truth.__self__: []}]",
    ],
)  # fmt: skip
def test_ways_out(built: Built, chain: str) -> None:
    (built.folder / "a.spec.yaml").write_text(built.case_text(f"chain: {chain}"), encoding="utf-8")
    reader = Reader()
    variants = expand(reader.suites([built.folder / "a.spec.yaml"]))
    diagnostics = [*reader.problems, *(d for v in variants for d in build(v).diagnostics)]
    assert [d for d in diagnostics if d.severity == "error" and d.span.line >= 3 and "never used" not in d.message]


# --- the corpus ---


@pytest.mark.skipif(not folder("shared/corpus/yaml").is_dir(), reason="the corpus is not here")
def test_no_draft_of_the_corpus_holds_more_than_operators() -> None:
    files = [str(p) for p in sorted(folder("shared/corpus/yaml").glob("*.spec.yaml"))]
    loaded = load(files, allow_python=True, everything=True)
    count = 0
    for variant in loaded.variants:
        if variant.case.module is None:
            text = build(variant).text
            audit(text)
            count += 1
    assert count > 120


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "specs").rglob("*.spec.yaml")), ids=lambda p: p.name
)
def test_no_shipped_case_holds_more_than_operators(path: Path) -> None:
    for variant in load([str(path)], everything=True).variants:
        audit(build(variant).text)


FLEX = "torch.nn.attention.flex_attention.flex_attention"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{FOO: 1}", "kernel_options may not hold 'FOO' here: Inductor writes it into a kernel, which trusts it"),
        ("{BLOCK_M: 64}", "kernel_options may not hold 'BLOCK_M' here"),
        ("{num_warps: 3}", "kernel_options: num_warps has another value than it may have here | one of 1, 2, 4, 8"),
        ("{num_warps: true}", "kernel_options: num_warps has another value"),
        ("{num_warps: 4.0}", "kernel_options: num_warps has another value"),
        ("{num_warps: $x}", "kernel_options: num_warps has another value"),
        ("{num_warps: a}", "kernel_options: num_warps has another value"),
        (
            "{PRESCALE_QK: 1}",
            "kernel_options: PRESCALE_QK has another value than it may have here | one of false, true",
        ),
        ("$x", "kernel_options is a mapping, and stands as a keyword"),
    ],
)
def test_options_of_flex_attentions_kernels_are_refused(built: Built, options: str, message: str) -> None:
    problems = built.problems(f'chain: [{{{FLEX}: {{"*": [$x, $x, $x], kernel_options: {options}}}}}]')
    assert message in str(problems)


def test_options_of_flex_attentions_kernels_have_no_place_of_their_own(built: Built) -> None:
    places = "$x, $x, $x, null, null, null, false, false, {num_warps: 4}"
    for arguments in (f"[{places}]", f'{{"*": [{places}], kernel_options: {{num_warps: 4}}}}'):
        assert "stands as a keyword" in str(built.problems(f"chain: [{{{FLEX}: {arguments}}}]"))


def test_harmless_options_of_flex_attentions_kernels_are_taken(built: Built) -> None:
    options = "{num_warps: 4, num_stages: 2, PRESCALE_QK: true, FORCE_USE_FLEX_ATTENTION: false}"
    chain = f'chain: [{{{FLEX}: {{"*": [$x, $x, $x], kernel_options: {options}}}}}]'
    assert built.problems(chain) == [] and built.problems(f"chain: [{{{FLEX}: [$x, $x, $x]}}]") == []
    argument = (
        "kernel_options={'num_warps': 4, 'num_stages': 2, 'PRESCALE_QK': True, 'FORCE_USE_FLEX_ATTENTION': False}"
    )
    assert argument in built.source(chain).replace('"', "'")


def test_thousands_of_modules_functions_and_names_are_written(built: Built) -> None:
    functions = ", ".join(["{operator.call: [{$fn: {args: [t], chain: [F.relu]}}, $_]}"] * 1100)
    assert "def fn1100(" in built.source(f"chain: [{functions}]")
    assert "self.re_lu_3000 = " in built.source(f"chain: [{', '.join(['nn.ReLU'] * 3000)}]")


def test_a_params_text_is_held_where_it_reaches_an_operator(built: Built) -> None:
    problems = built.problems("params: {p: ['a=b']}\nchain: [{F.pad: {'*': [$x, [1, 1]], mode: $p}}]")
    assert "a text for an operator may not hold '='" in str(problems)
