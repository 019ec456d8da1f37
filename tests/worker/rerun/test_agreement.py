"""State that cannot be compared, and what is compared nevertheless."""

from __future__ import annotations

import pytest
from worker_jobs import oracles, passes, run, source

CLOCK = """import sys, time
SEEN = []
TURN = sys.runner_test_imports = getattr(sys, "runner_test_imports", 0) + 1
"""
FAKE = """
SEEN, OTHER = [], []
@torch.library.custom_op("runner_test_unstable::triple_{name}", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3
@triple.register_fake
def _(x):
    OTHER.append(1)
    return torch.empty_like(x)
"""


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("self.t = time.time_ns()", "attribute t"),
        ("self.b = torch.tensor(time.time_ns())", "attribute b"),
        ("SEEN.append(time.time_ns())", "global SEEN"),
        ("SEEN.extend([1] * TURN)", "global SEEN"),
    ],
)
def test_state_that_eager_leaves_differently_each_time_is_not_compared(line: str, part: str) -> None:
    text = source(f"y = x + 1\ntorch._dynamo.graph_break()\n{line}\nreturn y * 2", definitions=CLOCK)
    record = run(text, "eager")
    assert passes(record), record
    assert f"{part}: not compared (two eager runs leave it differently)" in record["notes"]
    assert "value" in oracles(run(text, "planted:off_by_one"))


def test_other_state_is_compared() -> None:
    text = source("y = x + 1\ntorch._dynamo.graph_break()\nself.t = time.time_ns()\nreturn y * 2", definitions=CLOCK)
    record = run(text, "planted:appends_to_a_variable")
    assert [finding["path"] for finding in record["findings"]] == ["global SEEN"] and record["trust"] is None


def test_outputs_that_differ_with_the_state_are_flaky() -> None:
    record = run(
        source("self.t = torch.tensor(time.time_ns())\nreturn x.double() * self.t", definitions=CLOCK), "eager"
    )
    assert record["trust"]["verdict"] == "FLAKY" and record["trust"]["reason"].endswith("disagree: output")


def test_what_a_fake_kernel_writes_is_not_compared() -> None:
    text = source("return triple(x) + 1", definitions=FAKE.format(name="passes"))
    record = run(text, "eager")
    assert passes(record), record
    assert "global OTHER: not compared (written while torch traces, as by a fake kernel)" in record["notes"]


def test_what_the_compiler_writes_besides_is_compared() -> None:
    text = source("return triple(x) + 1", definitions=FAKE.format(name="fails"))
    record = run(text, "planted:appends_to_a_variable")
    assert [finding["path"] for finding in record["findings"]] == ["global SEEN"]


@pytest.mark.parametrize(
    "body",
    [
        "if not torch.compiler.is_compiling(): self.log.append(type(x).__name__)",
        "self.log = {'type': type(x).__name__, 'count': 5 if torch.compiler.is_compiling() else 1}",
    ],
)
def test_what_eager_writes_too_is_compared(body: str) -> None:
    """The name of a class differs on tensors without elements, and a compiler may still not lose the entry."""
    record = run(source(f"{body}\nreturn x * 2", init="self.log = []"), "eager")
    assert oracles(record) == ["mutation"] and not record["notes"], record


def test_a_model_that_needs_the_elements_is_compared() -> None:
    text = source("return x + 1 if x.sum().item() < 1e9 else x", definitions="SEEN = []")
    assert oracles(run(text, "planted:appends_to_a_variable")) == ["mutation"]


def test_a_variable_with_the_time_of_the_import_is_compared() -> None:
    text = source("return x + 1", definitions="import time\nSEEN = [time.time_ns()]")
    assert passes(run(text, "eager"))
    assert oracles(run(text, "planted:appends_to_a_variable")) == ["mutation"]
