"""What torch counts, and that a counter under another name is unknown and never zero."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from worker_jobs import passes, run, source

from runner.contract.oracles import CHOICES
from runner.verdict.explained import PINS
from runner.worker.torch_private import counters, doors
from runner.worker.torch_private.doors import Door

TEXT = source("return x + 1")


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing was reported or tried in this process so far."""
    monkeypatch.setattr(doors, "_absences", {})
    monkeypatch.setattr(doors, "DOORS", [])
    monkeypatch.setattr(counters, "_lost", None)
    yield


def rename(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let this torch count all under another name."""
    monkeypatch.setattr(counters, "_COUNTERS", Door(f"torch._dynamo.utils:{name}", "graphs are not counted"))


def lose(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> None:
    """Let this torch count some kinds under other names."""
    original = counters.of
    monkeypatch.setattr(counters, "of", lambda kind: {} if kind in kinds else original(kind))


def test_torch_counts() -> None:
    counters.start_counting()
    assert (counters.graphs(), counters.recompiles(), counters.of("graph_break")) == (0, 0, {})
    assert counters.lost(counters.COUNTS) == frozenset() == frozenset(doors.absences())
    assert (counters.graphs(), counters.recompiles()) == (4, 2)
    assert sum((counters.of("graph_break") or {}).values()) > 0
    counters.start_counting()
    assert counters.graphs() == 0 and not any(counters.everything().values())


def test_a_run_without_counters_is_not_vacuous_and_says_what_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rename(monkeypatch, "tally")
    record = run(TEXT, "eager", expect={"graphs": 1, "graph_breaks": 0, "recompiles": 0})
    assert passes(record) and (record["graphs"], record["graph_breaks"], record["recompiles"]) == (None, None, 0)
    assert record["unchecked"] == [
        f"torch {torch.__version__} has no torch._dynamo.utils.tally: graphs are not counted"
    ]
    assert sum("not checked, since this torch has no count of them" in note for note in record["notes"]) == 2


def test_a_count_under_another_name_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, "stats")
    record = run(TEXT, "eager")
    assert passes(record) and record["graphs"] is None
    assert record["unchecked"] == [f"torch {torch.__version__} counts graphs under another name: they are not checked"]


def test_graph_breaks_under_another_name_do_not_keep_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, "graph_break")
    record = run(TEXT, "eager", expect={"graph_breaks": 0})
    assert passes(record) and record["graph_breaks"] is None and len(record["unchecked"]) == 1
    assert run(TEXT, "eager")["graph_breaks"] == 0  # nobody asks


def test_a_case_that_turns_the_compiler_off_is_vacuous() -> None:
    record = run(TEXT, "eager", config={"torch._dynamo.config.disable": True})
    assert record["trust"]["verdict"] == "VACUOUS" and record["graphs"] == 0 and record["unchecked"] == []


def test_nothing_is_tried_where_graphs_were_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_try_counts", pytest.fail)
    assert passes(run(TEXT, "eager"))


def test_kernels_that_are_not_counted_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_KERNELS", Door("torch._inductor.metrics:kernel_total", "kernels are not counted"))
    record = run(TEXT, "inductor")
    assert passes(record) and record["kernels"] is None and "kernels are not counted" in record["unchecked"][0]


@pytest.mark.parametrize(
    ("counts", "choices"),
    [
        ({"pad_mm_bench": 3, "benchmarking.InductorBenchmarker.benchmark_gpu": 8}, ("padding",)),
        ({"select_algorithm_autotune": 1, "pad_mm_bench": 0}, ("autotuning",)),
        ({"extern_calls": 4}, ()),
    ],
)
def test_what_a_benchmark_chose_is_counted(
    monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], choices: tuple[str, ...]
) -> None:
    monkeypatch.setattr(counters, "_COUNTERS", SimpleNamespace(find=lambda: {"inductor": counts}))
    assert counters.benchmarked() == choices


def test_every_choice_can_be_pinned_by_flags_of_torch() -> None:
    assert {*counters._BENCHMARKS} == {*PINS} == {*CHOICES}
    for pins in PINS.values():
        for name in {*pins[0], *pins[1]}:
            module, _, flag = name.rpartition(".")
            assert hasattr(importlib.import_module(module), flag)
