"""Who computed a graph: the backend's own code, torch, or both."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from runner.worker.program import delegation
from runner.worker.program.delegation import INDUCTOR, Delegation, Watched, counts
from runner.worker.torch_private.registry import backend_of

Backend = Callable[..., Any]


def by_numpy(graph: torch.fx.GraphModule, examples: Any) -> Any:
    """Compute ``sin(x) + x`` without torch."""
    import numpy

    return lambda x: (torch.from_numpy(numpy.sin(x.numpy()) + x.numpy()),)


def half(graph: torch.fx.GraphModule, examples: Any) -> Any:
    """Compute the sine without torch, and leave the sum to torch."""
    import numpy

    return lambda x: (torch.from_numpy(numpy.sin(x.numpy())).clone().contiguous() + x,)


def graph_itself(graph: torch.fx.GraphModule, examples: Any) -> Any:
    return graph


def torchs(name: str) -> Backend:
    return lambda graph, examples: backend_of(name)(graph, examples)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    delegation.start_counting()
    yield
    torch._dynamo.reset()


def counted(function: Callable[..., Any], backend: Backend, *args: Any) -> Delegation | None:
    torch.compile(function, backend=Watched(backend, "mine"))(*args)
    return counts()


def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + x


@pytest.mark.parametrize(
    ("backend", "own", "fallbacks"),
    [
        (by_numpy, 2, {}),
        (half, 1, {"add": 1}),
        (graph_itself, 0, {"sin": 1, "add": 1}),
        (torchs("aot_eager"), 0, {"sin": 1, "add": 1}),
        (torchs("inductor"), 0, {INDUCTOR: 1}),
    ],
)
def test_what_torch_runs_is_not_delegated(backend: Backend, own: int, fallbacks: dict[str, int]) -> None:
    assert counted(sine, backend, torch.randn(4)) == Delegation(2, own, fallbacks)


def test_views_copies_and_shapes_count_on_neither_side() -> None:
    def work(x: torch.Tensor) -> Any:
        rows = x.clone().reshape(-1)[: x.shape[0]]
        first, second = torch.chunk(rows, 2)
        first.relu_()
        return torch.max(first.unsqueeze(0), -1), F.linear(second, torch.ones(2, 2))

    result = counted(work, graph_itself, torch.randn(4, 4))
    assert result == Delegation(4, 0, {"relu_": 1, "max": 1, "linear": 1, "ones": 1})


def test_operators_of_branches_count() -> None:
    def work(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos().exp(), (x,))

    result = counted(work, graph_itself, torch.ones(3))
    assert result is not None and result.calls == 5


def test_the_first_call_of_each_graph_counts() -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        torch._dynamo.graph_break()
        return x.cos()

    compiled = torch.compile(work, backend=Watched(graph_itself, "mine"))
    for _ in range(3):
        compiled(torch.randn(4))
    assert counts() == Delegation(2, 0, {"sin": 1, "cos": 1})


def test_nothing_is_said_of_what_cannot_be_counted() -> None:
    assert counted(lambda x: x[0].reshape(2, 2), graph_itself, torch.randn(4, 4)) is None
    torch._dynamo.reset()
    delegation.start_counting()
    with torch.autograd.profiler.profile():
        assert counted(sine, graph_itself, torch.randn(4)) is None


def test_a_backend_stays_what_it_is() -> None:
    def strange(graph: Any, examples: Any, flag: int = 0) -> Any:
        return flag

    strange.reset = "here"  # type: ignore[attr-defined]
    watched = Watched(strange, "mine")
    assert (watched.__name__, watched.reset) == ("strange", "here")  # type: ignore[attr-defined]
    graph = torch.fx.symbolic_trace(torch.nn.Identity())
    assert watched(graph, [], flag=3) == 3
    with pytest.raises(AttributeError, match="missing"):
        watched.missing  # noqa: B018


def test_a_backend_without_a_name_has_the_one_that_it_is_known_by() -> None:
    def broken(graph: Any, examples: Any, flag: int) -> Any:
        raise ValueError(flag)

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="backend='mine' raised"):
        counted(sine, functools.partial(broken, flag=3), torch.randn(4))


def test_errors_of_the_backend_pass_through() -> None:
    def broken(graph: Any, examples: Any) -> Any:
        def run(*args: Any) -> Any:
            raise KeyError("at run time")

        return run

    with pytest.raises(KeyError, match="at run time"):
        counted(sine, broken, torch.randn(4))
    assert counts() is None
