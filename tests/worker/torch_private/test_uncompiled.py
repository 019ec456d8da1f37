"""Why no graph was compiled: torch's own words, and the flag that its hint names."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.utils import counters

from runner.cases.flags import table
from runner.worker.program.observe import Observation, read_counts
from runner.worker.torch_private.counters import start_counting
from runner.worker.torch_private.uncompiled import why_uncompiled


@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="torch 2.6 names no flag")
def test_a_recurrent_module_is_told_with_the_flag_that_lets_it_in() -> None:
    start_counting()
    torch.compile(torch.nn.GRU(2, 2), backend="eager")(torch.ones(1, 2))
    observation = Observation()
    read_counts(observation)
    assert "RNN, GRU" in observation.uncompiled
    assert observation.uncompiled.endswith("config: {torch._dynamo.config.allow_rnn: true}")
    assert "torch._dynamo.config.allow_rnn" in table()


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
