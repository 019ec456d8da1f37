"""Parts of a graph are compiled and the rest runs in eager: the result is eager's, whatever the part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import fake_tensor_unsupported

from runner.worker.program.cut import Cutter, _call_of, _is_call
from runner.worker.torch_private.graphs import is_fake
from runner.worker.torch_private.registry import backend_of


def name_of(node: torch.fx.Node) -> str:
    return _call_of(node).target.rpartition(".")[2]


class Mixed(torch.nn.Module):
    """Several results, sizes, a write, autocast and a region without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(self.linear(x))
        first, second = y.chunk(2, -1)
        z = torch.cat([second, first], -1).view(x.shape[0], -1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = self.linear(z)
        z = z.float()
        z.add_(1)
        with torch.no_grad():
            scale = y.sum()
        best, place = torch.max(z * scale, 1)
        return best, place, z.sin().sum()


def outcome(model: torch.nn.Module, run: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    results = run(x)
    results[2].backward()
    return [*results, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.fixture(scope="module")
def model() -> Mixed:
    torch.manual_seed(0)
    return Mixed()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("compiled", [[(0, 3)], [(2, 6)], [(1, 2), (7, 9)], [(5, 30)], [(0, 30)], []])
def test_the_result_is_eagers_whatever_part_is_compiled(
    model: Mixed, compiled: Sequence[tuple[int, int]], dynamic: bool | None
) -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 8)
    eager = outcome(model, model, x)
    cutter = Cutter(backend_of("aot_eager"), compiled)
    results = outcome(model, torch.compile(model, backend=cutter, dynamic=dynamic), x)
    assert len(cutter.calls) >= 11
    for expected, actual in zip(eager, results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_the_backend_gets_the_chosen_calls_alone() -> None:
    torch._dynamo.reset()
    handed: list[list[str]] = []

    def backend(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        handed.append([str(node.target.__name__) for node in graph.graph.nodes if node.op == "call_function"])
        assert len(examples) == len([node for node in graph.graph.nodes if node.op == "placeholder"])
        return graph.forward

    def chain(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.cos(torch.exp(torch.relu(x))))

    cutter = Cutter(backend, [(1, 3)])
    torch.compile(chain, backend=cutter)(torch.ones(2))
    assert handed == [["exp", "cos"]]
    assert [call.target.rpartition(".")[2] for call in cutter.calls] == ["relu", "exp", "cos", "sin"]


@pytest.mark.parametrize("compiled", [(0, 2), (1, 3), (0, 1), (2, 3)])
def test_a_part_is_given_real_tensors_where_the_graph_is(compiled: tuple[int, int]) -> None:
    # The decorator replaces a fake parameter by zeros, and fails on one that asks for a gradient.
    @fake_tensor_unsupported
    def compile_graph(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        given.extend(example.requires_grad for example in examples)
        return graph.forward

    def note(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        assert not any(map(is_fake, examples))
        return compile_graph(graph, examples)  # type: ignore[no-any-return,unused-ignore]

    torch._dynamo.reset()
    given: list[bool] = []
    model, x = (
        torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(inplace=True), torch.nn.Tanh()),
        torch.ones(2, 3),
    )
    result = torch.compile(model, backend=Cutter(note, [compiled]))(x)
    assert torch.equal(result, model(x)) and result.requires_grad
    assert given == ([False, True, True] if compiled[0] == 0 else [True])


def test_a_value_that_is_written_is_no_leaf() -> None:
    torch._dynamo.reset()
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(inplace=True)), torch.ones(2, 3)
    result = torch.compile(model, backend=Cutter(backend_of("aot_eager"), [(1, 2)]))(x)
    assert torch.equal(result, model(x)) and result.requires_grad


def test_parts_keep_the_names_of_nodes() -> None:
    torch._dynamo.reset()
    whole: list[str] = []
    parts: list[str] = []

    def backend(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        parts.extend(node.name for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    def chain(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        z = torch.sin(y)
        return torch.sin(z + y)

    cutter = Cutter(backend, [(1, 4)])
    torch.compile(chain, backend=cutter)(torch.ones(2))
    whole = [call.name for call in cutter.calls]
    assert parts == whole[1:] and len(set(whole)) == 4


def branches(x: torch.Tensor) -> torch.Tensor:
    a = torch.sin(x)
    b = torch.sigmoid(x)
    first, second = torch.exp(b).chunk(2, -1)
    c = torch.cos(a)
    return torch.cat([first + 1, second * 2], -1) + torch.tanh(c)


def branches_with_a_write(x: torch.Tensor) -> torch.Tensor:
    a = torch.sin(x)
    b = torch.sigmoid(x)
    b.add_(1)
    return b + torch.tanh(torch.cos(a))


@pytest.mark.parametrize(
    ("function", "ends", "expected"),
    [
        (branches, ("sin", "tanh"), ["sin", "cos", "tanh"]),
        (branches, ("sigmoid", "cat"), ["sigmoid", "exp", "chunk", "add", "mul", "cat"]),
        (branches_with_a_write, ("sin", "tanh"), ["sin", "sigmoid", "add_", "cos", "tanh"]),
    ],
    ids=["branch", "several-results", "write"],
)
def test_calls_that_are_not_needed_between_two_move_out_of_their_midst(
    function: Callable[[torch.Tensor], torch.Tensor], ends: tuple[str, str], expected: list[str]
) -> None:
    torch._dynamo.reset()
    handed: list[list[str]] = []

    def backend(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        handed.append([name_of(node) for node in graph.graph.nodes if node.op.startswith("call") and _is_call(node)])
        return graph.forward

    x = torch.randn(4, 6)
    cutter = Cutter(backend, ())
    torch.compile(function, backend=cutter)(x)
    calls = [call.target.rpartition(".")[2] for call in cutter.calls]
    torch._dynamo.reset()
    places = [calls.index(end) for end in ends]
    cutter = Cutter(backend, [(place, place + 1) for place in places], together=True)
    torch.testing.assert_close(torch.compile(function, backend=cutter)(x), function(x))
    assert handed == [expected]


def test_calls_are_numbered_through_all_graphs() -> None:
    torch._dynamo.reset()
    handed: list[int] = []

    def backend(graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        handed.append(len([node for node in graph.graph.nodes if node.op == "call_function"]))
        return graph.forward

    def two(x: torch.Tensor) -> torch.Tensor:
        x = torch.sin(torch.cos(x))
        torch._dynamo.graph_break()
        return torch.exp(torch.relu(x))

    torch.compile(two, backend=Cutter(backend, [(3, 4)]))(torch.ones(2))
    assert handed == [1], "the last call of the second graph"


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(lambda row: row.sin() * row.sum())(torch.exp(x)).cos()


def differentiated(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad(lambda y: y.sin().sum())(torch.exp(x)).cos()


def pushed(x: torch.Tensor) -> torch.Tensor:
    return torch.func.jvp(torch.sin, (torch.exp(x),), (x,))[1].cos()


@pytest.mark.parametrize(("function", "transform"), [(mapped, "vmap"), (differentiated, "grad"), (pushed, "jvp")])
@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_what_a_transform_runs_is_one_call(
    function: Callable[[torch.Tensor], torch.Tensor], transform: str, number: int
) -> None:
    torch._dynamo.reset()
    x = torch.randn(3, 4)
    cutter = Cutter(backend_of("aot_eager"), [(number, number + 1)])
    torch.testing.assert_close(torch.compile(function, backend=cutter)(x), function(x))
    names = [call.target.rpartition(".")[2] for call in cutter.calls]
    assert names == ["exp", transform, "cos"] and cutter.calls[1].target == f"torch.func.{transform}"
