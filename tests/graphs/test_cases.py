"""A graph as a case: references, state, contexts, and calls that cannot be written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runner.contract.graphs import Call, Graph, GraphInput, Operand, Tensor
from runner.graphs.cases import Fault, write_graph
from runner.graphs.folder import problems_of

T = Tensor((2, 2), "float32")
X = GraphInput("x", T)
W = GraphInput("w", replace(T, requires_grad=True), role="parameter")


def call(name: str, operator: str, *positional: Any, **more: Any) -> Call:
    return Call(name, operator, positional, **{"results": (T,), **more})


def case_of(
    *calls: Call, inputs: tuple[GraphInput, ...] = (X, W), result: Any = ("$z",), **more: Any
) -> dict[str, Any]:
    written = write_graph(Graph("g", "model", inputs, calls, result, **more), "case")
    assert written.case is not None and problems_of({"case": written}) == {}
    return written.case


def test_parameters_are_state_and_the_step_before_is_short() -> None:
    case = case_of(
        call("y", "torch.mul", "$x", "$w"), call("u", "torch.sin", "$y"), call("z", "operator.add", "$u", "$w")
    )
    assert case["chain"] == [{"torch.mul": ["$x", "$self.w"]}, "torch.sin", {"operator.add": ["$_", "$self.w"]}]
    assert case["state"] == {"w": {"shape": [2, 2], "requires_grad": True}} and "return" not in case


def test_a_value_that_is_read_twice_keeps_its_name() -> None:
    case = case_of(
        call("y", "torch.sin", "$x"), call("z", "operator.mul", "$y", "$y"), result=["$z", "$y"], inputs=(X,)
    )
    assert case["chain"] == [{"torch.sin": ["$x"], "out": "y"}, {"operator.mul": ["$y", "$y"], "out": "z"}]
    assert case["return"] == ["$z", "$y"]


def test_a_write_in_place_is_the_same_tensor() -> None:
    case = case_of(
        call("y", "torch.sin", "$x"), call("v", "operator.iadd", "$y", 1), call("z", "torch.cos", "$v"), inputs=(X,)
    )
    assert case["chain"] == [{"torch.sin": ["$x"], "out": "y"}, {"operator.iadd": ["$y", 1]}, {"torch.cos": ["$y"]}]
    inverted = case_of(call("z", "operator.invert", "$x"), inputs=(GraphInput("x", Tensor((2,), "bool")),))
    assert inverted["chain"] == [{"operator.invert": ["$x"]}], "its name begins like those of writes"


def test_operators_with_a_shape_by_data_are_traced() -> None:
    flag = {"torch._dynamo.config.capture_dynamic_output_shape_ops": True}
    mask = (Operand("x", T), Operand("m", Tensor((2, 2), "bool")))
    inputs = (X, GraphInput("m", Tensor((2, 2), "bool")))
    assert case_of(call("z", "aten.nonzero.default", "$x"), inputs=(X,))["config"] == flag
    assert case_of(call("z", "aten.index.Tensor", "$x", ["$m"], operands=mask), inputs=inputs)["config"] == flag
    mask = (Operand("x", T), Operand("m", Tensor((2, 2), "int64")))
    assert "config" not in case_of(call("z", "aten.index.Tensor", "$x", ["$m"], operands=mask), inputs=inputs)


def test_memory_that_nothing_has_written_is_compared_without_its_values() -> None:
    empty = call("y", "aten.new_empty.default", "$x", [2, 2])
    assert set(case_of(replace(empty, name="z"), inputs=(X,))["ignore"]) == {"value", "nonfinite"}
    assert "ignore" not in case_of(empty, call("z", "aten.fill_.Scalar", "$y", 1.0), inputs=(X,))


def test_contexts_are_blocks() -> None:
    off = {"torch.set_grad_enabled": [False]}
    case = case_of(
        call("y", "torch.sin", "$x", contexts=(off,)), call("u", "torch.cos", "$y", contexts=(off,)), call("z", "torch.neg", "$u"),
        inputs=(X,),
    )  # fmt: skip
    assert case["chain"] == [
        {"with": [off], "chain": [{"torch.sin": ["$x"]}, {"torch.cos": "$_", "out": "u"}]}, {"torch.neg": ["$u"]},
    ]  # fmt: skip


def test_a_call_that_cannot_be_written_is_cut_out() -> None:
    operands = (Operand("y", T),)
    graph = Graph(
        "g", "model", (X,),
        (
            call("y", "torch.sin", "$x"), call("odd", "package.odd", fault="unknown", operands=operands, source="a.py:1: odd(y)"),
            call("saved", "torch.save", "$odd"), call("z", "torch.neg", "$odd"),
        ), ["$z"],
    )  # fmt: skip
    written = write_graph(graph, "case")
    assert [fault.operator for fault in written.faults] == ["package.odd", "torch.save"]
    assert written.faults[0] == Fault("package.odd", "unknown", "a.py:1: odd(y)")
    assert written.faults[1].reason == "'torch.save' is refused: it reads or writes files"
    assert written.case == {
        "name": "case", "inputs": {"x": [2, 2], "odd": [2, 2]},
        "chain": [{"torch.sin": ["$x"], "out": "y"}, {"torch.neg": ["$odd"], "out": "z"}], "return": ["$z", "$y"],
    }  # fmt: skip
    assert problems_of({"case": written}) == {}


def test_what_depends_on_nothing_that_can_be_made_is_left_out() -> None:
    written = write_graph(
        Graph("g", "model", (X,), (call("odd", "package.odd", fault="unknown", results=()), call("z", "torch.neg", "$odd", results=()))), "case"
    )  # fmt: skip
    assert written.case is None and [fault.reason for fault in written.faults] == [
        "unknown",
        "it takes odd, which cannot be written",
    ]


def test_an_input_that_cannot_be_made_is_a_fault() -> None:
    odd = GraphInput("s", fault="it is a Generator")
    written = write_graph(
        Graph("g", "model", (X, odd), (call("y", "torch.sin", "$x"), call("z", "torch.add", "$y", "$s")), ["$z"]),
        "case",
    )
    assert [*written.faults] == [
        Fault("s", "it is a Generator"),
        Fault("torch.add", "it takes s, which cannot be written"),
    ]
    assert (written.case is not None and [*written.case["inputs"]] == ["z"]) or written.case is None


def test_gradients_are_asked_for_where_they_can_be_had() -> None:
    grad = replace(T, requires_grad=True)
    step = call("z", "torch.mul", "$x", "$w", results=(grad,))
    assert case_of(step, grad=True)["grad"] == "backward"
    assert "grad" not in case_of(step, grad=False)
    assert "grad" not in case_of(replace(step, results=(T,)), grad=True), "no output has a gradient"


def test_values_that_nothing_reads_are_left_out() -> None:
    case = case_of(call("unread", "torch.cos", "$x"), call("z", "torch.sin", "$x"), inputs=(X,))
    assert case["chain"] == [{"torch.sin": ["$x"]}]


def test_only_the_sizes_that_vary_are_marked() -> None:
    def dynamic_of(first: tuple[int, ...], second: tuple[int, ...], **more: Any) -> Any:
        inputs = (
            GraphInput("x", replace(T, dynamic=first)), GraphInput("y", replace(T, shape=(2, 1), dynamic=second)), W,
        )  # fmt: skip
        step = call("u", "torch.add", "$x", "$y")
        return case_of(step, call("z", "torch.mul", "$u", "$w"), inputs=inputs, **more).get("dynamic")

    assert dynamic_of((0,), (), dynamic=True) == {"x": {"maybe": [0]}}
    assert dynamic_of((0, 1), (0,), dynamic=True) is True, "a size of 1 never varies, nor do those of parameters"
    assert dynamic_of((), (), dynamic=True) is True and dynamic_of((), ()) is None
    cached = replace(X, tensor=replace(T, dynamic=(0,)), role="buffer")
    case = case_of(call("z", "torch.mul", "$x", "$y"), inputs=(GraphInput("y", T), cached), dynamic=True)
    assert "state" not in case and case["dynamic"] == {"x": {"maybe": [0]}}, "no mark of a state is possible"


def test_a_case_of_many_calls_has_time_for_each() -> None:
    def timeout_of(count: int) -> Any:
        calls = [
            call(f"y{n}", "torch.add", f"$y{n - 1}" if n else "$x", f"$y{n - 1}" if n else 1) for n in range(count)
        ]
        return case_of(*calls, inputs=(X,), result=[f"$y{count - 1}"]).get("timeout")

    assert [timeout_of(count) for count in (2, 60, 61, 300)] == [None, None, "122s", "600s"]
