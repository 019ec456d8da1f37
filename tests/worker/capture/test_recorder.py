"""What a recorder makes of the graphs that Dynamo hands over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch._inductor.config as inductor_config  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from runner.builder.source import build  # noqa: E402
from runner.contract.graphs import LOST, Call, Capture, Graph  # noqa: E402
from runner.graphs.cases import write_graph  # noqa: E402
from runner.graphs.text import text_of  # noqa: E402
from runner.session.collect import load  # noqa: E402
from runner.worker.capture.recorder import Recorder  # noqa: E402
from runner.worker.capture.session import Session  # noqa: E402


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def capture(function: Callable[..., Any], *inputs: Any, **options: Any) -> Capture:
    recorder = Recorder("model")
    torch.compile(function, backend=recorder, **options)(*inputs)
    return recorder.capture()


def graph_of(function: Callable[..., Any], *inputs: Any, **options: Any) -> Graph:
    (graph,) = capture(function, *inputs, **options).graphs
    return graph


def words(call: Call) -> tuple[Any, ...]:
    return (call.operator, *call.positional, *call.keywords.items())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: F.linear(x, x), ("F.linear", "$x", "$x")),
        (lambda x: torch.special.erf(x), ("torch.special.erf", "$x")),
        (lambda x: x.sum(0), ("Tensor.sum", "$x", 0)),
        (lambda x: F.softmax(x, -1), ("F.softmax", "$x", -1)),
        (lambda x: F.softmax(x, dim=-1, dtype=torch.float64), ("F.softmax", "$x", ("dim", -1), ("dtype", "torch.float64"))),
        (lambda x: x.T, ("Tensor.T", "$x")),
        (lambda x: x[:, None, 0], ("operator.getitem", "$x", "[:, None, 0]")),
        (lambda x: x[1:3:2, ...], ("operator.getitem", "$x", "[1:3:2, ...]")),
        (lambda x: x[[0, 1]], ("operator.getitem", "$x", "[[0, 1]]")),
        (lambda x: torch.full((3,), float("inf"), device=x.device) + x, ("torch.full", [3], float("inf"), ("device", "$device"))),
        (lambda x: torch.einsum("ij,kj->ik", x, x), ("torch.einsum", "ij,kj->ik", "$x", "$x")),
        (lambda x: F.pad(x, (1, 1), "reflect"), ("F.pad", "$x", [1, 1], "reflect", None)),
        (lambda x: torch.ops.aten.add.Tensor(x, 1), ("aten.add.Tensor", "$x", 1)),
        (lambda x: F.scaled_dot_product_attention(x, x, x), ("F.scaled_dot_product_attention", "$x", "$x", "$x")),
        (lambda x: torch.linalg.vector_norm(x, 2.0), ("torch.linalg.vector_norm", "$x", 2.0)),
        (lambda x: 2.5 - x, ("operator.sub", 2.5, "$x")),
    ],
)  # fmt: skip
def test_an_operator_has_its_name_and_its_arguments(function: Callable[..., Any], expected: tuple[Any, ...]) -> None:
    graph = graph_of(function, torch.randn(4, 3))
    assert words(graph.calls[0]) == expected
    assert not graph.calls[0].fault


def test_inputs_say_what_they_are() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)
            self.register_buffer("scale", torch.tensor([2.0, 3.0]))

        def forward(self, x: torch.Tensor, ids: torch.Tensor, factor: float) -> torch.Tensor:
            return (self.layer(x) * self.scale)[ids] * factor

    x = torch.randn(3, 4).t()
    graph = graph_of(Model(), x, torch.tensor([3, 0, 3]), 2.5)
    inputs = {item.name: item for item in graph.inputs}
    assert {name: item.role for name, item in inputs.items()} == {
        "x": "input", "layer_weight": "parameter", "layer_bias": "parameter", "scale": "buffer", "ids": "input",
    }  # fmt: skip
    assert inputs["layer_weight"].origin == "self.layer.weight"
    tensor = inputs["x"].tensor
    assert tensor is not None and (tensor.shape, tensor.stride, tensor.dtype) == ((4, 3), (1, 4), "float32")
    ids, scale = inputs["ids"].statistics, inputs["scale"]
    assert ids is not None and (ids.least, ids.largest, ids.distinct) == (0, 3, False)
    assert scale.values == [2.0, 3.0] and inputs["layer_weight"].tensor.requires_grad  # type: ignore[union-attr]
    assert graph.grad and graph.calls[0].module == ("layer Linear",)
    assert "return (self.layer(x) * self.scale)[ids] * factor" in graph.calls[0].source
    assert [operand.name for operand in graph.calls[0].operands] == ["x", "layer_weight", "layer_bias"]


def test_sizes_that_vary_are_written_as_sizes() -> None:
    graph = graph_of(
        lambda x, y: x.reshape(-1).new_zeros(x.shape[0] + 1) + y.sum(), torch.randn(6, 4), torch.randn(6), dynamic=True
    )
    assert graph.dynamic and [item.name for item in graph.inputs] == ["x", "y"]
    texts = json.dumps([call.positional for call in graph.calls])
    assert "${x.shape[0]}" in texts and "s77" not in texts
    assert graph.inputs[0].tensor.dynamic == (0, 1)  # type: ignore[union-attr]
    add = next(call for call in graph.calls if call.operator == "operator.add" and 1 in call.positional)
    assert add.numbers == {"${x.shape[0]}": 6}


def test_the_case_of_sizes_that_vary_has_the_same_ones(tmp_path: Path) -> None:
    recorder = Recorder("model")
    compiled = torch.compile(lambda x, y: torch.cat([x, x + y]) * x.shape[0], backend=recorder)
    for count in (4, 6):
        compiled(torch.randn(count, 3), torch.randn(3))
    graph = recorder.capture().graphs[1]
    assert [item.tensor.dynamic for item in graph.inputs] == [(0,), ()]  # type: ignore[union-attr]
    written = write_graph(graph, "case")
    assert written.case is not None and written.case["dynamic"] == {"x": {"maybe": [0]}}
    (tmp_path / "a.spec.yaml").write_text(text_of([written]), encoding="utf-8")
    (variant,) = {each.id: each for each in load([str(tmp_path)], everything=True).variants}.values()
    names: dict[str, Any] = {}
    exec(build(variant).text, names)
    torch._dynamo.reset()
    again = graph_of(names["Model"](), *names["make_inputs"]())
    assert [item.tensor for item in again.inputs] == [item.tensor for item in graph.inputs]
    assert [call.operator for call in again.calls] == [call.operator for call in graph.calls]
    assert again.calls[-1].positional[1] == graph.calls[-1].positional[1] == "${x.shape[0]}"


def test_regions_are_contexts() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = torch.sin(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = y @ x
        return y + torch.cos(x)

    graph = graph_of(function, torch.randn(3, 3, requires_grad=True))
    no_grad, autocast = (
        {"torch.set_grad_enabled": [False]},
        {"torch.autocast": {"device_type": "$device", "dtype": "torch.bfloat16"}},
    )
    assert {call.operator: call.contexts for call in graph.calls} == {
        "torch.sin": (no_grad,), "operator.matmul": (no_grad, autocast), "torch.cos": (), "operator.add": (),
    }  # fmt: skip


def test_what_cannot_be_said_is_a_fault_and_runs_as_before() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * x

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    recorder = Recorder("model")
    x = torch.randn(3, requires_grad=True)
    result = torch.compile(lambda x: Square.apply(x) + 1, backend=recorder)(x)
    assert torch.equal(result, x * x + 1)
    (graph,) = recorder.capture().graphs
    (apply,) = (call for call in graph.calls if call.fault and call.results)  # torch 2.6 makes the context by a call
    assert apply.results[0].shape == (3,) and not graph.calls[-1].fault
    case = write_graph(graph, "cut").case
    assert case is not None
    _, given = case["inputs"]  # what the function gave: torch 2.13 has it in a tuple
    assert given == ("getitem" if apply.several else apply.name)
    assert case["chain"] == [{"operator.add": [f"${given}", 1], "out": "add"}] and case["return"] == ["$add", "$x"]


def test_the_first_call_writes_and_draws_as_eager_does() -> None:
    """The run that measures is the run of the model."""
    recorder = Recorder("model")

    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return F.dropout(x, 0.5)

    compiled = torch.compile(function, backend=recorder)
    for count in range(2):
        x, y = torch.zeros(64), torch.zeros(64)
        torch.manual_seed(count)
        expected = function(y)
        torch.manual_seed(count)
        assert torch.equal(compiled(x), expected) and torch.equal(x, y)
    (graph,) = recorder.capture().graphs
    statistics = graph.inputs[0].statistics
    assert statistics is not None and statistics.largest == 0, "inputs are measured before the model writes them"


def test_a_graph_break_has_its_reason_and_its_place() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    found = capture(function, torch.randn(3))
    assert len(found.graphs) == 2
    (graph_break,) = found.breaks
    assert graph_break.reason and "torch._dynamo.graph_break()" in graph_break.source
    assert not capture(lambda x: x.sin(), torch.randn(3)).breaks, "a break of another model is not this one's"


def test_shared_memory_and_tensors_that_an_operator_made_are_said() -> None:
    base = torch.randn(8)
    graph = graph_of(lambda a, b, c: a + b + c, base[:4], base[4:], torch.randn(4, requires_grad=True) * 2)
    first, second, third = (item.tensor for item in graph.inputs)
    assert first and second and third
    assert first.storage == second.storage is not None and third.storage is None
    assert (second.offset, third.leaf, first.leaf) == (4, False, True)


def test_a_capture_survives_the_wire() -> None:
    recorded = capture(lambda x: torch.where(x > 0, x, float("-inf")), torch.randn(2, 3))
    data = json.loads(json.dumps(recorded.to_json()))
    assert json.dumps(Capture.from_json(data).to_json()) == json.dumps(data)


class Module(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


def test_a_session_records_what_is_compiled_in_it_alone() -> None:
    compile_before = torch.compile
    with Session() as session:

        @torch.compile(mode="reduce-overhead")
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        module = Module()
        module.compile(backend="inductor", options={"max_autotune": True})
        never = torch.nn.Linear(2, 2)
        never.compile()
        doubled(torch.ones(2))
        module(torch.ones(2))
    assert torch.compile is compile_before
    assert [found.model.rpartition(".")[2] for found in session.captures()] == ["doubled", "Module"]


def compiler_settings_of(body: Callable[[], object]) -> list[tuple[dict[str, Any], dict[str, Any], list[str]]]:
    """What the graphs that a function compiles are told, and what is not kept of each model."""
    with Session() as session:
        body()
    return [
        ({**graph.compile}, {**graph.config}, [note for note in capture.notes if note.startswith(LOST)])
        for capture in session.captures()
        for graph in capture.graphs
    ]


def compiled(**options: Any) -> None:
    torch.compile(lambda x: x + 1, **options)(torch.ones(2))


def test_the_mode_and_flags_of_the_user_belong_to_the_graph() -> None:
    def body() -> None:
        compiled(mode="max-autotune", dynamic=True)
        compiled(options={"epilogue_fusion": False, "cpp.simdlen": 0})
        with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
            compiled()
        compiled(mode="default")

    flag = "torch._inductor.config."
    assert compiler_settings_of(body) == [
        ({"mode": "max-autotune"}, {}, []),
        ({}, {f"{flag}epilogue_fusion": False, f"{flag}cpp.simdlen": 0}, []),
        ({}, {f"{flag}cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}, []),
        ({}, {}, []),
    ]


def test_what_no_case_keeps_is_said() -> None:
    def own_backend(graph: Any, inputs: Any) -> Any:
        return graph

    def body() -> None:
        compiled(backend=own_backend)
        with torch.no_grad(), torch.autocast("cpu"):
            compiled(options={"post_grad_custom_post_pass": own_backend})
        torch.set_default_dtype(torch.float64)
        try:
            compiled()
        finally:
            torch.set_default_dtype(torch.float32)

    name = "test_what_no_case_keeps_is_said.<locals>.own_backend"
    assert [notes for _, _, notes in compiler_settings_of(body)] == [
        [f"{LOST}backend={name}; runner run --backend names one"],
        [f"{LOST}torch._inductor.config.post_grad_custom_post_pass = {name}"],
        [f"{LOST}torch.get_default_dtype() = torch.float64"],
    ]


def test_a_model_that_dynamo_refuses_has_no_graph_and_a_reason() -> None:
    with Session() as session:
        torch.compile(torch.nn.LSTM(2, 3))(torch.ones(1, 2))
    (capture,) = session.captures()
    assert not capture.graphs and "LSTM" in capture.breaks[0].reason
