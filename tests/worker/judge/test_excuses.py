"""Each label that lets a difference pass, with the faults that are too large for it: the sizes are those of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from worker_jobs import oracles, passes, run, source

from runner.contract import oracles as contract
from runner.contract.oracles import NEARER, NOISE, OVERFLOWED, ROUNDING, UNSPECIFIED, is_excuse
from runner.worker.rerun.agreement import VARIES, Agreement

NAMED = {"tolerance": {"by_dtype": {"": [1.3e-6, 1e-5]}, "exact": False}}
"""Torch's own bounds, said by the case: roundings of inputs are then no excuse."""
HALF = {"dtype": "float16"}
OFF = {"grad": {"mode": "off"}}


def cancelling(rows: int) -> str:
    """Numbers that eager has off by up to 4.9e-4."""
    return source("return ((x + 4096) - 4096) * 2", f"torch.randn({rows}, 5)")


ADDCDIV = source(
    "return torch.addcdiv(x, a, b, value=1.25)",
    "torch.randn(4000).half(), torch.randn(4000).half(), (torch.rand(4000) + 0.5).half()",
    "x, a, b",
)
NORM = source("n = torch.nn.functional.normalize(x, dim=-1)\nreturn (n * n).sum(-1).acos()", "torch.randn(64, 37)")

# name: (label, source, fields of the job, a backend that it excuses, backends that it does not)
EXCUSES: Mapping[str, tuple[str, str, Mapping[str, Any], str, str]] = {
    "an error smaller than eager's": (NEARER, cancelling(40), NAMED, "unrounded", "unrounded_off zeros percent_off"),
    "beside an element that eager has far off": (
        NEARER,
        source("return torch.cat([(x[:1] + 4096) - 4096, x[1:] * 1.1])", "torch.randn(40, 5)"),
        {},
        "unrounded",
        "unrounded_last_off unrounded_off",
    ),
    "an error of eager's size, of few elements": (
        NOISE,
        cancelling(40),
        NAMED,
        "errors_more_than_doubled",
        "errors_four_times",
    ),
    "an error of eager's size": (
        NOISE,
        cancelling(400),
        NAMED,
        "errors_half_as_large",
        "errors_more_than_doubled errors_four_times",
    ),
    "another order of a sum": (
        ROUNDING,
        source("return x.sum(0)", "torch.randn(4096, 8)"),
        {},
        "naive_sum",
        "naive_sum_off naive_sum_largest_off sum_of_halves row_left_out a_thousandth_more",
    ),
    "another order of a sum without a reference": (
        ROUNDING,
        source("return torch.from_numpy(x.numpy()).sum(0)", "torch.randn(4096, 8)"),
        {},
        "naive_sum",
        "naive_sum_off naive_sum_largest_off sum_of_halves row_left_out a_thousandth_more",
    ),
    "roundings to a half on the way": (
        ROUNDING,
        ADDCDIV,
        HALF,
        "rounded_thrice",
        "rounded_thrice_largest_off last_off_by_one percent_off",
    ),
    "whether a number lies in a domain": (ROUNDING, NORM, OFF, "each_rounded", "infinite_zeros first_ones"),
    "an overflow of eager's alone": (
        OVERFLOWED,
        source("return (x * 60000) / 60000", "torch.full((4, 5), 3.0).half()"),
        HALF,
        "unrounded",
        "unrounded_first_off unrounded_infinite zeros first_nan largest_half",
    ),
    "on which side of a number a computed one lies": (
        UNSPECIFIED,
        source("s = x * 1.1\nreturn s >= 3.3, s", "torch.tensor([3.0, 5.0])"),
        OFF,
        "first_negated",
        "last_negated negated",
    ),
    **{
        f"on which side of a step of {step} a computed number lies": (
            UNSPECIFIED,
            source(f"y = x / 3\nreturn {step}, y", "torch.tensor([3.0, 7.0])"),
            OFF,
            "first_stepped",
            "first_off_by_one first_off_by_two last_wrong first_far_away",
        )
        for step in ("torch.floor(y)", "torch.trunc(y)", "y.to(torch.int32)", "y.long()")
    },
    "which of equal numbers comes first": (
        UNSPECIFIED,
        source("return torch.sort(x)", "torch.tensor([3., 1., 3., 2., 1., 3., 3., 1.])"),
        OFF,
        "last_of_equals",
        "out_of_range below_range index_twice lost_element swapped_ends",
    ),
}


@pytest.mark.parametrize("name", EXCUSES)
def test_a_label_excuses_what_is_right(name: str) -> None:
    label, text, fields, backend, _ = EXCUSES[name]
    record = run(text, f"planted:{backend}", **fields)
    assert passes(record) and record["labels"] == [label], (record["labels"], record["findings"])


@pytest.mark.parametrize("name, backend", [(name, word) for name in EXCUSES for word in EXCUSES[name][4].split()])
def test_a_label_excuses_nothing_larger(name: str, backend: str) -> None:
    _, text, fields, _, _ = EXCUSES[name]
    record = run(text, f"planted:{backend}", **fields)
    assert {"value", "nonfinite"} & set(oracles(record)), record["labels"]


def test_each_label_has_its_faults() -> None:
    """Those of explained differences are given by control, and ``tests/verdict/test_explained.py`` has their sizes."""
    labels = {value for value in vars(contract).values() if isinstance(value, str) and is_excuse(value)}
    assert labels - {contract.EXPLAINED} == {row[0] for row in EXCUSES.values()}


def test_two_runs_of_eager_vary_by_no_more_than_the_backend_may() -> None:
    """On a device that adds in another order each time, the tolerance holds between them too."""
    first = torch.linspace(1, 2, 50)
    for size, is_alike in ((1e-6, True), (1e-5, True), (4e-5, False), (1.0, False)):
        other = first.clone()
        other[7] += size
        agree = Agreement("cuda", None)
        assert (agree(first, other), agree.varied) == (is_alike, is_alike), size
        assert not Agreement("cpu", None)(first, other) and not Agreement("cuda", {"exact": True})(first, other)
    assert not is_excuse(VARIES)  # it says nothing about the backend
