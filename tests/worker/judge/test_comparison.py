"""``runner.compare``: the judge's comparison of results that somebody else has computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
import torch

import runner
from runner.contract.finding import Finding
from runner.worker.judge.evidence import Evidence
from runner.worker.judge.judge import CHECKS, check

X = torch.arange(1.0, 13.0).view(3, 4)


@dataclass
class Pair:
    left: Any
    right: Any


def changed(change: Callable[[torch.Tensor], object]) -> torch.Tensor:
    """A copy of ``X`` after a change in place."""
    copy = X.clone()
    change(copy)
    return copy


@pytest.mark.parametrize(
    ("eager", "compiled"),
    [
        (X, X.clone()),
        (X, X + 1e-6),
        ({"a": [X, 1, "text"]}, {"a": [X.clone(), 1, "text"]}),
        (Pair(X, None), Pair(X.clone(), None)),
        (torch.empty(0, 3), torch.empty(0, 3)),
        (torch.tensor(float("nan")), torch.tensor(float("nan"))),
        (2.5, 2.5),
    ],
)
def test_equal_results_are_true(eager: Any, compiled: Any) -> None:
    comparison = runner.compare(eager, compiled)
    assert comparison and not comparison.findings and "agree" in comparison.message


@pytest.mark.parametrize(
    ("compiled", "oracle"),
    [
        (changed(lambda copy: copy[1, 2].add_(1)), "value"),
        (changed(lambda copy: copy[1, 2].fill_(float("nan"))), "nonfinite"),
        (X[:2], "shape"),
        (X.double(), "dtype"),
        (X.t().contiguous().t(), "stride"),
        (X.clone().requires_grad_(), "requires-grad"),
        ([X], "structure"),
        (X.tolist(), "structure"),
    ],
)
def test_a_difference_has_its_oracle_and_is_false(compiled: Any, oracle: str) -> None:
    comparison = runner.compare(X, compiled)
    assert not comparison and [finding.oracle for finding in comparison.findings] == [oracle]
    assert f"output: {oracle}: " in comparison.message


def test_long_structures_are_told_from_where_they_part() -> None:
    eager = {f"part{number}": X for number in range(60)}
    (finding,) = runner.compare(eager, {**eager, "late": X}).findings
    assert finding.message.startswith("eager returns ...") and len(finding.message) < 300
    eager_text, _, compiled_text = finding.message.partition(", compiled ")
    assert "late" in compiled_text and "late" not in eager_text and "part59" in eager_text


def test_the_numbers_and_the_place_of_a_wrong_element() -> None:
    comparison = runner.compare({"x": (X, 1)}, {"x": (changed(lambda copy: copy[1, 2].add_(1)), 1)})
    (finding,) = comparison.findings
    assert finding.path == "output['x'][0]"
    assert comparison.numbers["worst_index"] == [1, 2] and comparison.numbers["abs_error"] == 1.0


@pytest.mark.parametrize(("eager", "compiled"), [([], []), (object(), object())])
def test_a_comparison_of_nothing_is_false(eager: object, compiled: object) -> None:
    comparison = runner.compare(eager, compiled)
    assert not comparison and not comparison.findings and comparison.message.startswith("nothing was compared")


def test_tolerances_exactness_and_oracles_to_ignore() -> None:
    near, strided = X + 1e-3, X.t().contiguous().t()
    assert not runner.compare(X, near) and runner.compare(X, near, rtol=0, atol=0.01)
    assert runner.compare(X, X + 1e-6) and not runner.compare(X, X + 1e-6, exact=True)
    assert runner.compare(X, strided, ignore=["stride"])
    with pytest.raises(ValueError, match="'strides' is no oracle"):
        runner.compare(X, strided, ignore=["strides"])


@pytest.mark.parametrize("bound", [float("nan"), -1e-3, float("inf"), "0.1"])
@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_a_tolerance_is_a_finite_number_of_at_least_0(name: str, bound: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}: .* is no tolerance"):
        runner.compare(X, X + 5, **{name: bound})


def test_a_text_is_no_list_of_oracles() -> None:
    with pytest.raises(TypeError, match=r"'stride' is a text; it takes a list of oracles"):
        runner.compare(X, X, ignore="stride")


@pytest.mark.parametrize("name", ["bits8", "bits16", "float4_e2m1fn_x2", "uint4", "int2"])
@pytest.mark.parametrize("exact", [False, True])
def test_bytes_that_torch_reads_no_numbers_from_are_compared(name: str, exact: bool) -> None:
    if not hasattr(torch, name):
        pytest.skip("this torch has no such dtype")
    first, second = (torch.tensor([1, 2, 3, last], dtype=torch.uint8).view(getattr(torch, name)) for last in (4, 5))
    assert runner.compare(first, first.view(torch.uint8).clone().view(first.dtype), exact=exact)
    (finding,) = runner.compare(first, second, exact=exact).findings
    assert finding.oracle == "value"


@pytest.mark.parametrize("wrap", [int, lambda value: {value}, Fraction])
def test_numbers_of_more_digits_than_python_prints_are_compared(wrap: Any) -> None:
    large = 10**5000
    assert runner.compare(wrap(large), wrap(large + 0))
    comparison = runner.compare(wrap(large), wrap(large + 1))
    assert [finding.oracle for finding in comparison.findings] == ["value"]
    json.dumps(comparison.numbers)


def test_a_float64_reference_decides_where_the_tolerance_does_not() -> None:
    far = X + 0.01
    assert not runner.compare(X, far) and not runner.compare(X, far, reference=X.double())
    comparison = runner.compare(X, far, reference=X.double() + 0.009)
    assert comparison and comparison.labels == ("nearer-to-float64",)


@pytest.mark.parametrize(
    ("reference", "message"),
    [([X.double()], "the reference is"), (X[:2].double(), "has shape"), (X.int(), "no wider form of torch.float32")],
)
def test_a_reference_has_the_containers_and_shapes_of_eager(reference: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        runner.compare(X, X, reference=reference)


@pytest.fixture
def oracle_of_a_plugin() -> Iterator[str]:
    @check("package.even")
    def even(evidence: Evidence) -> Iterator[Finding]:
        for _, _, record in evidence.pairs():
            if any(leaf.value.numel() % 2 == 0 for leaf in record.outputs.leaves):
                yield Finding("package.even", "even", "output")

    yield "package.even"
    del CHECKS[even]


def test_it_is_the_judge_that_compares(oracle_of_a_plugin: str) -> None:
    assert [finding.oracle for finding in runner.compare(X, X).findings] == [oracle_of_a_plugin]
    assert runner.compare(X, X, ignore=[oracle_of_a_plugin])
