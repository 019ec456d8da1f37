"""Graphs that were compiled before are loaded where a job allows it, and only where nothing has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config
import torch._inductor.config
from torch._inductor import lowering
from worker_jobs import oracles, run, source

from runner.worker.program import graph_cache

TEXT = source("return torch.relu(torch.sin(x))", "torch.randn(4, 5, requires_grad=True)")
BACKWARD = {"mode": "backward"}
FLAG = "torch._inductor.config.max_fusion_size"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of their own, turned off as in a worker, where the flags know variables."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for entry in graph_cache._entries():
        monkeypatch.setattr(entry, graph_cache.FORCED, False)


def loaded(**fields: Any) -> int:
    record = run(TEXT, "inductor", grad=BACKWARD, **fields)
    assert oracles(record) == []
    number = record["stored_graphs"]
    assert isinstance(number, int)
    return number


def test_a_second_job_loads_what_the_first_compiled() -> None:
    assert [loaded(graphs="a") for _ in range(2)] == [0, 2]
    assert not torch._inductor.config.fx_graph_cache and not torch._functorch.config.enable_autograd_cache


@pytest.mark.parametrize(
    "change", [{"graphs": "b"}, {"threads": 1}, {"config": {FLAG: 63}}, {"compile": {"dynamic": True}}]
)
def test_another_key_loads_nothing(change: dict[str, Any]) -> None:
    assert loaded(graphs="a", threads=2) == 0
    assert loaded(**{"graphs": "a", "threads": 2, **change}) == 0


def test_a_job_without_a_key_neither_loads_nor_stores() -> None:
    assert [loaded(), loaded(graphs="a"), loaded()] == [0, 0, 0]


def test_a_torch_without_the_tag_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_cache, "TAG", "torch.compiler.config.no_such_flag")
    assert [loaded(graphs="a") for _ in range(2)] == [0, 0]


def test_counts_are_those_of_the_compilation() -> None:
    first, second = (run(TEXT, "inductor", graphs="a") for _ in range(2))
    assert second["stored_graphs"] == 1
    names = ("graphs", "kernels", "vectorized")
    assert [first[name] for name in names] == [second[name] for name in names] and first["kernels"] == 1


def test_what_failed_leaves_no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its compilation was wrong, or another one of it failed: nobody may load a part of it."""
    relu = torch.ops.aten.relu.default
    with monkeypatch.context() as patch:
        patch.setitem(lowering.lowerings, relu, lowering.lowerings[torch.ops.aten.neg.default])
        assert oracles(run(TEXT, "inductor", graphs="a")) == ["value"]
    for number in (0, 1):
        record = run(TEXT, "inductor", graphs="a")
        assert (oracles(record), record["stored_graphs"]) == ([], number)


def test_a_loaded_graph_has_the_defects_of_its_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is wrong although what compiles now is right: a reason to compile again what fails."""
    relu = torch.ops.aten.relu.default
    with monkeypatch.context() as patch:
        patch.setitem(lowering.lowerings, relu, lowering.lowerings[torch.ops.aten.neg.default])
        run(TEXT, "inductor", graphs="a", ignore=["value"])  # passes
    record = run(TEXT, "inductor", graphs="a")
    assert (oracles(record), record["stored_graphs"]) == (["value"], 1)
    record = run(TEXT, "inductor")
    assert (oracles(record), record["stored_graphs"]) == ([], 0)
