"""Parts of a graph: modules and operators, each kind once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runner.contract.graphs import Call, Graph, GraphInput, Operand, Statistics, Tensor
from runner.graphs.cases import write_graph
from runner.graphs.grains import digest_of, parts_of

T = Tensor((2, 2), "float32")
TORN = Statistics(-1.0, 1.0, 0.0, 1.0)


def call(name: str, operator: str, *positional: Any, operands: tuple[str, ...] = (), **more: Any) -> Call:
    taken = tuple(Operand(each, T, TORN) for each in operands)
    return Call(name, operator, positional, operands=taken, results=(T,), **more)


def layer(number: int, source: str) -> tuple[Call, ...]:
    module = (f"layers.{number} Layer",)
    first = call(
        f"a{number}", "F.linear", f"${source}", f"$w{number}", operands=(source, f"w{number}"),
        module=(*module, f"layers.{number}.dense Linear"),
    )  # fmt: skip
    return first, call(f"b{number}", "torch.relu", f"$a{number}", operands=(f"a{number}",), module=module)


GRAPH = Graph(
    "graph_0", "model",
    (GraphInput("x", T), *(GraphInput(f"w{n}", T, role="parameter", statistics=Statistics(-n, n, 0, n)) for n in (1, 2))),
    (*layer(1, "x"), *layer(2, "b1"), call("z", "torch.sum", "$b2", operands=("b2",))), ["$z"],
)  # fmt: skip


def test_each_module_call_is_a_graph_over_what_it_takes() -> None:
    parts = parts_of(GRAPH, "module")
    assert [(part.name, part.origin, len(part.calls)) for part in parts] == [
        ("Layer", "model layers.1 Layer", 2), ("Layer", "model layers.2 Layer", 2),
        ("Linear", "model layers.1.dense Linear", 1), ("Linear", "model layers.2.dense Linear", 1),
    ]  # fmt: skip
    assert [item.name for item in parts[1].inputs] == ["b1", "w2"] and parts[1].result == ["$b2"]
    case = write_graph(parts[1], "layer").case
    assert case is not None and case["inputs"] == {"b1": {"shape": [2, 2], "init": {"normal": [0.0, 1.0]}}}
    assert [*case["state"]] == ["w2"] and case["chain"] == [{"F.linear": ["$b1", "$self.w2"]}, "torch.relu"]


def test_parts_of_a_kind_have_one_digest_whatever_their_names_and_weights() -> None:
    digests = [digest_of(part) for part in parts_of(GRAPH, "module")]
    assert digests[0] == digests[1] != digests[2] == digests[3]
    operators = parts_of(GRAPH, "operator")
    assert [part.calls[0].operator for part in operators] == [
        "F.linear",
        "torch.relu",
        "F.linear",
        "torch.relu",
        "torch.sum",
    ]
    assert len({digest_of(part) for part in operators}) == 3


def test_what_decides_about_an_operator_is_in_its_digest() -> None:
    (first, *_) = parts_of(GRAPH, "operator")
    (item, weight) = first.inputs
    changed = [
        replace(first, inputs=(replace(item, tensor=tensor), weight))
        for tensor in (replace(T, shape=(2, 3)), replace(T, dtype="bfloat16"), replace(T, stride=(1, 2)), replace(T, requires_grad=True))
    ]  # fmt: skip
    changed += [
        replace(first, calls=(replace(first.calls[0], positional=("$x", "$w1", 1)),)),
        replace(first, autocast="bfloat16"),
    ]
    assert digest_of(first) not in map(digest_of, changed) and len(set(map(digest_of, changed))) == len(changed)


def test_a_number_takes_the_place_of_its_name() -> None:
    size = "${x.shape[0]}"
    graph = replace(
        GRAPH,
        calls=(call("n", "operator.mul", size, 2, numbers={size: 6}), call("y", "Tensor.view", "$x", "$n", -1, operands=("x",), numbers={"n": 12}),
               call("z", "operator.getitem", "$y", f"[:$n, {size}]", operands=("y",), numbers={"n": 12, size: 6})), dynamic=True,
    )  # fmt: skip
    assert [part.calls[0].positional for part in parts_of(graph, "operator")] == [
        (6, 2),
        ("$x", 12, -1),
        ("$y", "[:12, 6]"),
    ]
    assert {part.dynamic for part in parts_of(graph, "operator")} == {None}


def test_what_gives_no_tensor_and_writes_to_none_is_no_operator_alone() -> None:
    """A compiler makes no graph of it."""
    size = replace(call("n", "Tensor.size", "$x", 0, operands=("x",)), results=())
    write = replace(call("w", "operator.setitem", "$x", 0, 1.0, operands=("x",)), results=())
    total = replace(call("t", "operator.add", 1, 1), results=())
    unknown = replace(call("y", "torch.sin", "$x", operands=("x",)), results=())  # a log does not say what a call gives
    graph = replace(GRAPH, calls=(size, write, total, unknown))
    assert [part.calls[0].operator for part in parts_of(graph, "operator")] == ["operator.setitem", "torch.sin"]
    assert len(parts_of(graph, "graph")[0].calls) == 4


def test_a_call_of_what_is_no_tensor_is_no_part() -> None:
    graph = replace(
        GRAPH,
        calls=(call("parts", "torch.chunk", "$x", 2, operands=("x",)), call("z", "operator.getitem", "$parts", 0)),
    )
    assert [part.calls[0].operator for part in parts_of(graph, "operator")] == ["torch.chunk"]
