"""Tensors below the absolute tolerance."""

from __future__ import annotations

import pytest
import torch

from runner.worker.comparison.small_tensors import compare_small_tensors
from runner.worker.tensors import tolerance_for


def oracles(eager, compiled, exact, response=0.0, dtype=torch.float32):
    calls: list[str] = []

    def reference():
        calls.append("reference")
        return None if exact is None else torch.as_tensor(exact, dtype=torch.float64).expand(eager.shape)

    def measure():
        calls.append("response")
        return torch.full(eager.shape, response, dtype=torch.float64)

    result = compare_small_tensors(
        eager, compiled, dtype, tolerance_for(dtype), reference, lambda: dtype, measure_response=measure
    )
    return [difference.oracle for difference in result.differences], calls


SMALL = torch.full((3,), 1e-6)


def test_a_gross_error_is_found_where_eager_is_right():
    differences, calls = oracles(SMALL, torch.zeros(3), 1e-6)
    assert differences == ["value"] and calls[0] == "reference" and calls[-1] == "response"


def test_what_rounding_moves_as_far_is_none():
    assert oracles(SMALL, torch.zeros(3), 1e-6, response=1e-8) == ([], ["reference", "response"])


@pytest.mark.parametrize(
    ("eager", "compiled", "exact"),
    [
        (SMALL, SMALL * 1.001, 1e-6),  # a small error
        (SMALL, torch.zeros(3), None),  # no reference
        (SMALL, torch.zeros(3), 2e-6),  # eager is wrong too
        (torch.zeros(3), SMALL, 0.0),  # eager has no size
        (torch.ones(3), torch.ones(3) * 1.5, 1.0),  # the tolerance has seen to those
        (torch.full((3,), 1e-39), torch.zeros(3), 1e-39),  # subnormal
    ],
)
def test_all_else_is_left_to_the_tolerance(eager, compiled, exact):
    differences, calls = oracles(eager, compiled, exact)
    assert differences == [] and "response" not in calls


def test_nothing_is_measured_where_the_tolerance_hides_nothing():
    assert oracles(torch.full((3,), 0.01), torch.full((3,), 0.010009), 0.01) == ([], [])


def test_numbers_of_float16_below_the_normal_ones_count():
    """All that lie below its absolute tolerance are of these. They are 6e-8 apart."""
    eager = torch.full((3,), 9e-6, dtype=torch.float16)
    exact = float(eager[0])
    assert oracles(eager, torch.zeros_like(eager), exact, dtype=torch.float16)[0] == ["value"]
    assert oracles(eager, eager + 1.2e-7, exact, dtype=torch.float16)[0] == []
    tiny = torch.full((3,), 1e-6, dtype=torch.float16)
    assert oracles(tiny, torch.zeros_like(tiny), float(tiny[0]), dtype=torch.float16)[0] == []
