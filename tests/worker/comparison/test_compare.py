"""Elements against elements."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from runner.contract.oracles import NEARER, NOISE, OVERFLOWED
from runner.worker.comparison.compare import (
    Comparison,
    ask_same,
    compare_precision,
    compare_small_tensors,
    compare_values,
    equal_bits,
    lies_within,
)
from runner.worker.tensors import Tolerance, tolerance_for

INF, NAN = math.inf, math.nan
EXACT = Tolerance(0.0, 0.0, exact=True)


def oracles(eager, compiled, reference=None, tolerance=None):
    tolerance = tolerance or tolerance_for(eager.dtype)
    result = compare_values(eager, compiled, tolerance, lambda: reference)
    return [difference.oracle for difference in result.differences]


def tensor(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


def test_equal_tensors_agree_whatever_their_dtype():
    floats = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    for dtype in (*floats, torch.complex64, torch.int64, torch.bool):
        x = torch.ones(3, dtype=dtype)
        assert oracles(x, x.clone()) == []


def test_empty_and_zero_dimensional():
    assert oracles(torch.empty(0, 3), torch.empty(0, 3)) == []
    assert oracles(torch.tensor(1.0), torch.tensor(1.0)) == []
    result = compare_values(torch.tensor(1.0), torch.tensor(2.0), tolerance_for(torch.float32))
    assert result.differences[0].numbers["worst_index"] == []
    assert result.differences[0].numbers["abs_error"] == 1.0


def test_one_wrong_element_in_a_million():
    x = torch.randn(1000, 1000)
    y = x.clone()
    y[123, 456] += 1e-3
    exact = x.double()
    result = compare_values(x + 1e-7, y, tolerance_for(x.dtype), lambda: exact)
    assert result.differences[0].numbers["worst_index"] == [123, 456]
    assert result.differences[0].numbers["mismatched"] == 1
    # what the usual method says: RMSE over a million elements hides it
    assert ask_same(x + 1e-7, y, exact) is True


def test_integers_above_two_to_the_24th_are_compared_exactly():
    x = tensor(2**24, 2**53 + 1, dtype=torch.int64)
    assert oracles(x, x.clone()) == []
    result = compare_values(x, x + tensor(0, 1, dtype=torch.int64), tolerance_for(x.dtype))
    assert result.differences[0].numbers["abs_error"] == 1
    assert oracles(tensor(1000000, dtype=torch.int64), tensor(1000050, dtype=torch.int64)) == ["value"]
    assert ask_same(tensor(1000000, dtype=torch.int64), tensor(1000050, dtype=torch.int64), None) is True


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.bool])
def test_other_integers(dtype):
    x, y = torch.tensor([1, 0]).to(dtype), torch.tensor([1, 1]).to(dtype)
    assert oracles(x, x.clone()) == []
    assert oracles(x, y) == ["value"]


def test_bfloat16_has_its_own_tolerance():
    x = tensor(1.0, 2.0, dtype=torch.bfloat16)
    assert oracles(x, tensor(1.0078125, 2.0, dtype=torch.bfloat16)) == []
    assert oracles(x, tensor(1.0, 2.25, dtype=torch.bfloat16)) == ["value"]


def test_complex_is_compared_by_modulus():
    x = tensor(1 + 1j, dtype=torch.complex64)
    assert oracles(x, x + 1e-6) == []
    assert oracles(x, x * 1j) == ["value"]
    # a small real part beside a large imaginary one may be off, as for assert_close
    assert oracles(tensor(1e-9 + 1e3j, dtype=torch.complex64), tensor(2e-9 + 1e3j, dtype=torch.complex64)) == []
    half_nan = tensor(complex(NAN, 1), dtype=torch.complex64)
    assert oracles(half_nan, tensor(complex(NAN, 2), dtype=torch.complex64)) == ["value"]


@pytest.mark.parametrize("value", [1.5, NAN])
def test_float8_is_compared(value):
    x = torch.tensor([value, 2.0]).to(torch.float8_e4m3fn)
    assert oracles(x, x.clone()) == []
    assert oracles(x, torch.tensor([value, 4.0]).to(torch.float8_e4m3fn)) == ["value"]


def test_nan_equals_nan_and_infinities_keep_their_sign():
    x = tensor(NAN, INF, -INF, 1.0)
    assert oracles(x, x.clone()) == []
    assert oracles(x, tensor(NAN, INF, INF, 1.0)) == ["nonfinite"]
    assert oracles(x, tensor(0.0, INF, -INF, 1.0)) == ["nonfinite"]
    # a wrong element beside a matching NaN
    wrong = tensor(NAN, INF, -INF, 2.0)
    assert oracles(x, wrong) == ["value"]


def test_same_passes_a_wrong_element_beside_a_nan_and_we_do_not():
    eager, compiled, exact = tensor(NAN, 1.0), tensor(NAN, 2.0), tensor(NAN, 1.0, dtype=torch.float64)
    assert ask_same(eager, compiled, exact) is False  # by its defaults; the minifier asks with equal_nan
    from torch._dynamo.utils import same

    assert same(eager, compiled, exact, equal_nan=True) is True
    assert oracles(eager, compiled, exact) == ["value"]


def test_same_is_asked_and_does_not_decide():
    difference = compare_values(tensor(1.0), tensor(1.00009), tolerance_for(torch.float32)).differences[0]
    assert difference.numbers["same"] is True
    assert ask_same(torch.ones(2), torch.ones(1), None) is True  # broadcasts: the judge compares shapes itself
    assert isinstance(ask_same(torch.ones(2), torch.ones(3), None), str)


def test_float64_forgives_a_nan_of_eagers_only_for_the_right_value():
    eager, exact = tensor(NAN, 1.0), tensor(5.0, 1.0, dtype=torch.float64)
    good = compare_values(eager, tensor(5.0, 1.0), tolerance_for(torch.float32), lambda: exact)
    assert good.differences == () and good.label == OVERFLOWED
    assert oracles(eager, tensor(7.0, 1.0), exact) == ["nonfinite"]
    assert oracles(eager, tensor(INF, 1.0), exact) == ["nonfinite"]


def test_an_overflow_of_the_output_dtype_is_right():
    exact = tensor(70000.0, dtype=torch.float64)
    eager, compiled = tensor(65504.0, dtype=torch.float16), tensor(INF, dtype=torch.float16)
    assert compare_values(eager, compiled, tolerance_for(torch.float16), lambda: exact).label == NEARER
    assert oracles(tensor(65504.0, dtype=torch.float16), tensor(INF, dtype=torch.float16), exact) == []
    assert oracles(tensor(INF, dtype=torch.float16), tensor(60000.0, dtype=torch.float16), exact) == ["nonfinite"]


def test_float64_labels():
    exact = torch.linspace(1, 2, 50, dtype=torch.float64)
    eager = (exact + 1e-3).float()
    nearer = compare_values(eager, exact.float(), tolerance_for(torch.float32), lambda: exact)
    assert nearer.differences == () and nearer.label == NEARER
    noise = compare_values(eager, (exact - 2e-3).float(), tolerance_for(torch.float32), lambda: exact)
    assert noise.differences == () and noise.label == NOISE
    beyond = compare_values(eager, (exact - 4e-3).float(), tolerance_for(torch.float32), lambda: exact)
    assert beyond.differences[0].numbers["multiplier"] == pytest.approx(4, rel=0.01)


def test_the_reference_is_only_asked_when_needed():
    def never():
        raise AssertionError("asked")

    x = tensor(1.0, NAN)
    assert compare_values(x, x.clone(), tolerance_for(x.dtype), never).differences == ()


def test_a_nan_in_the_reference_excuses_nothing():
    exact = tensor(NAN, 1.0, dtype=torch.float64)
    assert oracles(tensor(1.0, 1.0), tensor(2.0, 1.0), exact) == ["value"]
    assert oracles(tensor(1.0, 1.0), tensor(1.0, 2.0), exact) == ["value"]


def test_huge_float64_values_do_not_overflow_the_test():
    x = tensor(1e300, 1.0, dtype=torch.float64)
    y = tensor(1.1e300, 1.0, dtype=torch.float64)
    assert oracles(x, x.clone(), x) == []
    assert oracles(x, y, x) == ["value"]
    assert oracles(tensor(1.7e308, dtype=torch.float64), tensor(-1.7e308, dtype=torch.float64)) == ["value"]


def test_eager_equal_to_the_reference_gives_no_finite_multiplier():
    x = tensor(1.0, 2.0)
    difference = compare_values(x, x + 1, tolerance_for(x.dtype), lambda: x.double()).differences[0]
    assert difference.numbers["multiplier"] == "inf"


def test_exact_means_bits():
    assert oracles(tensor(1.0), tensor(1.0 + 2**-23), tolerance=EXACT) == ["value"]
    assert oracles(tensor(0.0), tensor(-0.0), tolerance=EXACT) == ["sign-of-zero"]
    assert oracles(tensor(0.0), tensor(-0.0)) == []
    assert oracles(tensor(NAN), -tensor(NAN), tolerance=EXACT) == []
    assert oracles(tensor(NAN, 1.0), tensor(1.0, 2.0), tolerance=EXACT) == ["nonfinite", "value"]


def test_tolerances_come_from_torch_and_from_the_job():
    assert tolerance_for(torch.float32) == Tolerance(1.3e-6, 1e-5)
    tolerances = {"by_dtype": {"": [0.1, None], "float16": [None, 0.5]}}
    assert tolerance_for(torch.float32, tolerances) == Tolerance(0.1, 1e-5)
    assert tolerance_for(torch.float16, tolerances) == Tolerance(1e-3, 0.5)
    assert tolerance_for(torch.float32, {"exact": True}).exact


def test_a_place_has_a_tolerance_of_its_own():
    places = {"gradients": [0.5, None], "output[1]": [0.1, 0.2], "output[1]['a']": [None, None]}
    tolerances = {"by_dtype": {"": [0.3, 0.3]}, "exact": True, "by_place": places}
    assert tolerance_for(torch.float32, tolerances, "output[1]") == Tolerance(0.1, 0.2)
    assert tolerance_for(torch.float32, tolerances, "output[1].values") == Tolerance(0.1, 0.2)
    assert tolerance_for(torch.float32, tolerances, "output[1]['a']") == Tolerance(1.3e-6, 1e-5)
    assert tolerance_for(torch.float32, tolerances, "gradient of x") == Tolerance(0.5, 1e-5)
    for path in ("output[10]", "output", "input x", ""):
        assert tolerance_for(torch.float32, tolerances, path) == Tolerance(0.3, 0.3, exact=True)


def test_zero_tolerance_still_asks_float64():
    exact = tensor(1.0, 2.0, dtype=torch.float64)
    zero = Tolerance(0.0, 0.0)
    assert oracles(tensor(1.001, 2.0), tensor(1.0, 2.0), exact, zero) == []
    assert oracles(tensor(1.001, 2.0), tensor(1.01, 2.0), exact, zero) == ["value"]


ILL_CONDITIONED = (1.0, 2.0, 3.0, 7.6e6), (1.0, 2.0, 3.0, 7.5e6)  # eager's values and the exact ones
ROUNDED_AWAY = torch.tensor([1e-7, 1e-7, 1e-7, 1e5], dtype=torch.float64), torch.float32
"""How far a rounding moves each of them."""


@pytest.mark.parametrize(
    ("compiled", "movement", "place"),
    [
        ((1.0, 2.0, 3.0, 7.6e6), None, None),
        ((1.0, 2.0, 3.0, 7.4e6), None, None),
        ((1.0, 2.02, 3.0, 7.5e6), None, [1]),  # nearer to float64 as a whole
        ((1.0, 2.02, 3.0, 7.5e6), ROUNDED_AWAY, [1]),
        ((1.0, 2.02, 3.0, 7.5e6), (torch.full((4,), 1e-3, dtype=torch.float64), torch.float32), None),
    ],
)
def test_an_ill_conditioned_element_excuses_no_other_one(
    compiled: tuple[float, ...], movement: Any, place: list[int] | None
) -> None:
    eager, exact = tensor(*ILL_CONDITIONED[0]), tensor(*ILL_CONDITIONED[1], dtype=torch.float64)
    measures = {"reference": lambda: exact, "measure_conditioning": lambda: movement}
    comparison = compare_values(eager, tensor(*compiled), tolerance_for(torch.float32), **measures)
    assert [difference.numbers["worst_index"] for difference in comparison.differences] == ([place] if place else [])
    if place:
        numbers = comparison.differences[0].numbers
        assert (numbers["eager"], numbers["compiled"]) == (2.0, pytest.approx(2.02))
        assert numbers["multiplier"] == pytest.approx(0.02 / (1e-5 + 2 * 1.3e-6), rel=1e-3)


def test_noise_of_the_whole_tensor_needs_no_movement() -> None:
    def never() -> None:
        raise AssertionError("asked")

    exact = torch.ones(100_000, dtype=torch.float64)
    noise = [torch.randn(exact.shape, generator=torch.Generator().manual_seed(seed)) * 1e-3 for seed in (0, 1)]
    eager, compiled = (1 + part for part in noise)
    result = compare_values(eager, compiled, tolerance_for(torch.float32), lambda: exact, measure_conditioning=never)
    assert result.differences == ()


def test_where_eager_has_a_nan_an_ill_conditioned_element_excuses_nothing_either() -> None:
    eager, exact = tensor(NAN, 7.6e6, 1.0, 2.0), tensor(1.0, 7.5e6, 1.0, 2.0, dtype=torch.float64)
    assert oracles(eager, tensor(1.0, 7.6e6, 1.0, 2.0), exact) == []
    assert oracles(eager, tensor(1.1, 7.6e6, 1.0, 2.0), exact) == ["nonfinite"]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_elements_of_float8_are_held_against_their_own_steps(dtype: torch.dtype) -> None:
    exact = torch.tensor([224.0, 0.5 * (1 + 0.49 * torch.finfo(dtype).eps), 0.02], dtype=torch.float64)
    eager = exact.to(dtype)
    beside = eager.view(torch.int8) + torch.tensor([0, 1, 0], dtype=torch.int8)
    assert oracles(eager, beside.view(dtype), exact, tolerance_for(dtype)) == []
    wrong = eager.view(torch.int8) ^ torch.tensor([0, 0, 0x20], dtype=torch.int8)  # a bit of the exponent
    assert oracles(eager, wrong.view(dtype), exact, tolerance_for(dtype)) == ["value"]


def test_a_wrong_element_in_the_second_piece_keeps_its_place(monkeypatch):
    monkeypatch.setattr("runner.worker.tensors.PIECE", 8)
    x = torch.arange(30.0).reshape(5, 6)
    y = x.clone()
    y[3, 4] += 1
    y[0, 0] += 1e-4
    exact = x.double() + 1e-7
    numbers = compare_values(x, y, tolerance_for(x.dtype), lambda: exact).differences[0].numbers
    assert (numbers["worst_index"], numbers["mismatched"]) == ([3, 4], 2)
    assert numbers["compiled_error_max"] == pytest.approx(1)
    assert numbers["compiled_error_rmse"] == pytest.approx((1 / 30) ** 0.5, rel=1e-5)
    y[4, 5] = NAN
    differences = compare_values(x, y, tolerance_for(x.dtype), lambda: exact).differences
    assert [(item.oracle, item.numbers["worst_index"]) for item in differences] == [
        ("nonfinite", [4, 5]),
        ("value", [3, 4]),
    ]


def test_equal_bits():
    assert equal_bits(tensor(NAN, 1.0), tensor(NAN, 1.0))
    assert not equal_bits(tensor(0.0), tensor(-0.0))
    assert not equal_bits(tensor(1.0), tensor(1.0, dtype=torch.float64))
    assert not equal_bits(torch.ones(3), torch.ones(1, 3))


@pytest.mark.parametrize(
    ("compiled", "expected"), [((1.004, NAN), True), ((1.1, NAN), False), ((1.004, INF), False), ((1.004, 2.0), False)]
)
def test_values_of_another_precision_lie_within_its_tolerance(compiled: tuple[float, float], expected: bool) -> None:
    assert lies_within(tensor(1.0, NAN), tensor(*compiled), tolerance_for(torch.bfloat16)) is expected


def test_a_number_where_eager_overflows_may_be_as_far_off_as_eager_is_elsewhere():
    """Two matrix products in half precision are off by more than the tolerance."""
    exact = torch.tensor([3.0, 1.0], dtype=torch.float64)
    eager = tensor(NAN, 1.004, dtype=torch.float16)
    assert oracles(eager, tensor(3.018, 1.004, dtype=torch.float16), exact) == []
    assert oracles(eager, tensor(3.2, 1.004, dtype=torch.float16), exact) == ["nonfinite"]


def small_oracles(eager, compiled, exact, response=0.0, dtype=torch.float32):
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


PRECISE = torch.linspace(0.1, 3.0, 12, dtype=torch.float64).sin()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_what_was_rounded_to_float32_is_found(dtype):
    eager = torch.complex(PRECISE, PRECISE.cos()) if dtype.is_complex else PRECISE
    rounded = eager.to(torch.complex64 if dtype.is_complex else torch.float32).to(dtype)
    (difference,) = compare_precision(eager, rounded).differences
    assert difference.oracle == "value" and "12 of 12 elements were rounded to float32" in difference.message


@pytest.mark.parametrize(
    ("eager", "compiled"),
    [
        (PRECISE, PRECISE * (1 + 1e-15)),  # float64's own roundings
        (PRECISE.float().double(), PRECISE.float().double() * (1 + 2.0**-23)),  # eager's are numbers of float32 too
        (PRECISE, torch.cat([PRECISE[:11].float().double(), PRECISE[11:] * (1 + 1e-15)])),  # one has more digits
        (PRECISE * 1e-17, torch.zeros(12, dtype=torch.float64)),  # what is left where larger numbers cancel
        (PRECISE * 1e-17, torch.full((12,), 2.0**-57, dtype=torch.float64)),
        (torch.tensor([0.1 + 0.2, 3.0 - 1e-15]).double(), torch.tensor([0.1 + 0.2, 3.0]).double()),
        (torch.tensor([0.1, math.nan], dtype=torch.float64), torch.tensor([0.1, math.nan], dtype=torch.float64)),
        (torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)),
    ],
)
def test_what_float64_rounds_by_itself_is_no_rounding_to_float32(eager, compiled):
    assert compare_precision(eager, compiled) == Comparison()


SMALL = torch.full((3,), 1e-6)


def test_a_gross_error_is_found_where_eager_is_right():
    differences, calls = small_oracles(SMALL, torch.zeros(3), 1e-6)
    assert differences == ["value"] and calls[0] == "reference" and calls[-1] == "response"


def test_what_rounding_moves_as_far_is_none():
    assert small_oracles(SMALL, torch.zeros(3), 1e-6, response=1e-8) == ([], ["reference", "response"])


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
    differences, calls = small_oracles(eager, compiled, exact)
    assert differences == [] and "response" not in calls


def test_nothing_is_measured_where_the_tolerance_hides_nothing():
    assert small_oracles(torch.full((3,), 0.01), torch.full((3,), 0.010009), 0.01) == ([], [])


def test_numbers_of_float16_below_the_normal_ones_count():
    """All that lie below its absolute tolerance are of these. They are 6e-8 apart."""
    eager = torch.full((3,), 9e-6, dtype=torch.float16)
    exact = float(eager[0])
    assert small_oracles(eager, torch.zeros_like(eager), exact, dtype=torch.float16)[0] == ["value"]
    assert small_oracles(eager, eager + 1.2e-7, exact, dtype=torch.float16)[0] == []
    tiny = torch.full((3,), 1e-6, dtype=torch.float16)
    assert small_oracles(tiny, torch.zeros_like(tiny), float(tiny[0]), dtype=torch.float16)[0] == []
