"""A folder of captured cases: it grows, it counts, and it takes no folder of another kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runner.contract.graphs import Break, Call, Capture, Graph, GraphInput, Operand, Tensor
from runner.exit_codes import UsageError
from runner.graphs.cases import WrittenGraph
from runner.graphs.folder import open_folder, slug
from runner.graphs.text import text_of

T = Tensor((2, 2), "float32")
SINE = Graph(
    "graph_0",
    "Model",
    (GraphInput("x", T),),
    (Call("y", "torch.sin", ("$x",), results=(T,), source="m.py:3: y = sin(x)"),),
    ["$y"],
)


def test_a_folder_grows_and_writes_a_case_once(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    for model, graphs in (
        ("First", (SINE,)),
        ("Second", (SINE, replace(SINE, inputs=(GraphInput("x", replace(T, shape=(3,))),)))),
    ):
        folder = open_folder(path)
        folder.add(Capture(model, graphs, (Break("a | reason\n", "m.py:1"),), torch="2.13.0"), "graph")
        folder.save()
    assert sorted(each.name for each in path.iterdir()) == [
        "captured.suite.yaml", "first.spec.yaml", "inventory.json", "inventory.md", "second.spec.yaml",
    ]  # fmt: skip
    inventory = json.loads((path / "inventory.json").read_text())
    assert [(case["name"], case["count"]) for case in inventory["cases"].values()] == [("first", 2), ("second", 1)]
    assert [model["graphs"][0]["cases"] for model in inventory["models"]] == [["first"], ["first"]]
    page = (path / "inventory.md").read_text()
    assert "| Second | 2 | 2 | 2 | 100.0 % | 1 |" in page and "a \\| reason" in page
    assert "suite: mine" in (path / "captured.suite.yaml").read_text()


def test_each_configuration_of_a_model_has_an_entry(tmp_path: Path) -> None:
    wide = replace(SINE, inputs=(GraphInput("x", replace(T, shape=(2, 9))),))
    for graph in (SINE, wide, SINE, wide):
        folder = open_folder(tmp_path / "mine")
        folder.add(Capture("Model", (graph,), torch="2.13.0"), "graph")
        folder.save()
    inventory = json.loads((tmp_path / "mine" / "inventory.json").read_text())
    assert sorted(model["model"] for model in inventory["models"]) == ["Model", "Model 2"]
    assert [(case["name"], case["uses"]) for case in inventory["cases"].values()] == [
        ("model", {"Model": 2}), ("model_2", {"Model 2": 2}),
    ]  # fmt: skip


def test_calls_of_one_digest_are_counted_each_also_where_smaller_ones_stand_for_them(tmp_path: Path) -> None:
    calls = tuple(replace(SINE.calls[0], name=f"y{n}", operands=(Operand("x", T),), count=n) for n in (3, 5))
    for name, shrink in (("large", None), ("small", list), ("other", lambda graphs: [halved(g) for g in graphs])):
        folder = open_folder(tmp_path / name)
        folder.add(Capture("Model", (Graph("calls", "a.txt", calls=calls),)), "operator", shrink=shrink)
        assert sum(case["count"] for case in folder.cases.values()) == 8, name


def halved(graph: Graph) -> Graph:
    small = Tensor((1, 1), "float32")
    call = replace(graph.calls[0], operands=(Operand("x", small),))
    return replace(graph, inputs=(GraphInput("x", small),), calls=(call,))


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    with pytest.raises(UsageError, match=r"there is something in it, and no inventory\.json"):
        open_folder(tmp_path)
    (tmp_path / "inventory.json").write_text("[1]")
    with pytest.raises(UsageError, match=r"inventory\.json is not runner's"):
        open_folder(tmp_path)


def test_the_models_lines_are_comments_that_hold_nothing_else() -> None:
    case = {
        "name": "a", "inputs": {"x": [2]},
        "chain": ["torch.sin", {"with": ["torch.no_grad"], "chain": [{"torch.cos": "$_", "out": "y"}]}, {"torch.neg": ["$y"]}],
    }  # fmt: skip
    text = text_of(
        [WrittenGraph(case, sources=("a.py:1: sin(x)", "a.py:2: \x1b[31mcos\nevil: [", "a.py:2: \x1b[31mcos\nevil: ["))]
    )
    lines = [line.strip() for line in text.splitlines()]
    start = lines.index("chain:")
    assert lines[start:] == [
        "chain:", "# a.py:1: sin(x)", "- torch.sin", "- with: [torch.no_grad]", "chain:", "# a.py:2: \\x1b[31mcos\\nevil: [",
        "- {torch.cos: $_, out: y}", "- torch.neg: [$y]",
    ]  # fmt: skip


def test_each_case_begins_with_the_models_line() -> None:
    """Even where the case before it ends with the same one."""
    graphs = [WrittenGraph({"name": name, "inputs": {"x": [2]}, "chain": ["torch.sin", "torch.cos"]},
                           sources=("a.py:1: cos(sin(x))",) * 2) for name in ("a", "b")]  # fmt: skip
    assert text_of(graphs).count("# a.py:1: cos(sin(x))") == 2


@pytest.mark.parametrize(
    ("name", "file"),
    [("BertModel", "bert_model"), ("a.b c/../d", "a_b_c_d"), ("", "model"), ("é" * 9, "model"), ("x" * 99, "x" * 60)],
)
def test_a_models_name_becomes_the_name_of_a_file(name: str, file: str) -> None:
    assert slug(name) == file
