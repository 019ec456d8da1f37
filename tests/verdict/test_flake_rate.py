from __future__ import annotations

import pytest

from runner.verdict.flake_rate import FlakeRate, flake_rate, wilson


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_wilsons(successes: int, count: int, low: float, high: float) -> None:
    """The figures of R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    assert wilson(successes, count) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20, 1000])
def test_the_interval_holds_the_rate_and_mirrors(count: int) -> None:
    for successes in range(count + 1):
        low, high = wilson(successes, count)
        assert 0.0 <= low <= successes / count <= high <= 1.0 and low < high
        assert wilson(count - successes, count) == pytest.approx((1 - high, 1 - low))
    assert wilson(0, count)[0] == 0.0 and wilson(count, count)[1] == 1.0


def test_more_confidence_is_wider() -> None:
    (low, high), (lower, higher) = wilson(3, 20), wilson(3, 20, 0.99)
    assert lower < low and high < higher


def test_the_rate_counts_red_verdicts() -> None:
    assert flake_rate([{"PASS": 15, "XFAIL": 2}, {"FAIL": 1, "ERROR": 2}]) == FlakeRate(3, 20)
    assert flake_rate([{"PASS": 20}]) == FlakeRate(0, 20)
    assert flake_rate([{}]) is None and flake_rate([]) is None
    assert str(FlakeRate(3, 20)) == "3 of 20 red: 15.0 %, 95% interval 5.2 % to 36.0 %"
