"""What torch counts, and that a counter under another name is unknown and never zero."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters as counts_of_torch
from worker_jobs import oracles, passes, run, source

from runner.cases.torch_names import flag_table
from runner.contract.oracles import CHOICES, UNCOMPARED
from runner.verdict.explained import PINS
from runner.worker.program.observe import Observation, read_counts
from runner.worker.torch_private import counters, doors
from runner.worker.torch_private.counters import start_counting, why_uncompiled
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
    notes = [note for note in record["notes"] if "this torch has no count of it; not compared" in note]
    assert len(notes) == 2 and record["labels"] == [UNCOMPARED]


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


BROKEN = "relu_compile_error_TESTING_ONLY"
SUPPRESSED = {"torch._dynamo.config.suppress_errors": True}
AFTER_A_BREAK = source("y = x.sin()\ntorch._dynamo.graph_break()\nreturn torch.relu(y)")
CAUGHT = "y = x.sin()\ntorch._dynamo.graph_break()\nreturn guarded(y)"
GUARDED = """
def guarded(x):
    torch._dynamo.graph_break()
    try:
        torch._dynamo.graph_break()
        return part(x)
    except Exception:
        return x.clamp(min=0)
def part(x):
    return {}
"""


def reason(record: dict[str, Any]) -> str:
    assert record["trust"]["verdict"] == "VACUOUS", record
    return str(record["trust"]["reason"])


def test_a_suppressed_error_is_no_pass_though_other_graphs_were_compiled() -> None:
    assert oracles(run(AFTER_A_BREAK, BROKEN)) == ["compile-error"]
    record = run(AFTER_A_BREAK, BROKEN, config=SUPPRESSED)
    assert record["graphs"] == 1
    assert "torch failed to compile a frame, which ran eagerly: torch_dynamo_resume_in_forward" in reason(record)
    assert passes(run(AFTER_A_BREAK, "eager", config=SUPPRESSED))


def test_a_suppressed_error_is_told_where_no_graph_is_expected() -> None:
    record = run(source("return torch.relu(x)"), BROKEN, config=SUPPRESSED, expect={"graphs": 0})
    assert passes(record) and any("failed to compile" in note for note in record["notes"])


def test_a_suppressed_error_is_no_pass_where_eager_raises_as_expected() -> None:
    text = source("y = torch.relu(x.sin())\ntorch._dynamo.graph_break()\nraise ValueError('no')")
    expect = {"raises": {"type": "ValueError"}}
    assert "failed to compile" in reason(run(text, BROKEN, config=SUPPRESSED, expect=expect))
    assert passes(run(text, "eager", config=SUPPRESSED, expect=expect))


def test_a_compile_error_that_the_case_catches_is_no_pass() -> None:
    text = source(CAUGHT, definitions=GUARDED.format("torch.relu(x)"))
    assert "ran eagerly: part" in reason(run(text, BROKEN))
    assert passes(run(text, "eager"))


def test_an_error_of_eager_itself_that_the_case_catches_says_nothing() -> None:
    assert passes(run(source(CAUGHT, definitions=GUARDED.format("x.view(7, 7)")), "eager"))


def test_of_many_compilations_none_is_forgotten() -> None:
    """torch itself remembers the last 64."""
    body = "return torch.relu(x) if x.shape[0] == 2 else x.sin()"
    text = source(body, definitions="CALLS = [(lambda n=n: [torch.randn(n)]) for n in range(2, 70)]")
    config = {**SUPPRESSED, "torch._dynamo.config.cache_size_limit": 100}
    assert "failed to compile" in reason(run(text, BROKEN, {"dynamic": False}, config=config, float64=False))


LOOP = "def part(x):\n    for _ in range(2):\n        torch._dynamo.graph_break()\n        x = x.sin()\n    return x\n"
SKIPPED = "import time\ndef part(x):\n    time.time()\n    return x.sin()\n"
RECORDED = pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="torch 2.6 does not record it")
DISABLED = "@torch.compiler.disable\ndef part(x):\n    return x.sin()\n"


@pytest.mark.parametrize(
    ("part", "note"),
    [
        pytest.param(LOOP, "compiled nothing of a frame", marks=RECORDED),
        (DISABLED, "is not to trace"),
        (SKIPPED, "is not to trace"),
    ],
    ids=["loop", "disabled", "skipped"],
)
def test_a_pass_says_what_ran_eagerly(part: str, note: str) -> None:
    record = run(source("y = x.cos()\ntorch._dynamo.graph_break()\nreturn part(y)", definitions=part), "eager")
    assert passes(record) and any(note in text for text in record["notes"]), record["notes"]
    assert " at 0x" not in str(record["notes"])


def test_a_pass_without_a_fallback_has_no_note() -> None:
    assert run(AFTER_A_BREAK, "eager")["notes"] == []


@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="torch 2.6 names no flag")
def test_a_recurrent_module_is_told_with_the_flag_that_lets_it_in() -> None:
    start_counting()
    torch.compile(torch.nn.GRU(2, 2), backend="eager")(torch.ones(1, 2))
    observation = Observation()
    read_counts(observation)
    assert "RNN, GRU" in observation.uncompiled
    assert observation.uncompiled.endswith("config: {torch._dynamo.config.allow_rnn: true}")
    assert "torch._dynamo.config.allow_rnn" in flag_table()


def test_a_run_with_a_graph_has_no_reason() -> None:
    start_counting()
    torch.compile(torch.sin, backend="eager")(torch.ones(1))
    observation = Observation()
    read_counts(observation)
    assert (observation.graphs, observation.uncompiled) == (1, "")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("Some operator\n  Explanation: none.\n\n  context: x", "Some operator"),
        ("x" * 300, "x" * 200),
    ],
)
def test_a_reason_is_its_first_line(key: str, reason: str) -> None:
    start_counting()
    assert why_uncompiled() == ""
    counts_of_torch["graph_break"][key] += 1
    assert why_uncompiled() == reason
    counts_of_torch.clear()
