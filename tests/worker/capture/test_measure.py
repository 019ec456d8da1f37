"""Statistics of tensors, and which of them decide."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from runner.worker.capture.measure import SAMPLED, deciding_values, fault_of, statistics  # noqa: E402


def test_a_large_tensor_is_sampled_evenly() -> None:
    values = torch.arange(8.0 * SAMPLED)
    measured = statistics(values)
    assert measured is not None and measured.mean == pytest.approx(4 * SAMPLED, rel=1e-3)
    assert measured.deviation == pytest.approx(float(values.std()), rel=1e-3)


def test_infinities_are_left_out_and_said() -> None:
    measured = statistics(torch.tensor([1.0, float("-inf"), 3.0, float("nan"), 0.0]))
    assert measured is not None and (measured.least, measured.largest, measured.finite) == (0.0, 3.0, False)
    assert measured.zeros == pytest.approx(1 / 3)
    assert statistics(torch.empty(0)) is None and statistics(torch.ones(2, device="meta")) is None


@pytest.mark.parametrize(
    ("values", "is_ascending"),
    [
        (torch.tensor([0, 3, 3, 9]), True), (torch.tensor([[0, 3], [1, 2]], dtype=torch.int32), True),
        (torch.tensor([0, 3, 2]), False), (torch.tensor([4]), False), (torch.tensor(4), False),
        (torch.linspace(-1, 1, 9), True), (torch.linspace(-1, 1, 9).to(torch.float8_e5m2), True),
        (torch.tensor([0.0, 1.0]), False), (torch.linspace(1, -1, 9), False), (torch.arange(8.0 * SAMPLED), True),
        (torch.arange(9).to(torch.uint16), True), (torch.full((9,), float("nan")), False),
    ],
)  # fmt: skip
def test_ascending_order_is_measured(values: torch.Tensor, is_ascending: bool) -> None:
    measured = statistics(values)
    assert measured is not None and measured.ascending == is_ascending


@pytest.mark.parametrize(
    ("values", "role", "is_kept"),
    [
        (torch.tensor([0, 1, 2, 3]), "input", True), (torch.tensor([3, 0, 2]), "input", False), (torch.tensor(7), "input", True),
        (torch.tensor([True, False]), "input", True), (torch.randn(4), "input", False), (torch.randn(4), "buffer", True),
        (torch.randn(4), "parameter", False), (torch.tensor([0.0, float("-inf")]), "input", True),
        (torch.tensor([0.0, -3e38]), "input", True), (torch.ones(5000, dtype=torch.bool), "input", False),
    ],
)  # fmt: skip
def test_values_that_decide_are_kept(values: torch.Tensor, role: Any, is_kept: bool) -> None:
    assert (deciding_values(values, statistics(values), role) is not None) == is_kept


def test_what_no_case_makes_has_a_reason() -> None:
    assert fault_of(torch.ones(2, 2).to_sparse()) and fault_of(torch.ones(2, dtype=torch.complex64).conj())
    assert not fault_of(torch.nn.Parameter(torch.ones(2)))
    reasons = []
    torch.vmap(lambda x: reasons.append(fault_of(x)) or x)(torch.ones(2, 3))
    assert reasons == ["it belongs to a transform of functions"]
