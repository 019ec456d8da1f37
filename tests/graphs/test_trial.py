"""Candidates are tried in eager: what eager refuses gives way to a milder one, or stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from runner.contract.graphs import Call, Graph, GraphInput, Tensor
from runner.graphs import trial
from runner.graphs.trial import Shrinker
from runner.session.plan import find_environments

pytest.importorskip("torch")


def graph(operator: str, shape: tuple[int, ...], *arguments: Any) -> Graph:
    tensor = Tensor(shape, "float32")
    return Graph("g", "a", (GraphInput("x", tensor),), (Call("y", operator, ("$x", *arguments)),), "$y")


@pytest.fixture(scope="module")
def shrinker() -> Iterator[Shrinker]:
    from runner.engine.local import LocalEngine

    environment = find_environments(())[0]
    with LocalEngine({environment.key: environment.python}, 1, warm={environment.key: "import"}) as engine:
        yield Shrinker(engine, environment, 1, 16)


def sizes(graphs: Sequence[Graph]) -> list[Any]:
    return [item.inputs[0].tensor and item.inputs[0].tensor.shape for item in graphs]


def test_the_smallest_that_eager_takes_is_the_graph(shrinker: Shrinker, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [
        graph("Tensor.view", (64, 128), [8192]),
        graph("torch.relu", (3, 4)),
        graph("Tensor.view", (100, 5), [20, 25]),
        graph("torch.nosuch", (100,)),
    ]
    milder = {id(large[2]): [graph("Tensor.view", (30, 5), [20, 25]), graph("Tensor.view", (50, 5), [10, 25])]}
    monkeypatch.setattr(trial, "candidates", lambda g, bound: iter(milder.get(id(g)) or shrunk(g, bound)))
    first, second, third, fourth = shrinker.shrink(large)
    assert sizes([first])[0] != (64, 128) and "made smaller" in first.origin
    assert second is large[1]
    assert sizes([third]) == [(50, 5)]
    assert fourth is large[3]


shrunk = trial.candidates


def test_a_candidate_whose_process_dies_is_not_taken(shrinker: Shrinker, monkeypatch: pytest.MonkeyPatch) -> None:
    large = [graph("torch.relu", (100,)), graph("torch.relu", (200,))]
    real = trial._jobs_of

    def deadly(*arguments: Any) -> dict[int, Any]:
        return {n: replace(job, source="import os\nos._exit(3)\n") for n, job in real(*arguments).items()}

    monkeypatch.setattr(trial, "_jobs_of", deadly)
    assert shrinker.shrink(large) == large


def test_candidates_with_one_digest_are_tried_once(shrinker: Shrinker, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    real = trial._jobs_of

    def counted(graphs: Any, *arguments: Any) -> dict[int, Any]:
        tries.append(len(graphs))
        return real(graphs, *arguments)

    monkeypatch.setattr(trial, "_jobs_of", counted)
    large = [graph("torch.tan", (300,)), graph("torch.tan", (500,)), graph("torch.not_tried_before", (300,))]
    for _ in range(2):
        first, second, third = shrinker.shrink(large)
        assert sizes([first]) == sizes([second]) != [(300,)]
        assert third is large[2]
    assert sum(tries) == 2
