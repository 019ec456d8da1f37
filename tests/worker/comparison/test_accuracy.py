"""``runner.worker.comparison.accuracy``: units in the last place, special values, the ratio of signal to noise."""

from __future__ import annotations

import math

import pytest
import torch

from runner.worker.comparison.accuracy import compare_noise, compare_units, errors, measure, signal_to_noise

NAN, INF = math.nan, math.inf
HALF = torch.float16


def half(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=HALF)


def wide(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def oracles(eager: torch.Tensor, compiled: torch.Tensor, exact: torch.Tensor | None, bound: float = 1.0) -> list[str]:
    return [difference.oracle for difference in compare_units(eager, compiled, exact, bound).differences]


@pytest.mark.parametrize(
    ("dtype", "value", "exact", "units"),
    [
        (HALF, 1.0, 1.0, 0.0),
        (HALF, 1.0, 1 + 2.0**-11, 0.5),
        (HALF, 1 + 2.0**-10, 1.0, 1.0),
        (
            HALF,
            1 - 2.0**-11,
            1.0,
            0.5,
        ),  # below a power of two the numbers lie closer: the unit is that of the exact one
        (HALF, 2.0**-24, 0.0, 1.0),  # denormals
        (HALF, 3 * 2.0**-24, 2.0**-24, 2.0),
        (HALF, 65504.0, 65510.0, 6 / 32),
        (HALF, INF, 65530.0, 0.0),  # rounds to infinity
        (HALF, 65504.0, 1e6, INF),
        (HALF, NAN, 1.0, INF),
        (HALF, NAN, NAN, 0.0),
        (HALF, -INF, INF, INF),
        (torch.bfloat16, 1 + 2.0**-7, 1.0, 1.0),
        (torch.float32, 1 + 2.0**-23, 1.0, 1.0),
        (torch.float32, 2.0**-149, 0.0, 1.0),
    ],
)
def test_units_in_the_last_place(dtype: torch.dtype, value: float, exact: float, units: float) -> None:
    assert float(errors(torch.tensor([value], dtype=dtype), wide(exact)).ulps) == units


def test_the_worse_part_of_a_complex_number_counts() -> None:
    exact = torch.tensor([1 + 1j], dtype=torch.complex128)
    assert float(errors(torch.tensor([1 + (1 + 2.0**-22) * 1j], dtype=torch.complex64), exact).ulps) == 2.0


def test_the_histogram() -> None:
    eager = half(1.0, 1.0, 1 + 2.0**-10, 1 + 3 * 2.0**-10, NAN, -0.0)
    exact = wide(1.0, 1 + 2.0**-11, 1.0, 1.0, 1.0, 0.0)
    numbers = measure(eager, eager, exact)
    assert numbers["eager"] == {**numbers["compiled"]}
    assert numbers["eager"]["ulps"] == [3, 1, 0, 1, 0, 0, 0]
    assert (numbers["eager"]["largest"], numbers["eager"]["other_class"], numbers["eager"]["other_zero"]) == (3.0, 1, 1)
    assert (numbers["dtype"], numbers["elements"], numbers["different"], numbers["sqnr"]) == ("float16", 6, 0, "inf")
    assert "eager" not in measure(eager, eager, None)


@pytest.mark.parametrize("ratio", [3.54, 7.57])
def test_an_eager_that_becomes_better_fails_nobody(ratio: float) -> None:
    """Both are within a unit of the exact value, and the compiled error is this many times eager's (issue 195483)."""
    exact = 1 + torch.linspace(0, 1, 1000, dtype=torch.float64)
    unit = 2.0**-23
    eager, compiled = exact + 0.05 * unit, exact + 0.05 * ratio * unit
    assert oracles(eager.float(), compiled.float(), exact) == []


def test_each_element_may_be_a_unit_further_off_than_eagers() -> None:
    assert oracles(half(1.0), half(1 + 2 * 2.0**-10), wide(1.0)) == ["value"]
    exact, five, six = wide(1.0), half(1 + 5 * 2.0**-10), half(1 + 6 * 2.0**-10)
    assert oracles(six, half(1 - 5 * 2.0**-10), exact) == []
    assert oracles(five, six, exact) == [] and oracles(half(1.0), five, exact, bound=5) == []
    (difference,) = compare_units(five, six, exact, 0.5).differences
    assert difference.message == (
        "1 of 1 elements are further off than allowed; eager 1.0048828125, compiled 1.005859375, off by 6 units in "
        "the last place at [0]"
    )
    assert difference.numbers["eager_ulps"] == 5 and difference.numbers["reference"] == 1.0


@pytest.mark.parametrize(
    ("eager", "compiled", "exact", "expected"),
    [
        (1.0, NAN, 1.0, ["nonfinite"]),
        (NAN, 1.0, 1.0, []),  # the exact value's
        (NAN, 1.0, 2.0, ["value"]),
        (INF, 1.0, NAN, ["nonfinite"]),
        (INF, -INF, 1.0, ["nonfinite"]),
        (1.0, 1 + 2.0**-10, NAN, []),  # neither has the class of the exact value: eager's takes its place
        (1.0, 1 + 2.0**-8, NAN, ["value"]),
        (0.0, -0.0, 0.0, ["sign-of-zero"]),
        (-0.0, 0.0, 0.0, []),
        (-0.0, 0.0, -1e-30, ["sign-of-zero"]),
        (NAN, NAN, 1.0, []),
    ],
)
def test_special_values_are_eagers_or_the_exact_ones(
    eager: float, compiled: float, exact: float, expected: list[str]
) -> None:
    assert oracles(half(eager), half(compiled), wide(exact)) == expected


def test_without_an_exact_value_eagers_takes_its_place() -> None:
    assert oracles(half(1.0), half(1 + 2.0**-10), None) == []
    assert oracles(half(1.0), half(1 + 2.0**-9), None) == ["value"]


def test_signal_to_noise_is_that_of_torch() -> None:
    from torch.ao.ns.fx.utils import compute_sqnr

    torch.manual_seed(0)
    x = torch.randn(100)
    y = x + 0.01 * torch.randn(100)
    assert signal_to_noise(x, y) == pytest.approx(float(compute_sqnr(x, y)), rel=1e-5)
    assert signal_to_noise(x, x) == INF and signal_to_noise(torch.zeros(3), torch.ones(3)) == -INF


@pytest.mark.parametrize(
    ("compiled", "exact", "bound", "expected"),
    [
        ((10.0, 10.1), None, 40, []),
        ((10.0, 10.1), None, 50, ["value"]),
        ((10.0, 10.1), wide(10.0, 10.1), 50, []),  # nearer to float64 than eager
        ((10.0, INF), None, 40, ["nonfinite"]),
        ((0.0, 0.0), None, 1, ["value"]),
    ],
)
def test_noise(compiled: tuple[float, ...], exact: torch.Tensor | None, bound: float, expected: list[str]) -> None:
    comparison = compare_noise(torch.tensor([10.0, 10.0]), torch.tensor(compiled), exact, bound)
    assert [difference.oracle for difference in comparison.differences] == expected


def test_quantized_integers_have_noise_too() -> None:
    eager = torch.tensor([100, 101], dtype=torch.int8)
    assert compare_noise(eager, eager + 1, None, 30).differences == ()
    assert len(compare_noise(eager, eager + 1, None, 50).differences) == 1
