"""Frames that torch's compiler gave up: whether a pass says so, and when it is empty."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from runner.worker.torch_private.fallbacks import why_uncompiled
from torch._dynamo.utils import counters
from worker_jobs import oracles, passes, run, source

from runner.cases.torch_names import flag_table
from runner.worker.program.observe import Observation, read_counts
from runner.worker.torch_private.counters import start_counting

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
    counters["graph_break"][key] += 1
    assert why_uncompiled() == reason
    counters.clear()
