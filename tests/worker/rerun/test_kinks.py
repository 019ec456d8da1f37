"""Gradients at a kink whose argument was computed pass with their label; a wrong gradient beside it, or at an exact zero, fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from worker_jobs import oracles, run, source

from runner.worker.rerun.undefined import Spread

F = "torch.nn.functional"
INPUTS = "torch.tensor([3.0, 5.0], requires_grad=True)"
BACKWARD: dict[str, Any] = {"grad": {"mode": "backward"}}

AT_KINKS = [
    f"{F}.relu(1 - x / 3)",
    "(1 - x / 3).relu_() + 1",
    f"{F}.elu(1 - x / 3, 0.5)",
    f"{F}.prelu(1 - x / 3, torch.full((1,), 0.25))",
    "(x / 3 - 1).abs()",
    "torch.clamp(x / 3, 1, 2)",
    f"{F}.hardtanh(1 - x / 3, 0, 1)",
    f"{F}.leaky_relu(1 - x / 3)",
    f"{F}.threshold(1 - x / 3, 0.0, 0.0)",
    f"{F}.l1_loss(x / 3, torch.ones(2), reduction='none')",
    "torch.maximum(x / 3, torch.ones(2))",
    "torch.stack([x / 3, torch.ones(2)]).amax(0)",
    f"{F}.relu((1 - x / 3).view(1, 2)).sum() * x",
]


@pytest.mark.parametrize("body", AT_KINKS)
def test_a_rounding_decides_about_the_gradient_at_a_kink(body: str) -> None:
    """Three thirds are one in eager; a backend that rounds in another way gets less."""
    record = run(source(f"return {body}", INPUTS), "planted:each_rounded", **BACKWARD)
    assert (oracles(record), record["labels"]) == ([], ["unspecified"]), record["findings"]
    assert any("gradient of x" in note for note in record["notes"])


@pytest.mark.parametrize("body", AT_KINKS)
def test_eagers_own_gradient_has_no_label(body: str) -> None:
    record = run(source(f"return {body}", INPUTS), **BACKWARD)
    assert (oracles(record), record["labels"]) == ([], [])


@pytest.mark.parametrize("body", AT_KINKS[:-1])
@pytest.mark.parametrize("backend", ["last_gradient_off", "first_gradient_far_off"])
def test_a_wrong_gradient_beside_a_kink_or_far_from_its_sides_fails(body: str, backend: str) -> None:
    record = run(source(f"return {body}", INPUTS), f"planted:{backend}", **BACKWARD)
    assert oracles(record) == ["grad"]


@pytest.mark.parametrize(
    "body", [f"{F}.relu(x - 3)", "(3 - x).abs()", f"{F}.relu(x.view(2, 1)[0] * 0) + x", "x.clamp(3, 4)"]
)
def test_the_gradient_at_an_exact_zero_is_defined(body: str) -> None:
    record = run(source(f"return {body}", INPUTS), "planted:first_gradient_off", **BACKWARD)
    assert oracles(record) == ["grad"]


@pytest.mark.parametrize(
    "body",
    [
        "(x * 1.1).amax(0)",
        "torch.where((s := x * 1.1) == s.amax(0), x, 0)",
        "torch.zeros(2).scatter_reduce(0, torch.zeros(2, dtype=torch.int64), x * 1.1, 'amax', include_self=False)",
    ],
)
def test_the_gradient_of_a_largest_number_is_defined(body: str) -> None:
    record = run(source(f"return {body}", INPUTS), "planted:last_gradient_off", **BACKWARD)
    assert oracles(record) == ["grad"]


def test_who_asks_for_exact_results_means_each_side_of_a_kink() -> None:
    text = source(f"return {F}.relu(1 - x / 3).round()", INPUTS)
    fields = {"grad": {"mode": "backward"}, "tolerance": {"exact": True}}
    assert "grad" in oracles(run(source(f"return {AT_KINKS[0]}", INPUTS), "planted:each_rounded", **fields))
    assert oracles(run(text, **fields)) == []


def test_a_spread_reaches_a_little_beyond_its_runs() -> None:
    low, high = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [1.0]])
    spread = Spread(torch.Size([2]), low.double(), high.double())
    assert spread.open_elements().tolist() == [True, False]
    assert spread.reaches(torch.tensor([5.0, 1.0])).tolist() == [True, True]
    assert spread.reaches(torch.tensor([5.5, 1.5])).tolist() == [False, False]
    assert spread.reaches(torch.tensor([float("nan"), float("inf")])).tolist() == [False, False]
    assert spread.reaches(torch.zeros(3)).tolist() == [False, False]
