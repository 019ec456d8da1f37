"""Graphs that torch prints: each statement becomes a call; types, ``load_args`` and symbols give the inputs."""

from __future__ import annotations

from typing import Any

import pytest

from runner.contract.graphs import Call, Capture, Graph, Tensor
from runner.diagnostics import InputError
from runner.importers.foreign_file import ForeignFile
from runner.importers.printed_graph import is_printed_graph, read_printed_graph

READABLE = """\
 ===== Forward graph 0 =====
 /x/torch/fx/_lazy_graph_module.py class <lambda>(torch.nn.Module):
class <lambda>(torch.nn.Module):
    def forward(self, s0: "Sym(s0)", L_self_modules_fc_parameters_weight_: "f32[8, 4][4, 1]cpu", L_i_: "i64[s0][1]cpu"):
        l_i_ = L_i_
         # File: /home/me/model.py:7 in forward, code: h = self.emb(i)
        h: "f32[s0, 4][4, 1]cpu" = torch.nn.functional.embedding(l_i_, L_self_modules_fc_parameters_weight_);  l_i_ = None
        size = s0 * 2
        v: "f32[2*s0, 2]" = h.view(size, -1);  h = None
        return (v, size)
"""
REPRO = """\
import torch
from torch.nn import *
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer('c', tensor(1.))
    def forward(self, arg0_1, arg1_1):
        mm = torch.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = arg1_1 = None
        c = self.c
        add = torch.ops.aten.add.Tensor(mm, c, alpha = 2);  mm = c = None
        return (add,)

def load_args(reader):
    buf0 = reader.storage('hash', 64, device=device(type='cuda', index=0), dtype_hint=torch.float16)
    reader.tensor(buf0, (4, 4), (1, 4), dtype=torch.float16, requires_grad=True, is_leaf=True)  # arg0_1
    buf1 = reader.storage(None, 4*s0)
    reader.tensor(buf1, (4, 2), storage_offset=3)  # arg1_1
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    run_repro(mod, load_args)
"""


def read(text: str) -> Capture:
    assert is_printed_graph(text)
    return read_printed_graph(ForeignFile("a.py", text.encode()))


def only(text: str) -> Graph:
    capture = read(text)
    assert capture.notes == ()
    (graph,) = capture.graphs
    return graph


def body(*lines: str, inputs: str = 'x: "f32[4, 8]", y: "f32[4, 8]", i: "i64[3]"') -> str:
    statements = "".join(f"        {line}\n" for line in lines)
    return f"class GraphModule(torch.nn.Module):\n    def forward(self, {inputs}):\n{statements}"


def call(line: str) -> Call:
    graph = only(body(f"r = {line}", "return (r,)"))
    return graph.calls[-1]


def test_a_readable_graph_has_inputs_of_its_types_and_the_lines_of_the_model() -> None:
    graph = only(READABLE)
    weight, index = graph.inputs
    assert (weight.name, weight.role, weight.tensor) == ("fc_weight", "parameter", Tensor((8, 4), "float32", (4, 1)))
    assert index.tensor == Tensor((8,), "int64", (1,))
    assert index.statistics is not None and index.statistics.largest == 7
    embedding, view = graph.calls
    assert (embedding.operator, embedding.positional) == ("F.embedding", ("$i", "$fc_weight"))
    assert embedding.source == "model.py:7: h = self.emb(i)"
    assert (view.operator, view.positional) == ("Tensor.view", ("$h", "${(i.shape[0]) * 2}", -1))
    assert view.results == (Tensor((16, 2), "float32"),)
    assert graph.result == ["$v", "${(i.shape[0]) * 2}"]


def test_a_script_of_the_minifier_has_the_inputs_that_it_loads() -> None:
    graph = only(REPRO)
    first, second, constant = graph.inputs
    assert first.tensor == Tensor((4, 4), "float16", (1, 4), requires_grad=True, storage=0)
    assert second.tensor == Tensor((4, 2), "float32", None, 3, storage=1)
    assert (constant.name, constant.role, constant.values) == ("c", "buffer", 1.0)
    assert [c.operator for c in graph.calls] == ["aten.mm.default", "aten.add.Tensor"]
    assert graph.calls[1].keywords == {"alpha": 2}
    assert graph.grad and graph.calls[1].results[0].requires_grad


def test_old_scripts_have_their_inputs_in_a_list() -> None:
    text = (
        REPRO.partition("def load_args")[0]
        + "args = [((4, 4), (4, 1), torch.float32, 'cuda'), ((4, 2), (2, 1), torch.float16, 'cpu')]\n"
    )
    assert [item.tensor for item in only(text).inputs][:2] == [
        Tensor((4, 4), "float32", (4, 1)), Tensor((4, 2), "float16", (2, 1)),
    ]  # fmt: skip


def test_lines_of_a_log_are_read_without_their_beginnings() -> None:
    text = body("r = torch.relu(x)", "return r")
    log = "".join(f"V0828 12:00:00.1 99 torch/x.py:12] [0/0] [__graph_code] {line}\n" for line in text.splitlines())
    assert only(log).calls[0].operator == "torch.relu"


def test_an_indented_class_is_moved_to_the_margin() -> None:
    lines = body("r = torch.relu(x)", "return r").splitlines()
    text = "TRACED GRAPH\n" + "".join(f"    {line}\n" for line in lines) + "\nthe end\n"
    (graph,) = read(text).graphs
    assert graph.origin.endswith("a.py:2") and graph.calls[0].source.endswith("a.py:4")


@pytest.mark.parametrize(
    ("line", "operator", "positional", "keywords"),
    [
        ("x + y", "operator.add", ("$x", "$y"), {}),
        ("x == 2", "operator.eq", ("$x", 2), {}),
        ("-x", "operator.neg", ("$x",), {}),
        ("x[(slice(None, None, None), 0)]", "operator.getitem", ("$x", "[:, 0]"), {}),
        ("x[(None, Ellipsis)]", "operator.getitem", ("$x", "[None, ...]"), {}),
        ("x[i]", "operator.getitem", ("$x", "[$i]"), {}),
        ("x.to(torch.float16)", "Tensor.to", ("$x", "torch.float16"), {}),
        ("x.sum(dim = 1, keepdim = True)", "Tensor.sum", ("$x",), {"dim": 1, "keepdim": True}),
        ("torch.cat([x, y], dim = -1)", "torch.cat", (["$x", "$y"],), {"dim": -1}),
        ("torch._C._nn.gelu(x, approximate = 'tanh')", "F.gelu", ("$x",), {"approximate": "tanh"}),
        ("torch.zeros(2, device = device(type='cuda', index=0))", "torch.zeros", (2,), {"device": "$device"}),
        ("torch._C._linalg.linalg_inv(x)", "torch.linalg.inv", ("$x",), {}),
        ("torch.ops.aten.view.default(x, [x.shape[0], -1])", "aten.view.default", ("$x", ["${x.shape[0]}", -1]), {}),
        ("torch.softmax(x, dim = 1, _stacklevel = 3)", "torch.softmax", ("$x",), {"dim": 1}),
        ("operator.mul(x, y)", "operator.mul", ("$x", "$y"), {}),
        ("x.size()", None, None, None),
    ],
)
def test_expressions_are_calls_of_the_format(line: str, operator: Any, positional: Any, keywords: Any) -> None:
    if operator is None:
        assert only(body(f"r = {line}", "s = r[1]", "t = x.view(s, -1)", "return t")).calls[0].positional == (
            "$x", "${x.shape[1]}", -1,
        )  # fmt: skip
        return
    found = call(line)
    assert (found.operator, found.positional, dict(found.keywords)) == (operator, positional, keywords)


def test_statements_that_write_are_calls() -> None:
    graph = only(body("x[0] = y", "iadd = x", "iadd += y", "return x"))
    assert [(c.operator, c.positional) for c in graph.calls] == [
        ("operator.setitem", ("$x", 0, "$y")), ("operator.iadd", ("$x", "$y")),
    ]  # fmt: skip


def test_regions_without_gradients_and_of_autocast_are_contexts() -> None:
    graph = only(
        body(
            "_set_grad_enabled = torch._C._set_grad_enabled(False);  _set_grad_enabled = None",
            "e = torch.amp.autocast_mode._enter_autocast('cuda', torch.bfloat16, True, None)",
            "a = torch.relu(x)",
            "_exit_autocast = torch.amp.autocast_mode._exit_autocast(e);  e = None",
            "_set_grad_enabled_1 = torch._C._set_grad_enabled(True)",
            "b = torch.relu(a)",
            "return b",
        )
    )
    assert [c.contexts for c in graph.calls] == [
        (
            {"torch.set_grad_enabled": [False]},
            {"torch.autocast": {"device_type": "$device", "dtype": "torch.bfloat16"}},
        ),
        ({"torch.set_grad_enabled": [True]},),
    ]


def test_the_first_result_of_an_operator_with_a_twin_is_what_the_twin_gives() -> None:
    graph = only(
        body(
            "n = torch.ops.aten.native_batch_norm.default(x, None, None, y, y, True, 0.1, 1e-05)",
            "a = n[0]", "b = n[1]", "return (a, b)",
        )
    )  # fmt: skip
    assert graph.calls[0].operator == "F.batch_norm"
    assert graph.result == ["$n", "$b"] and "gives no such result" in graph.calls[1].fault


def test_indices_are_followed_through_views() -> None:
    graph = only(body("j = i.view(3, 1)", "k = j.to(torch.int64)", "r = x[k]", "return r"))
    assert graph.inputs[2].statistics is not None and graph.inputs[2].statistics.largest == 3


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["for a in x: pass", "return x"], "For is no statement"),
        (["r = self.fc(x)", "return r"], "self.fc is called, a module that is no part"),
        (["r = x if y else x", "return r"], "IfExp is no value"),
        (["r = open('x')", "return r"], "open is called, which is no function of torch"),
        (["r = torch.add(*x)", "return r"], "spread"),
        (["r = unknown + 1", "return x"], "unknown is no known name"),
        (["r = x"], "no return"),
    ],
)
def test_what_is_no_call_is_noted_with_its_place(lines: list[str], words: str) -> None:
    capture = read(body(*lines))
    assert any(
        words in note and note.partition(": ")[0].rpartition("a.py")[2].startswith(":") for note in capture.notes
    )


def test_an_input_of_which_nothing_is_known_is_a_fault() -> None:
    graph = only(
        body("return torch.relu(x)", inputs="x").replace("return torch.relu(x)", "r = torch.relu(x)\n        return r")
    )
    assert "does not say" in graph.inputs[0].fault


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (body("r = (", "return r"), "a.py:3:"),
        (body("r = " + "(" * 90 + ")" * 90), "a.py:1:1: error: brackets stand more than 60 deep"),
        (
            "class A(torch.nn.Module):\n    def __init__(self, x='def forward('): pass\n",
            "a.py:1:1: error: this file has no class",
        ),
    ],
)
def test_a_file_that_is_no_python_is_an_error_with_its_place(text: str, place: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert place in str(caught.value)
