"""What another order of addition may do, and what it may not excuse."""

from __future__ import annotations

import pytest
import torch
from worker_jobs import oracles, passes, run, source

from runner.worker.rounding.sensitivity import (
    UNIT,
    blur,
    element_sensitivity,
    explains,
    is_small,
    movement_explains,
    perturb,
    response_explains,
)
from runner.worker.tensors import Tolerance
from runner.worker.thresholds import ROUNDING_FACTOR

SUM = source("return x.sum(0)", "torch.randn(4096, 8)")
LABEL = "within-rounding-of-inputs"


@pytest.mark.parametrize("seed", range(3))
def test_a_sum_in_another_order_is_rounding(seed):
    record = run(SUM, "planted:naive_sum", seed=seed)
    assert passes(record) and record["labels"] == [LABEL]


@pytest.mark.parametrize("bug", ["row_left_out", "sum_of_halves"])
def test_a_sum_of_something_else_is_not(bug):
    assert oracles(run(SUM, f"planted:{bug}")) == ["value"]


NUMBERS = source("return x.sum(0).tolist()", "torch.randn(4096, 8)")
"""The same, as numbers of Python. The graph ends before that."""


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_numbers_of_python_are_rounded_no_less(seed):
    record = run(NUMBERS, "planted:naive_sum", seed=seed)
    assert passes(record) and record["labels"] == [LABEL]


@pytest.mark.parametrize(
    ("text", "fields"),
    [(NUMBERS, {"dtype": "float64"}), (NUMBERS, {"tolerance": {"by_dtype": {"": [1.3e-6, 1e-5]}, "exact": False}})],
)
def test_numbers_of_python_of_another_dtype_or_tolerance(text, fields):
    assert set(oracles(run(text, "planted:naive_sum", seed=1, **fields))) == {"value"}


@pytest.mark.parametrize("bug", ["row_left_out", "sum_of_halves"])
def test_numbers_of_python_of_something_else_are_wrong(bug):
    assert set(oracles(run(NUMBERS, f"planted:{bug}", seed=1))) == {"value"}


def test_a_number_that_is_complex_in_eager_alone():
    """The sum of the five is -1 in float32, where 2 ** 24 + 1 is 2 ** 24, and 1 in float64."""
    inputs = "torch.tensor([16777216.0, 1.0, 1.0, -16777218.0, 1.0])"
    root = source("return (x[0] + x[1] + x[2] + x[3] + x[4]).item() ** 0.5", inputs)
    record = run(root, "planted:tiny_noise")
    assert oracles(record) == ["value"] and "1j" in record["findings"][0]["message"]
    assert passes(run(root, "planted:clean"))


def test_a_step_excuses_nothing():
    """One in 4000 is small, and a floor moves by one when its argument does by nothing."""
    floor = source("return torch.floor(x)", "torch.arange(4000.0)")
    assert oracles(run(floor, "planted:last_off_by_one")) == ["value"]
    assert passes(run(floor, "planted:clean"))


CANCELLING = source("return (x * torch.cos(x) - torch.sin(x)) / (x * x)", "torch.tensor([0.004, 1.0, 2.0])")
"""The inputs are good to their last bit; what is subtracted is not, and the difference is divided by little."""

CONSTANT = source(
    "y = x.expand(2, 8)\nreturn (y - torch.mean(y, 1, True)) / (torch.std(y, 1, keepdim=True) + 1e-5)", "torch.randn(1)"
)
"""Zero but for rounding, of one number that stands in every place."""


@pytest.mark.parametrize("text", [CANCELLING, CONSTANT])
def test_what_cancels_is_rounded_by_what_came_before(text):
    record = run(text, "planted:each_rounded")
    assert passes(record), record["findings"]


@pytest.mark.parametrize("text", [CANCELLING, CONSTANT])
def test_what_cancels_is_not_excused_from_more(text):
    assert oracles(run(text, "planted:each_wrong")) == ["value"]


LEAST = source(
    "v = torch.tan(x)\nw = v.clone().scatter_reduce_(0, i, y, 'amin')\nreturn v, w, torch.nn.functional.pairwise_distance(v, z)",
    "torch.randn(20, 20, requires_grad=True), torch.randn(20, 20), torch.ones(1, 1, dtype=torch.int64), torch.ones(1, 1)",
    "x, z, i, y",
)
"""The backward of ``amin`` asks which numbers equal the least one, and divides by their count."""


def test_numbers_that_are_compared_are_not_perturbed_apart():
    record = run(LEAST, "aot_eager_decomp_partition", grad={"mode": "backward"})
    assert passes(record) and record["labels"] == [LABEL], record["findings"]


CANCELLING_HALVES = source("return 1 / x - x / (x * x)", "torch.ones(8).bfloat16()")
"""Nothing is rounded in eager: its error, zero, says nothing about another order of operators."""


def test_halves_that_cancel_are_rounded_where_they_are_stored():
    record = run(CANCELLING_HALVES, "planted:each_rounded_in_bfloat16", dtype="bfloat16")
    assert passes(record) and record["labels"] == [LABEL], record["findings"]
    assert oracles(run(CANCELLING_HALVES, "planted:each_far_off", dtype="bfloat16")) == ["value"]


WIDER = source(
    "a, b = 1 / x, x / (x * x)\nreturn a - b, y / 1.5 - y / 1.5", "torch.ones(8).bfloat16(), torch.ones(8)", "x, y"
)
"""What cancels in float32, beside what cancels in bfloat16."""


def test_halves_excuse_nothing_that_is_computed_in_float32():
    findings = run(WIDER, "planted:each_rounded_in_bfloat16", dtype="bfloat16")["findings"]
    assert [(finding["oracle"], finding["path"]) for finding in findings] == [("value", "output[1]")], findings
    assert passes(run(WIDER, "planted:each_rounded", dtype="bfloat16"))


def test_who_names_a_tolerance_has_said_enough():
    tolerance = {"by_dtype": {"": [1.3e-6, 1e-5]}, "exact": False}
    assert oracles(run(SUM, "planted:naive_sum", tolerance=tolerance)) == ["value"]


def test_gradients_too():
    weight = "self.w = torch.nn.Parameter(torch.zeros(8))"
    text = source("return x * self.w", "torch.randn(4096, 8)", init=weight)
    record = run(text, "inductor", grad={"mode": "backward"}, seed=1)
    assert passes(record)


def test_narrower_results_are_as_before():
    half = source("return x.sum(0)", "torch.randn(4096, 8).bfloat16()")
    record = run(half, "planted:naive_sum")
    assert oracles(record) == ["value"]  # rounded to bfloat16 after each addition, which eager does not


# --- the parts ---


def test_numbers_in_one_place_of_memory_are_perturbed_each_by_itself():
    x = torch.ones(1, dtype=torch.float64).expand(1000)
    up, down = blur(3, 1)(x, torch.float32), blur(3, -1)(x, torch.float32)
    assert up.unique().tolist() == down.unique().tolist() == [1 - UNIT, 1 + UNIT]
    assert torch.equal(up + down, 2 * x) and x[0] == 1


def test_a_perturbation_is_one_rounding_of_each_element_once():
    x, count = torch.randn(1000, dtype=torch.float64), torch.arange(3)
    up, down = x.clone(), x.clone()
    perturb([up, up, count], 3, 1)
    perturb([down], 3, -1)
    assert torch.allclose(((up - x) / x).abs(), torch.tensor(UNIT, dtype=torch.float64), rtol=1e-6)
    assert torch.allclose(up - x, x - down) and 300 < int((up > x).sum()) < 700
    assert count.tolist() == [0, 1, 2]
    leaf = torch.ones(2, 2, dtype=torch.float64).t().requires_grad_()
    perturb([leaf, torch.ones(1, dtype=torch.float64).expand(4)], 0, 1)
    assert leaf.is_leaf and leaf.requires_grad and leaf.stride() == (1, 2)


def test_what_does_not_move_both_ways_does_not_move():
    exact = torch.tensor([1.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    up = exact + torch.tensor([3.0, 0.0, 1.0, torch.nan], dtype=torch.float64)
    down = exact - torch.tensor([3.0, 1.0, -1.0, 1.0], dtype=torch.float64)
    assert element_sensitivity(exact, [(up, down)] * 2).tolist() == [3.0, 0.0, 0.0, 0.0]
    steady = (exact + 0.4, exact - 0.4)
    assert element_sensitivity(exact, [(up, down), steady])[0] == pytest.approx((4.58) ** 0.5)
    assert element_sensitivity(exact, [(up, down), steady])[1:].tolist() == [0.0, 0.0, 0.0]


def test_two_perturbations_that_cancel_in_one_pair_are_no_step():
    """Of ``(1 + u) * (1 - u)`` the square is left. In the other pairs both go one way."""
    exact = torch.ones(1, dtype=torch.float64)
    square = exact - UNIT**2
    pairs = [(square, square), (exact + 2 * UNIT, exact - 2 * UNIT)]
    assert element_sensitivity(exact, pairs).item() == pytest.approx(2**0.5 * UNIT)


def test_both_must_lie_within_it():
    exact, movement = torch.tensor([10.0], dtype=torch.float64), torch.tensor([1e-5], dtype=torch.float64)
    near, far = (
        torch.tensor([10.0 + 0.9 * ROUNDING_FACTOR.value * 1e-5]),
        torch.tensor([10.0 + 1.2 * ROUNDING_FACTOR.value * 1e-5]),
    )
    response = exact, movement, torch.float32, Tolerance(0.0, 0.0)
    assert explains(near, near, *response)
    assert not explains(near, far, *response) and not explains(far, near, *response)
    single = exact, torch.float32
    assert is_small(near, torch.tensor([10.07]), *single) and not is_small(near, torch.tensor([10.1]), *single)
    assert not is_small(near, torch.tensor([torch.nan]), *single)
    assert is_small(near, torch.tensor([10.15]), exact, torch.bfloat16)
    assert not is_small(near, torch.tensor([10.2]), exact, torch.bfloat16)


@pytest.mark.parametrize(
    ("error", "movement", "expected"),
    [
        (0.009, 0.0001, True),  # within 128 movements and 2^-10 of the largest
        (0.009, 0.00005, False),
        (0.012, 0.001, False),  # beyond 2^-10 of it, and 12 movements
        (0.012, 0.002, True),
        (0.07, 0.01, True),
        (0.09, 0.05, False),  # beyond 2^-7 of it
    ],
)
def test_how_much_of_the_largest_element_may_be_rounding(error, movement, expected):
    exact = torch.tensor([10.0, 1.0], dtype=torch.float64)
    off = (exact + torch.tensor([0.0, error])).float()
    moves = torch.full((2,), movement, dtype=torch.float64), torch.float32, Tolerance(0.0, 1e-5)
    assert response_explains(exact.float(), off, exact, *moves) is expected
    assert movement_explains(exact.float(), off, *moves) is expected


OFFSET = "return torch.nn.functional.layer_norm(x - 20000.0, [67])"


def test_a_large_mean_excuses_no_percent():
    assert oracles(run(source(OFFSET, "torch.randn(67, 7).t()"), "planted:percent_off")) == ["value"]


@pytest.mark.parametrize(
    "body",
    [
        "torch.index_reduce(w, 0, torch.tensor([0]), x[:1], 'amax', include_self=False)",
        "w.scatter_reduce(0, torch.tensor([0]), x[:1], 'amin', include_self=False)",
        "torch.linalg.vector_norm(x, float('inf')) + w",
        "torch.aminmax(x)[1] + w",
    ],
)
def test_a_gradient_that_divides_by_the_number_of_equals_is_finite(body: str) -> None:
    """Where both sides of the comparison are perturbed, none is equal, and a gradient of infinity would seem to be a rounding."""
    text = source(f"return {body}", "torch.tensor([3.3, 5.1], requires_grad=True), torch.tensor([2.7])", "x, w")
    record = run(text, "planted:infinite_gradient", grad={"mode": "backward"})
    assert set(oracles(record)) == {"grad"}
