"""Differences that a policy of the compiler may explain."""

from __future__ import annotations

from typing import Any

import pytest

from runner.contract.finding import Finding
from runner.verdict.explained import (
    EMULATE_CASTS,
    EPSILON,
    RANDOM,
    ULPS,
    candidates,
    is_evident,
    is_small,
    label,
    low_precision,
)
from tests.handmade import finding

HALF = EPSILON["float16"]


def small(oracle: str = "value", ulps: float = 3, scale: float = 2.0) -> Finding:
    return finding(oracle, None, numbers={"abs_error_max": ulps * HALF * scale, "scale": scale})


def flags(
    findings: list[Finding],
    dtype: str = "float16",
    stage: str = "inductor",
    source: str = "",
    drew: bool = True,
    **config: Any,
) -> list[str]:
    return candidates(findings, stage, source, dtype, {k.replace("__", "."): v for k, v in config.items()}, drew)


def test_a_few_units_of_a_low_precision_are_worth_a_try() -> None:
    assert flags([small()]) == [EMULATE_CASTS]
    assert flags([small("grad")]) == [EMULATE_CASTS]
    assert flags([small(ulps=ULPS)]) == [EMULATE_CASTS]


@pytest.mark.parametrize(
    "findings",
    [
        [small(ulps=ULPS * 1.01)],
        [small(), small(ulps=1000)],
        [finding("value", None)],  # no numbers
        [finding("value", None, numbers={"abs_error_max": "nan", "scale": 1.0})],
        [finding("nonfinite", None, numbers={"abs_error_max": 0.0, "scale": 1.0})],
        [small(), finding("stride", None)],
    ],
)
def test_what_precision_cannot_explain(findings: list[Finding]) -> None:
    assert flags(findings) == []


def test_only_inductor_fuses_and_only_low_precision_rounds() -> None:
    assert flags([small()], stage="aot") == []
    assert flags([small()], stage="backend") == []
    assert flags([small()], dtype="float32") == []
    assert flags([small()], dtype="float32", source="h = x.half()") == [EMULATE_CASTS]
    assert flags([small()], **{EMULATE_CASTS: False}) == []  # the case says itself what it wants


def test_the_coarsest_dtype_counts() -> None:
    assert low_precision("", "float32") == 0
    assert low_precision("", "float16") == HALF
    assert low_precision("x.to(torch.bfloat16)", "float16") == EPSILON["bfloat16"]
    assert low_precision("x.bfloat16()", "float32") == EPSILON["bfloat16"]
    assert low_precision("x.half()", "float32") == HALF


def test_random_numbers_of_the_compilers_own() -> None:
    findings = [finding("rng", None), finding("value", None)]
    assert flags(findings, dtype="float32", **{RANDOM: False}) == [RANDOM]
    assert flags(findings, dtype="float32", **{RANDOM: True}) == []
    assert flags(findings, dtype="float32") == []
    assert flags([*findings, finding("shape", None)], dtype="float32", **{RANDOM: False}) == []


def test_random_numbers_explain_no_value_of_a_case_that_draws_none() -> None:
    value, state = finding("value", None), finding("rng", None)
    for config in ({}, {RANDOM: False}):
        assert flags([value], dtype="float32", drew=False, **config) == []
        assert flags([state, value], dtype="float32", drew=False, **config) == []
        assert flags([state], dtype="float32", drew=False, **config) == [RANDOM]
    assert flags([state], dtype="float32", drew=False, **{RANDOM: True}) == []


def test_zero_is_small() -> None:
    assert is_small(small(ulps=0), HALF)
    assert not is_small(small(ulps=1, scale=0.0), 0.0) or HALF > 0


def test_labels() -> None:
    assert label(EMULATE_CASTS) == "explained-by-emulate_precision_casts"
    assert label(RANDOM) == "explained-by-fallback_random"


ROUNDED = {"elements": 4, "rel_error": 0.1, "eager": 1.0, "compiled": 1.5}


@pytest.mark.parametrize(
    ("numbers", "evident"),
    [
        ({"eager_error_max": 1e-7, "compiled_error_max": 1e-3, "same": False}, True),
        ({"eager_error_max": 1e-7, "compiled_error_max": 1e-3, "same": True}, False),
        ({"eager_error_max": 1e-3, "compiled_error_max": 1e-7, "same": False}, False),
        ({"eager_error_max": 1e-7, "compiled_error_max": "inf"}, True),
        ({"abs_error_max": 0.5, "scale": 2.0}, True),
        ({"abs_error_max": 0.01, "scale": 2.0}, False),
        ({}, False),
        ({"eager": 3, "compiled": 4}, True),
    ],
)
def test_what_upstream_would_take_for_a_bug(numbers: dict[str, Any], evident: bool) -> None:
    assert is_evident(finding("value", None, numbers={**ROUNDED, **numbers}), 0.0) is evident
    assert is_evident(finding("nonfinite", None, numbers={**ROUNDED, **numbers}), 0.0)
