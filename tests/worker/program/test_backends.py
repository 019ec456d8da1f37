"""Replays of CUDA graphs are counted, by stand-ins where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from worker_jobs import passes, run, source

from runner.worker.program import backends


class Graph:
    """What torch.cuda.CUDAGraph is, as far as it matters."""

    def __init__(self) -> None:
        self.replays: list[str] = []

    def replay(self) -> None:
        self.replays.append("replayed")


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Graph:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    return Graph()


def test_replays_are_counted_while_somebody_counts_and_happen_always(graph: Graph) -> None:
    original = Graph.replay
    graph.replay()
    with backends.count_replays() as counter:
        graph.replay()
        graph.replay()
    graph.replay()
    assert (counter.count, len(graph.replays)) == (2, 4)
    assert Graph.replay is original


def test_counting_ends_with_an_error_too(graph: Graph) -> None:
    original = Graph.replay
    with pytest.raises(ZeroDivisionError), backends.count_replays():
        1 / 0  # noqa: B018
    assert Graph.replay is original


def test_torch_replays_by_the_method_that_is_counted() -> None:
    from torch._inductor import cudagraph_trees

    assert "replay" in vars(torch.cuda.CUDAGraph)
    assert "replay" in cudagraph_trees.CUDAGraphNode.run_graph.__code__.co_names


@pytest.mark.parametrize(
    ("mode", "device", "expected"),
    [("reduce-overhead", "cuda", True), ("max-autotune", "cuda:1", True), ("max-autotune-no-cudagraphs", "cuda", False),
     (None, "cuda", False), ("reduce-overhead", "cpu", False)],
)  # fmt: skip
def test_which_modes_make_graphs(mode: str | None, device: str, expected: bool) -> None:
    assert backends.makes_graphs({"backend": "inductor", "mode": mode}, device) is expected


def test_the_modes_are_those_that_torch_gives_graphs() -> None:
    modes = torch._inductor.list_mode_options()
    assert {name for name, options in modes.items() if options.get("triton.cudagraphs")} == set(backends.GRAPH_MODES)


def test_a_job_says_how_many_and_remarks_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    text = source("return torch.relu(x)")
    quiet = run(text, "inductor")
    assert passes(quiet) and quiet["replays"] == 0 and not quiet["notes"]
    monkeypatch.setattr(backends, "makes_graphs", lambda backend, device: "mode" in backend)
    noted = run(text, "inductor", compile={"mode": "reduce-overhead"})
    assert passes(noted) and noted["notes"] == [backends.missing_note("reduce-overhead", 1)]


def test_what_is_said_where_none_was_replayed() -> None:
    assert backends.missing_note("max-autotune", 3) == "mode max-autotune replayed no CUDA graph"
    assert backends.missing_note("max-autotune", 1).endswith(
        ": the second call would record one, and there is one call"
    )
