"""Rules for values: bits, noise and units in the last place, and the numbers that each job records."""

from __future__ import annotations

from typing import Any

import pytest
from worker_jobs import oracles, passes, run, source

PLUS = source("return x * 2 + 1", inputs="torch.randn(40, 5)")
ULP = {"tolerance": {"values": "ulp", "bound": 1}}
NOISE = {"tolerance": {"values": "sqnr", "bound": 100}}


def test_a_rule_records_the_numbers_of_outputs_and_gradients() -> None:
    text = source("return x * 2, x.argmax()", inputs="torch.randn(4, 5, requires_grad=True)")
    record = run(text, tolerance={"values": "bitwise", "exact": True}, grad={"mode": "backward"})
    assert passes(record)
    assert [entry["path"] for entry in record["accuracy"]] == ["output[0]", "output[1]", "gradient of x"]
    first, whole, _ = record["accuracy"]
    assert first["eager"]["ulps"] == [20, 0, 0, 0, 0, 0, 0] == first["compiled"]["ulps"]
    assert "eager" not in whole and whole["sqnr"] == "inf"
    assert run(text)["accuracy"] == []


@pytest.mark.parametrize(
    ("rule", "backend", "expected"),
    [
        (ULP, "clean", []),
        (ULP, "hair_off", ["value"]),
        (ULP, "nan_to_zero", []),
        (ULP, "wrong_element", ["value"]),
        (NOISE, "clean", []),
        (NOISE, "hair_off", []),
        (NOISE, "tiny_noise", ["value"]),
    ],
)
def test_rules(rule: dict[str, Any], backend: str, expected: list[str]) -> None:
    assert oracles(run(PLUS, f"planted:{backend}", **rule)) == expected


def test_ulp_looks_at_small_numbers_and_at_special_ones() -> None:
    small = source("return x * 1e-30")
    assert oracles(run(small, "planted:zeros", **ULP)) == ["value"]
    assert oracles(run(source("return x * 0.0"), "planted:unsigned_zero", **ULP)) == ["sign-of-zero"]
    assert oracles(run(source("return x.log()"), "planted:nan_to_zero", **ULP)) == ["nonfinite"]


def test_bounds_of_an_output_stand_above_the_rule() -> None:
    tolerance = {"values": "ulp", "bound": 1, "by_place": {"output": [1e-3, 0.0]}}
    assert passes(run(PLUS, "planted:hair_off", tolerance=tolerance))


def test_an_eager_that_is_several_times_more_exact_makes_nothing_fail() -> None:
    """Issue 195483: the errors of both are right, and the ratio of the compiled one to eager's is 3.54, or 7.57."""
    text = source("return x.sum(1)", inputs="torch.randn(64, 40960)")
    record = run(text, "planted:adds_in_four_lanes", **NOISE)
    assert passes(record)
    (entry,) = record["accuracy"]
    assert 10 ** ((entry["eager"]["sqnr"] - entry["compiled"]["sqnr"]) / 20) > 7.57
    assert passes(run(text, "planted:adds_in_four_lanes"))
