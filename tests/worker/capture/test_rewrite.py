"""Calls without a public name become public ones that compute the same, or stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from runner.builder.source import build  # noqa: E402
from runner.contract.graphs import Capture  # noqa: E402
from runner.graphs.cases import write_graph  # noqa: E402
from runner.graphs.text import text_of  # noqa: E402
from runner.session.collect import load  # noqa: E402
from runner.worker.capture.recorder import Recorder  # noqa: E402
from runner.worker.torch_private.doors import Door  # noqa: E402

HAS_VMAP = Door("torch._functorch.predispatch:_add_batch_dim", "", ("2.9", "2.13")).find() is not None


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def capture(function: Callable[..., Any], *inputs: Any) -> Capture:
    recorder = Recorder("model")
    compiled = torch.compile(function, backend=recorder)
    for _ in range(2):  # the first call is measured, the second one runs the graph as Dynamo made it
        assert torch.equal(compiled(*inputs), function(*inputs))
    return recorder.capture()


def written(function: Callable[..., Any], folder: Path, *inputs: Any) -> tuple[Any, Capture]:
    """Return the model that is written of a function, and its capture."""
    captured = capture(function, *inputs)
    (graph,) = captured.graphs
    case = write_graph(graph, "case")
    assert not case.faults
    (folder / "a.spec.yaml").write_text(text_of([case]), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(build(load([str(folder)], everything=True).variants[0]).text, names)
    return names["Model"](), captured


@pytest.mark.skipif(not HAS_VMAP, reason="this torch writes a vmap into graphs under other names")
@pytest.mark.parametrize("dims", [(0, 0, 0), (1, 2, 2), (2, 1, 0), (1, None, -1)])
def test_a_vmap_of_single_elements_is_its_operators_over_the_batch(tmp_path: Path, dims: tuple[Any, ...]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda a, b: torch.exp(a * b) - b, dims[:2], dims[2])(x, y)

    x, y = torch.randn(3, 3, 3), torch.randn(3, 3, 3) if dims[1] is not None else torch.randn(3)
    model, captured = written(function, tmp_path, x, y)
    expected = function(x, y)
    assert torch.equal(model(x, y), expected) and model(x, y).stride() == expected.stride()
    assert captured.notes == ("1 call of vmap: written as operators over the whole batch",)


@pytest.mark.skipif(not HAS_VMAP, reason="this torch writes a vmap into graphs under other names")
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.vmap(lambda a: a.sum(0))(x),
        lambda x, y: torch.vmap(lambda a, b: a * b, (0, 0))(x, y),  # of two and of one dimension: they would broadcast
        lambda x, y: torch.vmap(lambda a, b: a + b, (0, None))(y, x),
        lambda x, y: torch.vmap(lambda a: a * 2.5 + a.double())(x),
        lambda x, y: torch.vmap(torch.vmap(lambda a: a * a))(x),
    ],
)
def test_any_other_vmap_is_left_out(function: Callable[..., Any]) -> None:
    captured = capture(function, torch.randn(3, 3, 3), torch.randn(3, 3))
    assert any(call.fault for graph in captured.graphs for call in graph.calls) and not captured.notes


def test_a_weight_norm_is_written_by_public_functions(tmp_path: Path) -> None:
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(4, 6, 3), dim=2)
    weight = layer.parametrizations.weight
    own = [weight.original1.detach(), weight.original0.detach()]

    def function(value: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch._weight_norm(value, scale, 2)

    recorder = Recorder("model")
    torch.compile(layer, backend=recorder)(torch.randn(2, 4, 8)).sum().backward()
    captured = recorder.capture()
    assert not any(call.fault for graph in captured.graphs for call in graph.calls)
    assert captured.notes == ("torch._weight_norm is written by torch.norm_except_dim: roundings may differ",)
    (folder := tmp_path / "alone").mkdir()
    recorder = Recorder("alone")
    compiled = torch.compile(function, backend=recorder)
    expected = function(*own)
    torch.testing.assert_close(compiled(*own), expected)
    assert torch.equal(compiled(*own), expected), "only the call that is measured is rewritten"
    case = write_graph(recorder.capture().graphs[0], "case")
    (folder / "a.spec.yaml").write_text(text_of([case]), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(build(load([str(folder)], everything=True).variants[0]).text, names)
    torch.testing.assert_close(names["Model"]()(*own), expected)
