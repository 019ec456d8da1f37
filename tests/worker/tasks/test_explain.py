"""What Dynamo makes of a case over its calls: each thing seen where it is planted, and not seen where it is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from worker_jobs import run, source

from runner.worker.tasks.debug import operator_name, read_break

BROKEN = source('x = torch.relu(x)\nprint("seen")\nreturn torch.add(x, 1)')
WHOLE = source("x = torch.relu(x)\nreturn torch.add(x, 1)")
SHAPES = """def _of(*shapes):
    return [lambda shape=shape: [torch.randn(*shape)] for shape in shapes]
CALLS = _of({})
"""
LIMIT = {"torch._dynamo.config.cache_size_limit": 2, "torch._dynamo.config.automatic_dynamic_shapes": False}


def explain(text: str, backend: str = "eager", **fields: Any) -> dict[str, Any]:
    return run(text, backend, task="explain", **fields)


def called(*shapes: tuple[int, ...], body: str = "return torch.relu(x)") -> str:
    return source(body, definitions=SHAPES.format(", ".join(map(str, shapes))))


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.split("\n"), 1) if part in line)


def test_a_break_has_its_reason_and_its_line():
    record = explain(BROKEN)
    (graph_break,) = record["graph_breaks"]
    assert graph_break["line"] == line_of(BROKEN, "print(")
    assert "print" in graph_break["reason"] and graph_break["call"] == 0
    assert [list(graph["operators"]) for graph in record["graphs"]] == [["torch.relu"], ["torch.add"]]
    assert record["calls"][0]["graphs_run"] == [0, 1]
    assert sum(record["counters"]["graph_break"].values()) == 1


def test_without_a_break_there_is_one_graph_and_nothing_to_say():
    record = explain(WHOLE)
    assert record["graph_breaks"] == record["recompiles"] == record["limits"] == []
    assert record["graphs"][0]["operators"] == {"torch.relu": 1, "torch.add": 1}
    assert record["raised"] is None
    assert record["calls"] == [
        {"call": 0, "graphs_run": [0], "compiled": ["0/0"], "recompiled": [], "graph_breaks": 0, "eager": []}
    ]
    assert any("'x'" in guard for guard in record["guards"]["0/0"])
    assert record["compilations"][0]["frame"] == "forward" and record["compilations"][0]["failed"] is None


def test_torchs_own_explain_agrees_on_the_first_call():
    first_call = explain(BROKEN)["first_call"]
    assert (first_call["graphs"], first_call["operators"], first_call["raised"]) == (2, 2, None)
    assert [graph_break["line"] for graph_break in first_call["graph_breaks"]] == [line_of(BROKEN, "print(")]
    assert explain(WHOLE)["first_call"]["graph_breaks"] == []


def test_a_break_before_the_first_operator_counts_though_no_graph_ends_there():
    text = source('print("seen")\nreturn torch.relu(x)')
    record = explain(text)
    assert [graph_break["line"] for graph_break in record["graph_breaks"]] == [line_of(text, "print(")]
    assert len(record["graphs"]) == 1


@pytest.mark.parametrize("mark", ["print(n)", "pass"])
def test_a_frame_that_dynamo_gives_up_is_named(mark):
    """A break in a loop cannot be resumed from, so that the whole function runs eagerly."""
    record = explain(source(f"for n in range(2):\n    x = torch.relu(x)\n    {mark}\nreturn x"))
    given_up = mark != "pass"
    assert [bool(compilation["failed"]) for compilation in record["compilations"]] == [given_up]
    assert record["calls"][0]["graphs_run"] == ([] if given_up else [0])
    assert len(record["graph_breaks"]) == given_up
    assert record["raised"] is None


@pytest.mark.parametrize(("shapes", "recompiled"), [(((2, 3), (4, 3)), ["0/1"]), (((2, 3), (2, 3)), [])])
def test_a_recompile_has_its_call_and_its_reason(shapes, recompiled):
    record = explain(called(*shapes))
    assert [recompile["compile_id"] for recompile in record["recompiles"]] == recompiled
    assert record["calls"][1]["recompiled"] == recompiled
    for recompile in record["recompiles"]:
        assert recompile["call"] == 1
        assert "size mismatch at index 0. expected 2, actual 4" in recompile["reasons"][0]


def test_frames_past_the_limit_are_named_in_every_call_that_ran_eagerly():
    record = explain(called((2, 3), (3, 3), (4, 3), (5, 3), (2, 3)), config=LIMIT)
    assert [item["eager"] for item in record["calls"]] == [[], [], ["forward"], ["forward"], []]
    assert [item["graphs_run"] for item in record["calls"]] == [[0], [1], [], [], [0]]
    (hit, *_) = record["limits"]
    assert (hit["frame"], hit["call"], hit["value"]) == ("forward", 2, 2)
    assert [item["compiled"] for item in record["recompiles"]] == [True, False]
    assert record["calls"][2]["recompiled"] == []
    assert hit["limit"].endswith("_limit") and "size mismatch" in hit["reason"]
    assert record["raised"] is None


def test_more_compilations_than_torch_keeps_metrics_of_are_all_there():
    shapes = tuple((n, 3) for n in range(2, 68))
    config = {"torch._dynamo.config.cache_size_limit": 100, "torch._dynamo.config.automatic_dynamic_shapes": False}
    record = explain(called(*shapes), config=config)
    assert len(record["compilations"]) == len(record["graphs"]) == 66
    assert len(record["recompiles"]) == 65


def test_a_forbidden_break_ends_the_run_and_torchs_explain_lists_the_breaks():
    record = explain(BROKEN, compile={"fullgraph": True})
    assert record["raised"]["type"] == "Unsupported"
    assert record["raised"]["line"] == line_of(BROKEN, "print(")
    assert [graph_break["line"] for graph_break in record["first_call"]["graph_breaks"]] == [line_of(BROKEN, "print(")]


def test_operators_are_those_that_the_backend_was_given():
    """``relu_accuracy_error_TESTING_ONLY`` changes the graph itself."""
    record = explain(WHOLE, "relu_accuracy_error_TESTING_ONLY")
    assert record["graphs"][0]["operators"] == {"torch.relu": 1, "torch.add": 1}


def test_a_graph_that_the_backend_refused_is_there_too():
    record = explain(WHOLE, "relu_compile_error_TESTING_ONLY")
    assert record["graphs"][0]["operators"] == {"torch.relu": 1, "torch.add": 1}
    assert (record["graphs"][0]["compiled"], record["graphs"][0]["runs"]) == (False, [])
    assert record["raised"]["type"] == "BackendCompilerFailed"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_watching_changes_no_gradient(backend):
    text = source("return torch.relu(x) * 3", inputs="torch.randn(4, 5, requires_grad=True)")
    assert explain(text, backend, grad={"mode": "backward"})["raised"] is None


def test_watching_leaves_nothing_behind():
    from torch._dynamo.output_graph import OutputGraph
    from torch._logging._internal import trace_log

    hooks = (OutputGraph.call_user_compiler, list(trace_log.handlers))
    explain(BROKEN)
    assert (OutputGraph.call_user_compiler, list(trace_log.handlers)) == hooks


def test_a_case_that_is_wrong_is_said():
    for text, reason in (
        ("import torch\n", "no make_model()"),
        (WHOLE.replace(".eval()", ".evil()"), "making the model"),
    ):
        record = explain(text)
        assert record["error"]["type"] == "InvalidCase" and reason in record["error"]["message"]


def test_breaks_are_read_as_2_6_and_as_2_13_tell_them():
    new = (
        "Graph break in user code at /tmp/case.py:7\nGraph Break Reason: Attempted to call function marked as skipped\n"
        '  Hint: none\n\nUser code traceback:\n  File "/tmp/case.py", line 7, in forward\n    print(x)\n'
        '  File "/torch/nn.py", line 9, in inner\n\nTraceback (most recent call last):\n  File "/tmp/case.py", line 1, in y'
    )
    old = "Graph break in user code at /tmp/case.py:8\nReason: Data-dependent jump\nUser code traceback:\n"
    skip = (
        'Graph break: skip: from user code at:\n  File "/tmp/case.py", line 5, in forward\n    for y in x:\n\n'
        "Traceback (most recent call last):\n  more\ntorch._dynamo.exc.Unsupported: builtin: print [] False\n"
    )
    assert read_break(new, "/tmp/case.py") == ("Attempted to call function marked as skipped\n  Hint: none", 7)
    assert read_break(old, "/tmp/case.py") == ("Data-dependent jump", 8)
    assert read_break(skip, "/tmp/case.py") == ("Unsupported: builtin: print [] False", 5)
    assert read_break("WON'T CONVERT forward\nmore", "/tmp/case.py") == ("WON'T CONVERT forward", None)
    assert read_break(new, "/tmp/other.py")[1] is None


def test_operators_have_the_names_that_people_write():
    class Model(torch.nn.Module):
        def forward(self, x):
            x = torch.nn.functional.softmax(torch.relu(x), 0) + 1
            return torch.ops.aten.add.Tensor(x.view(-1), 1)

    graph = torch.fx.symbolic_trace(Model())
    names = [operator_name(node, graph) for node in graph.graph.nodes if node.op.startswith("call_")]
    assert names == ["torch.relu", "torch.nn.functional.softmax", "operator.add", "Tensor.view", "aten.add.Tensor"]
