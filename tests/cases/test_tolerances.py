"""``runner.cases.case``: bounds of single outputs and of gradients."""

from __future__ import annotations

import pytest
from spec_files import Files


def test_an_output_and_gradients_have_bounds_of_their_own(files: Files) -> None:
    tolerance = files.case("""
        inputs: {x: {shape: [2], requires_grad: true}}
        grad: backward
        return: {a: $_, b: [$_, $_]}
        tolerance: {gradients: {rtol: 1, reason: sums}, "output['b'][1]": {atol: 2, reason: halves}}
    """).tolerance
    assert tolerance.by_place == {"gradients": (1, None), "output['b'][1]": (None, 2)}
    assert (tolerance.by_dtype, tolerance.reason) == ({}, "sums; halves")
    assert files.case("return: [$_]\ntolerance: {'output[0].values[1]': {rtol: 1}, reason: x}").tolerance.by_place
    assert files.case("tolerance: {'output[3]': {rtol: 1}, reason: x}").tolerance.by_place  # a list that $_ may be


def test_a_rule_for_values(files: Files) -> None:
    for rule in ("bitwise", "deterministic", "batch-invariant"):
        tolerance = files.case(f"tolerance: {{values: {rule}}}").tolerance
        assert (tolerance.values, tolerance.bound, tolerance.by_dtype, tolerance.exact) == (rule, None, {}, False)
    tolerance = files.case("tolerance: {values: {sqnr: 40}, reason: quantized, output: {rtol: 1, reason: x}}").tolerance
    assert (tolerance.values, tolerance.bound, tolerance.by_dtype) == ("sqnr", 40, {})
    assert tolerance.by_place == {"output": (1, None)}
    tolerance = files.case("tolerance: {values: deterministic, rtol: 0.1, reason: x}").tolerance
    assert tolerance.values == "deterministic" and tolerance.by_dtype == {"": (0.1, None)}


BOUND = "{rtol: 1, reason: x}"


@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        (
            f"return: [$_, $_]\ntolerance: {{'output[2]': {BOUND}}}",
            ["4:17: the case returns no output[2] | it returns output[0], output[1]"],
        ),
        (
            f"return: {{a: $_}}\ntolerance: {{'output[0]': {BOUND}}}",
            ["4:17: the case returns no output[0] | it returns output['a']"],
        ),
        (f"tolerance: {{outputs: {BOUND}}}", ["3:17: unknown key 'outputs'"]),
        (f"tolerance: {{gradient: {BOUND}}}", ["3:17: unknown key 'gradient' | did you mean 'gradients'?"]),
        (f"tolerance: {{'output[-1]': {BOUND}}}", ["3:17: unknown key 'output[-1]'"]),
        ("tolerance: {values: {sqnr: 40}}", ["3:16: a tolerance needs a reason"]),
        ("tolerance: {values: exact}", ["3:25: 'exact' is not one of bitwise, deterministic, batch-invariant"]),
        ("tolerance: {values: {sqnr: 40, ulp: 1}, reason: x}", ["3:36: expected one key, found sqnr, ulp"]),
        ("tolerance: {values: {psnr: 40}, reason: x}", ["3:26: unknown key 'psnr' | did you mean 'sqnr'?"]),
        ("tolerance: {values: {ulp: .inf}, reason: x}", ["3:31: .inf has no place here: expected a finite number"]),
        (
            "tolerance: {values: bitwise, rtol: 1, reason: x}",
            ["3:25: values: bitwise says what is compared, so nothing is left for rtol, atol and exact | leave them"],
        ),
        ("tolerance: {gradients: {rtol: 1}, grad: x}", ["3:39: unknown key 'grad'"]),
        (
            f"tolerance: {{gradients: {BOUND}}}",
            ["3:16: warning: no gradients are compared here | grad: backward compares them"],
        ),
    ],
)
def test_what_is_told(files: Files, keys: str, messages: list[str]) -> None:
    errors = files.errors(keys)
    assert len(errors) == len(messages) and all(f.startswith(m) for f, m in zip(errors, messages, strict=True)), errors


def test_an_output_needs_a_reason(files: Files) -> None:
    assert files.errors("tolerance: {output: {rtol: 1}}")[0].startswith("3:16: a tolerance needs a reason")
