from __future__ import annotations

import pytest

from runner.report.past_verdicts import FlakeRate, flake_rate, rate_lines, wilson
from tests.report.events_sample import FILE, NASTY, finished


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


def test_what_wavers_is_named_and_the_others_are_counted() -> None:
    results = [
        finished(name="a", tally={"PASS": 20}),
        finished("FLAKY", name="b", tally={"PASS": 19, "FAIL": 1}),
        finished("FLAKY", name="c", tally={"PASS": 2, "FAIL": 18}),
        finished(name="d", tally={"PASS": 20}),
        finished("FAIL", name="e", tally={"FAIL": 20}),
        finished("SKIP", name="f"),
    ]
    assert rate_lines(results)[1:] == [
        f"  18 of 20   90.0 %   (69.9 % to 97.2 %)  {FILE}::c[float32,cpu]@inductor",
        f"   1 of 20    5.0 %    (0.9 % to 23.6 %)  {FILE}::b[float32,cpu]@inductor",
        "   0 of 20    0.0 %    (0.0 % to 16.1 %)  each of 2 others",
        "  20 of 20  100.0 %  (83.9 % to 100.0 %)  one other",
    ]
    assert rate_lines(results[:1])[1].endswith("  1 variant")


def test_without_stress_there_is_no_rate() -> None:
    assert rate_lines([finished(), finished("FLAKY", attempts=3)]) == []


def test_a_name_is_shown_and_not_obeyed() -> None:
    lines = rate_lines([finished("FLAKY", name=NASTY, torch="2.6.0", tally={"PASS": 1, "FAIL": 1})], several=True)
    assert "\x1b" not in lines[1] and "\n" not in lines[1] and lines[1].endswith(" torch 2.6.0")


def test_many_are_bounded() -> None:
    lines = rate_lines(finished("FLAKY", name=f"x{n}", tally={"PASS": n + 1, "FAIL": 1}) for n in range(60))
    assert len(lines) == 52 and lines[-1].endswith("and 10 more at most so often")
